# SPDX-License-Identifier: MIT
"""RQ: its worker pool, without a fork for each job where that is allowed; results are not kept."""

from __future__ import annotations

import time
from typing import Any

from redis import Redis
from rq import Queue, Retry

from benchmarks.peers import common
from benchmarks.peers.common import Load


def noop(n: int = 0) -> None:
    common.tick()


def io(n: int = 0) -> None:
    time.sleep(common.IO_S)
    common.tick()


def cpu(n: int = 0) -> None:
    common.burn()
    common.tick()


def mark(at: int) -> None:
    common.mark(at)


def hold(key: str, seconds: float) -> None:
    common.started(key)
    time.sleep(seconds)


TASKS = {"noop": noop, "io": io, "cpu": cpu}


class RQ:
    def __init__(self) -> None:
        self.queue = Queue("bench", connection=Redis.from_url(common.url()))

    def describe(self, load: Load) -> dict[str, Any]:
        # One job at a time in a process: work that waits can only be answered by more processes.
        processes = 16 if load.kind == "io" else load.processes
        kind = "rq.worker.Worker" if load.kind == "hold" else "rq.worker.SimpleWorker"
        options = ["-n", str(processes), "-w", kind, "-u", common.url(), "-q"]
        extra = ", Retry(max=3)" if common.quickest() else ""
        settings = f"worker-pool -n {processes}, {kind.rpartition('.')[2]}{extra}"
        return {"commands": [common.tool("rq", "worker-pool", *options, "bench")], "settings": settings}

    def bulk(self, kind: str, count: int) -> None:
        for start in range(0, count, 1_000):
            numbers = range(start, min(count, start + 1_000))
            self.queue.enqueue_many([Queue.prepare_data(TASKS[kind], (n,), result_ttl=0) for n in numbers])

    def one(self, kind: str, count: int) -> None:
        for n in range(count):
            self.queue.enqueue(TASKS[kind], n, result_ttl=0)

    def mark(self) -> None:
        self.queue.enqueue(mark, time.time_ns(), result_ttl=0)

    def hold(self, key: str, seconds: float) -> None:
        retry = Retry(max=3) if common.quickest() else None
        self.queue.enqueue(hold, key, seconds, result_ttl=0, retry=retry)


if __name__ == "__main__":
    from benchmarks.peers import rq_peer  # jobs are named by their module

    common.run(rq_peer.RQ())
