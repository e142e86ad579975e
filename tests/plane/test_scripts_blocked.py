# SPDX-License-Identifier: MIT
"""The matrix of a queue that is paused, full or rate limited: what each move does to the marker all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import verbs
from tests.support.wire import NOW, Wire

WHY = ["paused", "full", "limited"]


def block(wire: Wire, why: str) -> None:
    """From now on. The marker is removed, so that whoever sets it shows."""
    if why == "paused":
        wire.client.hset(wire.key("meta"), "paused", 1)
    elif why == "full":
        wire.client.hset(wire.key("meta"), "concurrency", 1)
    else:
        wire.client.hset(wire.key("meta"), mapping={"max": 1, "duration": 60_000})
        wire.client.set(wire.key("limiter"), 1, px=60_000)
    wire.client.delete(wire.key("marker"))


def run(wire: Wire, job_id: str, **opts: Any) -> None:
    wire.add(job_id, **opts)
    assert wire.take()[1] == job_id


def marked(wire: Wire, why: str) -> bool:
    """Whether sleeping workers were woken, which only a rate limit does not prevent."""
    marker = wire.get("marker")
    assert marker in (None, {"0": 0})
    return marker is not None


@pytest.mark.parametrize("why", WHY)
@pytest.mark.parametrize("opts", [{}, {"priority": 2}, {"lifo": True}])
def test_an_add_is_stored_and_wakes_nobody(wire: Wire, why: str, opts: dict[str, Any]) -> None:
    run(wire, "busy")
    block(wire, why)
    wire.add("j", **opts)
    assert "j" in wire.get("prioritized" if "priority" in opts else "wait")
    assert marked(wire, why) is (why == "limited")


@pytest.mark.parametrize("why", WHY)
def test_a_delayed_add_sets_the_alarm(wire: Wire, why: str) -> None:
    run(wire, "busy")
    block(wire, why)
    wire.add("j", delay=50)
    assert wire.get("marker") == {"1": NOW + 50}


@pytest.mark.parametrize("why", WHY)
def test_a_take_promotes_and_answers_nothing(wire: Wire, why: str) -> None:
    run(wire, "busy")
    wire.add("d", delay=5)
    wire.now += 5
    block(wire, why)
    job, job_id, limit, due = wire.take()
    assert (job, job_id, due) == (0, 0, 0)
    assert (limit > 0) is (why == "limited")
    assert wire.get("wait") == ["d"]
    assert marked(wire, why) is (why == "limited")


def test_the_rate_limit_is_answered_also_while_paused(wire: Wire) -> None:
    run(wire, "busy")
    wire.add("j")
    block(wire, "limited")
    block(wire, "paused")
    assert wire.take()[2] > 0


FINISHES = {
    "finish": lambda w: w.finish("j", fetch=True),
    "delay": lambda w: w.delay("j", 50, fetch=True),
    "wait for children": lambda w: verbs.wait_for_children(w, "j"),
}


@pytest.mark.parametrize("why", WHY)
@pytest.mark.parametrize("how", FINISHES)
def test_a_running_job_may_end(wire: Wire, how: str, why: str) -> None:
    """The end itself frees a slot before the fetch that comes with it."""
    run(wire, "j")
    wire.client.sadd(wire.key("j:dependencies"), *(["x"] if how == "wait for children" else []), "y")
    if how == "finish":
        wire.client.delete(wire.key("j:dependencies"))
    wire.add("next")
    block(wire, why)
    answer = FINISHES[how](wire)
    if how == "wait for children":
        assert answer == 0
    elif why == "full":
        assert answer[1] == "next"
    assert wire.get("active") == (["next"] if why == "full" and how != "wait for children" else None)


def stall(wire: Wire) -> Any:
    wire.lose_lock("j")
    wire.sweep()
    return wire.sweep_again()


LEAVING = {"retry": lambda w: w.retry("j"), "release": lambda w: w.release("j"), "stall": stall}


@pytest.mark.parametrize("why", WHY)
@pytest.mark.parametrize("how", LEAVING)
def test_who_leaves_active_for_wait_is_judged_after_that(wire: Wire, how: str, why: str) -> None:
    run(wire, "j")
    block(wire, why)
    LEAVING[how](wire)
    assert wire.get("wait") == ["j"]
    assert marked(wire, why) is (why != "paused")


def finished_job(wire: Wire) -> None:
    run(wire, "j")
    wire.finish("j")


def last_child(wire: Wire) -> None:
    wire.add("j", children=True)
    run(wire, "c", parent=wire.child_of("j"))


INTO_WAIT: dict[str, tuple[Any, Any]] = {
    "promote": (lambda w: w.add("j", delay=5), lambda w: verbs.promote(w, "j")),
    "reprocess": (finished_job, lambda w: verbs.reprocess(w, "j", "completed")),
    "all again": (finished_job, lambda w: verbs.move_to_wait(w, "completed")),
    "another priority": (
        lambda w: w.add("j", priority=2),
        lambda w: verbs.change_priority(w, "j", 0),
    ),
}


@pytest.mark.parametrize("why", WHY)
@pytest.mark.parametrize("how", INTO_WAIT)
def test_whatever_comes_to_wait_wakes_nobody(wire: Wire, how: str, why: str) -> None:
    before, move = INTO_WAIT[how]
    before(wire)
    run(wire, "busy")
    block(wire, why)
    move(wire)
    assert "j" in wire.get("wait")
    assert marked(wire, why) is (why == "limited")


@pytest.mark.parametrize("why", WHY)
def test_a_parent_is_released_by_the_state_of_its_queue(wire: Wire, why: str) -> None:
    last_child(wire)
    wire.add("busy", lifo=True)
    wire.take()
    block(wire, why)
    wire.finish("c")
    assert wire.get("wait") == ["j"]
    assert marked(wire, why) is (why == "limited"), "busy alone fills the queue"


def test_a_lower_load_alone_wakes_nobody(wire: Wire) -> None:
    run(wire, "j")
    wire.add("next")
    block(wire, "full")
    wire.finish("j")
    assert wire.get("marker") is None


def test_a_resume_wakes_for_work_or_sets_the_alarm(wire: Wire) -> None:
    wire.add("d", delay=9)
    wire.pause()
    wire.resume()
    assert wire.get("marker") == {"1": NOW + 9}
    wire.pause()
    wire.add("j")
    wire.resume()
    assert wire.get("marker") == {"0": 0}
