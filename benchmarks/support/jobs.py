# SPDX-License-Identifier: MIT
"""Processors of the benchmarks. They count and time themselves, at the same small cost in every contestant."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.peers import common


async def noop(job: Any) -> None:
    """Counts itself."""
    common.tick()


async def io(job: Any) -> None:
    """Waits 50 ms, as for a service elsewhere."""
    await asyncio.sleep(common.IO_S)
    common.tick()


async def cpu(job: Any) -> None:
    """2 ms of CPU."""
    common.burn()
    common.tick()


async def mark(job: Any) -> None:
    """Notes how long it lay in the queue."""
    common.mark(job.data["at"])


def hold(job: Any) -> None:
    """Notes its start, then sleeps for `s` seconds."""
    common.started(job.data["key"])
    time.sleep(job.data["s"])


async def stay(job: Any) -> None:
    """Holds its lease without doing anything."""
    common.started(job.data["key"])
    await asyncio.sleep(job.data["s"])


async def work(job: Any) -> None:
    """What the job's name says: the contestants have one worker for all kinds."""
    if job.name == "noop":
        common.tick()
    elif job.name == "hold":
        common.started(job.data["key"])
        await asyncio.sleep(job.data["s"])
    else:
        await {"io": io, "cpu": cpu, "mark": mark}[job.name](job)
