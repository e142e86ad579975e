# SPDX-License-Identifier: MIT
"""Jobs from both sides: taken and settled by hand, moved by their processors, waited for, their children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq_pool import Job, JobFailed
from echomq_pool.errors import LeaseLost
from tests.support.node import NodeError
from tests.support.waiting import eventually
from tests.wire.fleet import ended
from tests.wire.ground import Ours, Side, job

pytestmark = pytest.mark.node

TOKEN = "hand:1"


def taken(ours: Ours, token: str = TOKEN) -> Job:
    found = ours.wait(ours.worker.get_next_job(token, block=False))
    assert isinstance(found, Job)
    return found


# --- by hand -----------------------------------------------------------------------------------------

BY_HAND: dict[str, tuple[Callable[[Job], Any], Callable[[Side, str], Any]]] = {
    "moveToCompleted": (
        lambda j: j.move_to_completed({"a": [1]}),
        lambda s, i: s.theirs("held", id=i, method="moveToCompleted", args=[{"a": [1]}, TOKEN, False]),
    ),
    "moveToFailed": (
        lambda j: j.move_to_failed("no luck"),
        lambda s, i: s.theirs("heldFail", id=i, reason="no luck", token=TOKEN),
    ),
    "moveToDelayed": (
        lambda j: j.move_to_delayed(4_000_000_000_000),
        lambda s, i: s.theirs("held", id=i, method="moveToDelayed", args=[4_000_000_000_000, TOKEN]),
    ),
    "moveToWait": (
        lambda j: j.move_to_wait(),
        lambda s, i: s.theirs("held", id=i, method="moveToWait", args=[TOKEN]),
    ),
}


@pytest.mark.parametrize("how", BY_HAND)
def test_a_job_taken_by_hand_is_settled_alike(twins: tuple[Side, Side], how: str) -> None:
    """BullMQ's `getNextJob` and the verbs of a job that is held"""
    theirs, ours = twins
    by_us, by_node = BY_HAND[how]
    for side in twins:
        side.theirs("add", job="n", data={"x": 1}, opts={"jobId": "j", "priority": 3})
    assert theirs.theirs("take", token=TOKEN)["id"] == "j"
    with ours.worker(None) as hand:
        mine = taken(hand)
        assert (mine.id, mine.data) == ("j", {"x": 1})
        by_node(theirs, "j")
        hand.wait(by_us(mine))
        made, found = theirs.dump(), ours.dump()
        for dump in (made, found):
            for field in ("stacktrace", "pb"):  # whose code it was, and who did it
                dump["j"].pop(field, None)
        assert found == made


def test_each_side_extends_the_lock_of_the_other_by_its_token(side: Side) -> None:
    """law 5"""
    with side.ours() as queue, side.worker(None) as hand, side.client() as store:
        for job_id in ("a", "b"):
            queue.add("n", job_id=job_id)
        mine, theirs = taken(hand), side.theirs("take", token=TOKEN)
        assert (mine.id, theirs["id"]) == ("a", "b")
        side.of_job("a", "extendLock", TOKEN, 500_000)
        job(queue, "b").extend_lock(TOKEN, 500_000)
        assert min(store.pttl(side.keys.lock(i)) for i in ("a", "b")) > 400_000
        assert side.of_job("a", "extendLock", "other:1", 900_000) == 0
        with pytest.raises(LeaseLost):
            job(queue, "b").extend_lock("other:1", 900_000)
        assert max(store.pttl(side.keys.lock(i)) for i in ("a", "b")) < 600_000


def test_waiting_for_children_by_hand_is_alike(twins: tuple[Side, Side]) -> None:
    """BullMQ's `moveToWaitingChildren`: True while there are any, False when there are none"""
    theirs, ours = twins
    for side in twins:
        side.theirs("add", job="n", data={}, opts={"jobId": "P"})
        side.theirs("add", job="n", data={}, opts={"jobId": "lonely"})
    with ours.worker(None) as hand, ours.ours() as queue:
        for side in twins:
            mine = taken(hand) if side is ours else None
            if mine is None:
                assert side.theirs("take", token=TOKEN)["id"] == "P"
            queue_of_child = {"id": "P", "queue": side.keys.qualified}
            side.theirs(
                "add", job="c", data={}, opts={"jobId": "c", "delay": 9_000_000, "parent": queue_of_child}
            )
            if mine is not None:
                assert hand.wait(mine.move_to_waiting_children()) is True
                assert hand.wait(taken(hand, "hand:2").move_to_waiting_children()) is False
            else:
                assert side.theirs("held", id="P", method="moveToWaitingChildren", args=[TOKEN, {}]) is True
                assert side.theirs("take", token="hand:2")["id"] == "lonely"
                answer = side.theirs("held", id="lonely", method="moveToWaitingChildren", args=["hand:2", {}])
                assert answer is False
        assert queue.get_state("P") == theirs.of_queue("getJobState", "P") == "waiting-children"
        made, found = theirs.dump(), ours.dump()
        for dump in (made, found):
            for job_id in ("P", "lonely"):
                dump[job_id].pop("pb", None)
        assert found == made


# --- by the processor --------------------------------------------------------------------------------

MOVES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"do": "later", "delay": 30}, {"attempts": 2}),
    ({"do": "again"}, {"attempts": 2}),
    ({"do": "never"}, {"attempts": 5}),
    ({"do": "limit", "limit_ms": 50}, {"attempts": 2}),
]


@pytest.mark.parametrize(("data", "opts"), MOVES, ids=[data["do"] for data, _ in MOVES])
def test_moves_told_by_an_exception_end_alike(
    twins: tuple[Side, Side], data: dict[str, Any], opts: dict[str, Any]
) -> None:
    """BullMQ's DelayedError, WaitingError, UnrecoverableError, RateLimitError"""
    theirs, ours = twins
    theirs.node_worker(limiter={"max": 100, "duration": 1_000})
    state = "failed" if data["do"] == "never" else "completed"
    with ours.worker(limiter=(100, 1_000)):
        ends = []
        for side in twins:
            made = side.theirs("add", job="n", data=data, opts=opts)
            found = ended(side.ground.node, side.at, made["id"], state)
            ends.append({name: found.get(name) for name in ENDING})
    assert ends[0] == ends[1]


ENDING = ("returnvalue", "failedReason", "attemptsMade", "attemptsStarted", "delay", "stalledCounter")


# --- waiting for each other --------------------------------------------------------------------------


def test_each_side_waits_for_a_job_that_the_other_does(side: Side) -> None:
    """case C120"""
    listener = side.theirs("listen")
    with side.ours() as queue:
        worker = side.node_worker()
        assert queue.add("n", {"give": {"by": "node"}}).wait_until_finished(30) == {"by": "node"}
        with pytest.raises(JobFailed, match="planned failure"):
            queue.add("n", {"do": "fail"}).wait_until_finished(30)
        side.theirs("stopWorker", worker=worker)
        with side.worker():
            good = side.theirs("add", job="n", data={"give": {"by": "us"}}, opts={})
            assert side.theirs("waitFor", id=good["id"], listener=listener) == {"by": "us"}
            bad = side.theirs("add", job="n", data={"do": "fail"}, opts={})
            with pytest.raises(NodeError, match="planned failure"):
                side.theirs("waitFor", id=bad["id"], listener=listener)


def test_progress_rows_and_data_of_a_running_job_are_seen_by_the_other_side(side: Side) -> None:
    """promise 4.20"""
    data = {"do": "talk", "progress": {"done": 5}, "row": "a row"}
    with side.ours() as queue:
        worker = side.node_worker()
        theirs = queue.add("n", data)
        assert theirs.wait_until_finished(30) == "talked"
        side.theirs("stopWorker", worker=worker)
        seen = job(queue, theirs.id)
        assert (seen.progress, seen.data["updated"]) == ({"done": 5}, True)
        assert queue.get_job_logs(theirs.id) == ["a row"]
        with side.worker():
            made = side.theirs("add", job="n", data=data, opts={})
            found = ended(side.ground.node, side.at, made["id"])
            assert (found["progress"], found["data"]["updated"]) == ({"done": 5}, True)
            assert side.theirs("logs", id=made["id"]) == ["a row"]


# --- its children ------------------------------------------------------------------------------------


def test_children_of_every_fate_read_alike_on_both_sides(side: Side) -> None:
    """case C111"""
    name = side.keys.wire_name
    fates: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"give": {"n": 1}}, {}),
        ({"do": "fail"}, {"ignoreDependencyOnFailure": True}),
        ({"do": "fail"}, {"failParentOnFailure": True}),
        ({}, {"delay": 9_000_000}),
    ]
    children = [
        {"name": "c", "queueName": name, "data": data, "opts": {"jobId": f"c{n}", **opts}}
        for n, (data, opts) in enumerate(fates)
    ]
    flow = {"name": "P", "queueName": name, "data": {}, "opts": {"jobId": "P"}, "children": children}
    side.theirs("addFlow", flow=flow)
    with side.worker(), side.ours() as queue:
        eventually(lambda: queue.get_job_counts("failed")["failed"] >= 2)
        parent = job(queue, "P")
        eventually(
            lambda: len(parent.get_failed_children()) + len(parent.get_ignored_children_failures()) == 2
        )
        found, theirs = parent.get_dependencies(), side.of_job("P", "getDependencies")
        assert found.processed == theirs["processed"]
        assert sorted(found.unprocessed) == sorted(theirs["unprocessed"])
        assert parent.get_children_values() == side.of_job("P", "getChildrenValues")
        assert parent.get_ignored_children_failures() == side.of_job("P", "getIgnoredChildrenFailures")
        assert parent.get_dependencies_count() == side.of_job("P", "getDependenciesCount")
        page = side.of_job("P", "getDependencies", {"processed": {"cursor": 0, "count": 5}})
        assert parent.get_dependencies_page("processed", 0, 5) == (0, page["processed"])
