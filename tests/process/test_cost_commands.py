# SPDX-License-Identifier: MIT
"""Ratios that no noise can change: script calls per job and per renewal, requests of an idle pool, connections.

A benchmark shows how fast the machine was today; these tests fail when the pool asks the server more often than it
did when they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from echomq_pool import SyncQueue
from tests.support.monitor import requests
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

BODY = """
[observer]
bind = "off"

[[workers]]
name = "orders"
queues = ["{queue}"]
processor = "tests.support.processors:{processor}"
processes = {processes}
concurrency = {concurrency}
{more}
"""
RENEWING = 'renew_interval = "500ms"\nlock_duration = "20s"'


@contextmanager
def running(
    folder: Path,
    server: Server,
    queue: str,
    processor: str,
    processes: int = 1,
    concurrency: int = 32,
    more: str = "",
    *,
    ready: bool = True,
) -> Iterator[PoolProcess]:
    body = BODY.format(
        queue=queue, processor=processor, processes=processes, concurrency=concurrency, more=more
    )
    pool = PoolProcess(folder, server.url, body, log_level="info")
    try:
        yield pool.start(ready=ready)
    finally:
        pool.destroy()


def commands(server: Server) -> int:
    """Commands since the server started, those inside scripts included, and without what the tests ask."""
    with server.client() as client:
        stats = client.info("commandstats")
    ours = {f"cmdstat_{name}" for name in ("info", "ping", "monitor", "zcard")}
    return sum(row["calls"] for name, row in stats.items() if name not in ours)


def add(queue: SyncQueue, count: int, data: dict[str, object]) -> None:
    for start in range(0, count, 1_000):
        queue.add_bulk(("job", data, {}) for _ in range(min(1_000, count - start)))


def test_a_busy_worker_spends_one_script_call_on_many_jobs(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """law 10: one settle for all jobs of a turn of the loop, and it brings the next ones."""
    jobs = 2_000
    with SyncQueue(queue_name, url=own_server.url) as queue, own_server.client() as client:
        add(queue, jobs, {})
        before = commands(own_server)
        with running(tmp_path, own_server, queue_name, "noop", ready=False):
            key = queue.keys.key("completed")
            seen = requests(own_server, 60.0, until=lambda: client.zcard(key) == jobs)
            inside = commands(own_server) - before
    assert seen["EVALSHA"] <= jobs * 0.3, seen
    assert inside / jobs < 12, "commands per job, with those inside the scripts"


def test_a_job_on_an_idle_queue_wakes_one_worker_once(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """law 11: it is added, taken and finished by one script call each, whoever else is idle."""
    jobs = 40
    with (
        running(tmp_path, own_server, queue_name, "noop", processes=4),
        SyncQueue(queue_name, url=own_server.url) as queue,
        own_server.client() as client,
    ):
        key = queue.keys.key("completed")

        def one_by_one() -> bool:
            done = client.zcard(key)
            if done < jobs:
                queue.add("job", {})
                eventually(lambda: client.zcard(key) > done)
            return bool(done >= jobs)

        seen = requests(own_server, 60.0, until=one_by_one)
    assert seen["EVALSHA"] <= 3.2 * jobs, seen  # and a few of the stalled check


@pytest.mark.parametrize(("jobs", "processes"), [(1, 1), (100, 1), (200, 4)])
def test_a_renewal_tick_is_one_call(
    tmp_path: Path, own_server: Server, queue_name: str, jobs: int, processes: int
) -> None:
    """promise 0.22, 0.23, 4.4, 4.5; law 10: 1 job, 100 jobs, 4 processes × 50 jobs of one queue."""
    seconds, tick = 4.0, 0.5
    with SyncQueue(queue_name, url=own_server.url) as queue:
        add(queue, jobs, {"ms": 60_000})
        slots = max(1, jobs // processes)
        with running(tmp_path, own_server, queue_name, "work", processes, slots, RENEWING):
            eventually(lambda: queue.get_job_counts("active")["active"] == jobs)
            seen = requests(own_server, seconds)
    # A busy machine makes ticks late, never more.
    assert seconds / tick / 2 <= seen["EVALSHA"] <= seconds / tick + 1, seen


def test_an_idle_pool_of_eight_workers_hardly_asks(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """law 11, case C170: at most 3 client requests a second in all."""
    seconds = 12.0  # more than one blocking wait
    with running(tmp_path, own_server, queue_name, "noop", processes=8):
        seen = requests(own_server, seconds)
    assert seen.total() / seconds <= 3, seen


def test_connections_are_two_for_each_worker_and_a_handful(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """case C167: a worker has one for commands and one that blocks for each queue; the singletons have 4 together."""
    workers = 4
    with (
        running(tmp_path, own_server, queue_name, "noop", processes=workers),
        SyncQueue(queue_name, url=own_server.url) as queue,
        own_server.client() as client,
    ):
        add(queue, 10_000, {})
        eventually(lambda: queue.get_job_counts("completed")["completed"] >= 1_000, within=60)
        names = [c["name"] for c in client.client_list()]
        pool = sum(1 for name in names if name and not name.endswith(":producer"))
    assert pool <= 2 * workers + 4, pool
