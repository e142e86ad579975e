# SPDX-License-Identifier: MIT
"""Tests that wait retry a condition with a generous limit; they do not sleep for a guessed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any


def eventually(condition: Callable[[], Any], *, within: float = 30.0, why: str = "") -> Any:
    """Calls `condition` until it is true (its value is returned) or `within` seconds have passed."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within} s: {why or condition}"
        time.sleep(0.01)


async def eventually_async(
    condition: Callable[[], Awaitable[Any] | Any], *, within: float = 30.0, why: str = ""
) -> Any:
    """The same inside a loop; `condition` may be a coroutine function."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if asyncio.iscoroutine(value) or isinstance(value, asyncio.Future):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within} s: {why or condition}"
        await asyncio.sleep(0.01)
