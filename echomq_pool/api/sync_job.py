# SPDX-License-Identifier: MIT
"""The job for plain functions: the fields of a `JobView`, and the verbs of `Job` as calls that block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from echomq_pool.api.guard_view import TTL
from echomq_pool.api.job_guard import ThreadedLease
from echomq_pool.api.job_view import JobFields, JobView
from echomq_pool.api.ops_job import Dependencies
from echomq_pool.plane.job_record import JobRecord


class SyncJob(JobFields):
    """The synchronous job. Fields, verbs, arguments and errors are those of `Job`.

    Args:
        view: whose fields are shown; what the worker tells it (lease lost, cancelled) shows here at once.
        run: performs a verb by name.
    """

    def __init__(self, view: JobView, run: Callable[..., Any]) -> None:
        self._view = view
        self._run = run

    @property
    def record(self) -> JobRecord:
        """All that is stored of it, as it was read."""
        return self._view.record

    @property
    def data(self) -> Any:
        """The payload, decoded at the first look.

        Raises:
            InputError: it is no JSON.
        """
        return self._view.data

    @property
    def token(self) -> str:
        """Of the worker that holds it; empty for a producer."""
        return self._view.token

    @property
    def queue_name(self) -> str:
        """Of the queue it is in."""
        return self._view.queue_name

    @property
    def queue_key(self) -> str:
        """The queue's qualified name, `emq:{orders}`: what children of this job name."""
        return self._view.queue_key

    @property
    def lease_lost(self) -> bool:
        """True: another worker may run this job now; it is settled only if we get it back."""
        return self._view.lease_lost

    @property
    def cancelled(self) -> bool:
        """True: somebody asked for its end, or its time is up."""
        return self._view.cancelled

    @property
    def cancel_reason(self) -> str:
        """What was said when it was cancelled; empty when it was not."""
        return self._view.cancel_reason

    @property
    def moved(self) -> str:
        """Where its own processor has put it: delayed | wait | waiting-children | completed | failed."""
        return self._view.moved

    # --- what it says ---------------------------------------------------------------------------------

    def update_progress(self, progress: Any) -> None:
        """See `Job.update_progress`."""
        self._run("update_progress", progress)

    def log(self, row: str) -> int:
        """See `Job.log`."""
        return int(self._run("log", row))

    def clear_logs(self, keep: int = 0) -> None:
        """See `Job.clear_logs`."""
        self._run("clear_logs", keep)

    def update_data(self, data: Any) -> None:
        """See `Job.update_data`."""
        self._run("update_data", data)

    def refresh(self) -> bool:
        """See `Job.refresh`."""
        return bool(self._run("refresh"))

    def state(self) -> str:
        """See `Job.state`."""
        return str(self._run("state"))

    def is_completed(self) -> bool:
        """See `Job.is_completed`."""
        return self.state() == "completed"

    def is_failed(self) -> bool:
        """See `Job.is_failed`."""
        return self.state() == "failed"

    def is_delayed(self) -> bool:
        """See `Job.is_delayed`."""
        return self.state() == "delayed"

    def is_active(self) -> bool:
        """See `Job.is_active`."""
        return self.state() == "active"

    def is_waiting(self) -> bool:
        """See `Job.is_waiting`."""
        return self.state() == "waiting"

    def is_prioritized(self) -> bool:
        """See `Job.is_prioritized`."""
        return self.state() == "prioritized"

    def is_waiting_children(self) -> bool:
        """See `Job.is_waiting_children`."""
        return self.state() == "waiting-children"

    # --- where it is ------------------------------------------------------------------------------------

    def promote(self) -> None:
        """See `Job.promote`."""
        self._run("promote")

    def change_delay(self, delay_ms: float) -> None:
        """See `Job.change_delay`."""
        self._run("change_delay", delay_ms)

    def change_priority(self, priority: int = 0, *, lifo: bool = False) -> None:
        """See `Job.change_priority`."""
        self._run("change_priority", priority, lifo=lifo)

    def retry(
        self,
        state: str = "failed",
        *,
        reset_attempts_made: bool = False,
        reset_attempts_started: bool = False,
    ) -> None:
        """See `Job.retry`."""
        self._run(
            "retry",
            state,
            reset_attempts_made=reset_attempts_made,
            reset_attempts_started=reset_attempts_started,
        )

    def remove(self, *, remove_children: bool = True) -> None:
        """See `Job.remove`."""
        self._run("remove", remove_children=remove_children)

    def remove_deduplication_key(self) -> bool:
        """See `Job.remove_deduplication_key`."""
        return bool(self._run("remove_deduplication_key"))

    # --- its children ---------------------------------------------------------------------------------

    def get_children_values(self) -> dict[str, Any]:
        """See `Job.get_children_values`."""
        return dict(self._run("get_children_values"))

    def get_ignored_children_failures(self) -> dict[str, str]:
        """See `Job.get_ignored_children_failures`."""
        return dict(self._run("get_ignored_children_failures"))

    def get_failed_children(self) -> list[str]:
        """See `Job.get_failed_children`."""
        return list(self._run("get_failed_children"))

    def get_dependencies(self) -> Dependencies:
        """See `Job.get_dependencies`."""
        found: Dependencies = self._run("get_dependencies")
        return found

    def get_dependencies_page(self, kind: str, cursor: int = 0, count: int = 20) -> tuple[int, Any]:
        """See `Job.get_dependencies_page`."""
        page: tuple[int, Any] = self._run("get_dependencies_page", kind, cursor, count)
        return page

    def get_dependencies_count(self, *kinds: str) -> dict[str, int]:
        """See `Job.get_dependencies_count`."""
        return dict(self._run("get_dependencies_count", *kinds))

    def remove_unprocessed_children(self) -> None:
        """See `Job.remove_unprocessed_children`."""
        self._run("remove_unprocessed_children")

    def remove_child_dependency(self) -> bool:
        """See `Job.remove_child_dependency`."""
        return bool(self._run("remove_child_dependency"))

    # --- for who holds it -------------------------------------------------------------------------------

    def move_to_delayed(
        self,
        timestamp_ms: float | None = None,
        token: str | None = None,
        *,
        delay_ms: float | None = None,
    ) -> None:
        """See `Job.move_to_delayed`."""
        self._run("move_to_delayed", timestamp_ms, token, delay_ms=delay_ms)

    def move_to_wait(self, token: str | None = None) -> None:
        """See `Job.move_to_wait`."""
        self._run("move_to_wait", token)

    def move_to_waiting_children(self, token: str | None = None, *, child_key: str = "") -> bool:
        """See `Job.move_to_waiting_children`."""
        return bool(self._run("move_to_waiting_children", token, child_key=child_key))

    def move_to_completed(
        self, returnvalue: Any, token: str | None = None, *, fetch_next: bool = False
    ) -> SyncJob | None:
        """See `Job.move_to_completed`."""
        following: SyncJob | None = self._run("move_to_completed", returnvalue, token, fetch_next=fetch_next)
        return following

    def move_to_failed(
        self,
        error: BaseException | str,
        token: str | None = None,
        *,
        stacktrace: str = "",
        fetch_next: bool = False,
    ) -> SyncJob | None:
        """See `Job.move_to_failed`."""
        following: SyncJob | None = self._run(
            "move_to_failed", error, token, stacktrace=stacktrace, fetch_next=fetch_next
        )
        return following

    def extend_lock(self, token: str | None = None, duration_ms: int = 30_000) -> None:
        """See `Job.extend_lock`."""
        self._run("extend_lock", token, duration_ms)

    def lease(self, name: str, *, ttl: str = TTL, wait: str | int | None = None) -> ThreadedLease:
        """See `Job.lease`."""
        lease: ThreadedLease = self._run("lease", name, ttl=ttl, wait=wait)
        return lease

    def rate_limit(self, duration_ms: int) -> None:
        """See `Job.rate_limit`."""
        self._run("rate_limit", duration_ms)

    # --- for its producer -------------------------------------------------------------------------------

    def wait_until_finished(self, timeout: float | None = None) -> Any:
        """See `Job.wait_until_finished`."""
        return self._run("wait_until_finished", timeout)

    def cancel(self, reason: str = "cancelled") -> None:
        """See `Job.cancel`."""
        self._run("cancel", reason)
