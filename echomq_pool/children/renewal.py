# SPDX-License-Identifier: MIT
"""Renews leases: one call per queue and tick, then whatever must follow for those it could not renew.

A failed id is not a lost lease yet: the lock may have lapsed in an outage, and then it is set again if the
job is still in `active` with the same `ats`. What is refused is lost, and its worker is told at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from echomq_pool.children.leases import NEVER, Lease, LeaseBook, Ticks, batches, stamp
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkError
from echomq_pool.ipc.board import Board
from echomq_pool.metrics import Metrics
from echomq_pool.plane.base import HeldRow, Plane

log = logging.getLogger("echomq.renewal")


class Renewal:
    """The passes over all queues. At most one runs per queue; what is asked meanwhile follows it."""

    def __init__(
        self,
        book: LeaseBook,
        ticks: Ticks,
        planes: Mapping[str, Plane],
        board: Board,
        clock: Clock,
        metrics: Metrics,
        on_lost: Callable[[Sequence[Lease]], None],
    ) -> None:
        self._book = book
        self._ticks = ticks
        self._planes = planes
        self._board = board
        self._clock = clock
        self._metrics = metrics
        self._on_lost = on_lost
        self._index = {queue: index for index, queue in enumerate(planes)}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, tuple[int, bool]] = {}
        self.good_at = dict.fromkeys(planes, NEVER)  # per queue: its last pass without a failure

    def forget_passes(self, queues: Iterable[str]) -> None:
        """Their link is new: only passes from now on prove anything."""
        self.good_at.update(dict.fromkeys(queues, NEVER))

    def tick(self, queue: str, at_ms: int) -> None:
        """Renews what is a tick old at `at_ms`."""
        self._start(queue, at_ms, everything=False)

    def everything(self, queue: str, at_ms: int) -> None:
        """Renews all leases of the queue now, young ones too, and starts its ticks anew."""
        self._ticks.restart(queue, at_ms)
        self._start(queue, at_ms, everything=True)

    def cancel(self) -> None:
        self._again.clear()
        for task in self._running.values():
            task.cancel()

    def _start(self, queue: str, at_ms: int, everything: bool) -> None:
        if queue in self._running:
            self._again[queue] = (at_ms, everything or self._again.get(queue, (0, False))[1])
            return
        task = asyncio.get_running_loop().create_task(
            self._pass(queue, at_ms, everything), name=f"renew {queue}"
        )
        self._running[queue] = task
        task.add_done_callback(lambda _: self._finished(queue))

    def _finished(self, queue: str) -> None:
        task = self._running.pop(queue)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("renewal of queue %s broke", queue, exc_info=error)
            self._metrics.count("renewal_errors")
        if queue in self._again:
            self._start(queue, *self._again.pop(queue))

    async def _pass(self, queue: str, at_ms: int, everything: bool) -> None:
        tick = self._ticks.tick_ms[queue]
        leases = self._book.due(queue, at_ms, 0 if everything else tick)
        for batch in batches(leases):
            # One after the other: the recovery of a dead worker need not queue behind all of them.
            if not await self._renew(queue, batch, at_ms):
                return
        for worker_id in {lease.worker_id for lease in leases}:
            self._publish(worker_id, queue, at_ms, tick)
        self.good_at[queue] = at_ms
        self._mark_pass(at_ms)

    async def _renew(self, queue: str, leases: list[Lease], at_ms: int) -> bool:
        """One call. False when the server could not be asked; the leases then stay due."""
        sent = self._clock.mono_ms()
        try:
            failed = set(
                await self._planes[queue].extend([(lease.job.id, lease.job.token) for lease in leases])
            )
            self._metrics.observe("renewal", (self._clock.mono_ms() - sent) / 1000)
            self._metrics.count("renewal_calls")
            self._metrics.count("leases_renewed", len(leases) - len(failed))
            stamp((lease for lease in leases if lease.job.id not in failed), at_ms)
            # A job that was settled while the call was under way fails here and is no longer in the book.
            missing = [lease for lease in leases if lease.job.id in failed and self._book.has(lease)]
            if missing:
                await self._reacquire(queue, missing, at_ms)
        except LinkError as error:
            log.warning("%d leases of queue %s could not be renewed: %s", len(leases), queue, error)
            self._metrics.count("renewal_errors")
            return False
        return True

    async def _reacquire(self, queue: str, leases: list[Lease], at_ms: int) -> None:
        rows = [HeldRow(lease.job.id, lease.job.token, lease.job.ats) for lease in leases]
        refused = set(await self._planes[queue].reacquire(rows))
        again = [lease for lease in leases if lease.job.id not in refused]
        if again:
            stamp(again, at_ms)
            self._metrics.count("leases_reacquired", len(again))
            log.warning("%d lapsed leases of queue %s were acquired again", len(again), queue)
        lost = [lease for lease in leases if lease.job.id in refused and self._book.has(lease)]
        for lease in lost:
            self._book.remove(lease)
        if lost:
            self._on_lost(lost)

    def _publish(self, worker_id: str, queue: str, at_ms: int, tick_ms: int) -> None:
        """Moves the board's word for one worker and queue, if it is true of every lease that we know."""
        holder = self._book.holders.get(worker_id)
        if holder is None or holder.slot is None or not self._book.covered(worker_id, queue, at_ms, tick_ms):
            return
        if not self.hears(worker_id):
            return
        self._board.set_renewed(holder.slot, self._index[queue], at_ms)

    def hears(self, worker_id: str) -> bool:
        """Whether we may believe to know all that a worker holds.

        Not if it runs more jobs than it told us of and has been silent for a tick: then its words do not
        reach us (a stuck supervisor), or it has not yet told a new LockManager. A short difference is only
        a record on its way.
        """
        holder = self._book.holders.get(worker_id)
        if holder is None or holder.slot is None:
            return True
        silent_ms = self._clock.mono_ms() - holder.heard_ms
        told = holder.running() if self._book.was_heard(worker_id) else 0  # what the server said is not all
        short = self._board.busy(holder.slot) > told
        return not (short and silent_ms >= min(self._ticks.tick_ms.values(), default=0))

    def _mark_pass(self, at_ms: int) -> None:
        """Says on the board that no lease of the pool is overdue, if it is so for all queues and workers."""
        on_time = all(good + self._ticks.tick_ms[queue] >= at_ms for queue, good in self.good_at.items())
        if on_time and all(self.hears(worker_id) for worker_id in self._book.holders):
            self._board.set_pass(at_ms)
