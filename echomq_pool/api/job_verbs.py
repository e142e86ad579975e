# SPDX-License-Identifier: MIT
"""The verbs of a job that anybody may use: its producer, an operator, its own processor, its parent's."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from echomq_pool.api.ask import Op, T, over_plane
from echomq_pool.api.job_view import JobView
from echomq_pool.api.ops_job import Dependencies, JobOps
from echomq_pool.clock import Clock
from echomq_pool.plane.base import JobRecord, Plane, PlaneOptions
from echomq_pool.plane.calls import Calls

_OPS: WeakKeyDictionary[Plane, JobOps] = WeakKeyDictionary()


class JobVerbs(JobView):
    """Asynchronous. Every verb may raise `LinkError`; those of a job that is gone raise `JobMissing`."""

    def __init__(self, record: JobRecord, plane: Plane, token: str, clock: Clock) -> None:
        super().__init__(record, token, plane.keys.queue, plane.keys.qualified)
        self._plane = plane
        self._clock = clock

    @property
    def _ops(self) -> JobOps:
        # Made at their first use, once per plane: most jobs of a worker never need them.
        made = _OPS.get(self._plane)
        if made is None:
            keys = self._plane.keys
            made = _OPS[self._plane] = JobOps(keys, Calls(keys, PlaneOptions()), self._clock)
        return made

    async def _run(self, operation: Op[T]) -> T:
        return await over_plane(self._plane).run(operation)

    # --- what it says ---------------------------------------------------------------------------------

    async def update_progress(self, progress: Any) -> None:
        """Stores and publishes progress: a number, a text, or anything that is JSON. BullMQ: `updateProgress`.

        Raises:
            InputError: it is not JSON (NaN and Infinity are named).
        """
        await self._run(self._ops.update_progress(self, progress))

    async def log(self, row: str) -> int:
        """Appends a row to the job's log; returns how many are kept. BullMQ: `log`."""
        return await self._run(self._ops.log(self, row))

    async def clear_logs(self, keep: int = 0) -> None:
        """Drops the log but for its last `keep` rows. BullMQ: `clearLogs`."""
        await self._run(self._ops.clear_logs(self, keep))

    async def update_data(self, data: Any) -> None:
        """Replaces the payload. BullMQ: `updateData`."""
        await self._run(self._ops.update_data(self, data))

    async def refresh(self) -> bool:
        """Reads the job again; False when it is gone (the fields then stay as they were)."""
        return await self._run(self._ops.refresh(self))

    async def state(self) -> str:
        """completed | failed | delayed | prioritized | active | waiting | waiting-children | unknown.

        BullMQ: `getState`.
        """
        return await self._run(self._ops.state(self.id))

    async def is_completed(self) -> bool:
        """BullMQ: `isCompleted`."""
        return await self.state() == "completed"

    async def is_failed(self) -> bool:
        """BullMQ: `isFailed`."""
        return await self.state() == "failed"

    async def is_delayed(self) -> bool:
        """BullMQ: `isDelayed`."""
        return await self.state() == "delayed"

    async def is_active(self) -> bool:
        """BullMQ: `isActive`."""
        return await self.state() == "active"

    async def is_waiting(self) -> bool:
        """BullMQ: `isWaiting`; a prioritized job is not waiting, as there."""
        return await self.state() == "waiting"

    async def is_prioritized(self) -> bool:
        """Whether it waits by its priority. Not in BullMQ, which has `getState` for it."""
        return await self.state() == "prioritized"

    async def is_waiting_children(self) -> bool:
        """BullMQ: `isWaitingChildren`."""
        return await self.state() == "waiting-children"

    # --- where it is ------------------------------------------------------------------------------------

    async def promote(self) -> None:
        """Makes a delayed job wait for a worker now. BullMQ: `promote`.

        Raises:
            WrongState: it is not delayed.
        """
        await self._run(self._ops.promote(self))

    async def change_delay(self, delay_ms: float) -> None:
        """Makes a delayed job due `delay_ms` from now. BullMQ: `changeDelay`.

        Raises:
            WrongState: it is not delayed.
        """
        await self._run(self._ops.change_delay(self, delay_ms))

    async def change_priority(self, priority: int = 0, *, lifo: bool = False) -> None:
        """Priority 0 to 2 097 151 (0 = none, 1 = highest); `lifo` goes before its equals. BullMQ: `changePriority`."""
        await self._run(self._ops.change_priority(self, priority, lifo=lifo))

    async def retry(
        self,
        state: str = "failed",
        *,
        reset_attempts_made: bool = False,
        reset_attempts_started: bool = False,
    ) -> None:
        """Puts a failed (or completed) job back in wait. BullMQ: `retry`.

        Raises:
            WrongState: it is not in `state`.
        """
        operation = self._ops.retry(
            self,
            state,
            reset_attempts_made=reset_attempts_made,
            reset_attempts_started=reset_attempts_started,
        )
        await self._run(operation)

    async def remove(self, *, remove_children: bool = True) -> None:
        """Removes it from wherever it is, its children with it. BullMQ: `remove`.

        Raises:
            JobLocked: it, or a child, is being processed.
            SchedulerOwned: it is the current occurrence of a job scheduler; remove that instead.
        """
        await self._run(self._ops.remove(self, remove_children=remove_children))

    async def remove_deduplication_key(self) -> bool:
        """Frees its deduplication id, if it still is this job's. BullMQ: `removeDeduplicationKey`."""
        return await self._run(self._ops.remove_deduplication_key(self))

    # --- its children ---------------------------------------------------------------------------------

    async def get_children_values(self) -> dict[str, Any]:
        """Return values of its completed children, by the key of the child's hash. BullMQ: `getChildrenValues`."""
        return await self._run(self._ops.get_children_values(self))

    async def get_ignored_children_failures(self) -> dict[str, str]:
        """Reasons of children that failed without failing it. BullMQ: `getIgnoredChildrenFailures`."""
        return await self._run(self._ops.get_ignored_children_failures(self))

    async def get_failed_children(self) -> list[str]:
        """Keys of the children with whose failure it fails. BullMQ: `getDependencies({failed})`."""
        return await self._run(self._ops.get_failed_children(self))

    async def get_dependencies(self) -> Dependencies:
        """All its children. BullMQ: `getDependencies()`."""
        return await self._run(self._ops.get_dependencies(self))

    async def get_dependencies_page(self, kind: str, cursor: int = 0, count: int = 20) -> tuple[int, Any]:
        """(next cursor, items) of about `count` children: processed | unprocessed | ignored | failed.

        The next cursor is 0 when there are no more. BullMQ: `getDependencies({[kind]: {cursor, count}})`.
        """
        return await self._run(self._ops.get_dependencies_page(self, kind, cursor, count))

    async def get_dependencies_count(self, *kinds: str) -> dict[str, int]:
        """How many children of each kind; of all four when none is named. BullMQ: `getDependenciesCount`."""
        return await self._run(self._ops.get_dependencies_count(self, *kinds))

    async def remove_unprocessed_children(self) -> None:
        """Removes children that are not finished or being processed. BullMQ: `removeUnprocessedChildren`."""
        await self._run(self._ops.remove_unprocessed_children(self))

    async def remove_child_dependency(self) -> bool:
        """Frees its parent from waiting for it; False when it was no pending child. BullMQ: same name.

        Raises:
            JobMissing: it, or its parent, does not exist.
        """
        return await self._run(self._ops.remove_child_dependency(self))
