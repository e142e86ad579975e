# SPDX-License-Identifier: MIT
"""BullMQ's workers and ours on one queue at once, and what each side does when the other dies."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from echomq_pool import SyncQueue
from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, Layout, finish, pool_of, story, workers

SHORT: dict[str, Any] = {"lock_duration": "2s", "lock_renew_time": "1s", "stalled_interval": "1s"}


def sort_of(n: int) -> dict[str, Any]:
    opts: list[dict[str, Any]] = [{}, {"priority": 1 + n % 5}, {"delay": 10 + n % 200}, {"lifo": True}]
    return {"name": f"job-{n}", "data": {"n": n, "give": n, "ms": n % 4}, "opts": opts[n % 4]}


@pytest.mark.parametrize("total", [400, pytest.param(4_000, marks=pytest.mark.soak)])
def test_two_fleets_and_two_producers_share_a_queue_and_each_job_runs_once(
    tmp_path: Path,
    wire_server: Server,
    node: Node,
    layout: Layout,
    queue_name: str,
    store: redis.Redis,
    total: int,
) -> None:
    """promise 4.21"""
    at = layout.node(queue_name)
    node("counts", **at)
    node("startWorker", **at, behaviour="play", opts={"concurrency": 5})
    group = workers("all", [queue_name], processes=2)
    with (
        pool_of(tmp_path, wire_server, group, layout=layout),
        SyncQueue(queue_name, **layout.ours(wire_server)) as ours,
    ):
        rows = [sort_of(n) for n in range(total)]
        adding = threading.Thread(
            target=lambda: [ours.add_bulk(rows[at : at + 20]) for at in range(0, total, 40)]
        )
        adding.start()
        for start in range(20, total, 40):
            node("addBulk", **at, jobs=rows[start : start + 20])
        adding.join()
        counts = finish(node, at, total)
        assert (counts["completed"], counts["failed"], counts["active"]) == (total, 0, 0)
        done = node("jobs", **at, states=["completed"])
        assert sorted(job["returnvalue"] for job in done) == list(range(total))
        events = story(store, layout.base(queue_name), "active", "completed", "stalled")
        assert len(events) == len(set(events)) == 2 * total
        by_node = {run["id"] for run in node("started")}
        assert 0 < len(by_node) < total, "each side did some"
        assert len(node("workers", **at)) == 3


def test_jobs_of_a_killed_node_worker_are_recovered_by_our_stalled_checker(
    tmp_path: Path, wire_server: Server, judge: Node, queue_name: str
) -> None:
    """promise 4.21; case C027"""
    at = EMQ.node(queue_name)
    doomed = Node("bullmq-620", wire_server.port)
    try:
        options = {"concurrency": 3, "lockDuration": 1000, "skipStalledCheck": True}
        doomed("startWorker", **at, behaviour="stuck", opts=options)
        with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours:
            jobs = ours.add_bulk([("held", {"give": n}) for n in range(3)])
            eventually(lambda: judge("counts", **at)["active"] == 3)
            with pool_of(tmp_path, wire_server, workers("all", [queue_name], **SHORT)):
                others = ours.add_bulk([("free", {"give": n}) for n in range(10)])
                assert [job.wait_until_finished(20) for job in others] == list(range(10))
                assert judge("counts", **at)["active"] == 3, "a living worker keeps its jobs"
                doomed.kill()
                assert [job.wait_until_finished(20) for job in jobs] == [0, 1, 2]
        found = [judge("job", **at, id=job.id) for job in jobs]
        assert [(job["stalledCounter"], job["attemptsMade"]) for job in found] == [(1, 1)] * 3
        # More than two where such a job was taken beside others and went back to the line to run alone.
        assert all(job["attemptsStarted"] >= 2 for job in found)
    finally:
        doomed.kill()


def test_jobs_of_a_pool_that_died_whole_are_recovered_by_node(
    tmp_path: Path, wire_server: Server, judge: Node, queue_name: str
) -> None:
    """promise 4.21"""
    at = EMQ.node(queue_name)
    with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours:
        with pool_of(tmp_path, wire_server, workers("all", [queue_name], **SHORT)) as pool:
            jobs = ours.add_bulk([("held", {"ms": 60_000, "give": n}) for n in range(3)])
            eventually(lambda: judge("counts", **at)["active"] == 3)
            kill_at_once(pool)
        for job in jobs:
            job.update_data({"give": job.data["give"]})
        assert judge("counts", **at)["active"] == 3, "nobody was left to hand them back"
        options = {"concurrency": 3, "lockDuration": 1000, "stalledInterval": 500}
        judge("startWorker", **at, behaviour="play", opts=options)
        assert [job.wait_until_finished(20) for job in jobs] == [0, 1, 2]
        assert [judge("job", **at, id=job.id)["stalledCounter"] for job in jobs] == [1, 1, 1]


def kill_at_once(pool: PoolProcess) -> None:
    """Stops every process of the pool before the first is killed, so that none can clean up after another."""
    family = pool.tree()
    for process in family:
        process.suspend()
    for process in family:
        process.kill()
    psutil.wait_procs(family, timeout=10)


def test_jobs_of_one_killed_process_go_on_at_node_at_once(
    tmp_path: Path, wire_server: Server, judge: Node, queue_name: str, store: redis.Redis
) -> None:
    """promise 4.21"""
    at = EMQ.node(queue_name)
    group = workers("all", [queue_name])
    with (
        SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours,
        pool_of(tmp_path, wire_server, group) as pool,
    ):
        jobs = ours.add_bulk([("held", {"ms": 60_000, "give": n}) for n in range(3)])
        eventually(lambda: judge("counts", **at)["active"] == 3)
        for job in jobs:
            job.update_data({"give": job.data["give"]})
        judge("startWorker", **at, behaviour="play", opts={"concurrency": 3})
        (victim,) = pool.pids("workers/all") or pool.pids("all")
        psutil.Process(victim).kill()
        assert [job.wait_until_finished(20) for job in jobs] == [0, 1, 2]
    events = story(store, EMQ.base(queue_name), "completed", "failed")
    assert sorted(events) == sorted(("completed", job.id) for job in jobs)
