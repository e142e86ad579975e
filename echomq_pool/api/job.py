# SPDX-License-Identifier: MIT
"""A job as its producer and its processor see it.

`Job` is asynchronous; `SyncJob` offers the same to plain functions: to a processor in a thread (`threaded`) and to
users of `SyncQueue`. Both read the same record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import InputError
from echomq_pool.plane import codec
from echomq_pool.plane.base import JobRecord, Plane

_UNREAD = object()


class Waiter(Protocol):
    """What a producer's job needs of its queue."""

    async def wait_until_finished(self, job_id: str, timeout: float | None = None) -> Any: ...

    async def cancel(self, job_id: str, reason: str = "cancelled") -> None: ...


class JobView:
    """The fields of a job. Times are wall ms."""

    def __init__(self, record: JobRecord, token: str = "", queue_name: str = "") -> None:
        self.record = record
        self.token = token
        self.queue_name = queue_name
        self.lease_lost = (
            False  # True: another worker may run this job now; it is settled only if we get it back
        )
        self.cancelled = False  # True: somebody asked for its end, or its time is up
        self.cancel_reason = ""
        self.moved = ""  # where its own processor has put it: delayed | wait | waiting-children
        self._data: Any = _UNREAD

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def data(self) -> Any:
        """The payload, decoded at the first look.

        Raises:
            InputError: it is no JSON.
        """
        if self._data is _UNREAD:
            try:
                self._data = codec.decode(self.record.data)
            except (ValueError, RecursionError) as error:
                raise InputError(f"the data of job {self.id} is no JSON: {error}") from None
        return self._data

    @property
    def opts(self) -> dict[str, Any]:
        """The options under BullMQ's long names."""
        return self.record.opts

    @property
    def attempts_made(self) -> int:
        """Runs that ended."""
        return self.record.atm

    @property
    def attempts_started(self) -> int:
        """Runs that began, this one included."""
        return self.record.ats

    @property
    def fencing_token(self) -> int:
        """A number that grows with every take: pass it to outside systems, which refuse smaller ones."""
        return self.record.ats

    @property
    def timestamp(self) -> int:
        return self.record.timestamp

    @property
    def processed_on(self) -> int | None:
        return self.record.processed_on

    @property
    def finished_on(self) -> int | None:
        return self.record.finished_on

    @property
    def priority(self) -> int:
        return self.record.priority

    @property
    def delay(self) -> float:
        return self.record.delay

    @property
    def progress(self) -> Any:
        return self.record.progress

    @property
    def returnvalue(self) -> Any:
        """The result of a completed job, decoded."""
        raw = self.record.returnvalue
        if raw is None:
            return None
        try:
            return codec.decode(raw)
        except ValueError:
            return codec.to_text(raw)

    @property
    def failed_reason(self) -> str | None:
        return self.record.failed_reason

    @property
    def stacktrace(self) -> list[str]:
        return self.record.stacktrace

    @property
    def stalled_counter(self) -> int:
        return self.record.stc

    def show(self, record: JobRecord) -> None:
        """Shows another state of the same job."""
        self.record, self._data = record, _UNREAD

    def mark_lease_lost(self, lost: bool = True) -> None:
        """Told by the worker."""
        self.lease_lost = lost

    def mark_cancelled(self, reason: str) -> None:
        """Told by the worker."""
        self.cancelled, self.cancel_reason = True, reason

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, name={self.name!r})"


class Job(JobView):
    """The asynchronous job.

    Args:
        record: what is stored.
        plane: where it lives.
        token: of the worker that holds it; empty for a producer.
        queue: the producer's queue, for `wait_until_finished` and `cancel`.
    """

    def __init__(
        self,
        record: JobRecord,
        plane: Plane,
        token: str = "",
        *,
        queue: Waiter | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(record, token, plane.keys.queue)
        self._plane = plane
        self._queue = queue
        self._clock = clock

    async def update_progress(self, progress: Any) -> None:
        """Stores and publishes progress: a number, a text, or anything that is JSON.

        Raises:
            InputError: it is not JSON (NaN and Infinity are named).
        """
        await self._plane.progress(self.id, codec.encode(progress))
        self.record.progress = progress

    async def log(self, row: str) -> int:
        """Appends a row to the job's log; returns how many are kept."""
        keep = self.opts.get("keepLogs")
        return await self._plane.log(self.id, str(row), keep if isinstance(keep, int) else None)

    async def update_data(self, data: Any) -> None:
        """Replaces the payload."""
        raw = codec.encode(data)
        await self._plane.update_data(self.id, raw)
        self.record.data, self._data = raw, _UNREAD

    async def state(self) -> str:
        """completed | failed | delayed | prioritized | active | waiting | waiting-children | unknown."""
        return await self._plane.state(self.id)

    async def refresh(self) -> bool:
        """Reads the job again; False when it is gone (the fields then stay as they were)."""
        record = await self._plane.load(self.id)
        if record is not None:
            self.show(record)
        return record is not None

    # --- for its processor ----------------------------------------------------------------------------

    async def move_to_delayed(
        self, timestamp_ms: float | None = None, *, delay_ms: float | None = None
    ) -> None:
        """Runs the job again later, no attempt counted. Raise `DelayedError` afterwards.

        Raises:
            LeaseLost: the job is no longer ours.
        """
        if (timestamp_ms is None) == (delay_ms is None):
            raise InputError("move_to_delayed: expected a timestamp or a delay, both in ms")
        wait = delay_ms if timestamp_ms is None else timestamp_ms - self._clock.now_ms()
        await self._plane.delay(self.record, self._held(), max(0, wait or 0), skip_attempt=True)
        self.moved = "delayed"

    async def move_to_wait(self) -> None:
        """Puts the job back to the front of the line, no attempt counted. Raise `WaitingError` afterwards."""
        await self._plane.release(self.record, self._held())
        self.moved = "wait"

    async def move_to_waiting_children(self) -> bool:
        """True: it waits for its children now; raise `WaitingChildrenError`. False: there are none, go on."""
        moved = await self._plane.wait_children(self.record, self._held())
        self.moved = "waiting-children" if moved else ""
        return moved

    async def rate_limit(self, duration_ms: int) -> None:
        """Stops the queue's takes for `duration_ms` (where a maximum is set). Raise `RateLimitError` afterwards."""
        await self._plane.rate_limit(duration_ms)

    def _held(self) -> str:
        if not self.token:
            raise InputError(f"job {self.id} is not held by this process")
        return self.token

    # --- for its producer -------------------------------------------------------------------------------

    async def wait_until_finished(self, timeout: float | None = None) -> Any:
        """The return value, once there is one. See `Queue.wait_until_finished`."""
        return await self._of_queue().wait_until_finished(self.id, timeout)

    async def cancel(self, reason: str = "cancelled") -> None:
        """Asks whoever runs it to stop it."""
        await self._of_queue().cancel(self.id, reason)

    def _of_queue(self) -> Waiter:
        if self._queue is None:
            raise InputError(f"job {self.id} was not made by a Queue")
        return self._queue

    def threaded(self, loop: asyncio.AbstractEventLoop) -> SyncJob:
        """The same job for a plain function in a thread; its verbs run on `loop`."""

        def run(verb: str, *args: Any, **options: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(getattr(self, verb)(*args, **options), loop).result()

        return SyncJob(self, run)


class SyncJob:
    """The synchronous job: the fields of the view it is made of, and verbs that block.

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

    def update_progress(self, progress: Any) -> None:
        self._run("update_progress", progress)

    def log(self, row: str) -> int:
        return int(self._run("log", row))

    def update_data(self, data: Any) -> None:
        self._run("update_data", data)

    def state(self) -> str:
        return str(self._run("state"))

    def refresh(self) -> bool:
        return bool(self._run("refresh"))

    def move_to_delayed(self, timestamp_ms: float | None = None, *, delay_ms: float | None = None) -> None:
        self._run("move_to_delayed", timestamp_ms, delay_ms=delay_ms)

    def move_to_wait(self) -> None:
        self._run("move_to_wait")

    def move_to_waiting_children(self) -> bool:
        return bool(self._run("move_to_waiting_children"))

    def rate_limit(self, duration_ms: int) -> None:
        self._run("rate_limit", duration_ms)

    def wait_until_finished(self, timeout: float | None = None) -> Any:
        return self._run("wait_until_finished", timeout)

    def cancel(self, reason: str = "cancelled") -> None:
        self._run("cancel", reason)

    def __repr__(self) -> str:
        return f"SyncJob(id={self.id!r}, name={self.name!r})"
