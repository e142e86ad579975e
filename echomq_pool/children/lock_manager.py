# SPDX-License-Identifier: MIT
"""Keeps every lease of the pool alive, in a process that runs no user code; undertaker of dead workers.

    workers ── Held, Settled ──▶ book of leases ──▶ renewal (one timer, one call per queue and tick)
            ── Guards ─────────▶ users' own leases, likewise (guards.py)
    supervisor ── Up, Down ────▶ pidfds, undertaker ──▶ Recovered
    refused leases ──▶ Lost, to their worker       cancelled jobs still held after 1 s ──▶ Expired

Renewal goes on through quiet and drain, until this process is stopped, after all workers. It never asks
whether a worker looks busy: a lease lives as long as its process (law 1), and the supervisor says when that
has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from echomq_pool.children.adoption import Adoption
from echomq_pool.children.base import EXIT_ORPHANED, Child
from echomq_pool.children.guard_link import GuardLink
from echomq_pool.children.guards import GuardRenewal
from echomq_pool.children.leases import Key, Lease, LeaseBook, Ticks, early
from echomq_pool.children.orphans import Pidfds
from echomq_pool.children.pause import pause
from echomq_pool.children.queue_links import QueueLinks, groups_of
from echomq_pool.children.renewal import Renewal
from echomq_pool.children.undertaker import Undertaker
from echomq_pool.config.schema import PoolConfig, WorkersConfig
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import (
    Bye,
    Cancel,
    Down,
    Expired,
    Guards,
    Held,
    Lost,
    Message,
    Ready,
    Recovered,
    Settled,
    Stats,
    Stop,
    Up,
)
from echomq_pool.metrics import Metrics
from echomq_pool.plane.guard import GuardKeys
from echomq_pool.redisio.scripts import load_library
from echomq_pool.redisio.state import LinkState

log = logging.getLogger("echomq.lock_manager")

CANCEL_GRACE_S = 1.25  # for a worker to stop a cancelled job itself, or to say within 1 s that it cannot
ALARM_GRACE_S = 1.0  # for the word that a job was settled, before a refused renewal counts as a lost lease
TELL_AFTER_MS = 1_000  # at most so often are numbers sent
RECHECK_MS = (
    500  # while the supervisor's beat is stale: a machine that only slept is not deaf for a whole tick
)
ORPHANS_S = 0.5  # the workers have PDEATHSIG; whoever is still there after this is killed
LAST_RITES_S = 1.5  # to give back what they held


class LockManager(Child):
    """One timer over all leases of all workers."""

    def __init__(self, context: ChildContext) -> None:
        super().__init__(context)
        self.book = LeaseBook()
        self.metrics = Metrics()
        self.ticks = Ticks(tick_per_queue(self.config), self.clock.mono_ms())
        self.pidfds = Pidfds(context.parent_pid)
        self.wake = asyncio.Event()
        self.stopping = False
        self.linked: set[str] = set()  # queues whose link is up
        self.urgent: set[str] = set()  # queues with leases that must not wait for their tick
        self.suspects: dict[Key, Lease] = {}  # refused a moment ago, perhaps because they were just settled
        self.told_ms = 0
        self.workers: dict[str, Up] = {}  # those that live
        self.index = {queue: index for index, queue in enumerate(self.config.queues())}

    async def setup(self) -> Ready:
        library = load_library()
        self.links = QueueLinks(self.config, "lock_manager", self.clock, library, self._link_state)
        self.planes = self.links.planes
        self.renewal = Renewal(
            self.book, self.ticks, self.planes, self.board, self.clock, self.metrics, self._lost
        )
        self.adoption = Adoption(self.book, self.planes, self.workers, self.clock, self._urgent)
        self.undertaker = Undertaker(self.links, self.planes, self.clock, self.metrics, self._recovered)
        keys = GuardKeys(self.config.prefix)
        link = GuardLink(self.links.links, self.config.redis, keys, library, self.clock)
        self.guards = GuardRenewal(
            keys, link, self.board, self.clock,
            hears=lambda: self._hears_supervisor(self.clock.mono_ms()),
            send=lambda message, slot: self.send(message, slot=slot),
        )  # fmt: skip
        await self.links.start()
        return Ready(info=f"{len(self.planes)} queues")

    async def run(self) -> None:
        while not self.stopping:
            await self._sleep()
            now = self.clock.mono_ms()
            self._renew(now)
            self._tell(now)

    def on_message(self, message: Message) -> None:
        match message:
            case Held():
                self._held(message)
            case Settled():
                self._settled(message)
            case Guards():
                if not self.undertaker.knows(message.worker_id):
                    self.guards.told(message)
            case Up():
                self.workers[message.worker_id] = message
                self.book.up(message.worker_id, message.slot)
                self.guards.up(message.worker_id, message.slot)
                self.pidfds.add(message.worker_id, message.pid)
            case Down():
                self.workers.pop(message.worker_id, None)
                self.pidfds.remove(message.worker_id)
                self.guards.down(message.worker_id)
                self.undertaker.bury(message, self.book.down(message.worker_id))
            case Cancel():
                asyncio.get_running_loop().call_later(
                    CANCEL_GRACE_S, self._insist, message, self.clock.mono_ms()
                )

    async def stop(self, stop: Stop) -> Bye:
        """Funerals are finished first, within the deadline; renewal goes on meanwhile."""
        left_s = max(0.0, (stop.deadline_ms - self.clock.mono_ms()) / 1000)
        try:
            await asyncio.wait_for(self._funerals(), left_s)
        except TimeoutError:
            log.warning("stopped before every dead worker's jobs were given back")
        self._end()
        await self.guards.close()
        await self.links.close()
        self.told_ms = 0
        self._tell(self.clock.mono_ms())
        return Bye("shutdown")

    async def on_orphaned(self) -> int:
        """The supervisor is dead, so the pool is: every worker's end is made sure of, then its jobs go back.

        Nobody is blamed: it was the pool that ended, not a job that killed its process.
        """
        await asyncio.gather(*(self._bury_orphan(up) for up in list(self.workers.values())))
        try:
            await asyncio.wait_for(self._funerals(), LAST_RITES_S)
        except TimeoutError:
            log.error("the server was not reached in time; the stalled sweep must recover the jobs")
        self._end()
        return EXIT_ORPHANED

    def beat_ms(self) -> int:
        """Often enough for the supervisor to miss a stuck LockManager while every lease still lives."""
        shortest = min((w.lock_duration_ms for w in self.config.workers), default=30_000)
        return max(20, min(super().beat_ms(), shortest // 16))

    # --- renewal ---------------------------------------------------------------------------------------

    async def _sleep(self) -> None:
        """Until the next tick, or until something cannot wait for it. The one timer of all leases."""
        next_ms = self.ticks.next_ms()
        timeout = None if next_ms is None else max(0, next_ms - self.clock.mono_ms()) / 1000
        await pause(self.wake, timeout)

    def _renew(self, now: int) -> None:
        hears = self._hears_supervisor(now)
        for queue in [queue for queue in self.urgent if hears and self.links.connected(queue)]:
            self.urgent.discard(queue)
            self.renewal.everything(queue, now)
        for queue, at_ms in self.ticks.take(now):
            if hears and self.links.connected(queue):
                self.renewal.tick(queue, at_ms)
                self._ask_for_the_silent(queue)
            else:
                # The workers see on the board that nothing was renewed, and look after themselves.
                self.metrics.count("renewals_skipped")
            if not hears:
                self.ticks.bring_forward(queue, now + RECHECK_MS)

    def _ask_for_the_silent(self, queue: str) -> None:
        """A worker that runs jobs and has never said which: its loop was blocked when we came."""
        for worker in self.workers.values():
            unheard = not self.book.was_heard(worker.worker_id)
            if unheard and queue in worker.queues and not self.renewal.hears(worker.worker_id):
                self.adoption.look(worker, queue)

    def _urgent(self, queue: str) -> None:
        self.urgent.add(queue)
        self.wake.set()

    def _hears_supervisor(self, now: int) -> bool:
        """False once the hub has been silent for hang_timeout: Settled and Down would not reach us either."""
        beat = self.board.beat_ms(0)
        return not beat or now - beat < self.config.supervisor.hang_timeout_ms

    def _settled(self, settled: Settled) -> None:
        if self.suspects:
            for queue, job_id, token in settled.jobs:
                self.suspects.pop((queue, job_id, token), None)
        if not self.undertaker.knows(settled.worker_id):
            self.book.settle(settled, self.clock.mono_ms())

    def _held(self, held: Held) -> None:
        if held.settled:
            self._settled(Settled(held.worker_id, held.settled))
        if self.undertaker.knows(held.worker_id):
            return
        new = self.book.hold(held, self.clock.mono_ms())
        if not new:
            return
        oldest_ms = min(lease.job.taken_ms for lease in new)  # asked once per record, not for each lease
        for queue in {lease.job.queue for lease in new}:
            if queue in self.planes and (held.full or self._is_late(held.worker_id, queue, oldest_ms)):
                self._urgent(queue)

    def _is_late(self, worker_id: str, queue: str, taken_ms: int) -> bool:
        """Told so late that its worker already takes the board's word to be about this lease too."""
        holder = self.book.holders[worker_id]
        if holder.slot is None:
            return False
        word = self.board.renewed_ms(holder.slot, self.index[queue])
        return taken_ms + self.ticks.tick_ms[queue] <= word

    def _link_state(self, queues: list[str], state: LinkState) -> None:
        self.send(self.links.linked())
        if not state.connected:
            self.linked.difference_update(queues)
        elif not self.linked.issuperset(queues):
            self.linked.update(queues)
            self.renewal.forget_passes(queues)
            # Locks may have lapsed meanwhile: they are taken back before anything else is done here.
            self.urgent.update(queues)
            self.wake.set()

    # --- what was lost, what must end ------------------------------------------------------------------

    def _lost(self, leases: Sequence[Lease]) -> None:
        """Refused for good: the worker hears it at once, the log only if no word of a settlement follows."""
        by_worker: defaultdict[str, list[list[str]]] = defaultdict(list)
        for lease in leases:
            by_worker[lease.worker_id].append(list(lease.key))
            self.suspects[lease.key] = lease
        for worker_id, rows in by_worker.items():
            holder = self.book.holders.get(worker_id)
            if holder is not None and holder.slot is not None:
                self.send(Lost(worker_id, rows), slot=holder.slot)
        asyncio.get_running_loop().call_later(ALARM_GRACE_S, self._alarm, [lease.key for lease in leases])

    def _alarm(self, keys: list[Key]) -> None:
        lost = [lease for key in keys if (lease := self.suspects.pop(key, None)) is not None]
        for lease in lost:
            log.warning(
                "lease of job %s/%s was lost by worker %s", lease.job.queue, lease.job.id, lease.worker_id
            )
        if lost:
            self.metrics.count("leases_lost", len(lost))

    def _insist(self, cancel: Cancel, asked_ms: int) -> None:
        """The net under cancellation: whoever still holds the job that was meant is ended with it."""
        for lease in self.book.find(cancel.queue, cancel.job_id):
            if lease.job.taken_ms <= asked_ms:
                expired = Expired(lease.worker_id, cancel.queue, cancel.job_id, "cancel", cancel.reason)
                self.send(expired)

    def _recovered(self, recovered: Recovered) -> None:
        self.send(recovered)
        self.told_ms = 0
        self._tell(self.clock.mono_ms())

    async def _bury_orphan(self, up: Up) -> None:
        ended = await self.pidfds.ended(up.worker_id, ORPHANS_S)
        self.pidfds.kill(up.worker_id)  # its grandchildren too, whether it had ended or not
        if not ended and not await self.pidfds.ended(up.worker_id, ORPHANS_S):
            log.error("worker %s does not die; its leases are left to lapse", up.worker_id)
            return  # law 2: nothing is taken back from a process that may still run
        down = Down(up.worker_id, up.slot, up.queues, up.client_ids, True, "supervisor died", expired=[])
        self.guards.down(up.worker_id)
        self.undertaker.bury(down, self.book.down(up.worker_id))

    async def _funerals(self) -> None:
        """Waits for all that is being given back."""
        await asyncio.gather(self.undertaker.finish(), self.guards.finish())

    # --- numbers, end ----------------------------------------------------------------------------------

    def _tell(self, now: int) -> None:
        self.metrics.gauge("leases_held", len(self.book))
        if self.metrics.changed and now - self.told_ms >= TELL_AFTER_MS:
            self.told_ms = now
            self.send(Stats(*self.metrics.snapshot()))

    def _end(self) -> None:
        self.stopping = True
        self.wake.set()
        self.renewal.cancel()
        self.adoption.cancel()
        self.undertaker.cancel()
        self.pidfds.close()


def tick_per_queue(config: PoolConfig) -> dict[str, int]:
    """Renewal tick of each queue, ms: that of its most impatient group."""

    def tick(workers: WorkersConfig) -> int:
        plain = workers.renew_interval_ms
        return max(1, early(plain, workers.lock_duration_ms)) if plain else workers.tick_ms

    return {
        queue: min((tick(w) for w in groups_of(config, queue)), default=7_500) for queue in config.queues()
    }
