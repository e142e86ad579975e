# SPDX-License-Identifier: MIT
"""The table of transitions: whatever moves a job says so on the stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.wire import NOW, Wire

LATER = NOW + 1_000

# state before → how to get there, the move, what it says
Step = Callable[[Wire], object]


def taken(wire: Wire) -> None:
    wire.add("j", attempts=3)
    wire.take()


def lost(wire: Wire) -> None:
    taken(wire)
    wire.lose_lock("j")
    wire.sweep()


def due(wire: Wire) -> None:
    wire.add("j", delay=1)
    wire.now += 1


def family(wire: Wire, **flags: bool) -> None:
    wire.add("P", children=True)
    wire.add("j", parent=wire.child_of("P", **flags))
    wire.take()


def nothing(wire: Wire) -> None:
    """The queue is empty."""


TABLE: dict[str, tuple[Step, Step, list[str]]] = {
    "none to wait": (nothing, lambda w: w.add("j"), ["added jobId=j name=job", "waiting jobId=j"]),
    "none to prioritized": (
        nothing,
        lambda w: w.add("j", priority=1),
        ["added jobId=j name=job", "waiting jobId=j"],
    ),
    "none to delayed": (
        nothing,
        lambda w: w.add("j", delay=1_000),
        ["added jobId=j name=job", f"delayed jobId=j delay={LATER}"],
    ),
    "none to waiting-children": (
        nothing,
        lambda w: w.add("j", children=True),
        ["added jobId=j name=job", "waiting-children jobId=j"],
    ),
    "a taken id": (lambda w: w.add("j"), lambda w: w.add("j"), ["duplicated jobId=j"]),
    "delayed to wait to active": (
        due,
        lambda w: w.take(),
        ["waiting jobId=j prev=delayed", "active jobId=j prev=waiting"],
    ),
    "active to completed": (
        taken,
        lambda w: w.finish("j"),
        ["completed jobId=j returnvalue=null prev=active", "drained"],
    ),
    "active to failed": (
        taken,
        lambda w: w.finish("j", "boom", failed=True),
        [
            "failed jobId=j failedReason=boom prev=active",
            "retries-exhausted jobId=j attemptsMade=1",
            "drained",
        ],
    ),
    "active to wait by retry": (taken, lambda w: w.retry("j"), ["waiting jobId=j prev=active"]),
    "active to wait by release": (taken, lambda w: w.release("j"), ["waiting jobId=j prev=active"]),
    "active to delayed": (taken, lambda w: w.delay("j", 1_000), [f"delayed jobId=j delay={LATER}"]),
    "active to wait by the sweep": (
        lost,
        lambda w: w.sweep_again(),
        ["waiting jobId=j prev=active", "stalled jobId=j"],
    ),
    "waiting-children to wait": (
        family,
        lambda w: w.finish("j"),
        ["waiting jobId=P prev=waiting-children", "completed jobId=j returnvalue=null prev=active"],
    ),
    "running to paused": (nothing, lambda w: w.pause(), ["paused"]),
    "paused to running": (lambda w: w.pause(), lambda w: w.resume(), ["resumed"]),
}


@pytest.mark.parametrize("transition", TABLE)
def test_every_transition_is_told_in_this_order(wire: Wire, transition: str) -> None:
    """promise 4.18, 4.20"""
    before, move, expected = TABLE[transition]
    before(wire)
    wire.events()
    move(wire)
    assert wire.events() == expected


def test_renewals_and_refusals_say_nothing(wire: Wire) -> None:
    taken(wire)
    wire.events()
    wire.extend([("j", "w:0"), ("nobody", "w:0")])
    wire.sweep()
    wire.token = "stale"
    for refused in (wire.finish("j"), wire.retry("j"), wire.delay("j", 1), wire.release("j")):
        assert refused == -6
    assert wire.events() == []
