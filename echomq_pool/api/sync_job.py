# SPDX-License-Identifier: MIT
"""The job for plain functions: the fields of a `JobView`, and the verbs of `Job` as calls that block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from echomq_pool.api.job_view import JobView
from echomq_pool.api.ops_job import Dependencies


class SyncJob:
    """The synchronous job. Verbs, arguments and errors are those of `Job`.

    Args:
        view: whose fields are shown; what the worker tells it (lease lost, cancelled) shows here at once.
        run: performs a verb by name.
    """

    def __init__(self, view: JobView, run: Callable[..., Any]) -> None:
        self._view = view
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    @property
    def id(self) -> str:
        return self._view.id

    @property
    def name(self) -> str:
        return self._view.name

    @property
    def data(self) -> Any:
        return self._view.data

    # --- what it says ---------------------------------------------------------------------------------

    def update_progress(self, progress: Any) -> None:
        self._run("update_progress", progress)

    def log(self, row: str) -> int:
        return int(self._run("log", row))

    def clear_logs(self, keep: int = 0) -> None:
        self._run("clear_logs", keep)

    def update_data(self, data: Any) -> None:
        self._run("update_data", data)

    def refresh(self) -> bool:
        return bool(self._run("refresh"))

    def state(self) -> str:
        return str(self._run("state"))

    def is_completed(self) -> bool:
        return self.state() == "completed"

    def is_failed(self) -> bool:
        return self.state() == "failed"

    def is_delayed(self) -> bool:
        return self.state() == "delayed"

    def is_active(self) -> bool:
        return self.state() == "active"

    def is_waiting(self) -> bool:
        return self.state() == "waiting"

    def is_prioritized(self) -> bool:
        return self.state() == "prioritized"

    def is_waiting_children(self) -> bool:
        return self.state() == "waiting-children"

    # --- where it is ------------------------------------------------------------------------------------

    def promote(self) -> None:
        self._run("promote")

    def change_delay(self, delay_ms: float) -> None:
        self._run("change_delay", delay_ms)

    def change_priority(self, priority: int = 0, *, lifo: bool = False) -> None:
        self._run("change_priority", priority, lifo=lifo)

    def retry(
        self,
        state: str = "failed",
        *,
        reset_attempts_made: bool = False,
        reset_attempts_started: bool = False,
    ) -> None:
        self._run(
            "retry",
            state,
            reset_attempts_made=reset_attempts_made,
            reset_attempts_started=reset_attempts_started,
        )

    def remove(self, *, remove_children: bool = True) -> None:
        self._run("remove", remove_children=remove_children)

    def remove_deduplication_key(self) -> bool:
        return bool(self._run("remove_deduplication_key"))

    # --- its children ---------------------------------------------------------------------------------

    def get_children_values(self) -> dict[str, Any]:
        return dict(self._run("get_children_values"))

    def get_ignored_children_failures(self) -> dict[str, str]:
        return dict(self._run("get_ignored_children_failures"))

    def get_failed_children(self) -> list[str]:
        return list(self._run("get_failed_children"))

    def get_dependencies(self) -> Dependencies:
        found: Dependencies = self._run("get_dependencies")
        return found

    def get_dependencies_page(self, kind: str, cursor: int = 0, count: int = 20) -> tuple[int, Any]:
        page: tuple[int, Any] = self._run("get_dependencies_page", kind, cursor, count)
        return page

    def get_dependencies_count(self, *kinds: str) -> dict[str, int]:
        return dict(self._run("get_dependencies_count", *kinds))

    def remove_unprocessed_children(self) -> None:
        self._run("remove_unprocessed_children")

    def remove_child_dependency(self) -> bool:
        return bool(self._run("remove_child_dependency"))

    # --- for who holds it -------------------------------------------------------------------------------

    def move_to_delayed(
        self,
        timestamp_ms: float | None = None,
        token: str | None = None,
        *,
        delay_ms: float | None = None,
    ) -> None:
        self._run("move_to_delayed", timestamp_ms, token, delay_ms=delay_ms)

    def move_to_wait(self, token: str | None = None) -> None:
        self._run("move_to_wait", token)

    def move_to_waiting_children(self, token: str | None = None, *, child_key: str = "") -> bool:
        return bool(self._run("move_to_waiting_children", token, child_key=child_key))

    def extend_lock(self, token: str | None = None, duration_ms: int = 30_000) -> None:
        self._run("extend_lock", token, duration_ms)

    def rate_limit(self, duration_ms: int) -> None:
        self._run("rate_limit", duration_ms)

    # --- for its producer -------------------------------------------------------------------------------

    def wait_until_finished(self, timeout: float | None = None) -> Any:
        return self._run("wait_until_finished", timeout)

    def cancel(self, reason: str = "cancelled") -> None:
        self._run("cancel", reason)

    def __repr__(self) -> str:
        return f"SyncJob(id={self.id!r}, name={self.name!r})"
