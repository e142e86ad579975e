# SPDX-License-Identifier: MIT
"""A consumer that gives its handler many jobs at once, and settles each by its own verdict."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.plane import codec
from echomq_pool.plane.lease_gather import Settlement
from echomq_pool.plane.lease_queue import Claimed, LeaseQueue


@dataclass(frozen=True, slots=True)
class Done:
    """The job is complete."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The job failed and is tried again, up to its attempts."""

    reason: str


@dataclass(frozen=True, slots=True)
class Later:
    """The job is to run again in `ms`."""

    ms: int


Verdict = Done | Broken | Later
BatchHandler = Callable[[list[Claimed]], Awaitable[Mapping[str, Verdict]]]
Settle = Callable[[Sequence[Settlement]], Awaitable[list[str]]]


@dataclass(slots=True)
class Partition:
    """What became of a batch: every id in exactly one list. `lost`: somebody else has the job now."""

    completed: list[str] = field(default_factory=list)
    retried: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def flush_size(depth: int, elapsed_ms: int, min_size: int, timeout_ms: int) -> int:
    """How many to claim now; 0 = wait. Never an empty batch."""
    return depth if depth >= max(1, min_size) or (depth > 0 and elapsed_ms >= timeout_ms) else 0


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Sizes in jobs, times in ms."""

    min_size: int = 1
    timeout_ms: int = 1_000
    poll_ms: int = 50
    lease_ms: int = 30_000
    retry_delay_ms: int = 1_000
    max_attempts: int = 3


class BatchConsumer:
    """Watches how many flat jobs wait, claims them when there are enough or it has waited long enough.

    Args:
        queue: where the jobs are.
        settle: `LeasePlane.settle_batch`.
        handler: gets the list once; answers a verdict per id. A missing verdict, or an exception, is a retry.
        options: the figures.
        clock: monotonic time for the waiting.
    """

    def __init__(
        self,
        queue: LeaseQueue,
        settle: Settle,
        handler: BatchHandler,
        options: BatchOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = options or BatchOptions()
        self._queue = queue
        self._settle = settle
        self._handler = handler
        self._clock = clock
        self._owner = str(uuid.uuid4())
        self._numbers = itertools.count()
        self._since_ms = clock.mono_ms()
        self._stopping = False

    async def run(self) -> None:
        """Polls until it is stopped."""
        while not self._stopping:
            if await self.look() is None:
                await asyncio.sleep(self.options.poll_ms / 1000)

    def stop(self) -> None:
        self._stopping = True

    async def look(self) -> Partition | None:
        """One look at the depth: what became of the batch it led to, None when it is not time yet."""
        elapsed = self._clock.mono_ms() - self._since_ms
        depth = await self._queue.pending_size()
        size = flush_size(depth, elapsed, self.options.min_size, self.options.timeout_ms)
        if not size:
            return None
        self._since_ms = self._clock.mono_ms()
        jobs = await self._queue.claim_batch(
            size, self.options.lease_ms, f"{self._owner}:{next(self._numbers)}"
        )
        return await self._flush(jobs) if jobs else None

    async def _flush(self, jobs: list[Claimed]) -> Partition:
        verdicts = await self._judged(jobs)
        operations = [self._operation(job, verdicts.get(job[0], Broken("missing verdict"))) for job in jobs]
        return _partition(operations, await self._settle(operations))

    async def _judged(self, jobs: list[Claimed]) -> Mapping[str, Verdict]:
        try:
            found: Any = await self._handler(jobs)
        except Exception as error:  # an edge: a handler's exception is the failure of its whole batch
            return {job[0]: Broken(str(error) or type(error).__name__) for job in jobs}
        if not isinstance(found, Mapping):
            return {
                job[0]: Broken(f"expected a mapping of verdicts, got {type(found).__name__}") for job in jobs
            }
        return found

    def _operation(self, job: Claimed, verdict: Verdict) -> Settlement:
        job_id, _, token = job
        if isinstance(verdict, Done):
            return Settlement("complete", job_id, str(token), (job_id,))
        if isinstance(verdict, Later):
            return Settlement("delay", job_id, str(token), ("in", verdict.ms, 1, []))
        reason = codec.to_wire(verdict.reason) if isinstance(verdict, Broken) else b"unreadable verdict"
        rest: tuple[Any, ...] = (self.options.retry_delay_ms, self.options.max_attempts, reason, [])
        return Settlement("retry", job_id, str(token), rest)


def _partition(operations: Sequence[Settlement], words: Sequence[str]) -> Partition:
    """By what the server answered, not by what was asked for: only it knows who is dead."""
    found = Partition()
    for operation, word in zip(operations, words, strict=True):
        if word == "completed":
            found.completed.append(operation.id)
        elif word == "dead":
            found.dead.append(operation.id)
        elif word == "scheduled" and operation.verb == "delay":
            found.delayed.append(operation.id)
        elif word == "scheduled":
            found.retried.append(operation.id)
        else:
            found.lost.append(operation.id)
    return found
