# SPDX-License-Identifier: MIT
"""What `Queue` does beside adding and waiting. `sync_verbs.py` is the same, synchronously, in the same order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from echomq_pool.api.ask import Op, T
from echomq_pool.api.job import Job
from echomq_pool.api.operations import Operations
from echomq_pool.api.ops_family import BlockedParent, ChildrenPage
from echomq_pool.api.ops_look import QueueMetrics
from echomq_pool.api.repeats import Moment, check_repeat
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.plane.schedule import SchedulerRecord


class QueueVerbs(ABC):
    """Every verb may raise `LinkError`, and `InputError` before anything is written. Times are ms."""

    _ops: Operations

    @abstractmethod
    async def _run(self, operation: Op[T]) -> T: ...

    @abstractmethod
    def _job(self, record: JobRecord) -> Job: ...

    # --- looking ---------------------------------------------------------------------------------------

    async def get_job(self, job_id: str) -> Job | None:
        """The job as stored; None when there is none. BullMQ: `getJob`."""
        record = await self._run(self._ops.load(job_id))
        return None if record is None else self._job(record)

    async def get_jobs(
        self, states: str | Sequence[str] = (), start: int = 0, end: int = -1, asc: bool = False
    ) -> list[Job]:
        """Jobs `start` to `end` (inclusive, -1 = the last) of each state, all states when none is named.

        Newest first, or oldest first when `asc`. BullMQ: `getJobs`.
        """
        return [self._job(record) for record in await self._run(self._ops.jobs(states, start, end, asc))]

    async def get_waiting(self, start: int = 0, end: int = -1) -> list[Job]:
        """The next to run first. BullMQ: `getWaiting`."""
        return await self.get_jobs("waiting", start, end, True)

    async def get_active(self, start: int = 0, end: int = -1) -> list[Job]:
        """The longest at work first. BullMQ: `getActive`."""
        return await self.get_jobs("active", start, end, True)

    async def get_delayed(self, start: int = 0, end: int = -1) -> list[Job]:
        """The next due first. BullMQ: `getDelayed`."""
        return await self.get_jobs("delayed", start, end, True)

    async def get_prioritized(self, start: int = 0, end: int = -1) -> list[Job]:
        """The next to run first. BullMQ: `getPrioritized`."""
        return await self.get_jobs("prioritized", start, end, True)

    async def get_waiting_children(self, start: int = 0, end: int = -1) -> list[Job]:
        """The longest waiting first. BullMQ: `getWaitingChildren`."""
        return await self.get_jobs("waiting-children", start, end, True)

    async def get_completed(self, start: int = 0, end: int = -1) -> list[Job]:
        """The last completed first. BullMQ: `getCompleted`."""
        return await self.get_jobs("completed", start, end, False)

    async def get_failed(self, start: int = 0, end: int = -1) -> list[Job]:
        """The last failed first. BullMQ: `getFailed`."""
        return await self.get_jobs("failed", start, end, False)

    async def get_state(self, job_id: str) -> str:
        """Where the job is, `unknown` when it is nowhere. BullMQ: `getJobState`."""
        return await self._run(self._ops.state(job_id))

    async def get_job_logs(self, job_id: str, start: int = 0, end: int = -1, asc: bool = True) -> list[str]:
        """Rows of a job's log, oldest first unless `asc` is False. BullMQ: `getJobLogs`."""
        return await self._run(self._ops.logs(job_id, start, end, asc))

    async def count_job_logs(self, job_id: str) -> int:
        """How many rows a job's log has."""
        return await self._run(self._ops.log_count(job_id))

    async def add_job_log(self, job_id: str, row: str, keep: int | None = None) -> int:
        """Appends a row to a job's log; keeps the last `keep`. BullMQ: `addJobLog`."""
        return await self._run(self._ops.add_log(job_id, row, keep))

    async def update_job_progress(self, job_id: str, progress: Any) -> None:
        """Stores and publishes a job's progress. BullMQ: `updateJobProgress`.

        Raises:
            JobMissing: there is no such job.
        """
        await self._run(self._ops.update_progress(job_id, progress))

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """Sizes by state; of all states when none is named. BullMQ: `getJobCounts`."""
        return await self._run(self._ops.counts(states))

    counts = get_job_counts

    async def count(self) -> int:
        """How many jobs are still to be done: waiting, delayed, prioritized, waiting-children. BullMQ: `count`."""
        return await self._run(self._ops.count())

    async def get_counts_per_priority(self, priorities: Sequence[int]) -> dict[int, int]:
        """Waiting jobs of each priority; 0 = those without one. BullMQ: `getCountsPerPriority`."""
        return await self._run(self._ops.counts_per_priority(priorities))

    async def get_metrics(self, kind: str, start: int = 0, end: int = -1) -> QueueMetrics:
        """Jobs "completed" or "failed" per minute, where workers have metrics switched on. BullMQ: `getMetrics`."""
        return await self._run(self._ops.metrics(kind, start, end))

    async def export_prometheus_metrics(self, labels: Mapping[str, str] | None = None) -> str:
        """Sizes by state as Prometheus text; `labels` are put on every row. BullMQ: `exportPrometheusMetrics`."""
        return await self._run(self._ops.prometheus(labels or {}))

    async def get_workers(self) -> list[dict[str, str]]:
        """Connections of workers of this queue, ours and Node's, as CLIENT LIST tells. BullMQ: `getWorkers`."""
        return await self._run(self._ops.clients("w"))

    async def get_workers_count(self) -> int:
        """BullMQ: `getWorkersCount`."""
        return len(await self.get_workers())

    async def get_queue_events(self) -> list[dict[str, str]]:
        """Connections of readers of the event stream. BullMQ: `getQueueEvents`."""
        return await self._run(self._ops.clients("qe"))

    async def get_meta(self) -> dict[str, str]:
        """What is stored about the queue as a whole. BullMQ: `getMeta`."""
        return await self._run(self._ops.meta())

    async def get_dependencies(
        self, parent_id: str, kind: str = "processed", start: int = 0, end: int = -1
    ) -> ChildrenPage:
        """Children of a job with their stored jobs: "processed" or "pending". BullMQ: `getDependencies`."""
        return await self._run(self._ops.children_of(parent_id, kind, start, end))

    async def get_blocked_parents(self, start: int = 0, end: int = -1) -> list[BlockedParent]:
        """Parents that wait for a child that failed without a word about its parent: they wait for ever.

        Retry or remove the child, or `remove_child_dependency`. Nothing of BullMQ's; `start`, `end` count parents.
        """
        return await self._run(self._ops.blocked_parents(start, end))

    # --- the queue as a whole ------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Nobody takes jobs of this queue any more; what runs goes on. BullMQ: `pause`."""
        await self._run(self._ops.pause())

    async def resume(self) -> None:
        """BullMQ: `resume`."""
        await self._run(self._ops.resume())

    async def is_paused(self) -> bool:
        """BullMQ: `isPaused`."""
        return await self._run(self._ops.is_paused())

    async def is_maxed(self) -> bool:
        """Whether as many jobs are active as the global concurrency allows. BullMQ: `isMaxed`."""
        return await self._run(self._ops.is_maxed())

    async def set_global_concurrency(self, limit: int | None) -> None:
        """At most so many active jobs over all workers; None = no limit. BullMQ: `setGlobalConcurrency`."""
        await self._run(self._ops.set_concurrency(limit))

    async def get_global_concurrency(self) -> int | None:
        """BullMQ: `getGlobalConcurrency`."""
        return await self._run(self._ops.concurrency())

    async def remove_global_concurrency(self) -> None:
        """BullMQ: `removeGlobalConcurrency`."""
        await self._run(self._ops.set_concurrency(None))

    async def set_global_rate_limit(self, max: int | None, duration_ms: int | None = None) -> None:
        """At most `max` starts per `duration_ms` over all workers; None = no limit. BullMQ: `setGlobalRateLimit`."""
        await self._run(self._ops.set_rate_limit(max, duration_ms))

    async def get_global_rate_limit(self) -> tuple[int, int] | None:
        """(max, duration in ms). BullMQ: `getGlobalRateLimit`."""
        return await self._run(self._ops.rate_limit())

    async def remove_global_rate_limit(self) -> None:
        """BullMQ: `removeGlobalRateLimit`."""
        await self._run(self._ops.set_rate_limit(None, None))

    async def get_rate_limit_ttl(self, max: int | None = None) -> int:
        """ms until takes go on: > 0 only while limited. BullMQ: `getRateLimitTtl`.

        Args:
            max: as the worker's own limiter has it; by default the global one counts, and without one the answer is
                what is left of the window, -2 when there is none.
        """
        return await self._run(self._ops.rate_limit_ttl(max))

    async def rate_limit(self, duration_ms: int) -> None:
        """Stops takes for `duration_ms`, where a maximum is set. BullMQ: `rateLimit`."""
        await self._run(self._ops.rate_limit_now(duration_ms))

    async def remove_rate_limit_key(self) -> bool:
        """Ends the current window at once; False when there was none. BullMQ: `removeRateLimitKey`."""
        return await self._run(self._ops.lift_rate_limit())

    async def drain(self, delayed: bool = False) -> None:
        """Removes all waiting and prioritized (and delayed) jobs; a series keeps its next one. BullMQ: `drain`."""
        await self._run(self._ops.drain(delayed))

    async def clean(self, grace_ms: int, limit: int = 0, state: str = "completed") -> list[str]:
        """Removes jobs of a state older than `grace_ms`, at most `limit` (0 = all); returns their ids.

        States: completed, failed, delayed, wait, active (only those without a lock), paused, prioritized.
        BullMQ: `clean`.
        """
        return await self._run(self._ops.clean(grace_ms, limit, state))

    async def obliterate(self, *, force: bool = False, count: int = 1_000) -> None:
        """Throws the whole queue away; `count` jobs per step. BullMQ: `obliterate`.

        Raises:
            QueueInUse: it has active jobs, and `force` is False.
        """
        await self._run(self._ops.obliterate(force, count))

    async def retry_jobs(
        self, state: str = "failed", *, count: int = 1_000, timestamp: int | None = None
    ) -> None:
        """Puts all failed (or completed) jobs back in wait that ended before `timestamp` (wall ms, default now).

        BullMQ: `retryJobs`.
        """
        await self._run(self._ops.retry_jobs(state, count, timestamp))

    async def promote_jobs(self, *, count: int = 1_000) -> None:
        """Makes all delayed jobs wait for a worker now. BullMQ: `promoteJobs`."""
        await self._run(self._ops.promote_jobs(count))

    async def remove(self, job_id: str, *, remove_children: bool = True) -> None:
        """Removes one job from wherever it is, its children with it. BullMQ: `remove`.

        Raises:
            JobLocked, SchedulerOwned: as `Job.remove`.
        """
        await self._run(self._ops.remove(job_id, remove_children))

    async def remove_orphaned_jobs(self, count: int = 1_000, limit: int = 0) -> int:
        """Removes jobs that are in no state, `count` keys per step; returns how many. BullMQ: `removeOrphanedJobs`."""
        return await self._run(self._ops.remove_orphans(count, limit))

    async def trim_events(self, max_length: int) -> int:
        """Cuts the event stream to about its last `max_length` entries. BullMQ: `trimEvents`."""
        return await self._run(self._ops.trim_events(max_length))

    async def publish_event(self, event: str, fields: Mapping[str, str], *, max_length: int = 1_000) -> None:
        """Puts an event of your own in the stream. BullMQ: `QueueEventsProducer.publishEvent`."""
        await self._run(self._ops.publish(event, fields, max_length))

    async def cancel(self, job_id: str, reason: str = "cancelled") -> None:
        """Asks the pool that runs the job to stop it; it fails with `reason` and is not retried."""
        await self._run(self._ops.cancel(job_id, reason))

    async def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """The job that owns a deduplication id. BullMQ: `getDeduplicationJobId`."""
        return await self._run(self._ops.dedup_owner(deduplication_id))

    async def remove_deduplication_key(self, deduplication_id: str) -> bool:
        """Frees a deduplication id, whoever owns it. BullMQ: `removeDeduplicationKey`."""
        return await self._run(self._ops.release_dedup(deduplication_id))

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
        """Makes or replaces a series: `every` ms, or a cron `pattern` in `tz`. Returns its next job.

        BullMQ: `upsertJobScheduler`.

        Raises:
            InputError: refused before anything was written.
            SlotTaken: finished jobs occupy its next slots.
        """
        repeat = check_repeat(
            every=every,
            pattern=pattern,
            tz=tz,
            limit=limit,
            offset=offset,
            start=start,
            end=end,
            immediately=immediately,
        )
        operation = self._ops.upsert_scheduler(scheduler_id, repeat, name, data, opts or {})
        record = await self._run(operation)
        return None if record is None else self._job(record)

    async def get_job_scheduler(self, scheduler_id: str) -> SchedulerRecord | None:
        """BullMQ: `getJobScheduler`."""
        return await self._run(self._ops.get_scheduler(scheduler_id))

    async def get_job_schedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[SchedulerRecord]:
        """All series, the last to run first unless `asc`. BullMQ: `getJobSchedulers`."""
        return await self._run(self._ops.schedulers(start, end, asc))

    async def get_job_scheduler_ids(self) -> list[str]:
        """Ids of all series, the next to run first."""
        return await self._run(self._ops.scheduler_ids())

    async def get_job_schedulers_count(self) -> int:
        """BullMQ: `getJobSchedulersCount`."""
        return await self._run(self._ops.scheduler_count())

    async def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Ends a series with its waiting next job; False when there is none. BullMQ: `removeJobScheduler`."""
        return await self._run(self._ops.remove_scheduler(scheduler_id))

    async def repair_job_scheduler(self, scheduler_id: str) -> tuple[str, str]:
        """Makes the series' next job again if it is nowhere: (gone | moved | alive | taken | made | ended, id)."""
        return await self._run(self._ops.repair_scheduler(scheduler_id))
