# SPDX-License-Identifier: MIT
"""What a death costs: kill -9 of a worker, a restart of the LockManager, start-up and reload of a pool."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support import pools, runs
from benchmarks.support.meter import percentile
from echomq_pool import SyncQueue
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

TITLE = "Recovery: times in ms"
METHOD = (
    "The real program with default settings (30 s locks), its restarts not slowed down by the deaths before. Kill: "
    "from SIGKILL of the worker that runs a job to the next start of that job; LockManager: from its SIGKILL to the "
    "first full renewal of its successor, with the number of leases given; start: from exec to every child ready; "
    "reload: from SIGHUP to a new generation of workers ready."
)


def note(row: Row, what: str, seconds: list[float]) -> None:
    values = [s * 1000 for s in seconds]
    row(
        TITLE, METHOD, what=what, times=len(values), p50=percentile(values, 0.5), p99=percentile(values, 0.99)
    )


def kill_once(server: Server, folder: Path, key: str) -> float:
    """Seconds from the kill to the job's second start."""
    with SyncQueue("bench", url=server.url) as queue:
        queue.add("hold", {"key": key, "s": 1.0}, remove_on_complete=True)
    pid, _ = eventually(lambda: runs.starts(folder, key))[0]
    killed_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    again = eventually(lambda: runs.starts(folder, key)[1:], within=60, why="the job runs again")
    seconds: float = (again[0][1] - killed_ns) / 1e9
    pools.settled(
        server
    )  # a job that has stalled runs alone: the next one's second run would wait for this one's
    return seconds


@pytest.mark.benchmark(group="recovery")
def test_kill_9_to_running_again(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path) -> None:
    times = pick(1, 10, 50)
    with pools.pool(tmp_path, server, "hold", concurrency=4) as pool:

        def kills() -> list[float]:
            values = []
            for n in range(times):
                values.append(kill_once(server, tmp_path, f"job-{n}"))
                eventually(pool.is_ready)
            return values

        note(row, "kill -9 of a worker → job runs again", benchmark.pedantic(kills, rounds=1))


@pytest.mark.benchmark(group="recovery")
@pytest.mark.sizes("leases", smoke=[10], quick=[1_000], full=[100, 1_000, 10_000])
def test_restart_of_the_lock_manager(
    benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path, leases: int
) -> None:
    times = pick(1, 5, 20)
    for n in range(leases):
        if n % 1_000 == 0:
            pools.fill(server, min(1_000, leases - n), {"key": "lease", "s": 600})
    slots = max(1, leases // 2)
    with pools.pool(tmp_path, server, "stay", processes=2, concurrency=slots, abrupt=True) as pool:
        eventually(lambda: len(runs.starts(tmp_path, "lease")) == leases, within=120)
        values = benchmark.pedantic(lambda: [restart_once(server, pool) for _ in range(times)], rounds=1)
        note(row, f"kill -9 of the LockManager → {leases} leases renewed", values)


def restart_once(server: Server, pool: PoolProcess) -> float:
    """Seconds from the death of the LockManager to the call that renews everything."""
    with server.client() as client:
        eventually(pool.is_ready)
        [pid] = pool.pids("lock_manager")
        before = _when_quiet(client)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: _scripts(client) > before, within=30, why="leases renewed by the new LockManager")
        return time.monotonic() - began


def _when_quiet(client: Any) -> int:
    """The calls so far, when for a while there was none: the one before has renewed what it had to."""
    while True:
        calls = _scripts(client)
        time.sleep(0.2)
        if _scripts(client) == calls:
            return calls


def _scripts(client: Any) -> int:
    """EVALSHA calls so far. All slots are busy, so that nothing but renewals call scripts."""
    calls: int = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    return calls


@pytest.mark.benchmark(group="recovery")
@pytest.mark.sizes("processes", smoke=[2], quick=[2, 8], full=[2, 8, 32])
def test_start(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path, processes: int) -> None:
    times = pick(1, 3, 10)

    def start() -> float:
        began = time.monotonic()
        with pools.pool(tmp_path, server, processes=processes):
            return time.monotonic() - began

    values = benchmark.pedantic(lambda: [start() for _ in range(times)], rounds=1)
    note(row, f"start of a pool of {processes} workers", values)


@pytest.mark.benchmark(group="recovery")
def test_reload(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path) -> None:
    times = pick(1, 3, 10)
    with pools.pool(tmp_path, server, processes=4) as pool:

        def reload() -> float:
            old = set(pool.pids("bench"))
            pool.config.write_text(_with_another_delay(pool.config.read_text()))
            began = time.monotonic()
            pool.signal(signal.SIGHUP)
            eventually(lambda: pool.is_ready() and not old & set(pool.pids("bench")), within=60)
            return time.monotonic() - began

        note(
            row,
            "reload of a pool of 4 workers",
            benchmark.pedantic(lambda: [reload() for _ in range(times)], rounds=1),
        )


def _with_another_delay(text: str) -> str:
    """Another value in the `[[workers]]` entry, so that a reload has something to do."""
    old, new = ('"9s"', '"8s"') if '"9s"' in text else ('"8s"', '"9s"')
    if old not in text:
        return text.replace("processor =", f"drain_delay = {new}\nprocessor =")
    return text.replace(old, new)
