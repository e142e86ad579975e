# SPDX-License-Identifier: MIT
"""What a group runs: its processor, or its tasks found by the job's name, with middleware around it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from echomq_pool.api.job import Job
from echomq_pool.api.middleware import around_async, around_sync, check_middleware
from echomq_pool.api.producers import Target, producers
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.api.tasks import Task, find_task, tasks_of
from echomq_pool.children.processor import (
    Processor,
    ProcessorError,
    import_module,
    load_processor,
    make_here_importable,
)
from echomq_pool.config.schema import PoolConfig, WorkersConfig
from echomq_pool.errors import InputError


def load_group(config: PoolConfig, group: WorkersConfig) -> Processor:
    """The processor of a `[[workers]]` entry; tasks enqueued from inside it go to the pool's own server.

    Raises:
        ProcessorError: something named in the configuration cannot be used. What the user's modules raise when they
            are imported passes through.
    """
    producers.target = Target(config.redis, config.prefix, config.hash_tag)
    if group.tasks:
        processor = route(load_tasks(group.tasks), group.concurrency, " ".join(group.tasks))
    else:
        processor = load_processor(group.processor)
    return with_middleware(processor, [_layer(path) for path in group.middleware])


def load_tasks(modules: Sequence[str]) -> dict[str, Task[..., Any]]:
    """The tasks of these modules by name.

    Raises:
        ProcessorError: a module that is not there, has no task, or two tasks of one name.
    """
    make_here_importable()
    try:
        return tasks_of([import_module(f'tasks "{name}"', name) for name in modules])
    except InputError as error:
        raise ProcessorError(str(error)) from None


def with_middleware(processor: Processor, layers: Sequence[Any]) -> Processor:
    """The processor with the layers around it, the first outermost.

    Raises:
        ProcessorError: a layer that is none.
    """
    if not layers:
        return processor
    try:
        checked = check_middleware(layers, processor.is_async)
    except InputError as error:
        raise ProcessorError(str(error)) from None
    around = around_async if processor.is_async else around_sync
    return replace(processor, call=around(processor.call, checked))


def route(tasks: Mapping[str, Task[..., Any]], concurrency: int, path: str) -> Processor:
    """A processor that runs the task a job names: `async def` on the loop, `def` in a thread."""
    router = _Router(tasks, concurrency)
    limits = {name: one.timeout_ms for name, one in tasks.items() if one.timeout_ms}
    strategies: dict[str, Any] = {}
    for one in tasks.values():
        strategies |= getattr(one.function, "__globals__", {}).get("backoff_strategies") or {}
    return Processor(path, router, True, strategies, limits, router.close)


@dataclass(slots=True)
class _Router:
    tasks: Mapping[str, Task[..., Any]]
    concurrency: int
    _threads: ThreadPoolExecutor | None = field(default=None)

    async def __call__(self, job: Job) -> Any:
        one = find_task(self.tasks, job.name)
        return await one.run(job) if one.is_async else await self._in_thread(one, job)

    async def _in_thread(self, one: Task[..., Any], job: Job) -> Any:
        """A thread cannot be stopped: a cancelled run goes on until it ends, or its process is ended for it."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.concurrency, "task")
        loop = asyncio.get_running_loop()
        run = contextvars.copy_context().run
        running = loop.run_in_executor(self._threads, run, _outcome, one, job.threaded(loop))
        cancelled: asyncio.CancelledError | None = None
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        result, raised = running.result()
        if raised is not None:
            raise raised
        return result

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _outcome(one: Task[..., Any], job: SyncJob) -> tuple[Any, BaseException | None]:
    try:
        return one.run(job), None
    except BaseException as error:  # SystemExit and its kin end the job, not the thread
        return None, error


def _layer(path: str) -> Any:
    module_name, _, name = path.partition(":")
    make_here_importable()
    module = import_module(f'middleware "{path}"', module_name)
    if not name:
        return module
    target: Any = module
    for part in name.split("."):
        target = getattr(target, part, None)
    if target is None:
        raise ProcessorError(f'middleware "{path}": {module_name} has no attribute "{name}"')
    return target
