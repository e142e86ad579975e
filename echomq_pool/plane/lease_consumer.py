# SPDX-License-Identifier: MIT
"""The worker loop of a program without a pool: control check, reap, promote, drain, park, and again.

One loop, one job at a time. Under a backlog that never ends the drain is interrupted once per beat, so that lapsed
and due jobs are not starved by the queue that is full.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import JobCancelled, JobError, LinkError
from echomq_pool.plane import codec
from echomq_pool.plane.base import Blocking, Taken
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.plane.lease_gather import Settlement
from echomq_pool.plane.lease_locks import Locks
from echomq_pool.plane.lease_telemetry import TELEMETRY

log = logging.getLogger("echomq.consumer")

AFTER_ERROR_S = 1.0


class CancelToken:
    """A local, cooperative request to stop; it has no form on the wire. The first reason stays."""

    def __init__(self) -> None:
        self._reason: str | None = None

    def cancel(self, reason: str = "cancelled") -> bool:
        """Returns whether this was the first request."""
        first = self._reason is None
        if first:
            self._reason = reason
        return first

    def check(self) -> str | None:
        """The reason, or None: go on."""
        return self._reason

    def check_or_raise(self) -> None:
        """Raises:
        JobCancelled: with the reason.
        """
        if self._reason is not None:
            raise JobCancelled(self._reason)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a handler gets. `attempts` is the fencing number."""

    id: str
    payload: bytes
    attempts: int
    group: str
    cancel: CancelToken


Handler = Callable[[Delivery], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Times in ms. `retry_delay` may be a function of the attempt that failed, from 1."""

    beat_ms: int = 1_000
    retry_delay: int | Callable[[int], int] = 1_000
    max_attempts: int = 3
    pump_batch: int = 100

    def delay_after(self, attempt: int) -> int:
        return self.retry_delay if isinstance(self.retry_delay, int) else self.retry_delay(attempt)


class Consumer:
    """Runs the jobs of one queue, one after the other, until it is stopped.

    Args:
        plane: the queue; its options hold the lease and what is done about lapsed ones.
        blocking: a connection of its own for the parking.
        handler: the user's code; what it returns (text or bytes) is the job's result, what it raises the error.
        options: the loop's figures.
        locks: renews the lease of the job in hand; without it a job has `lease_ms` and no more.
    """

    def __init__(
        self,
        plane: LeasePlane,
        blocking: Blocking,
        handler: Handler,
        options: ConsumerOptions | None = None,
        locks: Locks | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = options or ConsumerOptions()
        self._plane = plane
        self._blocking = blocking
        self._handler = handler
        self._locks = locks
        self._clock = clock
        self._stopping = False
        self._owner = str(uuid.uuid4())
        self._numbers = itertools.count()
        self._maintained_ms = 0

    async def run(self) -> None:
        """The loop. Returns after `stop`, between two jobs."""
        began = self._clock.mono_ms()
        self._tell("worker", "start", system_time=self._clock.now_ms())
        while not self._stopping:
            try:
                await self.beat()
                if not self._stopping:
                    await self._plane.wait(self._blocking, self.options.beat_ms)
            except LinkError as error:
                log.warning("consumer of %s: %s", self._plane.keys.queue, error)
                await asyncio.sleep(AFTER_ERROR_S)
        self._tell("worker", "stop", uptime=self._clock.mono_ms() - began)

    def stop(self) -> None:
        """Claims nothing more; the job in hand is finished."""
        self._stopping = True

    async def beat(self) -> None:
        """Reap, promote, then drain."""
        await self._maintain()
        await self._drain()

    async def _maintain(self) -> None:
        self._maintained_ms = self._clock.mono_ms()
        if self._plane.options.recovery == "reap":
            await self._plane.queue.reap()
        else:
            await self._plane.sweep_counting()
        await self._plane.queue.promote(self.options.pump_batch)

    async def _drain(self) -> None:
        while not self._stopping:
            found = await self._plane.take(f"{self._owner}:{next(self._numbers)}")
            if not isinstance(found, Taken):
                return
            await self._work(found)
            if self._clock.mono_ms() - self._maintained_ms >= self.options.beat_ms:
                await self._maintain()

    async def _work(self, taken: Taken) -> None:
        job, cancel = taken.job, CancelToken()
        if self._locks is not None:
            await self._locks.track_job(job.id, taken.token)
        delivery = Delivery(job.id, job.data, job.ats, str(job.opts.get("group", "")), cancel)
        now, began = self._clock.now_ms(), self._clock.mono_ms()
        self._tell("job", "start", job.id, queue_time=now - job.timestamp, system_time=now)
        try:
            result = await self._handler(delivery)
        except (
            Exception
        ) as error:  # an edge: whatever a handler raises is its job's failure, and the loop goes on
            self._tell("job", "fail", job.id, duration=self._clock.mono_ms() - began)
            await self._failed(taken, str(error) or type(error).__name__)
        else:
            self._tell("job", "complete", job.id, duration=self._clock.mono_ms() - began)
            await self._done(taken, result)
        finally:
            if self._locks is not None:
                await self._locks.untrack_job(job.id)

    async def _done(self, taken: Taken, result: Any) -> None:
        value = codec.to_wire(result) if isinstance(result, str) else result
        try:
            await self._plane.complete(
                taken.job, taken.token, value if isinstance(value, bytes) else taken.job.id.encode()
            )
        except JobError as refusal:
            log.warning("job %s is no longer ours: %s", taken.job.id, refusal)

    async def _failed(self, taken: Taken, reason: str) -> None:
        delay = self.options.delay_after(taken.job.atm + 1)
        rest: tuple[Any, ...] = (delay, self.options.max_attempts, codec.to_wire(reason), [])
        (word,) = await self._plane.settle_batch([Settlement("retry", taken.job.id, taken.token, rest)])
        if word == "scheduled":
            self._tell("job", "retry", taken.job.id, attempt=taken.job.atm + 1, delay=delay)

    def _tell(self, part: str, what: str, job_id: str = "", **measurements: float) -> None:
        metadata = {"queue": self._plane.keys.queue} | ({"job": job_id} if job_id else {})
        TELEMETRY.emit(("emq", part, what), measurements, metadata)


# --- backoff ----------------------------------------------------------------------------------------------


def fixed(ms: int) -> Callable[[int], int]:
    """The same delay after every failure."""
    return lambda attempt: ms


def exponential(base_ms: int, cap_ms: int) -> Callable[[int], int]:
    """Doubling from `base_ms`, never more than `cap_ms`."""
    return lambda attempt: min(base_ms * 2 ** min(attempt - 1, 62), cap_ms)


def jitter(inner: Callable[[int], int], draw: Callable[[int, int], int]) -> Callable[[int], int]:
    """Anything from 0 to what `inner` says. `draw` is `random.randint` or its like."""
    return lambda attempt: draw(0, inner(attempt))
