# SPDX-License-Identifier: MIT
"""A job of the lease plane: the same fields, and the verbs that this plane has.

What it lacks (`promote`, `change_delay`, `change_priority`, most of what concerns children) raises `WrongPlane`.
"""

from __future__ import annotations

from typing import Any

from echomq_pool.api.ask import Op, T
from echomq_pool.api.job import LOCK_MS, Job, Waiter
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import InputError, WrongPlane
from echomq_pool.plane import codec
from echomq_pool.plane.base import JobRecord, Plane
from echomq_pool.plane.lease import LeasePlane


class LeaseJob(Job):
    """The asynchronous job. `fencing_token` is the number of its deliveries, which only grows."""

    _plane: LeasePlane

    # --- what it says ---------------------------------------------------------------------------------

    async def update_progress(self, progress: Any) -> None:
        await self._plane.progress(self.id, codec.encode(progress))
        self.record.progress = progress

    async def log(self, row: str) -> int:
        keep = self.opts.get("keepLogs")
        return await self._plane.log(self.id, str(row), keep if isinstance(keep, int) else None)

    async def clear_logs(self, keep: int = 0) -> None:
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
            raise InputError(f"keep: expected a whole number from 0, got {keep!r}")
        key = self._plane.keys.logs(self.id)
        await (self._plane.command("LTRIM", key, -keep, -1) if keep else self._plane.command("DEL", key))

    async def update_data(self, data: Any) -> None:
        raw = codec.encode(data)
        await self._plane.update_data(self.id, raw)
        self.record.data = raw
        self.show(self.record)

    async def refresh(self) -> bool:
        """Reads the job again; False when it is gone, as every completed job of this plane is."""
        record = await self._plane.load(self.id)
        if record is not None:
            self.show(record)
        return record is not None

    async def state(self) -> str:
        """failed | delayed | active | waiting | waiting-children | unknown; a completed job is unknown."""
        return await self._plane.state(self.id)

    # --- where it is ------------------------------------------------------------------------------------

    async def retry(
        self,
        state: str = "failed",
        *,
        reset_attempts_made: bool = False,
        reset_attempts_started: bool = False,
    ) -> None:
        """Gives a failed (dead) job a fresh budget and puts it back. The fencing token is never reset.

        Raises:
            WrongState: it is not dead.
            WrongPlane: the other arguments belong to the lock plane.
        """
        if state != "failed" or reset_attempts_started:
            raise WrongPlane("retry: on the lease plane only failed jobs, and their token is never reset")
        await self._plane.queue.reprocess_job(self.id)

    async def remove(self, *, remove_children: bool = True) -> None:
        """Raises:
        JobLocked: a worker holds it.
        """
        await self._plane.queue.remove_job(self.id)

    async def extend_lock(self, token: str | None = None, duration_ms: int = LOCK_MS) -> None:
        await self._plane.queue.extend_lock(self.id, self._held(token), duration_ms)

    # --- its children ---------------------------------------------------------------------------------

    async def get_children_values(self) -> dict[str, Any]:
        """Results of its completed children, by the child's id; texts that are no JSON come as they are."""
        found = await self._plane.flows.children_values(self.id)
        return {child: _value(text) for child, text in found.items()}

    async def get_ignored_children_failures(self) -> dict[str, str]:
        found = await self._plane.flows.ignored_failures(self.id)
        return {child: codec.to_text(text) for child, text in found.items()}

    # --- what this plane lacks -----------------------------------------------------------------------------

    async def _run(self, operation: Op[T]) -> T:
        name = getattr(operation, "__name__", "this verb")
        operation.close()
        raise WrongPlane(f"{name}: jobs of the lease plane have no such verb")


def job_of(
    record: JobRecord,
    plane: Plane,
    token: str = "",
    *,
    queue: Waiter | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Job:
    """The job as its plane has it."""
    kind = LeaseJob if isinstance(plane, LeasePlane) else Job
    return kind(record, plane, token, queue=queue, clock=clock)


def _value(text: str | bytes) -> Any:
    try:
        return codec.decode(text)
    except (ValueError, RecursionError):
        return codec.to_text(text) if isinstance(text, bytes) else text
