# SPDX-License-Identifier: MIT
"""How the loops of the singletons wait: for their next tick, or for something that cannot wait for it."""

from __future__ import annotations

import asyncio


async def pause(wake: asyncio.Event, seconds: float | None) -> None:
    """Waits until `wake` is set, `seconds` at most (None: for ever), and clears it."""
    try:
        # Not `wait_for`: up to Python 3.11 it loses a cancellation that comes together with the event.
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        pass
    wake.clear()
