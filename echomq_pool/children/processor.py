# SPDX-License-Identifier: MIT
"""Finds the user's function and learns how it wants to be called.

A processor is any callable of one argument, the job: `async def` runs on the worker's loop, everything
else in a thread. Beside it in its module may stand `backoff_strategies`, a dict of functions
(attempt, job, error) -> ms for jobs whose back-off type is neither fixed nor exponential; -1 = no more attempt.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from echomq_pool.api.tasks import Task
from echomq_pool.errors import PoolError


class ProcessorError(PoolError):
    """The configured processor cannot be used. The text names its path and the problem."""


@dataclass(frozen=True, slots=True)
class Processor:
    """The user's function. `is_async`: calling it gives a coroutine.

    `limits`: time limits in ms by the name of a job, which go before the worker's own. `close`: called when the worker
    has done its last job.
    """

    path: str
    call: Callable[[Any], Any]
    is_async: bool
    strategies: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None


def load_processor(path: str) -> Processor:
    """Imports `module:attribute` (the attribute may be dotted); the working directory is importable.

    Raises:
        ProcessorError: a malformed path, no such module or attribute, or not callable. An error inside the
            user's module passes through as it is: its traceback says more than we could.
    """
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise ProcessorError(f'processor "{path}": expected "module:function"')
    make_here_importable()
    module = import_module(f'processor "{path}"', module_name)
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            where = module_name if target is module else type(target).__name__
            raise ProcessorError(
                f'processor "{path}": {where} has no attribute "{part}"{_near(target, part)}'
            )
        target = getattr(target, part)
    if not callable(target):
        raise ProcessorError(f'processor "{path}": a {type(target).__name__} is not callable')
    if isinstance(target, Task):
        raise ProcessorError(
            f'processor "{path}": a @task; say tasks = ["{module_name}"] instead of processor'
        )
    if inspect.isclass(target):
        raise ProcessorError(
            f'processor "{path}": a class; name a function or an instance that can be called'
        )
    strategies = getattr(module, "backoff_strategies", {})
    if not isinstance(strategies, Mapping):
        raise ProcessorError(f"{module_name}.backoff_strategies: expected a dict of functions")
    return Processor(path, target, is_async(target), strategies)


def make_here_importable() -> None:
    """The user's code may lie in the working directory, whichever way the program was started."""
    if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def is_async(target: Callable[..., Any]) -> bool:
    """Whether calling `target` gives a coroutine: `async def`, a partial or an object whose call is one."""
    while isinstance(target, functools.partial):
        target = target.func
    call = type(target).__call__
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)


def import_module(what: str, module_name: str) -> Any:
    """The user's module; `what` names its place in the configuration.

    Raises:
        ProcessorError: there is no such module.
    """
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        # Only when the module itself or a package on its way is missing; what it imports is its own affair.
        if exc.name is not None and (module_name == exc.name or module_name.startswith(exc.name + ".")):
            raise ProcessorError(f'{what}: no module named "{exc.name}"') from exc
        raise


def _near(target: Any, wanted: str) -> str:
    near = difflib.get_close_matches(wanted, [n for n in dir(target) if not n.startswith("_")], n=1)
    return f'; did you mean "{near[0]}"?' if near else ""
