# SPDX-License-Identifier: MIT
"""Callables around every job of a worker: at its start, after success, after failure.

A middleware is any object (a module, too) with one or more of these attributes:

    on_start(job)             an error here fails the job before it runs
    on_success(job, result)   an error here is logged; the job is done
    on_failure(job, error)    likewise; not called for a job that only moved itself (delayed, waiting for children)
    on_end(job)               after either, and after a move; errors are logged

Starts run in the order of the list, the others in reverse. Beside `async def` processors they may be plain functions
or `async def`; beside plain processors, which run in threads, they must be plain.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from echomq_pool.errors import InputError, JobSignal, UnrecoverableError

log = logging.getLogger("echomq.middleware")

NAMES = ("on_start", "on_success", "on_failure", "on_end")


@dataclass(frozen=True, slots=True)
class Middleware:
    """A middleware made of functions."""

    on_start: Callable[..., Any] | None = None
    on_success: Callable[..., Any] | None = None
    on_failure: Callable[..., Any] | None = None
    on_end: Callable[..., Any] | None = None


def check_middleware(layers: Iterable[Any], is_async: bool) -> list[Any]:
    """The layers as they are.

    Raises:
        InputError: one has none of the three, one that cannot be called, or an `async def` beside a plain processor.
    """
    found = list(layers)
    for layer in found:
        given = {name: getattr(layer, name, None) for name in NAMES}
        given = {name: function for name, function in given.items() if function is not None}
        if not given:
            raise InputError(f"middleware {layer!r}: expected at least one of {', '.join(NAMES)}")
        for name, function in given.items():
            if not callable(function):
                raise InputError(f"middleware {layer!r}: {name} is not callable")
            if inspect.iscoroutinefunction(function) and not is_async:
                raise InputError(
                    f"middleware {layer!r}: {name} is async, but the processor is a plain function"
                )
    return found


def around_async(
    call: Callable[[Any], Awaitable[Any]], layers: Sequence[Any]
) -> Callable[[Any], Awaitable[Any]]:
    """`call` with the layers around it."""

    async def run(job: Any) -> Any:
        try:
            result = await _failing(job)
            for layer in reversed(layers):
                await _told_async(_hook(layer, "on_success"), job, result)
            return result
        finally:
            for layer in reversed(layers):
                await _told_async(_hook(layer, "on_end"), job)

    async def _failing(job: Any) -> Any:
        try:
            for layer in layers:
                await _awaited(_hook(layer, "on_start"), job)
            return await call(job)
        except BaseException as error:
            if tells(error):
                for layer in reversed(layers):
                    await _told_async(_hook(layer, "on_failure"), job, error)
            raise

    return run


def around_sync(call: Callable[[Any], Any], layers: Sequence[Any]) -> Callable[[Any], Any]:
    """The same for a plain processor."""

    def run(job: Any) -> Any:
        try:
            result = _failing(job)
            for layer in reversed(layers):
                _told(_hook(layer, "on_success"), job, result)
            return result
        finally:
            for layer in reversed(layers):
                _told(_hook(layer, "on_end"), job)

    def _failing(job: Any) -> Any:
        try:
            for layer in layers:
                _hook(layer, "on_start")(job)
            return call(job)
        except BaseException as error:
            if tells(error):
                for layer in reversed(layers):
                    _told(_hook(layer, "on_failure"), job, error)
            raise

    return run


def tells(error: BaseException) -> bool:
    """Whether an exception out of a processor is a failure, and not a word about where the job has gone."""
    return isinstance(error, UnrecoverableError) or not isinstance(error, JobSignal)


def _hook(layer: Any, name: str) -> Callable[..., Any]:
    return getattr(layer, name, None) or _nothing


def _nothing(*_: Any) -> None:
    return None


async def _awaited(function: Callable[..., Any], *args: Any) -> None:
    result = function(*args)
    if inspect.isawaitable(result):
        await result


async def _told_async(function: Callable[..., Any], *args: Any) -> None:
    try:
        await _awaited(function, *args)
    except Exception:  # user code
        log.exception("a middleware raised")


def _told(function: Callable[..., Any], *args: Any) -> None:
    try:
        function(*args)
    except Exception:  # user code
        log.exception("a middleware raised")
