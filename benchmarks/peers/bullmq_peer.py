# SPDX-License-Identifier: MIT
"""bullmq for Python: one process for each worker, as it has no pool of its own."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from bullmq import Queue, Worker

from benchmarks.peers import common
from benchmarks.peers.common import Load


async def process(job: Any, token: str) -> None:
    if job.name == "noop":
        common.tick()
    elif job.name == "io":
        await asyncio.sleep(common.IO_S)
        common.tick()
    elif job.name == "cpu":
        common.burn()
        common.tick()
    elif job.name == "mark":
        common.mark(job.data["at"])
    else:
        common.started(job.data["key"])
        await asyncio.sleep(job.data["s"])


async def work() -> None:
    options: dict[str, Any] = {"connection": common.url(), "concurrency": common.concurrency()}
    if common.quickest():
        options |= {"lockDuration": 1_000, "stalledInterval": 1_000, "maxStalledCount": 100}
    else:
        options |= {"maxStalledCount": 100}
    worker = Worker("bench", process, options)
    worker.on("error", lambda *args: None)
    await asyncio.Event().wait()


class BullMQ:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._queue: Queue | None = None

    def _run(self, work: Any) -> None:
        self._runner.run(work)

    def queue(self) -> Queue:
        if self._queue is None:
            self._queue = Queue("bench", {"connection": common.url()})
        return self._queue

    def describe(self, load: Load) -> dict[str, Any]:
        command = common.python("-m", "benchmarks.peers.bullmq_peer", "work")
        extra = ", lock and stalled interval 1 s" if common.quickest() else ""
        settings = f"{load.processes} processes × concurrency {load.concurrency}{extra}"
        return {"commands": [command] * load.processes, "settings": settings}

    def bulk(self, kind: str, count: int) -> None:
        async def add() -> None:
            for start in range(0, count, 1_000):
                numbers = range(start, min(count, start + 1_000))
                await self.queue().addBulk([{"name": kind, "data": {"n": n}, "opts": {}} for n in numbers])

        self._run(add())

    def one(self, kind: str, count: int) -> None:
        async def add() -> None:
            for n in range(count):
                await self.queue().add(kind, {"n": n})

        self._run(add())

    def mark(self) -> None:
        async def add() -> None:
            await self.queue().add("mark", {"at": time.time_ns()})

        self._run(add())

    def hold(self, key: str, seconds: float) -> None:
        async def add() -> None:
            await self.queue().add("hold", {"key": key, "s": seconds})

        self._run(add())


if __name__ == "__main__":
    if sys.argv[1] == "work":
        asyncio.run(work())
    else:
        common.run(BullMQ())
