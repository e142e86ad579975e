# SPDX-License-Identifier: MIT
"""Moves that people make: promote, other delays and priorities, wait for children."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import verbs
from tests.support.tables import Row, check, nothing, steps
from tests.support.wire import NOW, Wire

TURN = 2**32


def delayed(**opts: Any) -> Any:
    return lambda w: w.add("j", delay=1_000, **opts)


def waiting(**opts: Any) -> Any:
    return lambda w: w.add("j", **opts)


def taken(wire: Wire) -> None:
    wire.add("j")
    wire.take()


def running_parent(wire: Wire) -> None:
    """A parent that runs and has added two children meanwhile, of which one is still to come."""
    taken(wire)
    wire.add("c1", parent=wire.child_of("j"))
    wire.add("c2", parent=wire.child_of("j"), delay=5)


def waiting_other(wire: Wire) -> None:
    wire.add("i")


def pause(wire: Wire) -> None:
    wire.pause()


def no_marker(wire: Wire) -> None:
    wire.client.delete(wire.key("marker"))


def full(wire: Wire) -> None:
    """One runs, and no more than one may."""
    wire.add("busy")
    wire.take()
    wire.client.hset(wire.key("meta"), "concurrency", 1)
    no_marker(wire)


# --- promote, changeDelay, changePriority ------------------------------------------------------------------

SAID = ["waiting jobId=j prev=delayed"]
PROMOTE = {
    "an unknown one": Row(nothing, lambda w: verbs.promote(w, "j"), -3),
    "one that is not delayed": Row(waiting(), lambda w: verbs.promote(w, "j"), -3),
    "a plain one": Row(
        steps(waiting_other, delayed()),
        lambda w: verbs.promote(w, "j"),
        0,
        {"delayed": None, "wait": ["j", "i"], "j": {"delay": "0"}, "marker": {"0": 0}},
        SAID,
    ),
    "a lifo one goes to the back all the same": Row(
        steps(waiting_other, delayed(lifo=True)),
        lambda w: verbs.promote(w, "j"),
        0,
        {"delayed": None, "wait": ["j", "i"], "j": {"delay": "0"}},
        SAID,
    ),
    "a prioritized one": Row(
        delayed(priority=3),
        lambda w: verbs.promote(w, "j"),
        0,
        {
            "delayed": None,
            "prioritized": {"j": 3 * TURN + 1},
            "pc": "1",
            "j": {"delay": "0"},
            "marker": {"0": 0},
        },
        SAID,
    ),
    "while paused": Row(
        steps(delayed(), pause),
        lambda w: verbs.promote(w, "j"),
        0,
        {"delayed": None, "wait": ["j"], "j": {"delay": "0"}},
        SAID,
    ),
    "while full": Row(
        steps(delayed(priority=1), full),
        lambda w: verbs.promote(w, "j"),
        0,
        {"delayed": None, "prioritized": {"j": TURN + 1}, "pc": "1", "j": {"delay": "0"}},
        SAID,
    ),
    "with an ancient marker at the left": Row(
        steps(delayed(), lambda w: w.client.rpush(w.key("wait"), "0:5", "i")),
        lambda w: verbs.promote(w, "j"),
        0,
        {"delayed": None, "wait": ["j", "i"], "j": {"delay": "0"}, "marker": {"0": 0}},
        SAID,
    ),
}

CHANGE_DELAY = {
    "an unknown one": Row(nothing, lambda w: verbs.change_delay(w, "j", 5), -1),
    "one that is not delayed": Row(waiting(), lambda w: verbs.change_delay(w, "j", 5), -3),
    "counted from now": Row(
        delayed(),
        lambda w: verbs.change_delay(w, "j", 50),
        0,
        {"delayed": {"j": (NOW + 50) * 4096}, "j": {"delay": "50"}, "marker": {"1": NOW + 50}},
        [f"delayed jobId=j delay={NOW + 50}"],
    ),
    "to the same again: its own old place counts": Row(
        delayed(),
        lambda w: verbs.change_delay(w, "j", 1_000),
        0,
        {"delayed": {"j": (NOW + 1_000) * 4096 + 1}, "marker": {"1": NOW + 1_000 + 1 / 4096}},
        [f"delayed jobId=j delay={NOW + 1_000}"],
    ),
    "the alarm is for the earliest": Row(
        steps(delayed(), lambda w: w.add("early", delay=7)),
        lambda w: verbs.change_delay(w, "j", 2_000),
        0,
        {"delayed": {"j": (NOW + 2_000) * 4096}, "j": {"delay": "2000"}},
        [f"delayed jobId=j delay={NOW + 2_000}"],
    ),
    "while paused the alarm is set all the same": Row(
        steps(delayed(), pause),
        lambda w: verbs.change_delay(w, "j", 0),
        0,
        {"delayed": {"j": NOW * 4096}, "j": {"delay": "0"}, "marker": {"1": NOW}},
        [f"delayed jobId=j delay={NOW}"],
    ),
}

CHANGE_PRIORITY = {
    "an unknown one": Row(nothing, lambda w: verbs.change_priority(w, "j", 5), -1),
    "one that is elsewhere only remembers it": Row(
        delayed(), lambda w: verbs.change_priority(w, "j", 5), 0, {"j": {"priority": "5"}}
    ),
    "from wait": Row(
        steps(waiting(), no_marker),
        lambda w: verbs.change_priority(w, "j", 5),
        0,
        {
            "wait": None,
            "prioritized": {"j": 5 * TURN + 1},
            "pc": "1",
            "j": {"priority": "5"},
            "marker": {"0": 0},
        },
    ),
    "from wait to the front of its equals": Row(
        steps(waiting(), no_marker),
        lambda w: verbs.change_priority(w, "j", 5, lifo=True),
        0,
        {"wait": None, "prioritized": {"j": 5 * TURN}, "j": {"priority": "5"}},
    ),
    "to wait, at the back": Row(
        steps(waiting(priority=2), lambda w: w.add("i"), no_marker),
        lambda w: verbs.change_priority(w, "j", 0),
        0,
        {"prioritized": None, "wait": ["j", "i"], "j": {"priority": "0"}, "marker": {"0": 0}},
    ),
    "to wait, at the front": Row(
        steps(waiting(priority=2), lambda w: w.add("i")),
        lambda w: verbs.change_priority(w, "j", 0, lifo=True),
        0,
        {"prioritized": None, "wait": ["i", "j"], "j": {"priority": "0"}},
    ),
    "within wait": Row(
        steps(waiting(), lambda w: w.add("i")),
        lambda w: verbs.change_priority(w, "j", 0),
        0,
        {"wait": ["j", "i"]},
    ),
    "while paused": Row(
        steps(waiting(priority=2), pause),
        lambda w: verbs.change_priority(w, "j", 7),
        0,
        {"prioritized": {"j": 7 * TURN + 2}, "pc": "2", "j": {"priority": "7"}},
    ),
    "what an older version parked stays parked": Row(
        steps(waiting(), lambda w: w.client.rename(w.key("wait"), w.key("paused"))),
        lambda w: verbs.change_priority(w, "j", 7),
        0,
        {"j": {"priority": "7"}},
    ),
}


@pytest.mark.parametrize("case", PROMOTE)
def test_promote(wire: Wire, case: str) -> None:
    check(wire, PROMOTE[case])


@pytest.mark.parametrize("case", CHANGE_DELAY)
def test_another_delay(wire: Wire, case: str) -> None:
    check(wire, CHANGE_DELAY[case])


@pytest.mark.parametrize("case", CHANGE_PRIORITY)
def test_another_priority(wire: Wire, case: str) -> None:
    check(wire, CHANGE_PRIORITY[case])


# --- moveToWaitingChildren -----------------------------------------------------------------------------------

WAIT = {
    "an unknown one": Row(nothing, lambda w: verbs.wait_for_children(w, "j"), -1),
    "with nothing to wait for, lock or no lock": Row(waiting(), lambda w: verbs.wait_for_children(w, "j"), 1),
    "for a child that is not pending": Row(
        running_parent, lambda w: verbs.wait_for_children(w, "j", w.key("c3")), 1
    ),
    "for all": Row(
        running_parent,
        lambda w: verbs.wait_for_children(w, "j"),
        0,
        {"active": None, "j:lock": None, "waiting-children": {"j": NOW}},
        ["waiting-children jobId=j prev=active"],
    ),
    "for one": Row(
        running_parent,
        lambda w: verbs.wait_for_children(w, "j", w.key("c2")),
        0,
        {"active": None, "j:lock": None, "waiting-children": {"j": NOW}},
        ["waiting-children jobId=j prev=active"],
    ),
    "with a failed child, before the lock is looked at": Row(
        steps(
            running_parent,
            lambda w: w.client.zadd(w.key("j:unsuccessful"), {"c": 1}),
            lambda w: w.lose_lock("j"),
        ),
        lambda w: verbs.wait_for_children(w, "j"),
        -9,
    ),
    "without its lock": Row(
        steps(running_parent, lambda w: w.lose_lock("j")), lambda w: verbs.wait_for_children(w, "j"), -2
    ),
    "under another's lock": Row(
        steps(running_parent, lambda w: setattr(w, "token", "stale")),
        lambda w: verbs.wait_for_children(w, "j"),
        -6,
    ),
    "after it left active the lock is gone": Row(
        steps(running_parent, lambda w: w.client.delete(w.key("active"))),
        lambda w: verbs.wait_for_children(w, "j"),
        -3,
        {"j:lock": None},
    ),
    "with its mark of the sweep": Row(
        steps(running_parent, lambda w: w.client.sadd(w.key("stalled"), "j")),
        lambda w: verbs.wait_for_children(w, "j"),
        0,
        {"active": None, "j:lock": None, "stalled": None, "waiting-children": {"j": NOW}},
        ["waiting-children jobId=j prev=active"],
    ),
    "without lock handling": Row(
        steps(running_parent, lambda w: setattr(w, "token", "0")),
        lambda w: verbs.wait_for_children(w, "j"),
        0,
        {"active": None, "waiting-children": {"j": NOW}},
        ["waiting-children jobId=j prev=active"],
    ),
}


@pytest.mark.parametrize("case", WAIT)
def test_a_running_job_waits_for_its_children(wire: Wire, case: str) -> None:
    check(wire, WAIT[case])
