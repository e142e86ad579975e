# SPDX-License-Identifier: MIT
"""Rate and concurrency limits hold over both fleets together, whoever set them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from echomq_pool import SyncQueue
from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.wire.fleet import EMQ, finish, pool_of, story, workers

QUEUES = [f"limits-{n}" for n in range(4)]
LIMITED = "limits-own"
WINDOW_MS, MOST = 400, 6


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, wire_server: Server) -> Iterator[PoolProcess]:
    groups = (
        workers("free", QUEUES, processes=2, concurrency=5),
        workers("limited", [LIMITED], processes=2, limiter=f'{{ max = {MOST}, duration = "{WINDOW_MS}ms" }}'),
    )
    with pool_of(tmp_path_factory.mktemp("limits"), wire_server, *groups, name="limits") as pool:
        yield pool


def check_windows(jobs: list[dict[str, Any]]) -> None:
    """No more than MOST starts within one window, and no idle time of more than a few windows."""
    starts = sorted(job["processedOn"] for job in jobs)
    slack = 120  # a window begins with its first start; the others of a burst follow within this time
    early = [b - a for a, b in zip(starts, starts[MOST:], strict=False) if b - a < WINDOW_MS - slack]
    assert not early, f"windows too short: {early}"
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert max(gaps) < WINDOW_MS + 1_500, f"idle for {max(gaps)} ms"


@pytest.mark.parametrize("mixed", [False, True], ids=["ours", "mixed"])
def test_a_limiter_goes_on_at_its_rate_over_all_workers(
    fleet: PoolProcess, judge: Node, wire_server: Server, store: redis.Redis, mixed: bool
) -> None:
    """case C129, C130"""
    at = EMQ.node(LIMITED)
    judge("obliterate", **at)
    total = 6 * MOST
    if mixed:
        limiter = {"max": MOST, "duration": WINDOW_MS}
        judge("startWorker", **at, behaviour="play", opts={"concurrency": 5, "limiter": limiter})
    with SyncQueue(LIMITED, **EMQ.ours(wire_server)) as ours:
        ours.resume()
        ours.add_bulk([("limited", {"give": n, "ms": 20}) for n in range(total)])
        finish(judge, at, total)
    check_windows(judge("jobs", **at, states=["completed"]))


@pytest.mark.parametrize("setter", ["us", "node"])
def test_a_global_rate_limit_set_by_either_side_binds_both(
    fleet: PoolProcess, judge: Node, wire_server: Server, setter: str
) -> None:
    """case C130"""
    queue = QUEUES[0] if setter == "us" else QUEUES[1]
    at = EMQ.node(queue)
    judge("obliterate", **at)
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        if setter == "us":
            ours.set_global_rate_limit(MOST, WINDOW_MS)
        else:
            judge("setGlobalRateLimit", **at, max=MOST, duration=WINDOW_MS)
        judge("startWorker", **at, behaviour="play", opts={"concurrency": 5})
        ours.resume()
        ours.add_bulk([("limited", {"give": n}) for n in range(5 * MOST)])
        finish(judge, at, 5 * MOST)
    check_windows(judge("jobs", **at, states=["completed"]))


@pytest.mark.parametrize("setter", ["us", "node"])
def test_a_global_concurrency_set_by_either_side_binds_both(
    fleet: PoolProcess, judge: Node, wire_server: Server, store: redis.Redis, setter: str
) -> None:
    """case C130"""
    queue = QUEUES[2] if setter == "us" else QUEUES[3]
    at = EMQ.node(queue)
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        if setter == "us":
            ours.set_global_concurrency(2)
        else:
            judge("setGlobalConcurrency", **at, n=2)
        judge("startWorker", **at, behaviour="play", opts={"concurrency": 5})
        ours.add_bulk([("narrow", {"give": n, "ms": 15}) for n in range(60)])
        finish(judge, at, 60)
    running, most = 0, 0
    for event, _ in story(store, EMQ.base(queue), "active", "completed", "failed"):
        running += 1 if event == "active" else -1
        most = max(most, running)
    assert most == 2
