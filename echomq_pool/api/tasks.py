# SPDX-License-Identifier: MIT
"""Functions as jobs: `@task("charge", queue="orders")` makes a function that can be enqueued and is found by its name.

    @task("charge", queue="orders", attempts=5, timeout="30s")
    async def charge(order: int, amount: float = 1.0) -> str: ...

    connect("redis://127.0.0.1:6379/0")
    job = await charge.enqueue(order=17)        # or charge.enqueue_sync(order=17)

A worker with `tasks = ["shop.tasks"]` runs whichever task of those modules a job names. A parameter called `job` gets
the job itself (`Job` in an `async def`, `SyncJob` in a `def`).
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

from echomq_pool.api.job import Job
from echomq_pool.api.options import check_options
from echomq_pool.api.producers import producers
from echomq_pool.api.signature import Arguments, ArgumentsError
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.config.units import UnitError, duration_ms
from echomq_pool.errors import InputError, PoolError
from echomq_pool.plane.factory import PLANES
from echomq_pool.plane.keys import check_queue_name

__all__ = ["ArgumentsError", "Task", "UnknownTask", "find_task", "task", "tasks_of"]


P = ParamSpec("P")
R = TypeVar("R")


class UnknownTask(PoolError):
    """A job names a task that this worker does not know. It fails like any other: its attempts are honoured."""


class Task(Generic[P, R]):
    """A function, its name, its queue and the options of its jobs. Calling it calls the function, here and now.

    Type checkers see the function's own parameters in `enqueue`, too; give a parameter `job` a default for their sake.
    """

    def __init__(
        self,
        function: Callable[P, R],
        name: str,
        queue: str,
        timeout_ms: int,
        options: Mapping[str, Any],
        plane: str = "lock",
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.queue = queue
        self.plane = plane
        self.timeout_ms = timeout_ms  # 0 = the worker's own limit
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        self.arguments = Arguments(name, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def using(self, **options: Any) -> Task[P, R]:
        """The same task with other options for its next jobs: `charge.using(delay=5_000).enqueue(…)`.

        Raises:
            InputError: an option that there is not, or cannot be.
        """
        check_options(options)
        options = {**self.options, **options}
        return Task(self.function, self.name, self.queue, self.timeout_ms, options, self.plane)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Adds a job with these arguments.

        Raises:
            ArgumentsError: they do not fit the signature; nothing was written.
            InputError: there is no connection yet (`connect`), or an argument is no JSON.
        """
        given = self.arguments.bound(args, kwargs)
        return await (await producers.queue(self.queue, self.plane)).add(self.name, given, **self.options)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncJob:
        """The same for plain functions; blocks for the round trip."""
        given = self.arguments.bound(args, kwargs)
        return producers.sync_queue(self.queue, self.plane).add(self.name, given, **self.options)

    def run(self, job: Any) -> Any:
        """Calls the function with the job's arguments; of an `async def` this is its coroutine.

        Raises:
            ArgumentsError: the job's data do not fit the signature.
        """
        given = self.arguments.check_data(job.data)
        function: Callable[..., Any] = self.function
        return function(job=job, **given) if self.arguments.wants_job else function(**given)

    def __repr__(self) -> str:
        return f"Task({self.name!r}, queue={self.queue!r})"


def task(
    name: str = "", *, queue: str, plane: str = "lock", timeout: str = "", **options: Any
) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Makes a function a task.

    Args:
        name: the job name by which it is found; default is the function's own name.
        queue: where its jobs go.
        plane: the queue's plane, `lock` or `lease`.
        timeout: how long a run may take, such as "30s"; past it the run is stopped and counts as failed. Default is
            the worker's own limit.
        options: of its jobs, as for `Queue.add`.

    Raises:
        InputError: a name, queue, option or signature that cannot be used.
    """
    if callable(name):
        raise InputError('task: expected @task("name", queue="orders"), got the function itself')
    check_queue_name(queue)
    if plane not in PLANES:
        raise InputError(f"plane: expected one of {', '.join(PLANES)}, got {plane!r}")
    limit_ms = _limit(timeout)
    check_options(options)

    def make(function: Callable[P, R]) -> Task[P, R]:
        return Task(function, name or function.__name__, queue, limit_ms, options, plane)

    return make


def tasks_of(modules: Iterable[Any]) -> dict[str, Task[..., Any]]:
    """The tasks that stand in these modules, by name.

    Raises:
        InputError: two of them share a name, or a module has none.
    """
    found: dict[str, Task[..., Any]] = {}
    for module in modules:
        here = [value for value in vars(module).values() if isinstance(value, Task)]
        if not here:
            raise InputError(f'tasks "{module.__name__}": there is no function marked with @task')
        for one in here:
            other = found.setdefault(one.name, one)
            if other.function is not one.function:
                raise InputError(f'tasks "{module.__name__}": two tasks are called "{one.name}"')
    return found


def find_task(tasks: Mapping[str, Task[..., Any]], name: str) -> Task[..., Any]:
    """The task of a job.

    Raises:
        UnknownTask: there is none of that name; the nearest one is named.
    """
    found = tasks.get(name)
    if found is None:
        near = difflib.get_close_matches(name, tasks, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else f"; it knows {', '.join(sorted(tasks)[:20])}"
        raise UnknownTask(f'no task of this worker is called "{name}"{hint}')
    return found


def _limit(timeout: str) -> int:
    if not timeout:
        return 0
    try:
        return duration_ms(timeout)
    except (UnitError, AttributeError, TypeError):
        raise InputError(f'timeout: expected a duration such as "30s", got {timeout!r}') from None
