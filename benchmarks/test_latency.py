# SPDX-License-Identifier: MIT
"""How long a job lies in the queue before it starts: on an idle queue, and while the pool is busy with others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support import pools, runs
from benchmarks.support.meter import percentile
from echomq_pool import SyncQueue
from tests.support.servers import Server
from tests.support.waiting import eventually

TITLE = "Latency: add → start"
METHOD = (
    "Wall clock of one machine, taken before the add is sent and when the processor runs; 2 processes. Under load: a "
    "producer of its own adds no-op jobs at the rate given meanwhile, to a queue of the same pool."
)
LOADED = """
[[workers]]
name = "load"
queues = ["load"]
processor = "benchmarks.support.jobs:noop"
processes = 2
concurrency = 16
"""


def probe(server: Server, folder: Path, count: int, gap_s: float) -> list[float]:
    with SyncQueue("bench", url=server.url) as queue:
        queue.get_job_counts()
        for _ in range(count):
            queue.add("mark", {"at": time.time_ns()}, remove_on_complete=True)
            time.sleep(gap_s)  # the pace of the load, not a wait for something
    eventually(lambda: len(runs.latencies_ms(folder)) >= count, within=60)
    return runs.latencies_ms(folder)


def note(row: Row, load: str, values: list[float]) -> None:
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}
    row(TITLE, METHOD, load=load, jobs=len(values), **{k: percentile(values, s) for k, s in shares.items()})


@pytest.mark.benchmark(group="latency")
def test_idle(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path) -> None:
    count = pick(10, 200, 1_000)
    with pools.pool(tmp_path, server, "mark"):
        values = benchmark.pedantic(lambda: probe(server, tmp_path, count, 0.02), rounds=1)
    note(row, "idle", values)


@pytest.mark.benchmark(group="latency")
@pytest.mark.sizes("rate", smoke=[50], quick=[1_000], full=[1_000, 3_000])
def test_under_load(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path, rate: int) -> None:
    count = pick(10, 200, 1_000)
    with pools.pool(tmp_path, server, "mark", more=LOADED), pools.steady(server, "load", rate):
        values = benchmark.pedantic(lambda: probe(server, tmp_path, count, 0.02), rounds=1)
    note(row, f"{rate} other jobs a second", values)
