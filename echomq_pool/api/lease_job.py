# SPDX-License-Identifier: MIT
"""A job of the lease plane: the same fields, and the verbs that this plane has.

What it lacks raises `WrongPlane`; it is listed in `lease_gaps.py`.
"""

from __future__ import annotations

from typing import Any

from echomq_pool.api.job import LOCK_MS, Job, Waiter
from echomq_pool.api.lease_gaps import JOB_GAPS, lacking, refusal
from echomq_pool.api.ops_job import texts_of, values_of
from echomq_pool.api.options import check_delay
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import InputError, WrongPlane
from echomq_pool.plane import codec
from echomq_pool.plane.base import JobRecord, Plane
from echomq_pool.plane.lease import LeasePlane

_CHILDREN = {
    "processed": "processed",
    "ignored": "unsuccessful",
    "failed": "failed",
}  # the keys that hold them
_NOT_WHICH = "a parent knows how many of its children are outstanding, not which"


@lacking(JOB_GAPS)
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

    async def promote(self) -> None:
        """Makes a delayed job wait for a worker now.

        Raises:
            JobMissing, WrongState: it is not delayed.
        """
        await self._plane.queue.promote_job(self.id)
        self.record.delay = 0

    async def change_delay(self, delay_ms: float) -> None:
        """Makes a delayed job due `delay_ms` from now, on the server's clock.

        Raises:
            JobMissing, WrongState: it is not delayed.
        """
        delay = check_delay("delay_ms", delay_ms)
        await self._plane.queue.change_delay(self.id, delay)
        self.record.delay = delay

    async def remove_deduplication_key(self) -> bool:
        """Frees its deduplication id, if it still is this job's."""
        held = self.record.deid
        return bool(held) and await self._plane.queue.free_dedup(str(held), self.id)

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

    async def get_failed_children(self) -> list[str]:
        """Ids of the children with whose death it died."""
        return sorted(await self._plane.flows.failures(self.id))

    async def get_dependencies_page(self, kind: str, cursor: int = 0, count: int = 20) -> tuple[int, Any]:
        """(next cursor, items) of about `count` children: processed | ignored | failed.

        Raises:
            WrongPlane: unprocessed: how many they are is known, which is not.
        """
        if kind not in _CHILDREN:
            if kind != "unprocessed":
                raise InputError(f"children: expected one of {', '.join(_CHILDREN)}, got {kind!r}")
            raise refusal("get_dependencies_page('unprocessed')", self._queue_name(), _NOT_WHICH)
        key = getattr(self._plane.keys, _CHILDREN[kind])(self.id)
        following, flat = await self._plane.command("HSCAN", key, cursor, "COUNT", count)
        found = texts_of(flat) if kind != "processed" else values_of(flat)
        return int(following), sorted(found) if kind == "failed" else found

    async def get_dependencies_count(self, *kinds: str) -> dict[str, int]:
        """How many children: processed | unprocessed | ignored | failed; of all four when none is named."""
        wanted = list(kinds) or ["processed", "unprocessed", "ignored", "failed"]
        return {kind: await self._children(kind) for kind in wanted}

    async def _children(self, kind: str) -> int:
        if kind == "unprocessed":
            return max(0, await self._plane.flows.dependencies(self.id))
        if kind not in _CHILDREN:
            raise InputError(f"children: expected unprocessed or one of {', '.join(_CHILDREN)}, got {kind!r}")
        key = getattr(self._plane.keys, _CHILDREN[kind])(self.id)
        return int(await self._plane.command("HLEN", key))

    def _queue_name(self) -> str:
        return self.queue_name


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
