# SPDX-License-Identifier: MIT
"""Queues from both sides: options of the queue itself, who is connected, events and cancels across the border."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from echomq_pool import JobFailed, QueueEvents
from echomq_pool.api.event_types import Other
from tests.support.waiting import eventually
from tests.wire.fleet import ended
from tests.wire.ground import Side, fill, job, running_loop

pytestmark = pytest.mark.node

Look = Callable[[], list[dict[str, str]]]
DAY_MS = 86_400_000


def test_each_side_reads_what_the_other_has_added(side: Side) -> None:
    """promise 4.20; case C103"""
    data = {"t": "中文 💥", "n": [1, 2.5, None], "o": {}}
    with side.ours() as queue:
        ours = queue.add("ours", data, attempts=2, delay=DAY_MS)
        theirs = side.theirs("add", job="theirs", data=data, opts={"attempts": 2, "delay": DAY_MS})
        seen = side.theirs("job", id=ours.id)
        found = job(queue, theirs["id"])
        assert (seen["name"], seen["data"], seen["state"], seen["delay"]) == ("ours", data, "delayed", DAY_MS)
        assert (found.name, found.data, found.state(), found.delay) == ("theirs", data, "delayed", DAY_MS)
        assert (seen["opts"], found.opts) == (
            {"attempts": 2, "delay": DAY_MS},
            {"attempts": 2, "delay": DAY_MS},
        )


def test_options_of_a_queue_are_those_of_its_jobs_on_either_side(twins: tuple[Side, Side]) -> None:
    """BullMQ's `defaultJobOptions`"""
    theirs, ours = twins
    options = {"attempts": 4, "backoff": {"type": "fixed", "delay": 7}, "removeOnComplete": True}
    for given in ({}, {"attempts": 1}):
        args = ["n", {}, given]
        theirs.theirs("queueWith", method="add", args=args, opts={"defaultJobOptions": options})
        with ours.ours(job_options=options) as queue:
            queue.add("n", {}, **given)
    assert ours.dump() == theirs.dump()


def test_the_length_of_the_stream_is_written_alike_and_kept_by_both(twins: tuple[Side, Side]) -> None:
    """BullMQ's `streams.events.maxLen`"""
    theirs, ours = twins
    jobs: list[dict[str, Any]] = [{"name": "n", "data": {}} for _ in range(500)]
    theirs.theirs("queueWith", method="addBulk", args=[jobs], opts={"streams": {"events": {"maxLen": 50}}})
    with ours.ours(max_len_events=50) as queue, theirs.ours() as guest:
        queue.add_bulk(jobs)
        guest.add_bulk(jobs)
        ours.theirs("queueWith", method="addBulk", args=[jobs], opts={"skipMetasUpdate": True})
        with ours.client() as store:
            for side in twins:
                assert store.hget(side.keys.key("meta"), "opts.maxLenEvents") == b"50"
                assert store.xlen(side.keys.key("events")) < 500, "the server cuts in nodes of a hundred"


def two(look: Look) -> list[dict[str, str]] | None:
    found = look()
    return found if len(found) == 2 else None


def test_workers_and_readers_are_seen_from_both_sides(side: Side) -> None:
    """case C107"""
    side.node_worker(name="them")
    side.theirs("listen")
    with side.ours() as queue, side.worker(name="us"), running_loop() as wait:
        reader = QueueEvents(side.queue, **side.where)
        wait(reader.start())
        try:
            asked: list[Look] = [queue.get_workers, lambda: side.of_queue("getWorkers")]
            for look in asked:
                found = eventually(partial(two, look), why="both workers")
                assert sorted(worker["rawname"].rpartition(":")[2] for worker in found)[0] == "them"
            assert queue.get_workers_count() == side.of_queue("getWorkersCount") == 2
            asked = [queue.get_queue_events, lambda: side.of_queue("getQueueEvents")]
            for look in asked:
                assert eventually(partial(two, look), why="both readers")
        finally:
            wait(reader.close())


def test_own_events_are_heard_by_the_other_side(side: Side) -> None:
    """BullMQ's `QueueEventsProducer`"""
    listener = side.theirs("listen", more=["hello"])
    heard: list[dict[str, str]] = []
    with side.ours() as queue, running_loop() as wait:
        reader = QueueEvents(side.queue, **side.where)
        reader.on(Other, lambda event: heard.append(event.fields))
        wait(reader.start())
        try:
            queue.publish_event("hello", {"from": "us"})
            side.theirs("publish", event={"eventName": "hello", "from": "node"})
            eventually(lambda: [fields.get("from") for fields in heard] == ["us", "node"])
            seen = eventually(
                lambda: len(s := side.theirs("seen", listener=listener, event="hello")) == 2 and s
            )
            assert [event["from"] for event in seen] == ["us", "node"]
        finally:
            wait(reader.close())


def test_a_cancel_by_either_side_ends_a_job_of_ours(side: Side) -> None:
    """promise 4.20"""
    with side.ours() as queue, side.worker(listen=True, concurrency=2):
        jobs = [queue.add("long", {"do": "until"}, attempts=3) for _ in range(2)]
        eventually(lambda: all(one.state() == "active" for one in jobs))
        side.theirs("publish", event={"eventName": "cancel", "jobId": jobs[0].id, "reason": "by Node"})
        queue.cancel(jobs[1].id, "by us")
        for one, reason in zip(jobs, ("by Node", "by us"), strict=True):
            with pytest.raises(JobFailed, match=reason):
                one.wait_until_finished(30)
            assert ended(side.ground.node, side.at, one.id, "failed")["failedReason"] == reason


def family(queue: str) -> dict[str, Any]:
    child = {"name": "c", "queueName": queue, "data": {"do": "fail"}}
    return {"name": "P", "queueName": queue, "data": {}, "children": [child]}


def test_parents_that_wait_in_vain_are_found_whoever_made_them(side: Side) -> None:
    made = side.theirs("addFlow", flow=family(side.keys.wire_name))
    side.node_worker()
    with side.ours() as queue, side.flows() as flows:
        ours = flows.add(family(side.queue))
        eventually(lambda: queue.get_job_counts("failed") == {"failed": 2})
        assert {parent.id for parent in queue.get_blocked_parents()} == {made["id"], ours.job.id}


def test_a_lost_occurrence_of_nodes_series_is_made_again(side: Side) -> None:
    """case C095"""
    fill(side)
    made = side.theirs("upsertScheduler", id="theirs", repeat={"every": DAY_MS}, template={"name": "t"})
    with side.ours() as queue, side.client() as store:
        for suffix in ("delayed", "wait", "prioritized"):
            if store.type(side.keys.key(suffix)) == b"zset":
                store.zrem(side.keys.key(suffix), made["id"])
            else:
                store.lrem(side.keys.key(suffix), 0, made["id"])
        store.delete(side.keys.job(made["id"]))
        state, job_id = queue.repair_job_scheduler("theirs")
        assert (state, side.theirs("job", id=job_id)["name"]) == ("made", "t")
