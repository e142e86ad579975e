# SPDX-License-Identifier: MIT
"""echomq-pool on the lock plane: the synchronous producer in bulk, the asynchronous one on uvloop one by one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import uvloop

from benchmarks.peers import common
from benchmarks.peers.common import Load
from echomq_pool import Queue, SyncQueue

BODY = """
name = "compare"
[redis]
url = "{url}"
[log]
level = "warning"
[observer]
bind = "off"
[supervisor]
control = "{folder}/control.sock"
max_restarts = 1000
[infra]
max_restarts = 1000
[[workers]]
name = "bench"
queues = ["bench"]
processor = "benchmarks.support.jobs:work"
processes = {processes}
concurrency = {concurrency}
max_restarts = 1000
max_stalled_count = 100
"""


class Ours:
    def __init__(self) -> None:
        self._queue: SyncQueue | None = None

    @property
    def queue(self) -> SyncQueue:
        if self._queue is None:
            self._queue = SyncQueue("bench", url=common.url())
        return self._queue

    def describe(self, load: Load) -> dict[str, Any]:
        path = common.folder() / "pool.toml"
        values = {"processes": load.processes, "concurrency": load.concurrency}
        path.write_text(BODY.format(url=common.url(), folder=common.folder(), **values))
        settings = f"{load.processes} × {load.concurrency}, lock plane, everything else at its default"
        return {"commands": [common.python("-m", "echomq_pool", "--config", str(path))], "settings": settings}

    def bulk(self, kind: str, count: int) -> None:
        for start in range(0, count, 1_000):
            self.queue.add_bulk((kind, {"n": n}, {}) for n in range(start, min(count, start + 1_000)))

    def one(self, kind: str, count: int) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_one_by_one(kind, count))

    def mark(self) -> None:
        self.queue.add("mark", {"at": time.time_ns()})

    def hold(self, key: str, seconds: float) -> None:
        self.queue.add("hold", {"key": key, "s": seconds})


async def _one_by_one(kind: str, count: int) -> None:
    async with Queue("bench", url=common.url()) as queue:
        for n in range(count):
            await queue.add(kind, {"n": n})


if __name__ == "__main__":
    common.run(Ours())
