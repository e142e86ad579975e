# SPDX-License-Identifier: MIT
"""What one side does to a queue, the other obeys: pause, promote, remove, retry, cancel, count, obliterate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from echomq_pool import SyncQueue
from echomq_pool.errors import JobMissing
from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, ended, finish, pool_of, story, workers

QUEUES = [f"sides-{n}" for n in range(12)]
ONE = [f"one-{n}" for n in range(4)]
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, wire_server: Server) -> Iterator[PoolProcess]:
    groups = workers("many", QUEUES, processes=2), workers("single", ONE, concurrency=1)
    with pool_of(tmp_path_factory.mktemp("sides"), wire_server, *groups, name="sides") as pool:
        yield pool


@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_nothing_starts_after_a_pause_from_either_side_and_resume_from_the_other_works(
    fleet: PoolProcess, node: Node, wire_server: Server, rounds: int
) -> None:
    """case C134"""
    at = EMQ.node(QUEUES[0])
    old = node("version").startswith("5.")  # its resume sets no marker where it finds no list of its own
    with SyncQueue(QUEUES[0], **EMQ.ours(wire_server)) as ours:
        turn_off: dict[bool, Callable[[], Any]] = {True: ours.pause, False: lambda: node("pause", **at)}
        turn_on: dict[bool, Callable[[], Any]] = {True: ours.resume, False: lambda: node("resume", **at)}
        for n in range(rounds):
            by_us = n % 2 == 1 and not old
            turn_off[by_us]()
            job = ours.add("held", {"give": n})
            time.sleep(0.15)  # nothing can be waited for: nothing is to happen
            assert ours.get_state(job.id) == "waiting"
            assert ours.is_paused() is node("isPaused", **at) is True
            turn_on[not by_us]()
            assert job.wait_until_finished(10) == n


def test_node_counts_our_workers_and_knows_their_names(fleet: PoolProcess, judge: Node) -> None:
    """case C107"""
    at = EMQ.node(QUEUES[1])
    found = eventually(lambda: len(w := judge("workers", **at)) == 2 and w, why="both processes are seen")
    assert len({worker["rawname"] for worker in found}) == 2
    assert all("sides/" in worker["rawname"] for worker in found)
    assert judge("workersCount", **at) == 2


def test_every_state_is_counted_alike_by_both_sides(
    fleet: PoolProcess, node: Node, wire_server: Server, queue_name: str
) -> None:
    """case C106"""
    at = EMQ.node(queue_name)
    node("startWorker", **at, behaviour="play", opts={"concurrency": 10})
    child = {"name": "child", "queueName": at["name"], "data": {}, "opts": {"delay": DAY_MS}}
    flow = {"name": "parent", "queueName": at["name"], "data": {}, "children": [child]}
    with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours:
        done = ours.add_bulk([("done", {}) for _ in range(3)] + [("bad", {"do": "fail"}) for _ in range(2)])
        finish(node, at, len(done))
        stuck = ours.add("stuck", {"do": "stuck"})
        eventually(lambda: ours.get_state(stuck.id) == "active")
        node("addFlow", **at, flow=flow)
        ours.pause()
        ours.add_bulk([("late", {}, {"delay": DAY_MS}) for _ in range(2)])
        ours.add_bulk([("first", {}, {"priority": 2}) for _ in range(3)])
        ours.add_bulk([("wait", {}) for _ in range(4)])
        counts = node("counts", **at)
        wanted = {
            "active": 1,
            "completed": 3,
            "delayed": 3,
            "failed": 2,
            "prioritized": 3,
            "waiting": 4,
            "waiting-children": 1,
        }
        assert {state: counts[state] for state in wanted} == wanted == ours.get_job_counts(*wanted)


def test_delayed_jobs_start_on_time_whoever_added_them(
    fleet: PoolProcess, judge: Node, wire_server: Server
) -> None:
    """case C084, C088"""
    at = EMQ.node(QUEUES[2])
    far = [judge("add", **at, job="far", data={}, opts={"delay": days * DAY_MS}) for days in (40, 3650)]
    with SyncQueue(QUEUES[2], **EMQ.ours(wire_server)) as ours:
        far_ours = [ours.add("far", {}, delay=days * DAY_MS) for days in (40, 3650)]
        ids = [ours.add("soon", {}, delay=delay).id for delay in (1, 50, 333, 700)]
        ids += [
            judge("add", **at, job="soon", data={}, opts={"delay": delay})["id"]
            for delay in (1, 50, 333, 700)
        ]
        for job_id in ids:
            job = ended(judge, at, job_id)
            late = job["processedOn"] - job["timestamp"] - job["opts"]["delay"]
            assert -1 <= late < 1000, f"{late} ms late"
        assert {ours.get_state(job["id"]) for job in far} == {"delayed"}
        theirs = [judge("job", **at, id=job.id) for job in far_ours]
        assert [(job["state"], job["delay"]) for job in theirs] == [
            ("delayed", 40 * DAY_MS),
            ("delayed", 3650 * DAY_MS),
        ]


def test_node_promotes_retimes_removes_and_retries_our_jobs(
    fleet: PoolProcess, node: Node, wire_server: Server
) -> None:
    """case C107, C122"""
    at = EMQ.node(QUEUES[3])
    with SyncQueue(QUEUES[3], **EMQ.ours(wire_server)) as ours:
        promoted, retimed, removed = (ours.add("late", {"give": n}, delay=DAY_MS) for n in range(3))
        node("promote", **at, id=promoted.id)
        assert promoted.wait_until_finished(10) == 0
        node("changeDelay", **at, id=retimed.id, delay=100)
        assert retimed.wait_until_finished(10) == 1
        node("remove", **at, id=removed.id)
        with pytest.raises(JobMissing):
            removed.wait_until_finished(10)
        assert ours.get_job(removed.id) is None
        failed = ours.add("bad", {"do": "fail", "fail_times": 1})
        ended(node, at, failed.id, "failed")
        node("retry", **at, id=failed.id)
        assert ended(node, at, failed.id)["returnvalue"] == {"n": None}


def test_a_wait_ends_when_node_removes_the_job(judge: Node, wire_server: Server, queue_name: str) -> None:
    """case C122"""
    at = EMQ.node(queue_name)
    listener = judge("listen", **at)
    with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours:
        job = ours.add("late", {}, delay=DAY_MS)
        judge("remove", **at, id=job.id)
        began = time.monotonic()
        with pytest.raises(JobMissing):
            job.wait_until_finished(10)
        with pytest.raises(JobMissing):
            ours.wait_until_finished("never-added", 10)
        assert time.monotonic() - began < 2
    seen = eventually(lambda: judge("seen", listener=listener, event="removed"))
    assert seen[0]["jobId"] == job.id


def test_a_cancel_event_of_either_side_stops_a_job_of_our_pool(
    fleet: PoolProcess, judge: Node, wire_server: Server
) -> None:
    """promise 4.20"""
    at = EMQ.node(QUEUES[4])
    listener = judge("listen", **at)
    with SyncQueue(QUEUES[4], **EMQ.ours(wire_server)) as ours:
        jobs = [ours.add("long", {"ms": 60_000}, attempts=3) for _ in range(2)]
        eventually(lambda: all(ours.get_state(job.id) == "active" for job in jobs))
        judge("publish", **at, event={"eventName": "cancel", "jobId": jobs[0].id, "reason": "by Node"})
        assert ended(judge, at, jobs[0].id, "failed")["failedReason"] == "by Node"
        ours.cancel(jobs[1].id, "by us")
        assert ended(judge, at, jobs[1].id, "failed")["failedReason"] == "by us"
        seen = eventually(lambda: len(s := judge("seen", listener=listener, event="cancel")) == 2 and s)
        assert [event["jobId"] for event in seen] == [job.id for job in jobs]


def test_obliterate_drain_and_clean_by_node_leave_our_pool_working(
    fleet: PoolProcess, node: Node, wire_server: Server, store: redis.Redis
) -> None:
    """promise 4.21"""
    at, queue = EMQ.node(QUEUES[5]), QUEUES[5]
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        ours.add_bulk([("late", {}, {"delay": DAY_MS}) for _ in range(5)])
        assert ours.add("before", {"give": 1}).wait_until_finished(10) == 1
        assert len(node("clean", **at, state="completed")) == 1
        node("drain", **at)
        assert sum(ours.get_job_counts().values()) == 0
        running = ours.add("running", {"ms": 300})
        eventually(lambda: ours.get_state(running.id) == "active")
        node("obliterate", **at)
        assert ours.get_job(running.id) is None
        for n in range(5):  # ids begin anew
            assert ours.add("after", {"give": n}).wait_until_finished(10) == n
        assert node("counts", **at)["completed"] == 5
        node("obliterate", **at)
        left = set(store.scan_iter(match=f"{EMQ.base(queue)}*"))
        assert left <= {f"{EMQ.base(queue)}{name}".encode() for name in ("marker", "stalled-check", "meta")}


MIXED: list[dict[str, Any]] = [
    {}, {"priority": 3}, {"lifo": True}, {}, {"priority": 1}, {"priority": 3}, {"lifo": True},
    {"priority": 2_097_151}, {"delay": 1}, {"delay": 1, "priority": 2}, {}, {"priority": 1},
]  # fmt: skip


def test_a_mixed_list_is_worked_in_the_same_order_by_both(
    fleet: PoolProcess, node: Node, wire_server: Server, store: redis.Redis, queue_name: str
) -> None:
    """case C133"""
    for queue in (ONE[0], queue_name):
        with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
            ours.pause()
            ours.add_bulk([(f"m{n}", {"n": n}, opts) for n, opts in enumerate(MIXED)])
            time.sleep(0.3)  # the delayed ones are due, by any clock that was looked at late
            ours.resume()
        if queue == queue_name:
            node("startWorker", **EMQ.node(queue), behaviour="play", opts={"concurrency": 1})
        finish(node, EMQ.node(queue), len(MIXED))
    orders = [names_in_order(store, EMQ.base(queue), len(MIXED)) for queue in (ONE[0], queue_name)]
    assert orders[0] == orders[1]
    assert orders[0][:2] == ["m6", "m2"]


def names_in_order(store: Any, base: str, last: int) -> list[str]:
    """Names by their last starts."""
    started = [job_id for event, job_id in story(store, base, "active")][-last:]
    return [(store.hget(base + job_id, "name") or b"").decode() for job_id in started]


def test_a_retried_job_keeps_its_priority(
    fleet: PoolProcess, judge: Node, wire_server: Server, store: redis.Redis
) -> None:
    """case C132"""
    with SyncQueue(ONE[1], **EMQ.ours(wire_server)) as ours:
        ours.pause()
        ours.add_bulk([(f"p50-{n}", {}, {"priority": 50}) for n in range(10)])
        first = ours.add("p25", {"do": "fail", "fail_times": 1}, priority=25, attempts=2)
        ours.resume()
        finish(judge, EMQ.node(ONE[1]), 11)
    started = [job_id for _, job_id in story(store, EMQ.base(ONE[1]), "active")]
    assert started[:2] == [first.id, first.id]


@pytest.mark.parametrize("who", ["us", "node"])
def test_a_job_that_asks_for_a_rate_limit_keeps_its_place(
    fleet: PoolProcess, judge: Node, wire_server: Server, store: redis.Redis, queue_name: str, who: str
) -> None:
    """case C131"""
    queue = ONE[2] if who == "us" else queue_name
    at = EMQ.node(queue)
    judge("setGlobalRateLimit", **at, max=100, duration=50)
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        ours.pause()
        first = ours.add("first", {"do": "limit", "limit_ms": 400}, priority=10)
        second = ours.add("second", {"give": 2}, priority=10)
        ours.resume()
        if who == "node":
            judge("startWorker", **at, behaviour="play", opts={"concurrency": 1})
        assert second.wait_until_finished(20) == 2
        assert first.wait_until_finished(20) == "limited once"
        job = ended(judge, at, first.id)
        assert job["attemptsMade"] == 1
        assert job["processedOn"] - job["timestamp"] >= 400
    assert [job_id for _, job_id in story(store, EMQ.base(queue), "active")] == [
        first.id,
        first.id,
        second.id,
    ]


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_a_reader_with_a_position_misses_nothing_of_our_pool(
    fleet: PoolProcess, judge: Node, rounds: int
) -> None:
    """case C119"""
    at = EMQ.node(QUEUES[6])
    for _ in range(rounds):
        listener = judge("listen", **at)
        made = judge("add", **at, job="seen", data={}, opts={})
        ended(judge, at, made["id"])
        seen = seen_with(judge, listener, "completed")
        for name in ("added", "waiting", "active", "completed"):
            assert [event["jobId"] for event in seen[name]] == [made["id"]]
        judge("unlisten", listener=listener)


def seen_with(node: Node, listener: int, event: str) -> dict[str, Any]:
    """All that a reader has seen, once `event` is among it."""
    seen: dict[str, Any] = eventually(lambda: event in (s := node("seen", listener=listener)) and s)
    return seen
