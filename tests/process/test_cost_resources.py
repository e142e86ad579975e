# SPDX-License-Identifier: MIT
"""Descriptors, connections, memory and CPU of a pool are bounded: over jobs, recycling, outages, and at rest."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil
import pytest

from echomq_pool import Queue, SyncQueue
from tests.process.test_cost_commands import add, running
from tests.support.monitor import requests
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

STEADY = 20  # looks at the counts that must agree, some 10 ms apart or more


def descriptors(pool: PoolProcess) -> int:
    return sum(process.num_fds() for process in pool.tree())


def connections(server: Server) -> int:
    """Of the pool: clients that have a name, producers left out."""
    with server.client() as client:
        return sum(1 for c in client.client_list() if c["name"] and not c["name"].endswith(":producer"))


def completed(server: Server, queue_name: str) -> int:
    with SyncQueue(queue_name, url=server.url) as queue:
        return queue.get_job_counts("completed")["completed"]


def all_done(server: Server, queue_name: str, count: int) -> None:
    eventually(lambda: completed(server, queue_name) == count, within=60)


def test_two_hundred_adds_in_flight_use_one_connection(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """case C167"""

    async def produce() -> int:
        async with Queue(queue_name, url=own_server.url) as queue:
            numbers = iter(range(4_000))

            async def lane() -> None:
                for n in numbers:
                    await queue.add("job", {"n": n})

            await asyncio.gather(*(lane() for _ in range(200)))
            with own_server.client() as client:
                return sum(1 for c in client.client_list() if c["name"].endswith(":producer"))

    with running(tmp_path, own_server, queue_name, "noop", processes=4):
        assert asyncio.run(produce()) == 1
        eventually(lambda: completed(own_server, queue_name) == 4_000, within=60)
        assert connections(own_server) <= 2 * 4 + 4


def test_neither_recycling_nor_outages_leak(tmp_path: Path, own_server: Server, queue_name: str) -> None:
    """case C168: processes are replaced after 10 jobs and the server goes away, and all is as it was."""
    jobs, outages = 300, 3
    more = "max_jobs = 10\nmax_jobs_jitter = 0.0"
    with running(tmp_path, own_server, queue_name, "noop", 2, 4, more) as pool:
        before = settled_counts(pool, own_server, 2 * 2 + 4)
        for round_ in range(1, outages + 1):
            with SyncQueue(queue_name, url=own_server.url) as queue:
                add(queue, jobs // outages, {})
            all_done(own_server, queue_name, jobs // outages * round_)
            own_server.stop()
            own_server.start()
        assert settled_counts(pool, own_server, before[0]) == before


def settled_counts(pool: PoolProcess, server: Server, wanted: int) -> tuple[int, int]:
    """(connections, descriptors) once every child is ready, `wanted` are connected and nothing changes any more.

    A pool that starts, replaces a worker or connects again has some more for a moment.
    """
    last: list[tuple[int, int]] = []

    def steady() -> bool:
        last.append((connections(server), descriptors(pool)) if pool.is_ready() else (0, len(last)))
        return last[-1][0] == wanted and len(set(last[-STEADY:])) == 1 and len(last) >= STEADY

    eventually(steady, within=60, why=f"{wanted} connections and nothing that changes")
    return last[-1]


def test_delayed_jobs_stay_on_the_server(tmp_path: Path, own_server: Server, queue_name: str) -> None:
    """case C169: 100 000 delayed jobs, and no child grows by 5 MB."""
    with running(tmp_path, own_server, queue_name, "noop", processes=2) as pool:
        with SyncQueue(queue_name, url=own_server.url) as queue:
            add(queue, 100, {})
            eventually(lambda: completed(own_server, queue_name) == 100)
            before = {process.pid: process.memory_info().rss for process in pool.tree()}
            for _ in range(100):
                queue.add_bulk(("later", {"n": n}, {"delay": 3_600_000}) for n in range(1_000))
            assert queue.get_job_counts("delayed")["delayed"] == 100_000
            add(queue, 100, {})
            eventually(lambda: completed(own_server, queue_name) == 200)
        for process in pool.tree():
            grown = process.memory_info().rss - before[process.pid]
            assert grown < 5_000_000, f"{process.cmdline()} grew by {grown} bytes"


@pytest.mark.parametrize("seconds", [10.0, pytest.param(60.0, marks=pytest.mark.soak)])
def test_an_idle_pool_of_five_queues_costs_next_to_nothing(
    tmp_path: Path, own_server: Server, queue_name: str, seconds: float
) -> None:
    """case C170: 4 workers × 5 queues: less than 2 s of CPU a minute, less than 5 commands a second and child."""
    queues = '", "'.join(f"{queue_name}-{n}" for n in range(5))
    with running(tmp_path, own_server, queues, "noop", processes=4) as pool:
        tree = pool.tree()
        began = time.monotonic()
        before = cpu(tree)
        seen = requests(own_server, seconds)
        used = cpu(tree) - before
        spent = time.monotonic() - began
    assert used < 2 * spent / 60, f"{used} s of CPU in {spent} s"
    assert seen.total() / seconds < 5 * 4, seen


def cpu(tree: list[psutil.Process]) -> float:
    """User and system seconds so far."""
    return float(sum(t.user + t.system for t in (process.cpu_times() for process in tree)))
