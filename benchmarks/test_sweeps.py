# SPDX-License-Identifier: MIT
"""Two sweeps at once: how many jobs are put back twice when the check and the move are two round trips.

The reference is written here on purpose, as the naive checker is: read `active`, probe the locks in a pipeline, then
move what has none. The atomic sweep is the script that the pool runs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from benchmarks.conftest import Row
from benchmarks.support.meter import Meter
from benchmarks.support.seed import active_jobs
from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.plane.base import PlaneOptions
from echomq_pool.plane.calls import Calls
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.redisio.scripts import load_library
from tests.support.servers import Server

TITLE = "Two overlapping sweeps: jobs recovered twice"
METHOD = (
    "N jobs in active, none with a lock. Two clients sweep at the same moment; doubled = ids that are in wait more "
    "than once afterwards, stalls = how often a stall was counted."
)
KEYS = QueueKeys("emq", "sweep")
LIBRARY = load_library()

Meet = Callable[[], Any]
Sweep = Callable[[redis.Redis, Meet], int]


def two_round_trips(client: redis.Redis, meet: Meet) -> int:
    """Promise 2.19: probe first, move afterwards. Returns how many it moved."""
    ids: Any = client.lrange(KEYS.key("active"), 0, -1)
    probe = client.pipeline(transaction=False)
    for job_id in ids:
        probe.exists(KEYS.lock(job_id.decode()))
    lost = [job_id for job_id, there in zip(ids, probe.execute(), strict=True) if not there]
    meet()
    move = client.pipeline(transaction=False)
    for job_id in lost:
        move.lrem(KEYS.key("active"), 1, job_id)
        move.rpush(KEYS.key("wait"), job_id)
        move.hincrby(KEYS.job(job_id.decode()), "stc", 1)
    move.execute()
    return len(lost)


def atomic(client: redis.Redis, meet: Meet) -> int:
    """The pool's script; what was marked by an earlier pass is recovered by exactly one."""
    meet()
    script = LIBRARY["moveStalledJobsToWait"]
    call = Calls(KEYS, PlaneOptions()).sweep(1_000_000, 1, SYSTEM_CLOCK.now_ms())
    reply: Any = client.eval(script.text.decode(), len(call.keys), *call.keys, *call.args)
    return len(reply)


def prepare(server: Server, jobs: int) -> None:
    ids = active_jobs(server, KEYS, jobs, missing_every=1)
    with server.client() as client:
        fill = client.pipeline(transaction=False)
        for job_id in ids:
            fill.hset(KEYS.job(job_id), mapping={"name": "job", "data": "{}", "timestamp": "1", "opts": "{}"})
        fill.sadd(KEYS.key("stalled"), *ids)  # marked by an earlier pass
        fill.execute()


@pytest.mark.benchmark(group="sweeps")
@pytest.mark.sizes("jobs", smoke=[50], quick=[1_000], full=[1_000, 10_000])
@pytest.mark.parametrize("sweep", [two_round_trips, atomic], ids=["two round trips", "one script"])
def test_overlapping_sweeps(benchmark: Any, server: Server, row: Row, sweep: Sweep, jobs: int) -> None:
    """promise 2.19"""
    prepare(server, jobs)
    barrier = threading.Barrier(2, timeout=30)
    moved: list[int] = []

    def one() -> None:
        with server.client() as client:
            moved.append(sweep(client, barrier.wait))

    def both() -> None:
        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with Meter(server) as spent:
        benchmark.pedantic(both, rounds=1)
    with server.client() as client:
        waiting = Counter(client.lrange(KEYS.key("wait"), 0, -1))
        stalls = sum(int(client.hget(KEYS.job(i.decode()), "stc") or 0) for i in waiting)
    doubled = sum(count > 1 for count in waiting.values())
    row(
        TITLE,
        METHOD,
        sweep="two round trips" if sweep is two_round_trips else "one script",
        jobs=jobs,
        recovered=sum(moved),
        doubled=doubled,
        stalls=stalls,
        wall_ms=spent.wall_s * 1e3,
    )
    assert len(waiting) == jobs
    assert doubled == (jobs if sweep is two_round_trips else 0)
