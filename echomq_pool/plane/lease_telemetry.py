# SPDX-License-Identifier: MIT
"""Measurements of the lease plane for whoever attached a handler, by name: ("emq", "job", "add") and its like.

job      add, start, complete, fail, retry      by producers and by the loop of a program without a pool
worker   start, stop                            by that loop
rate_limit   hit                                by who asks whether the queue is at its ceiling

Times are ms. A pool's figures are on its /metrics page, and its traces in OpenTelemetry (`api/tracing.py`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from echomq_pool.plane import codec

log = logging.getLogger("echomq.telemetry")

Handler = Callable[[tuple[str, ...], dict[str, float], dict[str, str]], Awaitable[None] | None]


class Telemetry:
    """Named measurements for whoever attached a handler; without one a call costs a look into a dict."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, ...], list[Handler]] = {}

    def attach(self, name: tuple[str, ...], handler: Handler) -> None:
        self._handlers.setdefault(name, []).append(handler)

    def detach(self, name: tuple[str, ...], handler: Handler) -> None:
        """Forgets a handler that was attached."""
        self._handlers[name].remove(handler)

    def emit(self, name: tuple[str, ...], measurements: dict[str, float], metadata: dict[str, str]) -> None:
        """Tells the handlers. One that raises is logged and stops no other."""
        for handler in self._handlers.get(name, ()):
            try:
                result = handler(name, measurements, metadata)
                if inspect.isawaitable(result):
                    asyncio.ensure_future(result).add_done_callback(_look_at)
            except Exception:  # foreign code at an edge
                log.exception("a telemetry handler of %s broke", ".".join(name))


def _look_at(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a telemetry handler broke: %r", task.exception())


TELEMETRY = Telemetry()


def admitted(reply: Any, word: str, queue: str, job_id: str) -> str:
    """What an adding script has answered, as a word: `word`, `duplicate`, or the holder of the deduplication id."""
    if isinstance(reply, bytes):
        return codec.to_text(reply)
    if reply != 1:
        return "duplicate"
    TELEMETRY.emit(("emq", "job", "add"), {"count": 1}, {"queue": queue, "job": job_id})
    return word
