# SPDX-License-Identifier: MIT
"""What a lease-plane `Queue` does beside adding and waiting: `queue_verbs.py`, as this plane has it.

Verbs that read or write only what both planes keep alike (the meta hash, the rate window, logs) are inherited. What
the plane lacks is in `lease_gaps.py`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from echomq_pool.api.ask import Op, T, over_plane
from echomq_pool.api.job import Job
from echomq_pool.api.lease_gaps import QUEUE_GAPS, SCHEDULE_GAPS, STATE_GAPS, lacking, refusal
from echomq_pool.api.lease_jobs import check_lease_job
from echomq_pool.api.ops_family import ChildrenPage
from echomq_pool.api.ops_look import QueueMetrics, decode_value, prometheus_text
from echomq_pool.api.ops_upkeep import whole
from echomq_pool.api.queue_verbs import QueueVerbs
from echomq_pool.api.repeats import Moment, check_repeat
from echomq_pool.errors import InputError, JobMissing, QueueInUse, RateReached, WrongPlane, WrongState
from echomq_pool.plane import codec
from echomq_pool.plane.lease import COUNTED, LeasePlane
from echomq_pool.plane.lease_events import request_cancel
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.plane.schedule import SchedulerRecord
from echomq_pool.redisio.link import Link

LISTED = {"waiting": "pending", "active": "active", "delayed": "schedule", "failed": "dead"}
STEP = 1_000
ACTIVE_LEFT = -2


@lacking(QUEUE_GAPS)
class LeaseVerbs(QueueVerbs):
    """Every verb may raise `LinkError`, and `InputError` or `WrongPlane` before anything is written. Times are ms."""

    _link: Link
    _lease_keys: LeaseKeys

    @abstractmethod
    async def _plane_now(self) -> LeasePlane:
        """The plane, opened."""

    def _queue_name(self) -> str:
        return self._lease_keys.queue

    async def _run(self, operation: Op[T]) -> T:
        """An operation of plain commands; one that needs a script of the other plane is refused."""
        return await over_plane(await self._plane_now()).run(operation)

    # --- looking ---------------------------------------------------------------------------------------

    async def get_job(self, job_id: str) -> Job | None:
        """None when there is no such job, as after its completion."""
        record = await (await self._plane_now()).load(job_id)
        return None if record is None else self._job(record)

    async def get_jobs(
        self, states: str | Sequence[str] = (), start: int = 0, end: int = -1, asc: bool = False
    ) -> list[Job]:
        """Jobs `start` to `end` (inclusive, -1 = the last) of each state; of all four when none is named.

        States: waiting (lanes included) and failed in the order of their ids, active by the end of their lease,
        delayed by their due time; backwards unless `asc`.

        Raises:
            WrongPlane: a state that this plane does not list.
        """
        wanted = self._ops._states(states) or list(LISTED)
        for state in wanted:
            if state not in LISTED:
                raise refusal(
                    f"get_jobs({state!r})", self._queue_name(), STATE_GAPS.get(state, "no such state")
                )
        plane = await self._plane_now()
        pages = [plane.queue.jobs(LISTED[state], start, end, asc=asc) for state in wanted]
        return [self._job(record) for page in await asyncio.gather(*pages) for record in page]

    async def get_state(self, job_id: str) -> str:
        """failed | delayed | active | waiting | waiting-children | unknown; a completed job is unknown."""
        return await (await self._plane_now()).state(job_id)

    async def add_job_log(self, job_id: str, row: str, keep: int | None = None) -> int:
        return await (await self._plane_now()).log(job_id, str(row), keep)

    async def update_job_progress(self, job_id: str, progress: Any) -> None:
        await (await self._plane_now()).progress(job_id, codec.encode(progress))

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """waiting (lanes included), active, delayed, failed; completed is the number ever completed."""
        wanted = self._ops._states(states) or list(COUNTED)
        return await (await self._plane_now()).counts(*wanted)

    counts = get_job_counts

    async def count(self) -> int:
        """Waiting and delayed jobs."""
        return sum((await self.get_job_counts("waiting", "delayed")).values())

    async def get_metrics(self, kind: str, start: int = 0, end: int = -1) -> QueueMetrics:
        """How many jobs were ever "completed" or "failed". The plane keeps no numbers per minute."""
        count, length = await (await self._plane_now()).queue.get_metrics(kind)
        return QueueMetrics(count, 0, 0, [], length)

    async def export_prometheus_metrics(self, labels: Mapping[str, str] | None = None) -> str:
        """Sizes by state as Prometheus text, under the names of the other plane's."""
        sizes = await self.get_job_counts("waiting", "active", "delayed", "failed")
        totals = {kind: (await self.get_metrics(kind)).count for kind in ("completed", "failed")}
        return prometheus_text(self._lease_keys.wire_name, sizes, totals, labels or {})

    async def get_dependencies(
        self, parent_id: str, kind: str = "processed", start: int = 0, end: int = -1
    ) -> ChildrenPage:
        """Completed children of a job with their results, in the order of their ids. Their rows are gone.

        Raises:
            WrongPlane: `pending` children: their parent knows only how many they are.
        """
        if kind == "pending":
            reason = "a parent knows how many of its children are outstanding, not which"
            raise refusal("get_dependencies('pending')", self._queue_name(), reason)
        if kind != "processed":
            raise InputError(f"children: expected 'processed' or 'pending', got {kind!r}")
        values = await (await self._plane_now()).flows.children_values(parent_id)
        items = [(child, decode_value(values[child])) for child in sorted(values)]
        page = items[start:] if end == -1 else items[start : end + 1]
        return ChildrenPage(page, [None] * len(page), len(items))

    async def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        return await (await self._plane_now()).queue.get_deduplication_job_id(deduplication_id)

    # --- the queue as a whole ------------------------------------------------------------------------------

    async def pause(self) -> None:
        await (await self._plane_now()).queue.pause()

    async def resume(self) -> None:
        await (await self._plane_now()).queue.resume()

    async def is_maxed(self) -> bool:
        try:
            await (await self._plane_now()).queue.is_maxed()
        except RateReached:
            return True
        return False

    async def set_global_concurrency(self, limit: int | None) -> None:
        await super().set_global_concurrency(limit)
        await (await self._plane_now()).wake()  # there may be room now

    async def remove_global_concurrency(self) -> None:
        await self.set_global_concurrency(None)

    async def get_rate_limit_ttl(self, max: int | None = None) -> int:
        """ms until claims go on, 0 while they are not limited. `max`: as a worker's own limiter has it."""
        limit = 0 if max is None else whole("max", max, 1)
        return await (await self._plane_now()).queue.get_rate_limit_ttl(limit)

    async def drain(self, delayed: bool = False) -> None:
        await (await self._plane_now()).queue.drain(include_schedule=delayed)

    async def obliterate(self, *, force: bool = False, count: int = STEP) -> None:
        """Deletes the queue, paused first, `count` jobs per step.

        Raises:
            QueueInUse: it has active jobs, and `force` is False.
        """
        plane = await self._plane_now()
        await plane.queue.pause()
        try:
            while await plane.queue.obliterate(force=force, budget=count) == "more":
                pass
        except WrongState:
            text = (
                f"cannot obliterate queue {self._queue_name()}: it has active jobs; force removes them, too"
            )
            raise QueueInUse(text, queue=self._queue_name(), code=ACTIVE_LEFT) from None
        self._forgotten()

    @abstractmethod
    def _forgotten(self) -> None:
        """Told when the queue's keys are gone: it is opened anew before it is used."""

    async def retry_jobs(
        self, state: str = "failed", *, count: int = STEP, timestamp: int | None = None
    ) -> None:
        """Gives all dead jobs a fresh budget and puts them back, `count` at a time.

        Raises:
            WrongPlane: another state, or a timestamp: dead jobs bear no time of their end.
        """
        if state != "failed" or timestamp is not None:
            raise WrongPlane(
                "retry_jobs: on the lease plane all failed jobs, and no others; they bear no time"
            )
        plane, after = await self._plane_now(), "-"
        step = whole("count", count, 1)
        while True:
            key = plane.keys.key("dead")
            ids = await plane.command("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, step)
            if not ids:
                return
            texts = [codec.to_text(job_id) for job_id in ids]
            tries = [plane.queue.reprocess_job(job_id) for job_id in texts]
            _raise_others(await asyncio.gather(*tries, return_exceptions=True), JobMissing, WrongState)
            after = f"({texts[-1]}"

    async def promote_jobs(self, *, count: int = STEP) -> None:
        """Makes all delayed jobs wait for a worker now, `count` (at most 1 000) per call."""
        plane, step = await self._plane_now(), min(STEP, whole("count", count, 1))
        while await plane.queue.promote(step, early=True) == step:
            pass

    async def remove(self, job_id: str, *, remove_children: bool = True) -> None:
        """Removes one job from wherever it is. Its children, whom it does not know, stay; a parent that waited for it
        waits no more.

        Raises:
            JobMissing, JobLocked: there is no such job, or a worker holds it.
        """
        await (await self._plane_now()).queue.remove_job(job_id)

    async def remove_orphaned_jobs(self, count: int = STEP, limit: int = 0) -> int:
        """Removes jobs that are in no state, as another program may have left them; returns how many."""
        plane, cursor, removed = await self._plane_now(), "0", 0
        rows = f"{plane.keys.base}job:JOB" + "[0-9A-Za-z]" * 11
        while True:
            found, keys = await plane.command("SCAN", cursor, "MATCH", rows, "COUNT", count, "TYPE", "hash")
            for key in map(codec.to_text, keys):
                removed += await _remove_orphan(plane, key.rpartition(":")[2])
            cursor = codec.to_text(found)
            if cursor == "0" or (limit and removed >= limit):
                return removed

    async def publish_event(self, event: str, fields: Mapping[str, str], *, max_length: int = 1_000) -> None:
        """Publishes an event of your own to who listens; `jobId` among the fields is the job's. Nothing is kept."""
        if not isinstance(event, str) or not event:
            raise InputError(f"event: expected a non-empty text, got {event!r}")
        texts = {str(name): str(value) for name, value in fields.items()}
        message = codec.encode({**texts, "event": event, "job": texts.get("jobId", "")})
        await (await self._plane_now()).command("PUBLISH", self._lease_keys.key("events"), message)

    async def cancel(self, job_id: str, reason: str = "cancelled") -> None:
        """Asks whoever runs the job to stop it; heard only while its pool listens."""
        if not isinstance(reason, str):
            raise InputError(f"reason: expected a text, got {type(reason).__name__} {reason!r}")
        await self._plane_now()
        await request_cancel(self._link, self._lease_keys, job_id, reason)

    async def remove_deduplication_key(self, deduplication_id: str) -> bool:
        return await (await self._plane_now()).queue.free_dedup(deduplication_id)

    async def retry_job(self, job_id: str) -> None:
        """Gives a dead job a fresh budget and puts it back."""
        await (await self._plane_now()).queue.reprocess_job(job_id)

    # --- schedulers -------------------------------------------------------------------------------------

    async def upsert_job_scheduler(
        self,
        scheduler_id: str,
        *,
        every: int | None = None,
        pattern: str | None = None,
        tz: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        immediately: bool = False,
        name: str | None = None,
        data: Any = None,
        opts: dict[str, Any] | None = None,
    ) -> Job | None:
        """Makes or replaces a repeat: `every` ms from now on, or a cron `pattern` in `tz`. A pool fires it.

        Returns None: its jobs are made when they are due. One that keeps its rule keeps its next time, unless
        `immediately`.

        Raises:
            InputError: refused before anything was written.
            WrongPlane: limit, offset, start, end, or an option that a repeat's jobs cannot have.
        """
        given = {"limit": limit, "offset": offset, "start": start, "end": end}
        for option, value in given.items():
            if value is not None:
                raise refusal(f"upsert_job_scheduler({option})", self._queue_name(), SCHEDULE_GAPS[option])
        if not isinstance(scheduler_id, str) or not scheduler_id.strip():
            raise InputError(f"scheduler id: expected a non-empty text, got {scheduler_id!r}")
        repeat = check_repeat(every=every, pattern=pattern, tz=tz, immediately=immediately)
        job = check_lease_job(name or scheduler_id, data, opts or {})
        if job.job_id or job.delay_ms or job.group or job.dedup_id:
            raise WrongPlane(
                "upsert_job_scheduler: a repeat's jobs have no id, delay, group or deduplication"
            )
        await (await self._plane_now()).repeats.upsert(
            scheduler_id, job.data, every_ms=repeat.every_ms, pattern=repeat.pattern, tz=repeat.tz,
            immediately=immediately, job_name=job.name, opts=job.opts,
        )  # fmt: skip
        return None

    async def get_job_scheduler(self, scheduler_id: str) -> SchedulerRecord | None:
        return await (await self._plane_now()).repeats.get(scheduler_id)

    async def get_job_schedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[SchedulerRecord]:
        """All repeats, the last to fire first unless `asc`."""
        return await (await self._plane_now()).repeats.page(start, end, asc=asc)

    async def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Ends a repeat; the jobs that it has made stay. False when there is none."""
        return await (await self._plane_now()).repeats.cancel(scheduler_id) == "cancelled"


async def _remove_orphan(plane: LeasePlane, job_id: str) -> bool:
    if await plane.queue.get_job_state(job_id) != "unknown":
        return False
    try:
        await plane.queue.remove_job(job_id)
    except JobMissing:
        return False
    return True


def _raise_others(found: Sequence[BaseException | None], *expected: type[BaseException]) -> None:
    for error in found:
        if error is not None and not isinstance(error, expected):
            raise error
