# SPDX-License-Identifier: MIT
"""A job as its producer and its processor use it.

`Job` is asynchronous; `SyncJob` offers the same to plain functions: to a processor in a thread (`threaded`) and to
users of `SyncQueue`. Both read the same record.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from echomq_pool.api.guard_view import TTL
from echomq_pool.api.job_guard import JobLease, lease_in
from echomq_pool.api.job_verbs import JobVerbs
from echomq_pool.api.job_view import JobView
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import InputError
from echomq_pool.plane import codec
from echomq_pool.plane.base import JobRecord, Plane, Taken

__all__ = ["Job", "JobView", "SyncJob"]

LOCK_MS = 30_000


class Waiter(Protocol):
    """What a producer's job needs of its queue."""

    async def wait_until_finished(self, job_id: str, timeout: float | None = None) -> Any: ...

    async def cancel(self, job_id: str, reason: str = "cancelled") -> None: ...


class Job(JobVerbs):
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
        super().__init__(record, plane, token, clock)
        self._queue = queue

    # --- for who holds it -----------------------------------------------------------------------------

    async def move_to_delayed(
        self,
        timestamp_ms: float | None = None,
        token: str | None = None,
        *,
        delay_ms: float | None = None,
    ) -> None:
        """Runs the job again later, no attempt counted. Raise `DelayedError` afterwards. BullMQ: `moveToDelayed`.

        Args:
            timestamp_ms: when, as wall ms; or `delay_ms` from now. One of them.
            token: of the lock; the job's own when it came from a worker.

        Raises:
            LeaseLost: the job is no longer ours.
        """
        if (timestamp_ms is None) == (delay_ms is None):
            raise InputError("move_to_delayed: expected a timestamp or a delay, both in ms")
        wait = delay_ms if timestamp_ms is None else timestamp_ms - self._clock.now_ms()
        await self._plane.delay(self.record, self._held(token), max(0, wait or 0), skip_attempt=True)
        self.moved = "delayed"

    async def move_to_wait(self, token: str | None = None) -> None:
        """Puts the job back to the front of the line, no attempt counted. Raise `WaitingError` afterwards.

        BullMQ: `moveToWait`.
        """
        await self._plane.release(self.record, self._held(token))
        self.moved = "wait"

    async def move_to_waiting_children(self, token: str | None = None, *, child_key: str = "") -> bool:
        """True: it waits for its children now; raise `WaitingChildrenError`. False: there are none, go on.

        Args:
            child_key: wait for this child (key of its hash) alone.

        Raises:
            ChildrenFailed: a child failed that fails its parent; let it pass, and the job fails with it.
            LeaseLost: the job is no longer ours.

        BullMQ: `moveToWaitingChildren`.
        """
        moved = await self._plane.wait_children(self.record, self._held(token), child_key)
        self.moved = "waiting-children" if moved else ""
        return moved

    async def move_to_completed(
        self, returnvalue: Any, token: str | None = None, *, fetch_next: bool = False
    ) -> Job | None:
        """Completes a job processed by hand; returns the next one when `fetch_next` brings one.

        The next job comes under the same token. BullMQ: `moveToCompleted`.

        Raises:
            InputError: the value is no JSON.
            DependenciesPending, ChildrenFailed: its children are not done, or one failed; it is still ours.
            LeaseLost: the job is no longer ours.
        """
        raw = b"null" if returnvalue is None else codec.encode(returnvalue)
        held = self._held(token)
        answer = await self._plane.complete(self.record, held, raw, fetch=fetch_next)
        self.moved = "completed"
        return self._following(answer)

    async def move_to_failed(
        self,
        error: BaseException | str,
        token: str | None = None,
        *,
        stacktrace: str = "",
        fetch_next: bool = False,
    ) -> Job | None:
        """Fails a job processed by hand for good, whatever attempts are left. BullMQ: `moveToFailed`.

        Raises:
            LeaseLost: the job is no longer ours.
        """
        reason = str(error) or type(error).__name__
        trace = self.record.stacktrace_with(stacktrace or reason)
        held = self._held(token)
        answer = await self._plane.fail(self.record, held, reason, trace, fetch=fetch_next)
        self.moved = "failed"
        return self._following(answer)

    async def extend_lock(self, token: str | None = None, duration_ms: int = LOCK_MS) -> None:
        """Makes the lock last `duration_ms` from now. A worker renews by itself. BullMQ: `extendLock`.

        Raises:
            LeaseLost: the lock is gone, or another worker's.
        """
        await self._run(self._ops.extend_lock(self, token, duration_ms))

    async def rate_limit(self, duration_ms: int) -> None:
        """Stops the queue's takes for `duration_ms` (where a maximum is set). Raise `RateLimitError` afterwards.

        BullMQ: `worker.rateLimit`.
        """
        await self._plane.rate_limit(duration_ms)

    def lease(self, name: str, *, ttl: str = TTL, wait: str | int | None = None) -> JobLease:
        """A lock for a critical section of this job, which the pool renews while the worker process lives.

        Use it as `async with job.lease("customer:42") as lease`. It is given back at the end of the block, with the job
        at the latest, and when the worker dies.

        Args:
            name: what is locked, up to 200 bytes. `Lease` with the same name, and the pool's prefix, is the same lock.
            ttl: how long it lasts should nobody renew it, from "100ms".
            wait: for a lease that somebody has: None = as long as it takes, 0 = not at all, or "10s".

        Raises:
            InputError: this process does not run the job, or an argument makes no lease.
        """
        return lease_in(self._plane, self, name, ttl, wait)

    def _held(self, token: str | None) -> str:
        held = token or self.token
        if not held:
            raise InputError(f"job {self.id} is not held by this process")
        return held

    def _following(self, answer: Any) -> Job | None:
        if not isinstance(answer, Taken):
            return None
        return type(self)(answer.job, self._plane, answer.token, queue=self._queue, clock=self._clock)

    # --- for its producer -------------------------------------------------------------------------------

    async def wait_until_finished(self, timeout: float | None = None) -> Any:
        """The return value, once there is one; `timeout` in seconds. See `Queue.wait_until_finished`."""
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
            if verb == "lease":
                return self.lease(*args, **options).threaded()
            found = asyncio.run_coroutine_threadsafe(getattr(self, verb)(*args, **options), loop).result()
            return found.threaded(loop) if isinstance(found, Job) else found

        return SyncJob(self, run)
