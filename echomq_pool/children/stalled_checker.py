# SPDX-License-Identifier: MIT
"""Recovers what other pools lost: per queue a sweep in two phases, mark and recover, each stalled_interval.

On the lease plane a lapsed lease needs no mark, and there is more to be done for all workers (`maintenance.py`).

Our own workers' jobs must never be taken by it (law 2), so a sweep runs only while the LockManager's passes
are on time: the last one began after our link was made, and so recently that no lease it covered can have
lapsed since. While that is not so the sweep waits; the leases of living workers are renewed first.
"""

from __future__ import annotations

import asyncio
import logging

from echomq_pool.children.base import Child
from echomq_pool.children.lease_due import DueEar
from echomq_pool.children.leases import Ticks
from echomq_pool.children.lock_manager import tick_per_queue
from echomq_pool.children.maintenance import Maintenance
from echomq_pool.children.pause import pause
from echomq_pool.children.queue_links import QueueLinks
from echomq_pool.errors import LinkDown, PoolError
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Message, Quiet, Ready, Resume, Stats, Stop
from echomq_pool.metrics import Metrics
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.redisio.scripts import load_library
from echomq_pool.redisio.state import LinkState

log = logging.getLogger("echomq.stalled_checker")

WAIT_MS = (20, 50, 100, 250, 500)  # between looks at the board while no pass is seen
PROMPT_MS = 500  # a server that takes longer for a PING is not swept now
GUARD_MS = 2  # a sweep that comes before the guard key of the last one has lapsed does nothing at all
SHOWN = 20  # job ids named in a log line


class StalledChecker(Child):
    """One timer over the sweeps of all queues."""

    def __init__(self, context: ChildContext) -> None:
        super().__init__(context)
        self.metrics = Metrics()
        self.wake = asyncio.Event()
        self.stopping = False
        self.quiet = False
        self.connected_ms: dict[str, int] = {}  # when each queue's link was made; absent = it is down
        self.opened: set[str] = set()
        self.looks = 0  # at the board in vain
        self.window_ms = safe_window_ms(context)

    async def setup(self) -> Ready:
        self.links = QueueLinks(self.config, "stalled_checker", self.clock, load_library(), self._link_state)
        self.planes = self.links.planes
        leases = {queue: plane for queue, plane in self.planes.items() if isinstance(plane, LeasePlane)}
        self.maintenance = Maintenance(
            leases, self.links, self.clock, self.metrics, self._may_sweep, self._hears, self._tell
        )
        self.ear = (
            DueEar(self.config, leases, "stalled_checker", ["due"], self.maintenance.heard)
            if leases
            else None
        )
        self.beat = asyncio.create_task(self.maintenance.run(), name="maintenance") if leases else None
        intervals = {
            queue: plane.options.stalled_interval_ms
            for queue, plane in self.planes.items()
            if queue not in leases
        }
        self.ticks = Ticks(intervals, self.clock.mono_ms())
        for queue in intervals:
            self.ticks.bring_forward(queue, self.clock.mono_ms())  # one sweep at the start
        await self.links.start()
        if self.ear is not None:
            await self.ear.start()
        return Ready(info=f"{len(self.planes)} queues")

    async def run(self) -> None:
        while not self.stopping:
            await self._sleep_until(None if self.quiet else self.ticks.next_ms())
            if self.quiet:
                continue
            due = [queue for queue, _ in self.ticks.take(self.clock.mono_ms())]
            if due and not any(self.safe(queue) for queue in due):
                self.looks += 1
            for queue in due:
                if self.safe(queue) and not self.stopping:
                    self.looks = 0
                    await self._sweep(queue)
                else:
                    self._postpone(queue)
            self._tell()

    def on_message(self, message: Message) -> None:
        if isinstance(message, Quiet | Resume):
            self.maintenance.quiet(isinstance(message, Quiet))
        if isinstance(message, Quiet):
            self.quiet = True
        elif isinstance(message, Resume):
            self.quiet = False
            self.wake.set()

    async def stop(self, stop: Stop) -> Bye:
        self.stopping = True
        self.wake.set()
        self._tell()
        if self.beat is not None:
            self.beat.cancel()
        if self.ear is not None:
            await self.ear.close()
        await self.links.close()
        return Bye("shutdown")

    async def probe(self, queue: str) -> list[str]:
        """Stalled candidates of one queue: ids in `active` without a lock. Touches nothing."""
        return await self.planes[queue].probe()

    def safe(self, queue: str) -> bool:
        """Whether no lease of this pool can have lapsed without its LockManager having had its say."""
        last = self.board.pass_ms()
        fresh = self.clock.mono_ms() - last < self.window_ms
        return queue in self.connected_ms and last > self.connected_ms[queue] and fresh

    def _postpone(self, queue: str) -> None:
        pause = WAIT_MS[min(self.looks, len(WAIT_MS) - 1)]
        self.ticks.bring_forward(queue, self.clock.mono_ms() + pause)

    def _hears(self) -> bool:
        return self.ear is not None and self.ear.hears

    async def _may_sweep(self, queue: str) -> bool:
        """Asks the server for a sign of life first: one that froze would run the sweep at its thaw, when all leases
        have lapsed.
        """
        if not self.safe(queue):
            return False
        await self.links.of(queue).call("PING", timeout_ms=PROMPT_MS)
        return self.safe(queue)

    async def _sweep(self, queue: str) -> None:
        """One pass over one queue. Its errors are loud, counted, and over at the next one (case C031)."""
        plane = self.planes[queue]
        started = self.clock.mono_ms()
        try:
            if not await self._may_sweep(queue):
                self._postpone(queue)
                return
            if queue not in self.opened:
                await plane.open()
                self.opened.add(queue)
            ids = await plane.sweep()
            self.ticks.restart(queue, self.clock.mono_ms() + GUARD_MS)
        except LinkDown as error:
            log.warning("sweep of queue %s: %s", queue, error)
            self.metrics.count("sweep_errors")
        except PoolError as error:
            log.error("sweep of queue %s failed: %s", queue, error)
            self.metrics.count("sweep_errors")
        except Exception:
            log.exception("sweep of queue %s broke", queue)
            self.metrics.count("sweep_errors")
        else:
            self.metrics.count("sweeps")
            self.metrics.observe("sweep", (self.clock.mono_ms() - started) / 1000)
            self._found(queue, ids)

    def _found(self, queue: str, ids: list[str]) -> None:
        if ids:
            self.metrics.count("stalled_jobs", len(ids))
            shown = ", ".join(ids[:SHOWN]) + (" …" if len(ids) > SHOWN else "")
            log.warning("queue %s: %d stalled jobs are waiting again: %s", queue, len(ids), shown)

    async def _sleep_until(self, until_ms: int | None) -> None:
        timeout = None if until_ms is None else max(0, until_ms - self.clock.mono_ms()) / 1000
        await pause(self.wake, timeout)

    def _tell(self) -> None:
        if self.metrics.changed:
            self.send(Stats(*self.metrics.snapshot()))

    def _link_state(self, queues: list[str], state: LinkState) -> None:
        self.send(self.links.linked())
        for queue in queues:
            if not state.connected:
                self.connected_ms.pop(queue, None)
            else:
                self.connected_ms.setdefault(queue, self.clock.mono_ms())
            self.maintenance.linked(queue, state.connected)


def safe_window_ms(context: ChildContext) -> int:
    """How old the LockManager's last pass may be: no lease that was fresh then lapses within this time.

    A pass in time vouches for stamps at most two ticks old, in every queue.
    """
    ticks = tick_per_queue(context.config)
    windows = [
        max(workers.lock_duration_ms - 2 * ticks[queue], ticks[queue] // 2)
        for workers in context.config.workers
        for queue in workers.queues
    ]
    return min(windows, default=30_000)
