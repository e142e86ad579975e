# SPDX-License-Identifier: MIT
"""The lease plane: a job in hand is a member of `active`, scored by its deadline on the server's clock.

The token of a job is the number of its deliveries, which only grows: whoever was given the job after us makes ours
stale. A lapsed lease needs no re-acquiring before a transition, since the script compares the token; a job that was
reaped and that nobody has claimed yet is still settled by its last holder.

`lock.py` has the same methods in the same order. What this plane has besides: `queue`, `lanes`, `flows` and
`repeats`, batches, and the maintenance that one process does for all (`maintain`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from echomq_pool import backoff
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import JobMissing, LeaseLost, WrongPlane
from echomq_pool.ipc.messages import HeldJob
from echomq_pool.plane import codec, lease_row
from echomq_pool.plane.base import Blocking, HeldRow, Nothing, PlaneOptions, Recovery, Taken
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lease_codes import unsettled
from echomq_pool.plane.lease_desk import Arg, Asking, Desk, claim_plane
from echomq_pool.plane.lease_flows import Flows
from echomq_pool.plane.lease_gather import Gatherer, Settlement, Turn
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.plane.lease_lanes import Lanes
from echomq_pool.plane.lease_queue import LeaseQueue
from echomq_pool.plane.lease_repeat import Repeats
from echomq_pool.plane.slack import Pace
from echomq_pool.redisio.scripts import ScriptLibrary

MANUAL_LIMIT = 9_007_199_254_740_991
RECOVER_BATCH = 1_000  # jobs given back by one call; the server does nothing else meanwhile
SWEEP_LIMIT = 100
PROMOTE_BATCH = 1_000

# The states as callers of both planes know them.
STATES = {
    "pending": "waiting",
    "active": "active",
    "scheduled": "delayed",
    "dead": "failed",
    "awaiting_children": "waiting-children",
}
COUNTED = {
    "waiting": ("pending", "lanes"),
    "active": ("active",),
    "delayed": ("schedule",),
    "failed": ("dead",),
    "completed": ("completed",),
}
_WHERE = {"pending": "wait", "dead": "failed"}


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What one beat of maintenance did. `next_due_ms`: server time of the next scheduled job, 0 = none."""

    recovered: list[str]
    dead: list[str]
    promoted: int
    fired: int = 0
    delivered: int = 0


@dataclass(slots=True)
class Look:
    """What a queue needs, in server ms: its time, the next due job and the earliest deadline (0 = none)."""

    now_ms: int
    due_ms: int
    deadline_ms: int
    signals: int  # of flows, waiting in the outbox


class LeasePlane:
    """One queue on the lease plane. The Protocol and its rules are in `base.py`.

    Args:
        link: a connection of the caller; several planes may share it.
        keys: the queue.
        library: the scripts.
        options: what the scripts must know about the workers.
        clock: wall time for nothing but the ids of repeated jobs, monotonic time for the pace.
        pace: how much a call is to carry; without one as much as it can.
    """

    kind: ClassVar[str] = "lease"
    promotes: ClassVar[bool] = False

    def __init__(
        self,
        link: Asking,
        keys: LeaseKeys,
        library: ScriptLibrary,
        options: PlaneOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pace: Pace | None = None,
    ) -> None:
        self.keys: QueueKeys = keys
        self.options = options or PlaneOptions()
        self._link = link
        self._library = library
        self._desk = desk = Desk(link, keys, library)
        self._gatherer = Gatherer(desk, self.options, clock, pace or Pace())
        self.queue = LeaseQueue(desk)
        self.lanes = Lanes(desk)
        self.flows = Flows(desk, publish=self.options.publish)
        self.repeats = Repeats(desk, clock)
        self._base = keys.base.encode()
        self._active = (keys.key("active").encode(),)
        self._loud = "1" if self.options.publish else "0"

    async def open(self) -> None:
        await claim_plane(self._link, self.keys.base, self.keys.key("meta"), self._library, self.kind)

    # --- claiming and settling

    async def take(self, token: str, *, quiet: bool = False) -> Taken | Nothing:
        return await self._gatherer.take(token)

    async def take_batch(self, token: str, size: int) -> list[Taken] | Nothing:
        """Claims up to `size` jobs at once; `token` becomes the owner text of all of them."""
        takers = [self._gatherer.take(token) for _ in range(size)]
        found = await asyncio.gather(*takers)
        jobs = [job for job in found if isinstance(job, Taken)]
        return jobs or next((n for n in found if isinstance(n, Nothing)), Nothing())

    async def settle_batch(self, operations: Sequence[Settlement]) -> list[str]:
        """Settles all in one call. Returns a word per operation; one that is refused stops no other."""
        turn = Turn("", list(operations))
        await self._gatherer.run(turn)
        return [operation.word for operation in turn.operations]

    async def complete(
        self, job: JobRecord, token: str, returnvalue: bytes, *, fetch: bool = False
    ) -> Taken | Nothing | None:
        return await self._settle("complete", job, token, "complete", (returnvalue,), fetch)

    async def fail(
        self, job: JobRecord, token: str, reason: str, stacktrace: Sequence[str], *, fetch: bool = False
    ) -> Taken | Nothing | None:
        rest = (0, 0, codec.to_wire(reason), _trace(None, stacktrace))
        return await self._settle("retry", job, token, "fail", rest, fetch)

    async def retry(
        self, job: JobRecord, token: str, reason: str | None, stacktrace: Sequence[str] | None
    ) -> None:
        await self._settle("requeue", job, token, "retry", (_trace(reason, stacktrace),))

    async def delay(
        self,
        job: JobRecord,
        token: str,
        delay_ms: float,
        *,
        skip_attempt: bool = False,
        reason: str | None = None,
        stacktrace: Sequence[str] | None = None,
        fetch: bool = False,
    ) -> Taken | Nothing | None:
        rest = ("in", max(0, delay_ms), 0 if skip_attempt else 1, _trace(reason, stacktrace))
        return await self._settle("delay", job, token, "delay", rest, fetch)

    async def release(self, job: JobRecord, token: str) -> int:
        await self._settle("release", job, token, "put back")
        return await self.queue.get_rate_limit_ttl(self.options.limiter.max) if self.options.limiter else 0

    async def wait_children(self, job: JobRecord, token: str, child_key: str = "") -> bool:
        """Raises:
        WrongPlane: parents wait before they run here, never in the middle of a run.
        """
        raise WrongPlane("wait_children: on the lease plane a parent runs after its children; use a flow")

    # --- leases

    async def extend(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        if not pairs:
            return []
        packed = lease_row.pack(pairs)
        args = (self._base, self.options.lock_duration_ms, self.options.marker_ms, packed)
        return [codec.to_text(i) for i in await self._desk.ask("renew", self._active, args)]

    async def reacquire(self, rows: Sequence[HeldRow]) -> list[str]:
        return await self.extend([(row.id, row.token) for row in rows])

    async def recover(
        self, owner: str, held: Sequence[HeldRow] = (), *, planned: bool, evidence: str = ""
    ) -> list[Recovery]:
        """`held` is not needed here: the row of every active job names its owner."""
        mode = "handback" if planned else "stall"
        limit, text = self.options.max_stalled_count, codec.to_wire(evidence)
        args = (self._base, f"{owner}:", mode, limit, text, RECOVER_BATCH, self._loud)
        found: list[Recovery] = []
        while True:
            more, rows = await self._desk.ask("recover", self._active, args)
            found += [Recovery(codec.to_text(i), _where(where), int(count)) for i, where, count in rows]
            if not more:
                return found

    async def settle_for(self, held: HeldJob, how: str, text: str) -> str:
        job = await self.load(held.id)
        if job is None:
            return "gone"
        stack = job.stacktrace_with(text)
        delay = None if how == "cancel" else backoff.retry_delay(held.atm + 1, job.attempts, job.backoff)
        try:
            if delay is None:
                await self.fail(job, held.token, text, stack)
                return "failed"
            if delay > 0:
                await self.delay(job, held.token, delay, reason=text, stacktrace=stack)
                return "delayed"
            await self.retry(job, held.token, text, stack)
        except (LeaseLost, JobMissing):
            return "gone"
        return "wait"

    async def claimed_by(self, owner: str, job_id: str) -> Taken | None:
        job = await self.load(job_id)
        if job is None or not (job.processed_by or "").startswith(f"{owner}:"):
            return None
        return Taken(job, str(job.ats)) if await self.state(job_id) == "active" else None

    async def unknown_claims(self, owner: str, known: Iterable[tuple[str, str]]) -> list[Taken]:
        args = (self._base, f"{owner}:", lease_row.pack([list(pair) for pair in known]))
        return [lease_row.taken(i, flat) for i, flat in await self._desk.ask("owned", self._active, args)]

    async def sweep(self, max_stalled: int | None = None, interval_ms: int | None = None) -> list[str]:
        """One pass over the lapsed leases, at most 100. `interval_ms` means nothing here: there is no mark."""
        if self.options.recovery == "reap":
            await self.queue.reap()
            return []
        return (await self.sweep_counting(max_stalled))[0]

    async def sweep_counting(
        self, max_stalled: int | None = None, limit: int = SWEEP_LIMIT, *, strict: bool = False
    ) -> tuple[list[str], list[str]]:
        """The counting sweep: ids given back, and ids that lapsed too often and are dead."""
        allowed = self.options.max_stalled_count if max_stalled is None else max_stalled
        return await self.queue.sweep_stalled(allowed, limit, strict=strict, publish=self.options.publish)

    async def probe(self) -> list[str]:
        return [job_id for job_id, left_ms in await self.queue.leases() if left_ms <= 0]

    async def maintain(self) -> Maintenance:
        """One beat for all workers of the queue: lapsed leases, due jobs, due repeats, signals of flows."""
        recovered, dead = ([], []) if self.options.recovery == "reap" else await self.sweep_counting()
        if self.options.recovery == "reap":
            await self.queue.reap()
        promoted = await self.queue.promote(PROMOTE_BATCH)
        return Maintenance(recovered, dead, promoted, await self.repeats.pump(), await self.flows.deliver())

    async def look(self) -> Look:
        """Whether maintenance has anything to do. Reads only."""
        return Look(*map(int, await self._desk.ask("look", (self._base,), ())))

    async def recover_lapsed(self) -> tuple[int, list[str]]:
        """The `recovery` that is set: how many lapsed jobs are pending again, and which are dead."""
        if self.options.recovery == "reap":
            return await self.queue.reap(), []
        recovered, dead = await self.sweep_counting()
        return len(recovered), dead

    async def promote_due(self) -> int:
        """Makes due jobs pending, at most 1 000. Returns how many."""
        return await self.queue.promote(PROMOTE_BATCH)

    # --- schedulers

    async def produce_next(self, job: JobRecord) -> str | None:
        """Nothing to do: a repeat makes its own next job when it fires."""
        return None

    # --- waiting

    async def wait(self, blocking: Blocking, block_ms: float) -> int | None:
        reply = await blocking.blocking_call("BLPOP", self.keys.key("wake"), block_ms=block_ms)
        return 0 if reply else None

    def wake(self) -> asyncio.Future[Any]:
        return self._link.call("LPUSH", self.keys.key("wake"), "1")

    # --- what a processor does with its job

    async def progress(self, job_id: str, progress: bytes) -> None:
        await self.queue.update_progress(job_id, progress)

    async def log(self, job_id: str, row: str, keep: int | None = None) -> int:
        return await self.queue.add_log(job_id, row, keep or 0)

    async def update_data(self, job_id: str, data: bytes) -> None:
        await self.queue.update_data(job_id, data)

    async def rate_limit(self, duration_ms: int) -> None:
        await self._link.call("SET", self.keys.key("limiter"), MANUAL_LIMIT, "PX", max(1, duration_ms))

    # --- reading

    async def state(self, job_id: str) -> str:
        return STATES.get(await self.queue.get_job_state(job_id), "unknown")

    async def load(self, job_id: str) -> JobRecord | None:
        return await self.queue.load(job_id)

    async def counts(self, *names: str) -> dict[str, int]:
        wanted = names or tuple(COUNTED)
        parts = [part for name in wanted for part in COUNTED.get(name, ())]
        sizes = await self.queue.sizes(parts)
        return {name: sum(sizes[part] for part in COUNTED.get(name, ())) for name in wanted}

    def ask(self, script: str, keys: Sequence[bytes | str], args: Sequence[Arg]) -> Awaitable[Any]:
        """Raises:
        WrongPlane: the verbs that call scripts by name are those of the lock plane.
        """
        raise WrongPlane(f"{script}: the lease plane has no such verb")

    def command(self, *args: Arg) -> Awaitable[Any]:
        return self._link.call(*args)

    # --- how a call is made

    async def _settle(
        self,
        verb: str,
        job: JobRecord,
        token: str,
        action: str,
        rest: tuple[object, ...] = (),
        fetch: bool = False,
    ) -> Taken | Nothing | None:
        operation = Settlement(verb, job.id, token, rest, fetch)
        word, following = await self._gatherer.settle(operation, job.processed_by or "")
        if word in ("stale", "gone"):
            raise unsettled(word, job.id, action)
        return following


def _where(word: bytes) -> str:
    text = codec.to_text(word)
    return _WHERE.get(text, text)


def _trace(reason: str | None, stacktrace: Sequence[str] | None) -> list[str | bytes]:
    """Further fields that a failed attempt stores."""
    fields: list[str | bytes] = []
    if reason is not None:
        fields += ["last_error", codec.to_wire(reason)]
    if stacktrace:
        fields += ["stacktrace", codec.encode(list(stacktrace))]
    return fields
