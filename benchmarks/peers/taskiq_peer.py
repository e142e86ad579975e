# SPDX-License-Identifier: MIT
"""taskiq on a Redis stream, the broker that acknowledges; uvloop, no results."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from taskiq_redis import RedisStreamBroker

from benchmarks.peers import common
from benchmarks.peers.common import Load

_recovery: dict[str, Any] = {"idle_timeout": 1_000, "xread_block": 500} if common.quickest() else {}
broker = RedisStreamBroker(common.url(), **_recovery)


@broker.task
async def noop(n: int = 0) -> None:
    common.tick()


@broker.task
async def io(n: int = 0) -> None:
    await asyncio.sleep(common.IO_S)
    common.tick()


@broker.task
async def cpu(n: int = 0) -> None:
    common.burn()
    common.tick()


@broker.task
async def mark(at: int) -> None:
    common.mark(at)


@broker.task
async def hold(key: str, seconds: float) -> None:
    common.started(key)
    await asyncio.sleep(seconds)


TASKS: dict[str, Any] = {"noop": noop, "io": io, "cpu": cpu}


class Taskiq:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def describe(self, load: Load) -> dict[str, Any]:
        options = ["-w", str(load.processes), "--max-async-tasks", str(load.concurrency)]
        quiet = ["--log-level", "ERROR", "--no-parse"]
        command = common.tool("taskiq", "worker", "benchmarks.peers.taskiq_peer:broker", *options, *quiet)
        extra = ", idle timeout 1 s" if common.quickest() else ""
        return {
            "commands": [command],
            "settings": f"RedisStreamBroker, {' '.join(options)}, --no-parse{extra}",
        }

    def _add(self, work: Any) -> None:
        async def add() -> None:
            await broker.startup()
            await work()

        self._runner.run(add())

    def bulk(self, kind: str, count: int) -> None:
        async def add() -> None:  # it has no call for many; a hundred in flight are the quickest
            for start in range(0, count, 100):
                numbers = range(start, min(count, start + 100))
                await asyncio.gather(*(TASKS[kind].kiq(n) for n in numbers))

        self._add(add)

    def one(self, kind: str, count: int) -> None:
        async def add() -> None:
            for n in range(count):
                await TASKS[kind].kiq(n)

        self._add(add)

    def mark(self) -> None:
        self._runner.run(mark.kiq(time.time_ns()))

    def hold(self, key: str, seconds: float) -> None:
        self._add(lambda: hold.kiq(key, seconds))


if __name__ == "__main__":
    from benchmarks.peers import taskiq_peer  # tasks are named by their module

    common.run(taskiq_peer.Taskiq())
