# SPDX-License-Identifier: MIT
"""What other releases and clients leave in a queue is tolerated: section 9 of the protocol page, beside other tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from echomq_pool import InputError, JobFailed, SyncQueue
from tests.support.node import Node
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import Layout, ended
from tests.wire.ground import Ground, Side, ids, job

pytestmark = pytest.mark.node


@pytest.fixture
def five(releases: Callable[[str], Node], wire_server: Server, queue_name: str) -> Iterator[Side]:
    """A queue beside release 5."""
    node = releases("bullmq-5")
    yield Ground(wire_server, node, Layout("bull", False)).side(queue_name)
    node("reset")


@pytest.fixture
def newest(releases: Callable[[str], Node], wire_server: Server, queue_name: str) -> Iterator[Side]:
    """A queue beside release 6.7."""
    node = releases("bullmq-6")
    yield Ground(wire_server, node, Layout("bull", True)).side(queue_name)
    node("reset")


def remove_all(queue: SyncQueue) -> None:
    for n in range(3):
        queue.remove(f"j{n}")


WAYS: dict[str, Callable[[SyncQueue], Any]] = {
    "remove": remove_all,
    "clean": lambda q: q.clean(0, 0, "paused"),
    "drain": lambda q: q.drain(),
    "obliterate": lambda q: q.obliterate(),
}


@pytest.mark.parametrize("way", WAYS)
def test_jobs_that_release_5_parked_can_be_taken_away_by_us(five: Side, way: str) -> None:
    five.of_queue("pause")
    for n in range(3):
        five.theirs("add", job="parked", data={}, opts={"jobId": f"j{n}"})
    with five.ours() as queue, five.client() as store:
        assert store.llen(five.keys.key("paused")) == 3
        assert (
            [one.id for one in queue.get_waiting()] == ids(five.of_queue("getWaiting")) == ["j0", "j1", "j2"]
        )
        WAYS[way](queue)
        assert store.exists(five.keys.key("paused"), *(five.keys.job(f"j{n}") for n in range(3))) == 0
        assert sum(five.theirs("counts").values()) == 0


@pytest.mark.parametrize("by", ["five", "us"])
def test_a_series_goes_on_with_its_data_whoever_made_the_last_run(five: Side, by: str) -> None:
    """Release 5 keeps the data of a series in each job, later ones in the series."""
    with five.ours() as queue:
        data = {"give": by}
        if by == "five":
            template = {"name": "tick", "data": data}
            five.theirs("upsertScheduler", id="s", repeat={"every": 100, "limit": 4}, template=template)
        else:
            queue.upsert_job_scheduler("s", every=100, limit=4, name="tick", data=data)
        number = five.node_worker()
        eventually(lambda: queue.get_job_counts("completed")["completed"] >= 2)
        five.theirs("stopWorker", worker=number)
        with five.worker():
            eventually(lambda: queue.get_job_counts("completed") == {"completed": 4})
        assert {one.returnvalue for one in queue.get_completed()} == {by}


def test_a_failure_told_in_the_order_of_old_workers_ends_a_wait(five: Side) -> None:
    """Up to 5.53 a job that stalled too often failed inside the sweep: no `active`, and `prev` before the reason."""
    with five.ours() as queue, five.client() as store:
        made = five.theirs("add", job="n", data={}, opts={"jobId": "j"})
        store.lrem(five.keys.key("wait"), 0, made["id"])
        store.zadd(five.keys.key("failed"), {made["id"]: 1})
        reason = "job stalled more than allowable limit"
        store.hset(five.keys.job("j"), mapping={"failedReason": reason, "finishedOn": 1})
        told = {"event": "failed", "jobId": "j", "prev": "active", "failedReason": reason}
        store.xadd(five.keys.key("events"), told)
        with pytest.raises(JobFailed, match="stalled more than"):
            queue.wait_until_finished("j", 20)


def test_a_job_of_the_python_port_is_read_done_and_retried(five: Side) -> None:
    """Its options have `delay: 0`, its reasons are JSON, and its queues tell no version."""
    with five.ours() as queue, five.client() as store:
        fields = {
            "name": "n", "data": '{"give":1}', "opts": '{"delay":0,"attempts":1}', "timestamp": 1_700_000_000_000,
            "delay": 0, "priority": 0, "atm": 1, "ats": 1, "failedReason": '"boom"', "stacktrace": '["boom"]',
            "finishedOn": 1_700_000_000_001, "processedOn": 1_700_000_000_000,
        }  # fmt: skip
        store.hset(five.keys.job("1"), mapping=fields)
        store.zadd(five.keys.key("failed"), {"1": 1_700_000_000_001})
        found = job(queue, "1")
        assert "boom" in str(found.failed_reason)
        assert found.opts == {"delay": 0, "attempts": 1}
        assert found.state() == "failed"
        found.retry()
        with five.worker():
            assert found.wait_until_finished(20) == 1
        assert ended(five.ground.node, five.at, "1")["returnvalue"] == 1


def test_a_rescheduled_owner_of_a_deduplication_id_is_ours_to_read_and_do(newest: Side) -> None:
    """6.7 re-times the delayed job that owns the id."""
    opts: dict[str, Any] = {"deduplication": {"id": "d", "reschedule": True}, "delay": 9_000_000}
    first = newest.theirs("add", job="n", data={"give": 1}, opts=opts)
    second = newest.theirs("add", job="n", data={"give": 2}, opts={**opts, "delay": 20})
    with newest.ours() as queue, newest.worker():
        assert second["id"] == first["id"]
        assert queue.wait_until_finished(first["id"], 20) in (1, 2)
        assert queue.get_deduplication_job_id("d") is None
        with pytest.raises(InputError, match="reschedule"):
            queue.add("n", deduplication=opts["deduplication"])


def test_a_finished_child_that_the_newest_release_retries_is_waited_for_again(newest: Side) -> None:
    name = newest.keys.wire_name
    bad = {"name": "c", "queueName": name, "data": {"do": "fail", "fail_times": 1}, "opts": {"jobId": "c"}}
    late = {"name": "c", "queueName": name, "data": {}, "opts": {"jobId": "late", "delay": 9_000_000}}
    flow = {
        "name": "P",
        "queueName": name,
        "data": {"give": "P"},
        "opts": {"jobId": "P"},
        "children": [bad, late],
    }
    newest.theirs("addFlow", flow=flow)
    with newest.ours() as queue, newest.worker():
        eventually(lambda: queue.get_state("c") == "failed")
        newest.theirs("retryJobs", state="failed")
        ended(newest.ground.node, newest.at, "c")
        job(queue, "late").promote()
        assert queue.wait_until_finished("P", 20) == "P"


def test_a_job_whose_failure_is_due_is_failed_by_either_side_without_being_run(newest: Side) -> None:
    """The note `defa` of a sweep; 6.7 does not count such a take against a rate limit."""
    with newest.ours() as queue, newest.client() as store:
        for job_id in ("a", "b"):
            queue.pause()
            queue.add("n", {"give": 1}, job_id=job_id)
            store.hset(newest.keys.job(job_id), "defa", "its time is over")
            queue.resume()
            if job_id == "a":
                number = newest.node_worker()
                found = ended(newest.ground.node, newest.at, job_id, "failed")
                newest.theirs("stopWorker", worker=number)
            else:
                with newest.worker():
                    found = ended(newest.ground.node, newest.at, job_id, "failed")
            assert found["failedReason"] == "its time is over"
        assert newest.theirs("started") == []


def test_a_repeat_as_an_option_of_a_job_is_refused_since_release_6_would_add_it_once(newest: Side) -> None:
    """Release 5 made a series of it; those scripts are gone."""
    with newest.ours() as queue, pytest.raises(InputError, match="repeat"):
        queue.add("n", repeat={"every": 1_000})
    newest.of_queue("add", "n", {}, {"repeat": {"every": 1_000}})
    with newest.ours() as queue:
        assert (queue.count(), queue.get_job_schedulers_count()) == (1, 0)
