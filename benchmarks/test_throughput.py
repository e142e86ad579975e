# SPDX-License-Identifier: MIT
"""From the queue to done: no-op jobs, 50 ms of waiting, 2 ms of CPU, through the real program."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support import pools, runs
from benchmarks.support.lease_jobs import Producer
from benchmarks.support.runs import Drain
from tests.support.servers import Server

METHOD = (
    "The real program. All jobs are added before the pool starts; the rate is that between a tenth and 95 % of them. "
    "Pool µs: CPU of supervisor, infra and workers per job; server µs: CPU of the server per job; commands: with "
    "those inside scripts."
)


def drained(server: Server, folder: Path, jobs: int, **options: Any) -> Drain:
    pools.fill(server, jobs)
    with pools.pool(folder, server, ready=False, **options) as pool:
        drain = runs.watch_drain(server, folder, jobs, pool.tree, within_s=300)
        pools.settled(server)
    assert runs.ticks(folder).done == jobs
    return drain


def note(row: Row, title: str, drain: Drain, **first: Any) -> None:
    row(
        title,
        METHOD,
        **first,
        jobs_per_s=drain.rate,
        pool_us=drain.pool_us,
        server_us=drain.server_us,
        scripts_per_job=drain.scripts,
        commands_per_job=drain.commands,
    )


@pytest.mark.benchmark(group="throughput")
@pytest.mark.sizes("processes", smoke=[2], quick=[1, 2], full=[1, 2, 4])
@pytest.mark.sizes("concurrency", smoke=[8], quick=[1, 32, 256], full=[1, 4, 16, 32, 64, 256])
def test_noop_jobs(
    benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path, processes: int, concurrency: int
) -> None:
    jobs = pick(200, 10_000, 50_000) if concurrency > 1 else pick(200, 5_000, 20_000)
    drain = benchmark.pedantic(
        lambda: drained(server, tmp_path, jobs, processes=processes, concurrency=concurrency), rounds=1
    )
    note(row, "Throughput: no-op jobs", drain, processes=processes, concurrency=concurrency, jobs=jobs)


@pytest.mark.benchmark(group="throughput")
@pytest.mark.sizes("concurrency", smoke=[8], quick=[32, 256], full=[1, 16, 32, 64, 256])
def test_noop_jobs_on_the_lease_plane(
    benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path, concurrency: int
) -> None:
    jobs = pick(200, 20_000, 100_000) if concurrency > 1 else pick(200, 5_000, 20_000)
    with closing(Producer(server.port)) as producer:
        producer.add("noop", [{"n": n} for n in range(jobs)])

    def drained() -> Drain:
        more = 'plane = "lease"'
        with pools.pool(tmp_path, server, ready=False, concurrency=concurrency, more=more) as pool:
            return runs.watch_drain(server, tmp_path, jobs, pool.tree, within_s=300)

    drain = benchmark.pedantic(drained, rounds=1)
    note(row, "Throughput: no-op jobs, lease plane", drain, processes=2, concurrency=concurrency, jobs=jobs)


@pytest.mark.benchmark(group="throughput")
@pytest.mark.sizes("jobs", smoke=[100], quick=[10_000, 100_000], full=[10_000, 100_000, 300_000])
def test_ten_times_the_jobs(benchmark: Any, server: Server, row: Row, tmp_path: Path, jobs: int) -> None:
    """Growth: the cost of a job must not depend on how many wait behind it."""
    drain = benchmark.pedantic(lambda: drained(server, tmp_path, jobs), rounds=1)
    note(row, "Growth: no-op jobs, 2 processes × 32", drain, jobs=jobs)


@pytest.mark.benchmark(group="throughput")
def test_jobs_that_wait_50_ms(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path) -> None:
    jobs = pick(100, 4_000, 20_000)
    options = {"processor": "io", "processes": 1, "concurrency": 100}
    drain = benchmark.pedantic(lambda: drained(server, tmp_path, jobs, **options), rounds=1)
    note(
        row,
        "Throughput: jobs of 50 ms waiting, 1 × 100",
        drain,
        jobs=jobs,
        of_ideal=drain.rate / (100 / 0.05),
    )


@pytest.mark.benchmark(group="throughput")
def test_jobs_of_2_ms_of_cpu(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path) -> None:
    jobs = pick(50, 3_000, 10_000)
    options = {"processor": "cpu", "processes": 2, "concurrency": 4}
    drain = benchmark.pedantic(lambda: drained(server, tmp_path, jobs, **options), rounds=1)
    ideal = 2 / 0.002
    note(
        row, "Throughput: jobs of 2 ms of CPU, 2 × 4", drain, jobs=jobs, of_two_free_cores=drain.rate / ideal
    )
