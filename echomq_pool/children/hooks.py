# SPDX-License-Identifier: MIT
"""User hooks on events: loaded by dotted path, run one after the other, at least once, harming nobody."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
from collections.abc import Callable
from typing import Any

from echomq_pool.children.processor import make_here_importable
from echomq_pool.errors import PoolError
from echomq_pool.plane.events import Event

log = logging.getLogger("echomq.hooks")

HOOK_TIMEOUT_S = 30.0


class HookError(PoolError):
    """A hook of the configuration that cannot be loaded."""


class Hooks:
    """The functions of `[hooks]`, by event name (`on_failed` listens to `failed`)."""

    def __init__(self, paths: dict[str, str]) -> None:
        self._calls = {
            key.removeprefix("on_").replace("_", "-"): _load(key, path) for key, path in paths.items()
        }

    def __bool__(self) -> bool:
        return bool(self._calls)

    def wants(self, event: Event) -> bool:
        return self.wants_name(event.name)

    def wants_name(self, name: str) -> bool:
        return name in self._calls

    async def run(self, event: Event) -> bool:
        """Calls the hook of this event; True when it came back without an error.

        A hook that raises, or takes longer than `HOOK_TIMEOUT_S`, is logged with the job's id and left
        behind: the events behind it must not wait for ever.
        """
        call = self._calls[event.name]
        try:
            await asyncio.wait_for(_invoke(call, event), HOOK_TIMEOUT_S)
        except TimeoutError:
            log.error("hook on_%s took over %.0f s for job %s of %s", event.name, HOOK_TIMEOUT_S, event.job_id, event.queue)  # fmt: skip  # noqa: E501
        except Exception:
            log.exception("hook on_%s failed for job %s of %s", event.name, event.job_id, event.queue)
        else:
            return True
        return False


async def _invoke(call: Callable[[Event], Any], event: Event) -> None:
    if inspect.iscoroutinefunction(call):
        await call(event)
        return
    result = await asyncio.to_thread(call, event)
    if inspect.isawaitable(result):
        await result


def _load(key: str, path: str) -> Callable[[Event], Any]:
    module_name, _, attribute = path.partition(":")
    make_here_importable()
    try:
        target: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part)
    except Exception as error:
        raise HookError(f"hooks.{key}: cannot load {path!r}: {type(error).__name__}: {error}") from error
    if not callable(target):
        raise HookError(f"hooks.{key}: {path!r} is a {type(target).__name__}, expected a function")
    loaded: Callable[[Event], Any] = target
    return loaded
