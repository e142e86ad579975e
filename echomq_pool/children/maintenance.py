# SPDX-License-Identifier: MIT
"""Maintenance of the lease-plane queues, for all workers of the pool: lapsed leases, due jobs, signals of flows.

A look at a queue is one read-only call; it tells whether there is something to do now, and when there will be: the
next due job, the next deadline of a lease. The next look is then. What is scheduled meanwhile and due earlier is heard
(`lease_due.py`); while nothing can be heard, every queue is looked at once per beat.

After an outage, or when the server froze, every lease may have lapsed at once. Those of our own workers are safe by
`may_sweep`; other pools get the time of one lease to renew theirs before anything is called lapsed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from echomq_pool.children.lease_due import BEAT_MS, IDLE_BEAT_MS, LEAST_PAUSE_MS, Agenda
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkDown, PoolError
from echomq_pool.metrics import Metrics
from echomq_pool.plane.lease import LeasePlane, Look

log = logging.getLogger("echomq.stalled_checker")

PROMPT_MS = 500  # a look that takes longer was waited for by every renewal, too
SHOWN = 20


class Connections(Protocol):
    """Whether the server of a queue can be asked now."""

    def connected(self, queue: str) -> bool: ...


class Maintenance:
    """The looks at all lease-plane queues.

    Args:
        planes: the queues.
        may_sweep: asked before lapsed leases are touched: whether the leases of our own workers are surely fresh.
        hears: whether what is due sooner than known is heard (`heard`).
        tell: called once per beat, when there may be numbers to be told.
    """

    def __init__(
        self,
        planes: Mapping[str, LeasePlane],
        links: Connections,
        clock: Clock,
        metrics: Metrics,
        may_sweep: Callable[[str], Awaitable[bool]],
        hears: Callable[[], bool],
        tell: Callable[[], None],
    ) -> None:
        self._planes = planes
        self._links = links
        self._clock = clock
        self._metrics = metrics
        self._may_sweep = may_sweep
        self._hears = hears
        self._tell = tell
        self._agenda = Agenda(planes, clock)
        self._seen: dict[str, tuple[int, int]] = {}  # the server's time at the last look, and ours
        self._told_ms = 0
        self._opened: set[str] = set()
        self._grace: dict[str, int] = {}  # until when nothing of a queue counts as lapsed
        self._troubled: dict[str, str] = {}
        self._open = asyncio.Event()
        self._open.set()

    def quiet(self, quiet: bool) -> None:
        """Stops or resumes the looks."""
        if quiet:
            self._open.clear()
        else:
            self._open.set()
            self._agenda.put_all()

    def linked(self, queue: str, connected: bool) -> None:
        """Told when the link of a queue is made or lost."""
        plane = self._planes.get(queue)
        if plane is None:
            return
        if connected:
            self._agenda.put(queue, 0)
        else:
            self._outage(queue, plane)

    def heard(self, queue: str, at_ms: int) -> None:
        """Something of a queue is due at `at_ms` on the server's clock, 0 = now."""
        server_ms, mono_ms = self._seen.get(queue, (at_ms, 0))
        self._agenda.put(queue, mono_ms + max(LEAST_PAUSE_MS, at_ms - server_ms))

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await self._open.wait()
            await asyncio.gather(*(self._look(queue) for queue in self._agenda.take()))
            now = self._clock.mono_ms()
            if not self._metrics.changed:
                await self._agenda.sleep()
            elif now - self._told_ms >= BEAT_MS:
                self._told_ms = now
                self._tell()
            else:
                await self._agenda.sleep(self._told_ms + BEAT_MS - now)

    async def _look(self, queue: str) -> None:
        pause = await self._queue(queue)
        self._agenda.put(queue, self._clock.mono_ms() + pause)

    async def _queue(self, queue: str) -> int:
        """One look at one queue; its errors are its own. Returns ms until it wants to be looked at again."""
        plane = self._planes[queue]
        if not self._links.connected(queue):
            self._outage(queue, plane)
            return BEAT_MS
        asked = self._clock.mono_ms()
        try:
            if queue not in self._opened:
                await plane.open()
                self._opened.add(queue)
            look = await plane.look()
            self._seen[queue] = look.now_ms, self._clock.mono_ms()
            if self._clock.mono_ms() - asked > PROMPT_MS:
                self._outage(queue, plane)
            acted = await self._act(queue, plane, look)
        except LinkDown as error:
            log.debug("maintenance of queue %s: %s", queue, error)
            self._outage(queue, plane)
            return BEAT_MS
        except PoolError as error:
            self._trouble(queue, str(error))
            return BEAT_MS
        self._troubled.pop(queue, None)
        return LEAST_PAUSE_MS if acted else self._pause(plane, look)

    def _pause(self, plane: LeasePlane, look: Look) -> int:
        """Until the next due job or deadline; a beat at most, or an idle one when all that is due earlier is heard.

        A deadline that is past and was left alone (not safe, or in the time of grace) is looked at by the beat.
        """
        if 0 < look.deadline_ms <= look.now_ms or not self._hears():
            longest = BEAT_MS
        else:
            # A look that falls into an outage of the server is how that is noticed: none may lapse in between.
            longest = max(BEAT_MS, min(IDLE_BEAT_MS, plane.options.lock_duration_ms // 3))
        moments = [at - look.now_ms for at in (look.due_ms, look.deadline_ms) if at > look.now_ms]
        return max(LEAST_PAUSE_MS, min([longest, *moments]))

    async def _act(self, queue: str, plane: LeasePlane, look: Look) -> bool:
        """Whether anything was done: there may be more then, and the next times are not known."""
        lapsed = 0 < look.deadline_ms <= look.now_ms and self._clock.mono_ms() >= self._grace.get(queue, 0)
        acted = False
        if lapsed and await self._may_sweep(queue):
            recovered, dead = await plane.recover_lapsed()
            self._found(queue, recovered, dead)
            acted = bool(recovered or dead)
        if 0 < look.due_ms <= look.now_ms:
            promoted = await plane.promote_due()
            self._metrics.count(f"promoted|{queue}", promoted)
            acted = acted or promoted > 0
        if look.signals:
            acted = await plane.flows.deliver() > 0 or acted
        return acted

    def _outage(self, queue: str, plane: LeasePlane) -> None:
        if queue in self._opened:  # not at our own start
            self._grace[queue] = self._clock.mono_ms() + plane.options.lock_duration_ms

    def _found(self, queue: str, recovered: int, dead: list[str]) -> None:
        if recovered or dead:
            self._metrics.count("stalled_jobs", recovered + len(dead))
            log.warning("queue %s: %d lapsed leases, their jobs are pending again", queue, recovered)
        if dead:
            shown = ", ".join(dead[:SHOWN]) + (" …" if len(dead) > SHOWN else "")
            log.error("queue %s: %d jobs lapsed too often and are dead: %s", queue, len(dead), shown)

    def _trouble(self, queue: str, text: str) -> None:
        """Said once, not at every beat."""
        self._metrics.count("sweep_errors")
        if self._troubled.get(queue) != text:
            log.error("maintenance of queue %s: %s", queue, text)
        self._troubled[queue] = text
