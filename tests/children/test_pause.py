# SPDX-License-Identifier: MIT
"""The one wait of the singletons' loops."""

from __future__ import annotations

import asyncio

import pytest

from echomq_pool.children.pause import pause


async def test_a_pause_ends_when_it_is_over_or_something_cannot_wait() -> None:
    wake = asyncio.Event()
    await pause(wake, 0.001)
    wake.set()
    await pause(wake, None)
    assert not wake.is_set()


async def test_a_cancellation_that_comes_with_the_wake_up_is_not_lost() -> None:
    """A stop is heard, whatever happens at the same moment."""
    wake = asyncio.Event()
    waiting = asyncio.create_task(pause(wake, 60))
    await asyncio.sleep(0)
    wake.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
