# SPDX-License-Identifier: MIT
"""The book of leases: who holds what, how fresh each lease is, what is due. Pure; every time is passed in.

All times are monotonic milliseconds. A lease's *stamp* is a moment before the call was sent that last
proved it: the take at first, then each successful renewal. It moves on success only, so a failed renewal is
due again.

**The word on the board** (per worker and queue) is the last tick W at which every lease known was either
renewed by a call sent after W or younger than a tick. A worker reads it as `good_since` says: a lease taken
at least one tick before W is good since W, a younger one since its own take. The tick of grace is what
makes the word safe: leases skipped for their youth, and leases whose `held` was still on its way, never
lean on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from echomq_pool.ipc.messages import Held, HeldJob, Settled

CHUNK = 10_000  # leases per script call (law 10)
NEVER = -(1 << 62)  # the stamp of a lease that must be renewed at once

Key = tuple[str, str, str]  # queue, job id, token


def good_since(taken_ms: int, renewed_ms: int, tick_ms: int) -> int:
    """Since when a lease is surely good, by its take and the word on the board (see the head of the file)."""
    return renewed_ms if taken_ms + tick_ms <= renewed_ms else taken_ms


def misses_survived(lock_duration_ms: int, interval_ms: int) -> int:
    """How many renewals in a row may fail: the largest m with (m + 1) · interval < duration; -1 = none."""
    return (lock_duration_ms - 1) // interval_ms - 1


def early(interval_ms: int, lock_duration_ms: int) -> int:
    """An interval that divides the lock's duration, shortened by a fortieth.

    A third of a lease is meant to survive two misses, but the third renewal would be due in the very millisecond
    in which the lock ends.
    """
    return interval_ms - max(1, interval_ms // 40) if lock_duration_ms % interval_ms == 0 else interval_ms


@dataclass(slots=True, eq=False)
class Lease:
    """One job held by one worker."""

    job: HeldJob
    worker_id: str
    stamp_ms: int

    @property
    def key(self) -> Key:
        return self.job[:3]


@dataclass(slots=True)
class Holder:
    """One worker as the book knows it. `slot` is None until its Up was heard."""

    worker_id: str
    slot: int | None = None
    heard_ms: int = NEVER  # when it last spoke of its leases
    leases: dict[Key, Lease] = field(default_factory=dict)
    retold: set[Key] | None = None  # set while a full re-telling is under way
    lost: set[Key] = field(default_factory=set)  # told to be lost, but their runs have not ended yet

    def running(self) -> int:
        """How many jobs we know it to run."""
        return len(self.leases) + len(self.lost)


class LeaseBook:
    """All leases of the pool, by worker and by queue."""

    def __init__(self) -> None:
        self.holders: dict[str, Holder] = {}
        self._queues: dict[str, dict[Key, Lease]] = {}

    def __len__(self) -> int:
        return sum(len(leases) for leases in self._queues.values())

    def up(self, worker_id: str, slot: int) -> None:
        """A worker lives, with its place on the board."""
        self._holder(worker_id).slot = slot

    def hold(self, held: Held, now_ms: int) -> list[Lease]:
        """Enters what a worker says it holds; returns the leases that are new here.

        A full re-telling comes in records with `full`, the last with `end`: what was not named by then is
        forgotten. A new lease of a re-telling is due at once: nobody here knows when it was renewed last.
        """
        holder = self._holder(held.worker_id)
        holder.heard_ms = now_ms
        if held.full and holder.retold is None:
            holder.retold = set()
        new = [lease for job in held.jobs if (lease := self._enter(holder, job, held.full)) is not None]
        if held.end:
            self._close_retelling(holder)
        return new

    def adopt(self, worker_id: str, jobs: Iterable[HeldJob]) -> None:
        """Enters what the server says that a worker holds which was never heard; due at once."""
        holder = self._holder(worker_id)
        for job in jobs:
            self._enter(holder, job, full=True)

    def was_heard(self, worker_id: str) -> bool:
        """Whether a worker has spoken of its leases."""
        holder = self.holders.get(worker_id)
        return holder is not None and holder.heard_ms != NEVER

    def settle(self, settled: Settled, now_ms: int) -> None:
        """Forgets what a worker says it holds no longer."""
        holder = self._holder(settled.worker_id)
        holder.heard_ms = now_ms
        self._forget(holder, [(queue, job_id, token) for queue, job_id, token in settled.jobs])

    def down(self, worker_id: str) -> list[Lease]:
        """Forgets a dead worker; returns what it held, oldest first."""
        holder = self.holders.pop(worker_id, None)
        if holder is None:
            return []
        for key in holder.leases:
            del self._queues[key[0]][key]
        return sorted(holder.leases.values(), key=lambda lease: lease.job.taken_ms)

    def remove(self, lease: Lease) -> None:
        """Drops one lease that was lost."""
        holder = self.holders.get(lease.worker_id)
        if holder is not None and holder.leases.get(lease.key) is lease:
            self._forget(holder, [lease.key])
            holder.lost.add(lease.key)

    def has(self, lease: Lease) -> bool:
        """Whether this very lease still stands (a later take under the same token is another one)."""
        return self._queues.get(lease.job.queue, {}).get(lease.key) is lease

    def due(self, queue: str, at_ms: int, tick_ms: int) -> list[Lease]:
        """Leases of `queue` whose stamp is a tick or more old at `at_ms`; all of them for a tick of 0."""
        leases = self._queues.get(queue, {}).values()
        if tick_ms == 0:
            return list(leases)
        return [lease for lease in leases if lease.stamp_ms <= at_ms - tick_ms]

    def covered(self, worker_id: str, queue: str, at_ms: int, tick_ms: int) -> bool:
        """Whether the board's word for this worker and queue may be moved to `at_ms`."""
        holder = self.holders.get(worker_id)
        if holder is None:
            return False
        return all(
            lease.stamp_ms >= at_ms or lease.job.taken_ms > at_ms - tick_ms
            for key, lease in holder.leases.items()
            if key[0] == queue
        )

    def find(self, queue: str, job_id: str) -> list[Lease]:
        """Leases on one job: one, unless a worker that lost it has not heard so yet."""
        return [lease for key, lease in self._queues.get(queue, {}).items() if key[1] == job_id]

    def _holder(self, worker_id: str) -> Holder:
        return self.holders.setdefault(worker_id, Holder(worker_id))

    def _enter(self, holder: Holder, job: HeldJob, full: bool) -> Lease | None:
        key = job[:3]
        if holder.retold is not None:
            holder.retold.add(key)
        known = holder.leases.get(key)
        if known is not None and known.job.ats == job.ats:
            known.job = job
            return None
        lease = Lease(job, holder.worker_id, NEVER if full else job.taken_ms)
        holder.leases[key] = lease
        if holder.lost:
            holder.lost.discard(key)
        self._queues.setdefault(job.queue, {})[key] = lease
        return lease

    def _close_retelling(self, holder: Holder) -> None:
        retold, holder.retold = holder.retold or set(), None
        holder.lost &= retold
        self._forget(holder, [key for key in holder.leases if key not in retold])

    def _forget(self, holder: Holder, keys: list[Key]) -> None:
        if holder.retold is not None:
            holder.retold.difference_update(keys)
        if holder.lost:
            holder.lost.difference_update(keys)
        for key in keys:
            if holder.leases.pop(key, None) is not None:
                del self._queues[key[0]][key]


def stamp(leases: Iterable[Lease], at_ms: int) -> None:
    """These leases were proven by a call sent after `at_ms`."""
    for lease in leases:
        lease.stamp_ms = max(lease.stamp_ms, at_ms)


def batches(leases: Sequence[Lease], size: int = CHUNK) -> Iterator[list[Lease]]:
    """Cuts into calls of at most `size`. No id comes twice in a call: a reply names failures by id alone."""
    rest = list(leases)
    while rest:
        batch: dict[str, Lease] = {}
        left: list[Lease] = []
        for lease in rest:
            if len(batch) < size and lease.job.id not in batch:
                batch[lease.job.id] = lease
            else:
                left.append(lease)
        yield list(batch.values())
        rest = left


class Ticks:
    """When each queue's next tick is. One timer serves them all: it is set to `next_ms`.

    A tick keeps to its grid, and its leases are stamped with the grid's time: judged by the moment a timer
    really fired, a lease renewed 1 ms late at one tick would look too young at the next, and every second
    tick would be lost.
    """

    def __init__(self, tick_ms: dict[str, int], now_ms: int) -> None:
        self.tick_ms = tick_ms
        self._next = {queue: now_ms + tick for queue, tick in tick_ms.items()}

    def next_ms(self) -> int | None:
        """The earliest tick, None without queues."""
        return min(self._next.values(), default=None)

    def take(self, now_ms: int) -> list[tuple[str, int]]:
        """(queue, time of its tick) of all that are due, and sets their next ones. Missed ticks are gone."""
        due: list[tuple[str, int]] = []
        for queue, at in self._next.items():
            if at <= now_ms:
                tick = self.tick_ms[queue]
                at = at if now_ms - at < tick else now_ms
                due.append((queue, at))
                self._next[queue] = at + tick
        return due

    def restart(self, queue: str, at_ms: int) -> None:
        """The queue was renewed at `at_ms` out of turn: its next tick is one tick later."""
        self._next[queue] = at_ms + self.tick_ms[queue]

    def bring_forward(self, queue: str, at_ms: int) -> None:
        """The next tick comes at `at_ms` if it was to come later."""
        self._next[queue] = min(self._next[queue], at_ms)
