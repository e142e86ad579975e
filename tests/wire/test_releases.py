# SPDX-License-Identifier: MIT
"""Where BullMQ's releases differ on the wire (5.81, 6.2, 6.7), and what older ones leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from echomq_pool import SyncQueue
from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, ended, finish, pool_of, story, workers

QUEUES = [f"releases-{n}" for n in range(8)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, wire_server: Server) -> Iterator[PoolProcess]:
    group = workers("all", QUEUES, concurrency=3)
    with pool_of(tmp_path_factory.mktemp("releases"), wire_server, group, name="releases") as pool:
        yield pool


@pytest.fixture
def five(releases: Callable[[str], Node]) -> Iterator[Node]:
    node = releases("bullmq-5")
    yield node
    node("reset")


@pytest.fixture
def newest(releases: Callable[[str], Node]) -> Iterator[Node]:
    node = releases("bullmq-6")
    yield node
    node("reset")


def test_jobs_that_release_5_parked_in_its_paused_list_are_counted_and_run_after_our_resume(
    fleet: PoolProcess, five: Node, wire_server: Server, store: Any
) -> None:
    """promise 4.21"""
    queue, at, base = QUEUES[0], EMQ.node(QUEUES[0]), EMQ.base(QUEUES[0])
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        five("pause", **at)
        parked = [five("add", **at, job="parked", data={"give": n}, opts={})["id"] for n in range(3)]
        assert store.llen(f"{base}paused") == 3
        added = [ours.add("added", {"give": n}).id for n in range(3, 6)]
        assert store.llen(f"{base}wait") == 3
        assert ours.get_job_counts("waiting") == {"waiting": 6}
        assert {ours.get_state(job_id) for job_id in parked + added} == {"waiting"}
        ours.resume()
        assert [ours.wait_until_finished(job_id, 20) for job_id in parked + added] == list(range(6))
        assert store.exists(f"{base}paused") == 0


def test_waiting_jobs_that_release_5_moves_to_its_paused_list_are_counted_and_found_there(
    five: Node, wire_server: Server, store: Any, queue_name: str
) -> None:
    """promise 4.21"""
    at, base = EMQ.node(queue_name), EMQ.base(queue_name)
    with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours:
        jobs = ours.add_bulk([("waits", {"give": n}) for n in range(4)])
        five("pause", **at)
        assert store.llen(f"{base}paused") == 4
        assert ours.get_job_counts("waiting", "paused") == {"waiting": 4, "paused": 4}
        five("resume", **at)
        assert [ours.get_state(job.id) for job in jobs] == ["waiting"] * 4


def test_debounced_events_and_deduplicated_jobs_of_release_5_are_tolerated(
    fleet: PoolProcess, five: Node, wire_server: Server
) -> None:
    """promise 4.21"""
    at = EMQ.node(QUEUES[1])
    listener = five("listen", **at)
    options = {"deduplication": {"id": "one"}}
    with SyncQueue(QUEUES[1], **EMQ.ours(wire_server)) as ours:
        first = five("add", **at, job="once", data={"give": 1, "ms": 500}, opts=options)
        assert five("add", **at, job="once", data={}, opts=options)["id"] == first["id"]
        assert ours.add("once", {}, deduplication={"id": "one"}).id == first["id"]
        assert ours.wait_until_finished(first["id"], 10) == 1
        seen = eventually(lambda: len(s := five("seen", listener=listener, event="deduplicated")) == 2 and s)
        assert {event["jobId"] for event in seen} == {first["id"]}
        assert len(five("seen", listener=listener, event="debounced")) == 1
        again = ours.add("once", {"give": 2}, deduplication={"id": "one"})
        assert again.id != first["id"]
        assert again.wait_until_finished(10) == 2
    assert "Traceback" not in fleet.log()


def test_a_series_advanced_by_release_5_goes_on_in_our_pool(
    fleet: PoolProcess, five: Node, wire_server: Server, store: Any
) -> None:
    """promise 4.21"""
    queue, at, base = QUEUES[2], EMQ.node(QUEUES[2]), EMQ.base(QUEUES[2])
    fleet.ask("quiet")
    worker = five("startWorker", **at, behaviour="play", opts={})
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        ours.upsert_job_scheduler("s", every=120, name="tick", data={"give": 1})

        def by_five() -> bytes | None:
            runs = {run["id"] for run in five("started")}
            return next((run for run in runs if store.hexists(base + run, "nrjid")), None)

        run = eventually(by_five, why="release 5 has noted its successor")
        job = ours.get_job(run)
        assert job is not None
        assert job.name == "tick"
        five("stopWorker", worker=worker)
        fleet.ask("resume")
        mark = len(story(store, base, "completed"))
        later = eventually(lambda: len(s := story(store, base, "completed")) >= mark + 3 and s[mark + 1 :])
        assert not {job_id for _, job_id in later} & {run["id"] for run in five("started")}
        assert ours.remove_job_scheduler("s")


def test_the_last_add_during_a_run_follows_it(fleet: PoolProcess, node: Node, wire_server: Server) -> None:
    """promise 4.21"""
    at = EMQ.node(QUEUES[3])
    options = {"deduplication": {"id": "last", "keepLastIfActive": True}}
    with SyncQueue(QUEUES[3], **EMQ.ours(wire_server)) as ours:
        first = node("add", **at, job="first", data={"give": 0, "ms": 400}, opts=options)
        eventually(lambda: ours.get_state(first["id"]) == "active")
        for n in (1, 2):
            data = {"give": n}
            assert (
                node("add", **at, job="later", data=data, opts={**options, "priority": n})["id"]
                == first["id"]
            )
        before = node("counts", **at)["completed"]
        finish(node, at, before + 2)
        last = max(
            node("jobs", **at, states=["completed"]), key=lambda job: (job["finishedOn"], int(job["id"]))
        )
        assert (last["name"], last["returnvalue"], last["priority"]) == ("later", 2, 2)


def test_a_prioritized_job_retried_by_the_newest_release_runs_again(
    fleet: PoolProcess, newest: Node, wire_server: Server
) -> None:
    """case C107"""
    at = EMQ.node(QUEUES[4])
    made = newest("add", **at, job="bad", data={"do": "fail", "fail_times": 1}, opts={"priority": 5})
    ended(newest, at, made["id"], "failed")
    newest("retry", **at, id=made["id"])
    assert ended(newest, at, made["id"])["attemptsMade"] == 2


def test_a_flow_that_the_newest_release_adds_step_by_step_is_released_once(
    fleet: PoolProcess, newest: Node, wire_server: Server, store: Any
) -> None:
    """case C111"""
    at, base = EMQ.node(QUEUES[5]), EMQ.base(QUEUES[5])
    children = [{"name": f"c{n}", "queueName": at["name"], "data": {"give": n}} for n in range(20)]
    flow = {"name": "parent", "queueName": at["name"], "data": {"give": "p"}, "children": children}
    for _ in range(3):
        made = newest("addFlow", **at, flow=flow)
        assert ended(newest, at, made["id"])["returnvalue"] == "p"
        family = newest("family", **at, id=made["id"])
        assert sorted(family["values"].values()) == list(range(20))
        active = [job_id for _, job_id in story(store, base, "active")]
        assert active.count(made["id"]) == 1
        assert store.hexists(base + made["id"], "flowAttachmentFailed") == 0


def test_unknown_fields_and_ancient_markers_are_left_alone(
    fleet: PoolProcess, newest: Node, wire_server: Server, store: Any
) -> None:
    """promise 4.21"""
    queue, at, base = QUEUES[6], EMQ.node(QUEUES[6]), EMQ.base(QUEUES[6])
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        ours.pause()
        store.hset(f"{base}meta", mapping={"version": "other:9.9.9", "something": "new"})
        job = ours.add("kept", {"give": 1})
        store.hset(base + job.id, "fieldOfTomorrow", "kept")
        store.rpush(f"{base}wait", "0:1")
        ours.resume()
        assert job.wait_until_finished(20) == 1
        assert store.hget(base + job.id, "fieldOfTomorrow") == b"kept"
        assert store.hget(f"{base}meta", "something") == b"new"
        assert store.exists(f"{base}0:1") == 0
        assert ended(newest, at, job.id)["returnvalue"] == 1
        assert ours.get_job_counts("active", "waiting") == {"active": 0, "waiting": 0}
