# SPDX-License-Identifier: MIT
"""The lease plane's verbs for producers, operators and readers, one script or command each.

Ids are checked here before anything is sent; that they are jobs' ids is checked by the scripts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from echomq_pool.errors import InputError, JobError, RateReached
from echomq_pool.plane import codec, lease_row
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.plane.lease_desk import Desk
from echomq_pool.plane.lease_keys import check_dedup_id, check_id
from echomq_pool.plane.lease_telemetry import TELEMETRY, admitted

COUNTS = ("pending", "active", "schedule", "dead", "completed", "failed", "lanes")
METRICS = ("completed", "failed")

Claimed = tuple[str, bytes, int]


class LeaseQueue:
    """One queue. Errors: `InputError` before the wire, `JobError` subclasses for refusals, `LinkError` else."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._keys = desk.keys
        self._base = desk.keys.base

    # --- admission --------------------------------------------------------------------------------

    async def enqueue(
        self,
        job_id: str,
        payload: bytes | str,
        *,
        name: str = "",
        opts: Mapping[str, Any] | None = None,
        dedup_id: str = "",
        dedup_ms: int = 0,
    ) -> str:
        """Adds a job. Returns `enqueued`, `duplicate`, or the id of the job that holds the deduplication id."""
        check_id(job_id)
        extra = lease_row.extra_fields(name, opts)
        args = (job_id, payload, self._base, *_dedup(dedup_id, dedup_ms), *extra)
        keys = (self._keys.job(job_id), self._keys.key("pending"), self._keys.key("wake"))
        reply = await self._desk.ask("enqueue", keys, args, job_id=job_id)
        return admitted(reply, "enqueued", self._keys.queue, job_id)

    async def enqueue_many(self, jobs: Sequence[tuple[str, bytes | str]]) -> list[str]:
        """Adds many in one write; not atomic as a whole. Returns enqueued | duplicate | kind, in their order."""
        if not jobs:
            raise InputError("enqueue_many: there are no jobs (empty pipeline)")
        for job_id, _ in jobs:
            check_id(job_id)
        calls = (self.enqueue(job_id, payload) for job_id, payload in jobs)
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [_verdict(result) for result in found]

    async def enqueue_at(self, job_id: str, payload: bytes | str, run_at_ms: int, **more: Any) -> str:
        """Adds a job that is due at a wall time of the caller. Returns `scheduled`, `duplicate` or a job id."""
        return await self._schedule(job_id, payload, "at", run_at_ms, **more)

    async def enqueue_in(self, job_id: str, payload: bytes | str, delay_ms: int, **more: Any) -> str:
        """Adds a job that is due `delay_ms` from now on the server's clock."""
        if delay_ms < 0:
            raise InputError(f"delay_ms: expected 0 or more, got {delay_ms}")
        return await self._schedule(job_id, payload, "in", delay_ms, **more)

    async def _schedule(
        self,
        job_id: str,
        payload: bytes | str,
        mode: str,
        number: int,
        *,
        name: str = "",
        opts: Mapping[str, Any] | None = None,
        dedup_id: str = "",
        dedup_ms: int = 0,
        group: str = "",
    ) -> str:
        check_id(job_id)
        extra = lease_row.extra_fields(name, opts)
        if group:
            extra += ["group", check_id(group)]
        args = (job_id, payload, mode, number, self._base, *_dedup(dedup_id, dedup_ms), *extra)
        keys = (self._keys.job(job_id), self._keys.key("schedule"))
        reply = await self._desk.ask("schedule", keys, args, job_id=job_id)
        return admitted(reply, "scheduled", self._keys.queue, job_id)

    # --- claiming and settling one by one ------------------------------------------------------------

    async def claim(self, lease_ms: int = 30_000, owner: str = "") -> Claimed | None:
        """Claims the oldest flat job: (id, payload, token). None: nothing is pending, or the queue is paused."""
        keys = self._keys.key("pending"), self._keys.key("active"), self._keys.key("meta")
        reply = await self._desk.ask("claim", keys, (self._keys.rows, _positive(lease_ms), owner))
        return _claimed(reply) if reply else None

    async def claim_batch(self, size: int, lease_ms: int = 30_000, owner: str = "") -> list[Claimed]:
        """Claims up to `size` flat jobs under one deadline, oldest first."""
        keys = self._keys.key("pending"), self._keys.key("active"), self._keys.key("meta")
        args = (self._keys.rows, _positive(lease_ms), _positive(size), owner)
        return [_claimed(row) for row in await self._desk.ask("claimBatch", keys, args)]

    async def complete(self, job_id: str, token: int | str, result: bytes | str | None = None) -> str:
        """Returns `ok`, or `gone` when there is no such job.

        Raises:
            LeaseLost: the token no longer holds it.
        """
        check_id(job_id)
        keys = (self._keys.key("active"), self._keys.job(job_id))
        args = (job_id, token, self._base) if result is None else (job_id, token, self._base, result)
        return "ok" if await self._desk.ask("complete", keys, args, job_id=job_id) else "gone"

    async def retry(
        self, job_id: str, token: int | str, delay_ms: int, max_attempts: int, error: str | bytes
    ) -> str:
        """Records a failed run. Returns `scheduled`, or `dead` at the cap."""
        check_id(job_id)
        keys = (*map(self._keys.key, ("active", "schedule", "dead")), self._keys.job(job_id))
        args = (job_id, token, delay_ms, max_attempts, error, self._base)
        return codec.to_text(await self._desk.ask("retry", keys, args, job_id=job_id))

    async def delay(self, job_id: str, token: int | str, ms: int, *, at: bool = False) -> None:
        """Runs a held job again `ms` from now, or at a wall time of the caller. The attempt counts."""
        check_id(job_id)
        keys = (self._keys.job(job_id), self._keys.key("active"), self._keys.key("schedule"))
        args = (job_id, token, "at" if at else "in", ms, self._base)
        await self._desk.ask("delay", keys, args, job_id=job_id)

    # --- maintenance ----------------------------------------------------------------------------------

    async def promote(self, batch: int = 100, *, early: bool = False) -> int:
        """Moves due jobs to where they are taken from; all others, too, when `early`. Returns how many."""
        keys = self._keys.key("schedule"), self._keys.key("pending")
        return int(await self._desk.ask("promote", keys, (self._base, batch, int(early))))

    async def reap(self) -> int:
        """Gives back jobs whose lease has ended, at most 100. Returns how many."""
        keys = self._keys.key("active"), self._keys.key("pending")
        return int(await self._desk.ask("reap", keys, (self._base,)))

    async def sweep_stalled(
        self, max_stalled: int = 1, limit: int = 100, *, strict: bool = False, publish: bool = False
    ) -> tuple[list[str], list[str]]:
        """The same with a count: dead after more than `max_stalled` lapses; `strict` = at the `max_stalled`-th."""
        keys = tuple(map(self._keys.key, ("active", "pending", "dead")))
        args = (self._base, max_stalled, limit, int(strict), int(publish))
        recovered, dead = await self._desk.ask("sweepStalled", keys, args)
        return [codec.to_text(i) for i in recovered], [codec.to_text(i) for i in dead]

    async def job_stalled(self, job_id: str) -> bool:
        """Whether a sweep has ever found its lease lapsed."""
        count = await self._desk.link.call("HGET", self._keys.job(check_id(job_id)), "stalled")
        return bool(count) and int(count) > 0

    async def extend_lock(self, job_id: str, token: int | str, lease_ms: int = 30_000) -> None:
        """Moves the deadline of a held job to `lease_ms` from now.

        Raises:
            JobMissing, LeaseLost: it is not ours (any more).
        """
        check_id(job_id)
        keys = (self._keys.key("active"), self._keys.job(job_id))
        await self._desk.must("extendLock", keys, (job_id, token, _positive(lease_ms)), job_id, "extend")

    async def extend_locks(self, pairs: Sequence[tuple[str, int | str]], lease_ms: int = 30_000) -> list[str]:
        """The same for many in one call. Returns the ids that could not be extended, in their order."""
        for job_id, _ in pairs:
            check_id(job_id)
        args = [self._base, _positive(lease_ms), *(part for pair in pairs for part in pair)]
        reply = await self._desk.ask("extendLocks", (self._keys.key("active"),), args)
        return [codec.to_text(job_id) for job_id in reply]

    async def mark(
        self, pairs: Sequence[tuple[str, int | str]], lasts_ms: int = 60_000, *, native: bool = False
    ) -> list[str]:
        """Sets the presence markers of held jobs. `native`: as an expiring field of the row, too.

        Returns the ids that the tokens do not hold.
        """
        packed = lease_row.pack([[check_id(job_id), str(token)] for job_id, token in pairs])
        args = (self._base, _positive(lasts_ms), int(native), packed)
        return [codec.to_text(i) for i in await self._desk.ask("mark", (self._keys.key("active"),), args)]

    async def unmark(self, pairs: Sequence[tuple[str, int | str]]) -> None:
        """Takes the presence markers away, where they are still ours."""
        packed = lease_row.pack([[check_id(job_id), str(token)] for job_id, token in pairs])
        await self._desk.ask("mark", (self._keys.key("active"),), (self._base, 0, 0, packed))

    # --- operators --------------------------------------------------------------------------------------

    async def pause(self) -> None:
        await self._desk.link.call("HSET", self._keys.key("meta"), "paused", "1")

    async def resume(self) -> None:
        await self._desk.link.call("HDEL", self._keys.key("meta"), "paused")
        await self._desk.link.call("LPUSH", self._keys.key("wake"), "1")

    async def drain(self, *, include_schedule: bool = False) -> int:
        """Deletes the waiting jobs, those in lanes too. Returns how many."""
        keys = [self._base, self._keys.key("pending")]
        if include_schedule:
            keys.append(self._keys.key("schedule"))
        return int(await self._desk.ask("drain", keys, ()))

    async def obliterate(self, *, force: bool = False, budget: int = 1000) -> str:
        """Deletes the paused queue, `budget` jobs per call. Returns `more` or `ok`."""
        keys = (self._keys.key("meta"), self._base)
        more = await self._desk.ask("obliterate", keys, ("force" if force else "", _positive(budget)))
        return "more" if more else "ok"

    async def update_data(self, job_id: str, payload: bytes | str) -> None:
        keys = (self._keys.job(check_id(job_id)),)
        await self._desk.must("updateData", keys, (payload,), job_id, "update the data of")

    async def update_progress(self, job_id: str, progress: bytes | str) -> None:
        keys = (self._keys.job(check_id(job_id)),)
        args = (progress, job_id, self._base)
        await self._desk.must("updateProgress", keys, args, job_id, "update the progress of")

    async def add_log(self, job_id: str, line: str | bytes, keep: int = 0) -> int:
        """Appends a line; keeps the last `keep` when that is not 0. Returns how many there are."""
        keys = (self._keys.job(check_id(job_id)), self._keys.logs(job_id))
        text = codec.to_wire(line) if isinstance(line, str) else line
        return await self._desk.must("addLog", keys, (text, keep or ""), job_id, "log for")

    async def get_job_logs(self, job_id: str) -> list[str] | None:
        """The lines in their order; None when there is no such job."""
        link, row = self._desk.link, self._keys.job(check_id(job_id))
        exists, lines = await asyncio.gather(
            link.call("EXISTS", row), link.call("LRANGE", self._keys.logs(job_id), 0, -1)
        )
        return [codec.to_text(line) for line in lines] if exists else None

    async def remove_job(self, job_id: str, dedup_id: str = "") -> None:
        """Raises:
        JobMissing: there is no such job.
        JobLocked: a worker holds it.
        """
        names = ("pending", "active", "schedule", "dead")
        parked = self._keys.dedup(dedup_id) if dedup_id else self._keys.key("meta")
        keys = (self._keys.job(check_id(job_id)), *map(self._keys.key, names), parked)
        await self._desk.must("removeJob", keys, (job_id, dedup_id, self._base), job_id, "remove")

    async def reprocess_job(self, job_id: str) -> None:
        """Gives a dead job a fresh budget and puts it back.

        Raises:
            JobMissing, WrongState: it is not dead.
        """
        keys = (self._keys.job(check_id(job_id)), self._keys.key("dead"), self._keys.key("pending"))
        await self._desk.must("reprocessJob", keys, (job_id, self._base), job_id, "reprocess")

    async def promote_job(self, job_id: str) -> None:
        """Makes a scheduled job ready now. Raises as `change_delay`."""
        await self._reschedule(job_id, "", "promote")

    async def change_delay(self, job_id: str, delay_ms: float) -> None:
        """Makes a scheduled job due `delay_ms` from now on the server's clock.

        Raises:
            JobMissing, WrongState: it is not scheduled.
        """
        await self._reschedule(job_id, delay_ms, "change the delay of")

    async def _reschedule(self, job_id: str, delay: float | str, action: str) -> None:
        keys = (self._keys.job(check_id(job_id)), self._keys.key("schedule"))
        await self._desk.must("reschedule", keys, (job_id, delay, self._base), job_id, action)

    async def free_dedup(self, dedup_id: str, job_id: str = "") -> bool:
        """Frees a deduplication id; only if `job_id` holds it, when that is given. Returns whether it did."""
        check_dedup_id(dedup_id)
        return bool(await self._desk.ask("freeDedup", (self._keys.dedup(dedup_id),), (job_id,)))

    # --- reading ------------------------------------------------------------------------------------------

    async def jobs(self, state: str, start: int = 0, end: int = -1, *, asc: bool = True) -> list[JobRecord]:
        """Jobs `start` to `end` (inclusive, -1 = the last) of pending (lanes included), active, schedule or dead.

        In the order of their ids; active ones by the end of their lease, scheduled ones by their due time.
        """
        rows = await self._desk.ask("jobs", (self._base,), (state, start, end, int(asc)))
        return [lease_row.record(codec.to_text(job_id), flat) for job_id, flat in rows if flat]

    async def get_counts(self, *names: str) -> dict[str, int]:
        """Raises:
        InputError: an unknown name; nothing was read.
        """
        wanted = names or ("pending", "active", "schedule", "dead")
        unknown = [name for name in wanted if name not in COUNTS]
        if unknown:
            raise InputError(f"unknown state {unknown[0]!r}: expected some of {', '.join(COUNTS)}")
        return await self.sizes(wanted)

    async def sizes(self, names: Sequence[str]) -> dict[str, int]:
        reply = await self._desk.ask("counts", (self._base,), tuple(names)) if names else []
        return dict(zip(names, map(int, reply), strict=True))

    async def get_job(self, job_id: str) -> dict[str, str] | None:
        """All fields of the row; None when it is absent."""
        flat = await self._desk.link.call("HGETALL", self._keys.job(check_id(job_id)))
        texts = [codec.to_text(part) for part in _flat(flat)]
        return dict(zip(texts[::2], texts[1::2], strict=True)) or None

    async def load(self, job_id: str) -> JobRecord | None:
        """The row as a record; None when it is absent."""
        flat = _flat(await self._desk.link.call("HGETALL", self._keys.job(check_id(job_id))))
        return lease_row.record(job_id, flat) if flat else None

    async def get_job_state(self, job_id: str) -> str:
        """pending | active | scheduled | dead | awaiting_children | unknown | absent."""
        return codec.to_text(await self._desk.ask("state", (self._base,), (check_id(job_id),)))

    async def get_metrics(self, which: str) -> tuple[int, int]:
        """How many were completed or failed, and the length of their (reserved) series."""
        if which not in METRICS:
            raise InputError(f"unknown metric {which!r}: expected completed or failed")
        link, key = self._desk.link, self._keys.key(f"metrics:{which}")
        count, length = await asyncio.gather(
            link.call("HGET", key, "count"), link.call("LLEN", f"{key}:data")
        )
        return int(count or 0), int(length)

    async def get_deduplication_job_id(self, dedup_id: str) -> str | None:
        check_dedup_id(dedup_id)
        found = await self._desk.link.call("GET", self._keys.dedup(dedup_id))
        return None if found is None else codec.to_text(found)

    async def get_rate_limit_ttl(self, most: int = 0) -> int:
        """Ms until the rate window reopens; 0 when takes are not limited."""
        limit = most or await self.get_global_rate_limit()
        link, key = self._desk.link, self._keys.key("limiter")
        spent, left_ms = await asyncio.gather(link.call("GET", key), link.call("PTTL", key))
        return max(0, int(left_ms)) if limit and int(spent or 0) >= limit else 0

    async def get_global_rate_limit(self) -> int:
        return int(await self._desk.link.call("HGET", self._keys.key("meta"), "max") or 0)

    async def is_maxed(self) -> None:
        """Raises:
        RateReached: as many jobs are active as the queue allows. A claim does not ask this by itself.
        """
        try:
            await self._desk.ask("isMaxed", (self._keys.key("meta"), self._keys.key("active")), ())
        except RateReached:
            TELEMETRY.emit(("emq", "rate_limit", "hit"), {"count": 1}, {"queue": self._keys.queue})
            raise

    async def browse(self, count: int) -> list[str]:
        """The newest pending ids, newest first."""
        found = await self._desk.link.call(
            "ZREVRANGEBYLEX", self._keys.key("pending"), "+", "-", "LIMIT", 0, count
        )
        return [codec.to_text(job_id) for job_id in found]

    async def pending_size(self) -> int:
        return int(await self._desk.link.call("ZCARD", self._keys.key("pending")))

    async def leases(self, most: int = 1000) -> list[tuple[str, int]]:
        """(id, ms left on the server's clock, negative when over), soonest first."""
        rows = await self._desk.ask("leases", (self._keys.key("active"),), (most,))
        return [(codec.to_text(job_id), int(left)) for job_id, left in rows]


def _verdict(result: str | BaseException) -> str:
    if isinstance(result, JobError):
        return "kind"
    if isinstance(result, BaseException):
        raise result
    return result


def _dedup(dedup_id: str, dedup_ms: int) -> tuple[str, int | str]:
    if dedup_id:
        check_dedup_id(dedup_id)
    return dedup_id, dedup_ms or ""


def _claimed(row: Any) -> Claimed:
    return codec.to_text(row[0]), row[1], int(row[2])


def _positive(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"expected a whole number from 1, got {value!r}")
    return value


def _flat(reply: Any) -> list[bytes]:
    """A hash as a flat list, whichever protocol version answered."""
    return [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else list(reply)
