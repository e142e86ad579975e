# SPDX-License-Identifier: MIT
"""Runs a processor on one job without a server. What it does to its job is recorded instead of written."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from echomq_pool.api.job import Job
from echomq_pool.api.job_guard import kept_by
from echomq_pool.api.job_view import JobView
from echomq_pool.api.ops_add import record_of
from echomq_pool.api.options import check_job
from echomq_pool.api.tasks import Task
from echomq_pool.children.executor import Executor
from echomq_pool.children.outcome import Fate, Outcome
from echomq_pool.children.processor import Processor, is_async, load_processor
from echomq_pool.children.routing import route, with_middleware
from echomq_pool.clock import Clock, FakeClock
from echomq_pool.errors import InputError, PoolError
from echomq_pool.plane import codec
from echomq_pool.plane.base import JobRecord, PlaneOptions
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import Guard, GuardKeys
from echomq_pool.plane.keys import QueueKeys

TOKEN = "testing:0"


@dataclass(slots=True)
class JobResult:
    """What became of the run.

    `state`: completed | failed | delayed | waiting | waiting-children | rate-limited. `final`: a failure that no
    further attempt would follow. `delay_ms`, `rate_limit_ms`: what the processor asked for.
    """

    state: str = "active"
    value: Any = None
    reason: str = ""
    error: BaseException | None = None
    final: bool = False
    progress: list[Any] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    data: Any = None
    delay_ms: float = 0
    rate_limit_ms: int = 0

    def unwrap(self) -> Any:
        """The value of a completed job; raises what the processor raised otherwise."""
        if self.state == "completed":
            return self.value
        raise self.error or PoolError(f"the job is {self.state}: {self.reason}")


def run_job(
    processor: Callable[[Any], Any] | Task[..., Any] | str, data: Any = None, **options: Any
) -> JobResult:
    """Runs `processor` (a function, a `@task`, or "package.module:function") on a job and tells what became of it.

    Args:
        data: the job's data; of a task its arguments by name.
        options: as for `run_job_async`.

    Raises:
        InputError: data that are no JSON, or an option that there is not.
    """
    return asyncio.run(run_job_async(processor, data, **options))


async def run_job_async(
    processor: Callable[[Any], Any] | Task[..., Any] | str,
    data: Any = None,
    *,
    name: str = "",
    queue: str = "testing",
    job_id: str = "1",
    opts: Mapping[str, Any] | None = None,
    attempts_made: int = 0,
    children_values: Mapping[str, Any] | None = None,
    has_children: bool = False,
    middleware: Sequence[Any] = (),
    clock: Clock | None = None,
) -> JobResult:
    """The same inside a running loop.

    Args:
        name: of the job; default is the task's, else "job".
        opts: the job's options, as for `Queue.add`.
        attempts_made: runs that have ended before this one.
        children_values: what `get_children_values` answers.
        has_children: whether `move_to_waiting_children` finds something to wait for.
        middleware: around the run.
        clock: default is a frozen one.
    """
    wall = clock or FakeClock()
    chosen = with_middleware(_processor(processor), list(middleware))
    job_name = name or (processor.name if isinstance(processor, Task) else "job")
    new = check_job(job_name, data, opts or {}, wall.now_ms())
    record = record_of(job_id, new)
    record.atm, record.ats, record.processed_on = attempts_made, attempts_made + 1, wall.now_ms()
    plane = MemoryPlane(QueueKeys("emq", queue), children_values or {}, has_children)
    job = Job(record, plane, TOKEN, clock=wall)  # type: ignore[arg-type]  # as much of a plane as a job needs
    kept_by(plane, MemoryKeeper(wall))  # type: ignore[arg-type]
    executor = Executor(chosen, 1)
    try:
        outcome = await executor.start(job)
    finally:
        executor.close()
        chosen.close()
    return _result(plane.result, outcome, job)


def _processor(processor: Callable[[Any], Any] | Task[..., Any] | str) -> Processor:
    if isinstance(processor, Task):
        return route({processor.name: processor}, 1, processor.name)
    if isinstance(processor, str):
        return load_processor(processor)
    if not callable(processor):
        raise InputError(f"processor: expected a function of one argument, got {processor!r}")
    return Processor(getattr(processor, "__name__", "processor"), processor, is_async(processor))


def _result(result: JobResult, outcome: Outcome, job: Job) -> JobResult:
    result.data = job.data
    if job.moved:
        result.state = {"wait": "waiting"}.get(job.moved, job.moved)
    elif outcome.fate is Fate.DONE:
        result.state, result.value = "completed", codec.decode(outcome.value)
    elif outcome.fate is Fate.LIMITED:
        result.state = "rate-limited"
    elif outcome.fate is Fate.MOVED:
        result.state, result.reason = "failed", "it raised a signal without having moved its job"
    else:
        result.state, result.reason, result.error = "failed", outcome.reason, outcome.error
        result.final = outcome.final or not job.record.has_attempts_left
    return result


class MemoryPlane:
    """As much of a plane as a job's own verbs need; records what they do."""

    options = PlaneOptions()

    def __init__(self, keys: QueueKeys, children: Mapping[str, Any], has_children: bool) -> None:
        self.keys = keys
        self.result = JobResult()
        self._children = children
        self._has_children = has_children

    # --- moves ----------------------------------------------------------------------------------------

    async def delay(self, job: JobRecord, token: str, delay_ms: float, **_: Any) -> None:
        self.result.delay_ms = delay_ms

    async def release(self, job: JobRecord, token: str) -> int:
        return 0

    async def wait_children(self, job: JobRecord, token: str, child_key: str = "") -> bool:
        return self._has_children

    async def rate_limit(self, duration_ms: int) -> None:
        self.result.rate_limit_ms = duration_ms

    async def complete(self, job: JobRecord, token: str, value: bytes, **_: Any) -> None:
        self.result.value = codec.decode(value)

    async def fail(self, job: JobRecord, token: str, reason: str, stack: Sequence[str], **_: Any) -> None:
        self.result.reason = reason

    # --- verbs ----------------------------------------------------------------------------------------

    def ask(self, script: str, keys: Sequence[Any], args: Sequence[Any]) -> Awaitable[Any]:
        """Answers the scripts of a job's own verbs."""
        answer = _ANSWERS.get(script)
        if answer is None:
            raise PoolError(f"{script}: this verb needs a server; see embedded_server in echomq_pool.testing")
        return _soon(answer(self, args))

    def command(self, *args: Any) -> Awaitable[Any]:
        """Answers what parents ask about their children; there are no others."""
        key = str(args[1])
        if args[0] == "HGETALL" and key.endswith(":processed"):
            return _soon([part for k, v in self._children.items() for part in (k.encode(), codec.encode(v))])
        return _soon([])

    def told_progress(self, args: Sequence[Any]) -> int:
        self.result.progress.append(codec.decode(args[1]))
        return 0

    def told_row(self, args: Sequence[Any]) -> int:
        self.result.logs.append(codec.to_text(args[1]))
        return len(self.result.logs)

    def counted(self, args: Sequence[Any]) -> list[int]:
        return [len(self._children) if kind == "processed" else 0 for kind in args]


class MemoryKeeper:
    """Grants a job every lease that it asks for, each under the next number: there is nobody else."""

    def __init__(self, clock: Clock) -> None:
        self.keys = GuardKeys("emq")
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)

    async def ask(self, call: Call) -> int:
        return next(self._numbers) if call.script == "lease/guardAcquire" else 1

    def runs(self, job: JobView) -> bool:
        return True

    def word(self, guard: Guard) -> int:
        return self.clock.mono_ms()

    def keep(self, guard: Guard, job: JobView) -> None:
        """Nothing needs renewal."""

    def drop(self, token: str) -> None:
        """Nobody needs to hear of it."""


async def _soon(value: Any) -> Any:
    return value


_ANSWERS: dict[str, Callable[[MemoryPlane, Sequence[Any]], Any]] = {
    "updateProgress": MemoryPlane.told_progress,
    "addLog": MemoryPlane.told_row,
    "updateData": lambda plane, args: 0,
    "getStateV2": lambda plane, args: b"active",
    "extendLock": lambda plane, args: 1,
    "getDependencyCounts": MemoryPlane.counted,
}
