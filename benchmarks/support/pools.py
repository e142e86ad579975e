# SPDX-License-Identifier: MIT
"""Pools for benchmarks: the real program, with a body of one `[[workers]]` entry."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from echomq_pool import SyncQueue
from tests.support.pool import REPOSITORY, PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

BODY = """
[supervisor]
control = "@CONTROL@"
max_restarts = 1000
backoff = {{ initial = "1ms", max = "1ms" }}
hang_timeout = "30s"

[infra]
max_restarts = 1000

[observer]
bind = "off"

[[workers]]
name = "bench"
queues = ["bench"]
processor = "{processor}"
processes = {processes}
concurrency = {concurrency}
max_restarts = 1000
max_stalled_count = 1000
{more}
"""


@contextmanager
def pool(
    folder: Path,
    server: Server,
    processor: str = "noop",
    *,
    processes: int = 2,
    concurrency: int = 32,
    more: str = "",
    ready: bool = True,
    abrupt: bool = False,
    env: dict[str, str] | None = None,
) -> Iterator[PoolProcess]:
    """A pool that is ready; ended at the end, whatever happened. `abrupt`: its jobs are not waited for."""
    path = processor if ":" in processor else f"benchmarks.support.jobs:{processor}"
    body = BODY.format(processor=path, processes=processes, concurrency=concurrency, more=more)
    process = PoolProcess(folder, server.url, body, name="bench", log_level="warning")
    try:
        process.start(ready=ready, env={"BENCH_DIR": str(folder), **(env or {})})
        yield process
        if not abrupt:
            process.stop()
    finally:
        process.destroy()


def fill(server: Server, count: int, data: Any = None, **options: Any) -> None:
    """Adds `count` jobs to the queue of `pool`."""
    with SyncQueue("bench", url=server.url) as queue:
        for start in range(0, count, 1_000):
            size = min(1_000, count - start)
            queue.add_bulk(("job", {"n": start + n} if data is None else data, options) for n in range(size))


def settled(server: Server) -> None:
    """Waits until nothing is waiting and nothing runs."""
    with SyncQueue("bench", url=server.url) as queue:
        eventually(
            lambda: not any(queue.get_job_counts("wait", "active").values()),
            within=120,
            why="the queue is empty",
        )


@contextmanager
def steady(server: Server, queue: str, rate: int) -> Iterator[None]:
    """A process that adds `rate` jobs a second to `queue` meanwhile."""
    command = [sys.executable, "-m", "benchmarks.support.pools", server.url, queue, str(rate)]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=10)


def add_steadily(url: str, name: str, rate: int) -> None:
    """Adds in small bulks, ten a second or more, until stdin closes."""
    every_s = 0.02
    with SyncQueue(name, url=url) as queue:
        due = time.monotonic()
        while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            due += every_s
            size = max(1, round(rate * every_s))
            queue.add_bulk(("job", {"n": n}, {"remove_on_complete": True}) for n in range(size))


if __name__ == "__main__":
    add_steadily(sys.argv[1], sys.argv[2], int(sys.argv[3]))
