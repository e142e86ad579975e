# SPDX-License-Identifier: MIT
"""What `SyncQueue` does beside adding and waiting: `queue_verbs.py`, synchronously, in the same order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from echomq_pool.api.ask import Op, T
from echomq_pool.api.operations import Operations
from echomq_pool.api.ops_family import BlockedParent, ChildrenPage
from echomq_pool.api.ops_look import QueueMetrics
from echomq_pool.api.repeats import Moment, check_repeat
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.plane.schedule import SchedulerRecord


class SyncQueueVerbs(ABC):
    """Arguments, results and errors are those of `QueueVerbs`."""

    _ops: Operations

    @abstractmethod
    def _run(self, operation: Op[T]) -> T: ...

    @abstractmethod
    def _job(self, record: JobRecord) -> SyncJob: ...

    # --- looking ---------------------------------------------------------------------------------------

    def get_job(self, job_id: str) -> SyncJob | None:
        """See `Queue.get_job`."""
        record = self._run(self._ops.load(job_id))
        return None if record is None else self._job(record)

    def get_jobs(
        self, states: str | Sequence[str] = (), start: int = 0, end: int = -1, asc: bool = False
    ) -> list[SyncJob]:
        """See `Queue.get_jobs`."""
        return [self._job(record) for record in self._run(self._ops.jobs(states, start, end, asc))]

    def get_waiting(self, start: int = 0, end: int = -1) -> list[SyncJob]:
        """See `Queue.get_waiting`."""
        return self.get_jobs("waiting", start, end, True)

    def get_active(self, start: int = 0, end: int = -1) -> list[SyncJob]:
        """See `Queue.get_active`."""
        return self.get_jobs("active", start, end, True)

    def get_delayed(self, start: int = 0, end: int = -1) -> list[SyncJob]:
        """See `Queue.get_delayed`."""
        return self.get_jobs("delayed", start, end, True)

    def get_prioritized(self, start: int = 0, end: int = -1) -> list[SyncJob]:
        """See `Queue.get_prioritized`."""
        return self.get_jobs("prioritized", start, end, True)

    def get_waiting_children(self, start: int = 0, end: int = -1) -> list[SyncJob]:
        """See `Queue.get_waiting_children`."""
        return self.get_jobs("waiting-children", start, end, True)

    def get_completed(self, start: int = 0, end: int = -1) -> list[SyncJob]:
        """See `Queue.get_completed`."""
        return self.get_jobs("completed", start, end, False)

    def get_failed(self, start: int = 0, end: int = -1) -> list[SyncJob]:
        """See `Queue.get_failed`."""
        return self.get_jobs("failed", start, end, False)

    def get_state(self, job_id: str) -> str:
        """See `Queue.get_state`."""
        return self._run(self._ops.state(job_id))

    def get_job_logs(self, job_id: str, start: int = 0, end: int = -1, asc: bool = True) -> list[str]:
        """See `Queue.get_job_logs`."""
        return self._run(self._ops.logs(job_id, start, end, asc))

    def count_job_logs(self, job_id: str) -> int:
        """See `Queue.count_job_logs`."""
        return self._run(self._ops.log_count(job_id))

    def add_job_log(self, job_id: str, row: str, keep: int | None = None) -> int:
        """See `Queue.add_job_log`."""
        return self._run(self._ops.add_log(job_id, row, keep))

    def update_job_progress(self, job_id: str, progress: Any) -> None:
        """See `Queue.update_job_progress`."""
        self._run(self._ops.update_progress(job_id, progress))

    def get_job_counts(self, *states: str) -> dict[str, int]:
        """See `Queue.get_job_counts`."""
        return self._run(self._ops.counts(states))

    counts = get_job_counts

    def count(self) -> int:
        """See `Queue.count`."""
        return self._run(self._ops.count())

    def get_counts_per_priority(self, priorities: Sequence[int]) -> dict[int, int]:
        """See `Queue.get_counts_per_priority`."""
        return self._run(self._ops.counts_per_priority(priorities))

    def get_metrics(self, kind: str, start: int = 0, end: int = -1) -> QueueMetrics:
        """See `Queue.get_metrics`."""
        return self._run(self._ops.metrics(kind, start, end))

    def export_prometheus_metrics(self, labels: Mapping[str, str] | None = None) -> str:
        """See `Queue.export_prometheus_metrics`."""
        return self._run(self._ops.prometheus(labels or {}))

    def get_workers(self) -> list[dict[str, str]]:
        """See `Queue.get_workers`."""
        return self._run(self._ops.clients("w"))

    def get_workers_count(self) -> int:
        """See `Queue.get_workers_count`."""
        return len(self.get_workers())

    def get_queue_events(self) -> list[dict[str, str]]:
        """See `Queue.get_queue_events`."""
        return self._run(self._ops.clients("qe"))

    def get_meta(self) -> dict[str, str]:
        """See `Queue.get_meta`."""
        return self._run(self._ops.meta())

    def get_dependencies(
        self, parent_id: str, kind: str = "processed", start: int = 0, end: int = -1
    ) -> ChildrenPage:
        """See `Queue.get_dependencies`."""
        return self._run(self._ops.children_of(parent_id, kind, start, end))

    def get_blocked_parents(self, start: int = 0, end: int = -1) -> list[BlockedParent]:
        """See `Queue.get_blocked_parents`."""
        return self._run(self._ops.blocked_parents(start, end))

    # --- the queue as a whole ------------------------------------------------------------------------------

    def pause(self) -> None:
        """See `Queue.pause`."""
        self._run(self._ops.pause())

    def resume(self) -> None:
        """See `Queue.resume`."""
        self._run(self._ops.resume())

    def is_paused(self) -> bool:
        """See `Queue.is_paused`."""
        return self._run(self._ops.is_paused())

    def is_maxed(self) -> bool:
        """See `Queue.is_maxed`."""
        return self._run(self._ops.is_maxed())

    def set_global_concurrency(self, limit: int | None) -> None:
        """See `Queue.set_global_concurrency`."""
        self._run(self._ops.set_concurrency(limit))

    def get_global_concurrency(self) -> int | None:
        """See `Queue.get_global_concurrency`."""
        return self._run(self._ops.concurrency())

    def remove_global_concurrency(self) -> None:
        """See `Queue.remove_global_concurrency`."""
        self._run(self._ops.set_concurrency(None))

    def set_global_rate_limit(self, max: int | None, duration_ms: int | None = None) -> None:
        """See `Queue.set_global_rate_limit`."""
        self._run(self._ops.set_rate_limit(max, duration_ms))

    def get_global_rate_limit(self) -> tuple[int, int] | None:
        """See `Queue.get_global_rate_limit`."""
        return self._run(self._ops.rate_limit())

    def remove_global_rate_limit(self) -> None:
        """See `Queue.remove_global_rate_limit`."""
        self._run(self._ops.set_rate_limit(None, None))

    def get_rate_limit_ttl(self, max: int | None = None) -> int:
        """See `Queue.get_rate_limit_ttl`."""
        return self._run(self._ops.rate_limit_ttl(max))

    def rate_limit(self, duration_ms: int) -> None:
        """See `Queue.rate_limit`."""
        self._run(self._ops.rate_limit_now(duration_ms))

    def remove_rate_limit_key(self) -> bool:
        """See `Queue.remove_rate_limit_key`."""
        return self._run(self._ops.lift_rate_limit())

    def drain(self, delayed: bool = False) -> None:
        """See `Queue.drain`."""
        self._run(self._ops.drain(delayed))

    def clean(self, grace_ms: int, limit: int = 0, state: str = "completed") -> list[str]:
        """See `Queue.clean`."""
        return self._run(self._ops.clean(grace_ms, limit, state))

    def obliterate(self, *, force: bool = False, count: int = 1_000) -> None:
        """See `Queue.obliterate`."""
        self._run(self._ops.obliterate(force, count))

    def retry_jobs(self, state: str = "failed", *, count: int = 1_000, timestamp: int | None = None) -> None:
        """See `Queue.retry_jobs`."""
        self._run(self._ops.retry_jobs(state, count, timestamp))

    def promote_jobs(self, *, count: int = 1_000) -> None:
        """See `Queue.promote_jobs`."""
        self._run(self._ops.promote_jobs(count))

    def remove(self, job_id: str, *, remove_children: bool = True) -> None:
        """See `Queue.remove`."""
        self._run(self._ops.remove(job_id, remove_children))

    def remove_orphaned_jobs(self, count: int = 1_000, limit: int = 0) -> int:
        """See `Queue.remove_orphaned_jobs`."""
        return self._run(self._ops.remove_orphans(count, limit))

    def trim_events(self, max_length: int) -> int:
        """See `Queue.trim_events`."""
        return self._run(self._ops.trim_events(max_length))

    def publish_event(self, event: str, fields: Mapping[str, str], *, max_length: int = 1_000) -> None:
        """See `Queue.publish_event`."""
        self._run(self._ops.publish(event, fields, max_length))

    def cancel(self, job_id: str, reason: str = "cancelled") -> None:
        """See `Queue.cancel`."""
        self._run(self._ops.cancel(job_id, reason))

    def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """See `Queue.get_deduplication_job_id`."""
        return self._run(self._ops.dedup_owner(deduplication_id))

    def remove_deduplication_key(self, deduplication_id: str) -> bool:
        """See `Queue.remove_deduplication_key`."""
        return self._run(self._ops.release_dedup(deduplication_id))

    # --- schedulers -------------------------------------------------------------------------------------

    def upsert_job_scheduler(
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
    ) -> SyncJob | None:
        """See `Queue.upsert_job_scheduler`."""
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
        record = self._run(operation)
        return None if record is None else self._job(record)

    def get_job_scheduler(self, scheduler_id: str) -> SchedulerRecord | None:
        """See `Queue.get_job_scheduler`."""
        return self._run(self._ops.get_scheduler(scheduler_id))

    def get_job_schedulers(self, start: int = 0, end: int = -1, asc: bool = False) -> list[SchedulerRecord]:
        """See `Queue.get_job_schedulers`."""
        return self._run(self._ops.schedulers(start, end, asc))

    def get_job_scheduler_ids(self) -> list[str]:
        """See `Queue.get_job_scheduler_ids`."""
        return self._run(self._ops.scheduler_ids())

    def get_job_schedulers_count(self) -> int:
        """See `Queue.get_job_schedulers_count`."""
        return self._run(self._ops.scheduler_count())

    def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """See `Queue.remove_job_scheduler`."""
        return self._run(self._ops.remove_scheduler(scheduler_id))

    def repair_job_scheduler(self, scheduler_id: str) -> tuple[str, str]:
        """See `Queue.repair_job_scheduler`."""
        return self._run(self._ops.repair_scheduler(scheduler_id))
