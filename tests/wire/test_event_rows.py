# SPDX-License-Identifier: MIT
"""Readers of the event stream on both sides: the same events, from the same place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from echomq_pool import QueueEvents, SyncQueue
from echomq_pool.api.event_types import Completed
from tests.support.waiting import eventually
from tests.wire.ground import Side, running_loop

pytestmark = pytest.mark.node


@contextmanager
def reading(side: Side, **options: Any) -> Iterator[list[Any]]:
    """All that our reader hears."""
    side.ground.used.add("ours")
    heard: list[Any] = []
    with running_loop() as wait:
        reader = QueueEvents(side.queue, **side.where, **options)
        reader.on("*", heard.append)
        wait(reader.start())
        try:
            yield heard
        finally:
            wait(reader.close())


SORTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"give": 1}, {}),
    ({"do": "fail", "fail_times": 1}, {"attempts": 2, "backoff": 10}),
    ({"do": "fail"}, {}),
    ({"give": 2}, {"delay": 20}),
    ({"do": "talk", "progress": 5, "row": "x"}, {"priority": 1}),
]
NAMES = ("added", "waiting", "active", "delayed", "progress", "completed", "failed", "retries-exhausted")


def test_both_sides_hear_the_same_of_jobs_of_both(side: Side) -> None:
    """promise 4.20, 4.21"""
    listener = side.theirs("listen")
    with reading(side) as heard, side.ours() as queue, side.worker(concurrency=2):
        side.node_worker(concurrency=2)
        side.theirs("addBulk", jobs=[{"name": "n", "data": d, "opts": o} for d, o in SORTS])
        queue.add_bulk([("n", d, o) for d, o in SORTS])
        total = 2 * len(SORTS)
        eventually(lambda: sum(event.name in ("completed", "failed") for event in heard) >= total)
        counts = eventually(
            lambda: (
                (c := side.theirs("seenCounts", listener=listener)).get("completed", 0) + c["failed"] >= total
                and c
            )
        )
        assert counts["added"] == total
        for name in NAMES:
            ours = [event.job_id for event in heard if event.name == name]
            theirs = [event["jobId"] for event in side.theirs("seen", listener=listener, event=name)]
            assert ours == theirs, name


def test_each_side_is_told_of_one_job_of_the_other(side: Side) -> None:
    """BullMQ's `completed:<id>`"""
    listener = side.theirs("listen", more=["completed:ours"])
    with side.ours() as queue, running_loop() as wait:
        told: list[Any] = []
        reader = QueueEvents(side.queue, **side.where)
        reader.on(Completed, told.append, job_id="theirs")
        wait(reader.start())
        try:
            side.node_worker()
            queue.add("n", {"give": 1}, job_id="ours")
            side.theirs("add", job="n", data={"give": 2}, opts={"jobId": "theirs"})
            eventually(lambda: [event.returnvalue for event in told] == [2])
            seen = eventually(lambda: side.theirs("seen", listener=listener, event="completed:ours"))
            assert [event["returnvalue"] for event in seen] == [1]
        finally:
            wait(reader.close())


def test_each_side_goes_on_where_the_other_had_stopped(side: Side) -> None:
    """case C119; BullMQ's `lastEventId`"""
    listener = side.theirs("listen")
    with side.ours() as queue:
        with reading(side) as heard:
            queue.add("n", job_id="a")
            side.theirs("add", job="n", data={}, opts={"jobId": "b"})
            ours = eventually(lambda: [e.id for e in heard if e.name == "added" and e.job_id == "b"])[0]
            seen = eventually(
                lambda: len(s := side.theirs("seen", listener=listener, event="added")) == 2 and s
            )
        assert seen[-1]["eventId"] == ours, "the same event has the same id"
        queue.add("n", job_id="c")
        side.theirs("add", job="n", data={}, opts={"jobId": "d"})
        later = side.theirs("listen", **{"from": ours})
        with reading(side, last_event_id=seen[-1]["eventId"]) as again:
            eventually(lambda: [e.job_id for e in again if e.name == "added"] == ["c", "d"])
        more = eventually(lambda: len(s := side.theirs("seen", listener=later, event="added")) == 2 and s)
        assert [event["jobId"] for event in more] == ["c", "d"]


def test_nothing_is_missed_from_the_moment_a_reader_is_ready(side: Side) -> None:
    """case C119; BullMQ's `waitUntilReady`"""
    with side.ours() as queue:
        for n in range(5):
            first_heard_by_both(side, queue, [f"o{n}", f"t{n}"])


def first_heard_by_both(side: Side, queue: SyncQueue, ids: list[str]) -> None:
    with reading(side) as heard:
        listener = side.theirs("listen")
        queue.add("n", job_id=ids[0])
        side.theirs("add", job="n", data={}, opts={"jobId": ids[1]})
        eventually(lambda: [event.job_id for event in heard if event.name == "added"] == ids)
        seen = eventually(lambda: len(s := side.theirs("seen", listener=listener, event="added")) == 2 and s)
        assert [event["jobId"] for event in seen] == ids
        side.theirs("unlisten", listener=listener)
