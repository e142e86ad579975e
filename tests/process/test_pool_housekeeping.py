# SPDX-License-Identifier: MIT
"""What a pool leaves behind, how it clears up, and how it goes on: keys, old jobs, series, flows."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomq_pool import FlowProducer, SyncQueue
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

BODY = """
[supervisor]
control = "@CONTROL@"
max_restarts = 100
backoff = { initial = "1ms", max = "10ms", jitter = 0.0 }

[[workers]]
name = "work"
queues = ["QUEUE"]
processor = "PROCESSOR"
processes = 2
concurrency = 4
max_restarts = 1000
max_stalled_count = 1000
EXTRA
"""


def body(queue: str, processor: str = "tests.support.soak_jobs:work", extra: str = "") -> str:
    return BODY.replace("QUEUE", queue).replace("PROCESSOR", processor).replace("EXTRA", extra)


@pytest.fixture
def queue(own_server: Server, queue_name: str) -> Iterator[SyncQueue]:
    with SyncQueue(queue_name, url=own_server.url) as queue:
        yield queue


def test_starts_stops_and_kills_of_workers_leave_no_key_behind(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C140"""
    with own_server.client() as client:
        seen = []
        for n in range(4):
            pool = PoolProcess(tmp_path, own_server.url, body(queue.name), name=f"p{n}").start()
            try:
                job = queue.add("job", {"ms": 1, "folder": str(tmp_path)}, remove_on_complete=True).id
                eventually(lambda j=job: queue.get_state(str(j)) == "unknown")
                os.kill(pool.pids("work")[0], signal.SIGKILL)
                eventually(pool.is_ready)
                assert pool.stop() == 0
            finally:
                pool.destroy()
            client.delete(f"emq:{{{queue.name}}}:stalled-check")  # the one key with a TTL: the sweep's mutex
            seen.append(sorted(client.keys("*")))
        assert seen[-1] == seen[0]


def test_one_finish_among_many_old_jobs_clears_a_bounded_number_of_them(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C139"""
    extra = 'remove_on_complete = { age = "1s" }'
    old = 5_000
    with own_server.client() as client:
        base = f"emq:{{{queue.name}}}:"
        pipe = client.pipeline()
        for n in range(old):
            pipe.zadd(base + "completed", {f"old-{n}": 1_000 + n})
            pipe.hset(base + f"old-{n}", mapping={"name": "old", "data": "{}", "atm": 1})
        pipe.execute()
        pool = PoolProcess(tmp_path, own_server.url, body(queue.name, extra=extra)).start()
        try:
            sizes = [old]
            while sizes[-1] > 100 and len(sizes) < 20:
                job = queue.add("job", {"ms": 1, "folder": str(tmp_path)}).id
                eventually(lambda j=job: queue.get_state(str(j)) == "completed")
                sizes.append(client.zcard(base + "completed"))
            removed = [before - after for before, after in itertools.pairwise(sizes)]
            assert max(removed) <= 1_000, "one finish removes at most the protocol's 1000"
            assert sizes[-1] <= 100
            assert len(client.keys(base + "old-*")) <= sizes[-1]
        finally:
            pool.destroy()


def test_a_series_goes_on_beside_a_long_run_and_after_a_failed_one(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C101: as BullMQ, an occurrence may overlap the next; a failure has no effect on the series."""
    pool = PoolProcess(tmp_path, own_server.url, body(queue.name, "tests.support.soak_jobs:mixed")).start()
    try:
        long = {"ms": 700, "folder": str(tmp_path)}
        queue.upsert_job_scheduler("long", every=300, name="long", data=long, opts={})
        eventually(lambda: _overlap(ledger(tmp_path)), why="two occurrences at once")
        queue.remove_job_scheduler("long")
        failing = {"ms": 1, "folder": str(tmp_path), "fail_times": 99}
        queue.upsert_job_scheduler("failing", every=200, name="failing", data=failing, opts={})
        eventually(lambda: queue.get_job_counts()["failed"] >= 5)
        assert queue.get_job_scheduler("failing") is not None
    finally:
        pool.destroy()


def _overlap(rows: list[tuple[str, str, int, int]]) -> bool:
    running: set[str] = set()
    for word, job_id, _, _ in rows:
        if word == "start":
            running.add(job_id)
        else:
            running.discard(job_id)
        if len(running) > 1:
            return True
    return False


@pytest.mark.parametrize("flows", [12, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.timeout(400)
async def test_every_flow_ends_under_a_rate_limit_and_while_workers_are_killed(
    tmp_path: Path, own_server: Server, queue: SyncQueue, flows: int
) -> None:
    """case C128"""
    extra = 'limiter = { max = 50, duration = "1s" }'
    pool = PoolProcess(tmp_path, own_server.url, body(queue.name, extra=extra)).start()
    data: dict[str, Any] = {"ms": 1, "folder": str(tmp_path)}
    try:
        async with FlowProducer(url=own_server.url) as producer:
            for n in range(flows):
                children = [{"name": f"child-{n}-{i}", "queue": queue.name, "data": data} for i in range(15)]
                await producer.add(
                    {"name": "parent", "queue": queue.name, "data": data, "children": children}
                )
        kills = 0

        def done() -> bool:
            nonlocal kills
            if kills < flows // 2 and len(pids := pool.pids("work")) == 2:
                with contextlib.suppress(ProcessLookupError):  # it is being replaced after the kill before
                    os.kill(pids[0], signal.SIGKILL)
                    kills += 1
            counts = queue.get_job_counts()
            return counts["completed"] == flows * 16

        eventually(done, within=300, why="all parents and children completed")
        assert kills
        assert not [row for row in ledger(tmp_path) if row[0] == "doubled"]
    finally:
        pool.destroy()
