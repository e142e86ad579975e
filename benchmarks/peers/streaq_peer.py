# SPDX-License-Identifier: MIT
"""streaQ: its own processes, results not kept."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from streaq import Worker

from benchmarks.peers import common
from benchmarks.peers.common import Load

_recovery: dict[str, Any] = {"idle_timeout": 1} if common.quickest() else {}
worker: Any = Worker(
    redis_url=common.url(), queue_name="bench", concurrency=common.concurrency(), **_recovery
)


@worker.task(ttl=0, silent=True)
async def noop(n: int = 0) -> None:
    common.tick()


@worker.task(ttl=0, silent=True)
async def io(n: int = 0) -> None:
    await asyncio.sleep(common.IO_S)
    common.tick()


@worker.task(ttl=0, silent=True)
async def cpu(n: int = 0) -> None:
    common.burn()
    common.tick()


@worker.task(ttl=0, silent=True)
async def mark(at: int) -> None:
    common.mark(at)


@worker.task(ttl=0, silent=True, max_tries=10)
async def hold(key: str, seconds: float) -> None:
    common.started(key)
    await asyncio.sleep(seconds)


TASKS: dict[str, Any] = {"noop": noop, "io": io, "cpu": cpu, "mark": mark, "hold": hold}


class StreaQ:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._open = False

    def describe(self, load: Load) -> dict[str, Any]:
        command = common.tool(
            "streaq", "run", "benchmarks.peers.streaq_peer:worker", "-w", str(load.processes)
        )
        extra = ", idle timeout 1 s" if common.quickest() else ""
        return {
            "commands": [command],
            "settings": f"-w {load.processes}, concurrency {load.concurrency}{extra}",
        }

    def _add(self, work: Any) -> None:
        async def add() -> None:
            if not self._open:
                self._open = True
                await worker.__aenter__()
            await work()

        self._runner.run(add())

    def bulk(self, kind: str, count: int) -> None:
        async def add() -> None:
            for start in range(0, count, 1_000):
                numbers = range(start, min(count, start + 1_000))
                await worker.enqueue_many([TASKS[kind].enqueue(n) for n in numbers])

        self._add(add)

    def one(self, kind: str, count: int) -> None:
        async def add() -> None:
            for n in range(count):
                await TASKS[kind].enqueue(n)

        self._add(add)

    def mark(self) -> None:
        async def add() -> None:
            await mark.enqueue(time.time_ns())

        self._add(add)

    def hold(self, key: str, seconds: float) -> None:
        async def add() -> None:
            await hold.enqueue(key, seconds)

        self._add(add)


if __name__ == "__main__":
    from benchmarks.peers import streaq_peer  # tasks are named by their module

    common.run(streaq_peer.StreaQ())
