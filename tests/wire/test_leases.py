# SPDX-License-Identifier: MIT
"""Leases, stalls and refusals between the fleets: nobody takes a living job, both end a job that stalls too often."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from echomq_pool import JobFailed, SyncQueue
from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, ended, pool_of, story, workers

QUEUES = [f"leases-{n}" for n in range(6)]
SHORT: dict[str, Any] = {"lock_duration": "1s", "lock_renew_time": "500ms", "stalled_interval": "300ms"}
STALLED = "job stalled more than allowable limit"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, wire_server: Server) -> Iterator[PoolProcess]:
    group = workers("all", QUEUES, **SHORT, max_stalled_count=0)
    with pool_of(tmp_path_factory.mktemp("leases"), wire_server, group, name="leases") as pool:
        yield pool


def test_long_jobs_of_each_fleet_outlive_the_sweeps_of_the_other(
    fleet: PoolProcess, judge: Node, wire_server: Server, store: Any
) -> None:
    """promise 4.24"""
    at = EMQ.node(QUEUES[0])
    options = {"concurrency": 3, "lockDuration": 1000, "stalledInterval": 300, "maxStalledCount": 0}
    judge("startWorker", **at, behaviour="play", opts=options)
    with SyncQueue(QUEUES[0], **EMQ.ours(wire_server)) as ours:
        jobs = ours.add_bulk([("long", {"ms": 3_000, "give": n}) for n in range(8)])
        eventually(lambda: judge("counts", **at)["active"] == 8)
        assert [job.wait_until_finished(20) for job in jobs] == list(range(8))
        found = [judge("job", **at, id=job.id) for job in jobs]
        assert {(job["stalledCounter"], job["attemptsStarted"]) for job in found} == {(0, 1)}
    by_node = {run["id"] for run in judge("started")} & {job.id for job in jobs}
    assert 0 < len(by_node) < 8
    assert story(store, EMQ.base(QUEUES[0]), "stalled") == []


def test_a_job_that_stalled_too_often_by_our_sweep_is_failed_by_node(
    tmp_path: Path, judge: Node, wire_server: Server, queue_name: str, store: Any
) -> None:
    """case C033"""
    at, base = EMQ.node(queue_name), EMQ.base(queue_name)
    doomed = Node("bullmq-620", wire_server.port)
    group = workers("all", [queue_name], **{**SHORT, "concurrency": 1, "max_stalled_count": 0})
    try:
        with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours, pool_of(tmp_path, wire_server, group):
            busy = ours.add("busy", {"ms": 60_000})
            eventually(lambda: ours.get_state(busy.id) == "active")
            doomed(
                "startWorker", **at, behaviour="stuck", opts={"lockDuration": 500, "skipStalledCheck": True}
            )
            job = ours.add("doomed", {}, attempts=3)
            eventually(lambda: ours.get_state(job.id) == "active")
            doomed.kill()
            eventually(lambda: store.hget(base + job.id, "defa"), why="our sweep has judged it")
            judge("startWorker", **at, behaviour="play", opts={})
            with pytest.raises(JobFailed, match=STALLED):
                job.wait_until_finished(20)
            assert ended(judge, at, job.id, "failed")["failedReason"] == STALLED
            assert job.id not in {run["id"] for run in judge("started") if run["name"] == "doomed"}
            assert ours.get_state(busy.id) == "active"
            assert not store.hexists(base + job.id, "defa")
    finally:
        doomed.kill()


def test_a_job_that_stalled_too_often_by_nodes_sweep_is_failed_by_us(
    tmp_path: Path, judge: Node, wire_server: Server, queue_name: str, store: Any
) -> None:
    """case C033"""
    at, base = EMQ.node(queue_name), EMQ.base(queue_name)
    doomed, sweeper = Node("bullmq-620", wire_server.port), Node("bullmq-620", wire_server.port)
    try:
        doomed("startWorker", **at, behaviour="stuck", opts={"lockDuration": 500, "skipStalledCheck": True})
        with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours:
            job = ours.add("doomed", {"give": "never"}, attempts=3)
            eventually(lambda: ours.get_state(job.id) == "active")
            doomed.kill()
            ours.add("held", {})
            sweeper(
                "startWorker", **at, behaviour="stuck", opts={"stalledInterval": 300, "maxStalledCount": 0}
            )
            eventually(lambda: store.hget(base + job.id, "defa"))
            sweeper.kill()
            if ours.get_state(job.id) == "active":  # the sweeper has taken it again: as dead as the first
                store.delete(f"{base}{job.id}:lock")
            with pool_of(tmp_path, wire_server, workers("all", [queue_name], **SHORT)):
                with pytest.raises(JobFailed, match=STALLED):
                    job.wait_until_finished(30)
                found = ended(judge, at, job.id, "failed")
                assert found["failedReason"] == STALLED
                assert not store.hexists(base + job.id, "defa")
    finally:
        doomed.kill()
        sweeper.kill()


def test_a_killed_worker_of_ours_costs_its_jobs_what_node_would_make_them_pay(
    tmp_path: Path, judge: Node, wire_server: Server, queue_name: str
) -> None:
    """case C027"""
    at = EMQ.node(queue_name)
    with (
        SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours,
        pool_of(tmp_path, wire_server, workers("all", [queue_name])) as pool,
    ):
        job = ours.add("killed", {"ms": 60_000, "give": 1})
        eventually(lambda: ours.get_state(job.id) == "active")
        job.update_data({"give": 1})
        listener = judge("listen", **at)
        (victim,) = pool.pids("workers/all") or pool.pids("all")
        psutil.Process(victim).kill()
        assert job.wait_until_finished(20) == 1
        found = judge("job", **at, id=job.id)
        assert (found["attemptsMade"], found["attemptsStarted"]) == (1, 2)
        seen = eventually(lambda: "completed" in (s := judge("seen", listener=listener)) and s)
        assert [event["prev"] for event in seen["waiting"]] == ["active"]
        assert found["stalledCounter"] == len(seen.get("stalled", []))


def test_a_job_in_our_hands_is_refused_to_who_would_remove_it(
    fleet: PoolProcess, judge: Node, wire_server: Server
) -> None:
    """case C019"""
    at = EMQ.node(QUEUES[2])
    with SyncQueue(QUEUES[2], **EMQ.ours(wire_server)) as ours:
        job = ours.add("mine", {"ms": 500, "give": 1})
        eventually(lambda: ours.get_state(job.id) == "active")
        assert judge("remove", **at, id=job.id) == 0
        assert job.wait_until_finished(10) == 1


def test_a_custom_id_is_one_job_whoever_adds_it_again(
    fleet: PoolProcess, judge: Node, wire_server: Server
) -> None:
    """promise 4.20"""
    at = EMQ.node(QUEUES[3])
    listener = judge("listen", **at)
    with SyncQueue(QUEUES[3], **EMQ.ours(wire_server)) as ours:
        ours.pause()
        assert ours.add("one", {"give": "ours"}, job_id="mine").id == "mine"
        assert judge("add", **at, job="two", data={}, opts={"jobId": "mine"})["id"] == "mine"
        assert (
            judge("add", **at, job="one", data={"give": "theirs"}, opts={"jobId": "yours"})["id"] == "yours"
        )
        assert ours.add("two", {}, job_id="yours").id == "yours"
        ours.resume()
        assert [ours.wait_until_finished(job_id, 10) for job_id in ("mine", "yours")] == ["ours", "theirs"]
    seen = eventually(lambda: len(s := judge("seen", listener=listener, event="duplicated")) == 2 and s)
    assert [event["jobId"] for event in seen] == ["mine", "yours"]


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (2, 2), (10, 4)])
def test_as_many_stacktraces_are_kept_as_the_producer_said(
    fleet: PoolProcess, judge: Node, wire_server: Server, limit: int, kept: int
) -> None:
    """promise 4.21"""
    at = EMQ.node(QUEUES[4])
    options = {"attempts": 4, "stackTraceLimit": limit, "backoff": 5}
    made = judge("add", **at, job="fails", data={"do": "fail"}, opts=options)
    found = ended(judge, at, made["id"], "failed")
    assert (len(found["stacktrace"]), found["attemptsMade"]) == (kept, 4)


def test_a_rate_limit_that_node_declares_by_hand_stops_our_takes(
    fleet: PoolProcess, judge: Node, wire_server: Server
) -> None:
    """case C129"""
    at = EMQ.node(QUEUES[5])
    judge("setGlobalRateLimit", **at, max=1000, duration=10)
    with SyncQueue(QUEUES[5], **EMQ.ours(wire_server)) as ours:
        assert ours.add("before", {"give": 1}).wait_until_finished(10) == 1
        judge("rateLimit", **at, ms=700)
        jobs = ours.add_bulk([("limited", {"give": n}) for n in range(5)])
        assert [job.wait_until_finished(10) for job in jobs] == list(range(5))
        found = [judge("job", **at, id=job.id) for job in jobs]
        assert all(500 < job["processedOn"] - job["timestamp"] < 3_000 for job in found)
