# SPDX-License-Identifier: MIT
"""SAQ: its own processes, jobs forgotten when they are done."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from saq import Queue

from benchmarks.peers import common
from benchmarks.peers.common import Load


async def noop(ctx: Any, *, n: int = 0) -> None:
    common.tick()


async def io(ctx: Any, *, n: int = 0) -> None:
    await asyncio.sleep(common.IO_S)
    common.tick()


async def cpu(ctx: Any, *, n: int = 0) -> None:
    common.burn()
    common.tick()


async def mark(ctx: Any, *, at: int) -> None:
    common.mark(at)


async def hold(ctx: Any, *, name: str, seconds: float) -> None:
    common.started(name)
    await asyncio.sleep(seconds)


queue = Queue.from_url(common.url(), name="bench")
settings = {
    "queue": queue,
    "functions": [noop, io, cpu, mark, hold],
    "concurrency": common.concurrency(),
    "timers": {"sweep": 1} if common.quickest() else {},
}
FORGET = -1  # ttl of a finished job


class SAQ:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def describe(self, load: Load) -> dict[str, Any]:
        options = ["--workers", str(load.processes), "-q"]
        extra = ", heartbeat 1 s, sweep every 1 s" if common.quickest() else ""
        text = f"--workers {load.processes}, concurrency {load.concurrency}{extra}"
        return {
            "commands": [common.tool("saq", "benchmarks.peers.saq_peer.settings", *options)],
            "settings": text,
        }

    def bulk(self, kind: str, count: int) -> None:
        async def add() -> None:  # it has no call for many; a hundred in flight are the quickest
            await queue.connect()
            for start in range(0, count, 100):
                numbers = range(start, min(count, start + 100))
                await asyncio.gather(*(queue.enqueue(kind, ttl=FORGET, n=n) for n in numbers))

        self._runner.run(add())

    def one(self, kind: str, count: int) -> None:
        async def add() -> None:
            await queue.connect()
            for n in range(count):
                await queue.enqueue(kind, ttl=FORGET, n=n)

        self._runner.run(add())

    def _add(self, kind: str, **values: Any) -> None:
        async def add() -> None:
            await queue.connect()
            await queue.enqueue(kind, ttl=FORGET, retries=10, timeout=60, **values)

        self._runner.run(add())

    def mark(self) -> None:
        self._add("mark", at=time.time_ns())

    def hold(self, key: str, seconds: float) -> None:
        heartbeat = {"heartbeat": 1} if common.quickest() and key != "warm" else {}
        self._add("hold", name=key, seconds=seconds, **heartbeat)


if __name__ == "__main__":
    common.run(SAQ())
