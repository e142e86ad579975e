# SPDX-License-Identifier: MIT
"""Maintenance of the lease-plane queues, for all workers of the pool: lapsed leases, due jobs, signals of flows.

One beat looks at every queue (one read-only call each, all in one write) and acts only where there is something to
do. A scheduled job that is due before the next beat is promoted at its time, not at the beat.

After an outage, or when the server froze, every lease may have lapsed at once. Those of our own workers are safe by
`may_sweep`; other pools get the time of one lease to renew theirs before anything is called lapsed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from echomq_pool.children.queue_links import QueueLinks
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkDown, PoolError
from echomq_pool.metrics import Metrics
from echomq_pool.plane.lease import LeasePlane, Look

log = logging.getLogger("echomq.stalled_checker")

BEAT_MS = 1_000
LEAST_PAUSE_MS = 5
PROMPT_MS = 500  # a look that takes longer was waited for by every renewal, too
SHOWN = 20


class Maintenance:
    """The beat over all lease-plane queues.

    Args:
        planes: the queues.
        may_sweep: asked before lapsed leases are touched: whether the leases of our own workers are surely fresh.
        tell: called once per beat, when there may be numbers to be told.
    """

    def __init__(
        self,
        planes: Mapping[str, LeasePlane],
        links: QueueLinks,
        clock: Clock,
        metrics: Metrics,
        may_sweep: Callable[[str], Awaitable[bool]],
        tell: Callable[[], None],
    ) -> None:
        self._planes = planes
        self._links = links
        self._clock = clock
        self._metrics = metrics
        self._may_sweep = may_sweep
        self._tell = tell
        self._told_ms = 0
        self._opened: set[str] = set()
        self._grace: dict[str, int] = {}  # until when nothing of a queue counts as lapsed
        self._troubled: dict[str, str] = {}
        self._open = asyncio.Event()
        self._open.set()

    def quiet(self, quiet: bool) -> None:
        """Stops or resumes the beat."""
        if quiet:
            self._open.clear()
        else:
            self._open.set()

    async def run(self) -> None:
        """Beats until it is cancelled."""
        while True:
            await self._open.wait()
            started = self._clock.mono_ms()
            pauses = await asyncio.gather(*(self._queue(queue) for queue in self._planes))
            spent = self._clock.mono_ms() - started
            if self._metrics.changed and started - self._told_ms >= BEAT_MS:
                self._told_ms = started
                self._tell()
            await asyncio.sleep(max(LEAST_PAUSE_MS, min(pauses) - spent) / 1000)

    async def _queue(self, queue: str) -> int:
        """One beat of one queue; its errors are its own. Returns ms until it wants to be looked at again."""
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
            if self._clock.mono_ms() - asked > PROMPT_MS:
                self._outage(queue, plane)
            await self._act(queue, plane, look)
        except LinkDown as error:
            log.debug("maintenance of queue %s: %s", queue, error)
            self._outage(queue, plane)
            return BEAT_MS
        except PoolError as error:
            self._trouble(queue, str(error))
            return BEAT_MS
        self._troubled.pop(queue, None)
        return BEAT_MS if not look.due_ms else max(LEAST_PAUSE_MS, min(BEAT_MS, look.due_ms - look.now_ms))

    async def _act(self, queue: str, plane: LeasePlane, look: Look) -> None:
        lapsed = 0 < look.deadline_ms <= look.now_ms and self._clock.mono_ms() >= self._grace.get(queue, 0)
        if lapsed and await self._may_sweep(queue):
            self._found(queue, *await plane.recover_lapsed())
        if 0 < look.due_ms <= look.now_ms:
            self._metrics.count(f"promoted|{queue}", await plane.promote_due())
            # There may be more, and the next one's time is not known.
            look.due_ms = look.now_ms
        if look.signals:
            await plane.flows.deliver()

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
