# SPDX-License-Identifier: MIT
"""Jobs that go one by one or with all below them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import verbs
from tests.support.tables import Row, check, nothing, steps
from tests.support.wire import NOW, Wire

GONE: dict[str, Any] = {"j": None}


def add(job_id: str = "j", **opts: Any) -> Any:
    return lambda w: w.add(job_id, **opts)


def take(wire: Wire) -> None:
    wire.take()


def pause(wire: Wire) -> None:
    wire.pause()


def park(wire: Wire) -> None:
    """What an older version does to the waiting list of a paused queue."""
    wire.client.rename(wire.key("wait"), wire.key("paused"))


def lapse(*ids: str) -> Any:
    return lambda w: [w.lose_lock(job_id) for job_id in ids]


def finish(job_id: str, *, failed: bool = False) -> Any:
    return lambda w: w.finish(job_id, "boom" if failed else "3", failed=failed)


def family(**flags: bool) -> Any:
    """P waits for j and k; j is next in line, k is delayed."""

    def run(wire: Wire) -> None:
        wire.add("P", children=True)
        wire.add("j", parent=wire.child_of("P", **flags))
        wire.add("k", parent=wire.child_of("P", **flags), delay=5)

    return run


def remove(job_id: str = "j", **opts: Any) -> Any:
    return lambda w: verbs.remove(w, job_id, **opts)


# --- one job -----------------------------------------------------------------------------------------------

REMOVE = {
    "an unknown one, silently": Row(nothing, remove(), 1),
    "from wait": Row(add(), remove(), 1, GONE | {"wait": None}, ["removed jobId=j prev=wait"]),
    "from what an older version parked": Row(
        steps(add(), park), remove(), 1, GONE | {"paused": None}, ["removed jobId=j prev=paused"]
    ),
    "from delayed": Row(
        add(delay=5), remove(), 1, GONE | {"delayed": None}, ["removed jobId=j prev=delayed"]
    ),
    "from prioritized": Row(
        add(priority=5), remove(), 1, GONE | {"prioritized": None}, ["removed jobId=j prev=prioritized"]
    ),
    "from waiting-children": Row(
        add(children=True),
        remove(),
        1,
        GONE | {"waiting-children": None},
        ["removed jobId=j prev=waiting-children"],
    ),
    "from completed": Row(
        steps(add(), take, finish("j")),
        remove(),
        1,
        GONE | {"completed": None},
        ["removed jobId=j prev=completed"],
    ),
    "from failed": Row(
        steps(add(), take, finish("j", failed=True)),
        remove(),
        1,
        GONE | {"failed": None},
        ["removed jobId=j prev=failed"],
    ),
    "while it is locked": Row(steps(add(), take), remove(), 0),
    "from active, without lock": Row(
        steps(add(), take, lapse("j")),
        remove(),
        1,
        GONE | {"active": None},
        ["removed jobId=j prev=active"],
    ),
    "that sits nowhere": Row(
        steps(add(), lambda w: w.client.delete(w.key("wait"))),
        remove(),
        1,
        GONE,
        ["removed jobId=j prev=unknown"],
    ),
    "an id without a job, silently": Row(
        lambda w: w.client.rpush(w.key("wait"), "j"), remove(), 1, {"wait": None}
    ),
    "with logs and other keys": Row(
        steps(add(), lambda w: w.client.rpush(w.key("j:logs"), "row")),
        remove(),
        1,
        GONE | {"j:logs": None, "wait": None},
        ["removed jobId=j prev=wait"],
    ),
    "with its deduplication id": Row(
        add(de={"id": "x"}),
        remove(),
        1,
        GONE | {"wait": None, "de:x": None},
        ["removed jobId=j prev=wait"],
    ),
    "with what was parked behind it": Row(
        steps(
            add(de={"id": "x", "keepLastIfActive": True}),
            take,
            add("i", de={"id": "x", "keepLastIfActive": True}),
            lapse("j"),
        ),
        remove(),
        1,
        GONE | {"active": None, "de:x": None, "dn:x": None},
        ["removed jobId=j prev=active"],
    ),
    "but not another's deduplication id": Row(
        steps(add(de={"id": "x"}), lambda w: w.client.set(w.key("de:x"), "i")),
        remove(),
        1,
        GONE | {"wait": None},
        ["removed jobId=j prev=wait"],
    ),
    "a child: the parent waits for the other": Row(
        family(),
        lambda w: [verbs.remove(w, "j"), w.get("P:dependencies") == [w.key("k")], verbs.remove(w, "k")],
        [1, True, 1],
        {"j": None, "k": None, "P:dependencies": None, "waiting-children": None, "wait": ["P"]}
        | {"delayed": None},
        [
            "removed jobId=j prev=wait",
            "waiting jobId=P prev=waiting-children",
            "removed jobId=k prev=delayed",
        ],
    ),
    "a parent alone": Row(
        family(),
        remove("P"),
        1,
        {"P": None, "P:dependencies": None, "waiting-children": None},
        ["removed jobId=P prev=waiting-children"],
    ),
    "with a locked child": Row(steps(family(), take), remove("P", children=True), 0),
}


@pytest.mark.parametrize("case", REMOVE)
def test_remove(wire: Wire, case: str) -> None:
    """promise 4.20"""
    check(wire, REMOVE[case])


def test_a_current_run_of_a_scheduler_is_not_removed(wire: Wire) -> None:
    job_id, _ = wire.upsert_scheduler("s", {"name": "n", "every": 1_000})
    before = wire.dump()
    assert verbs.remove(wire, job_id) == -8
    assert wire.dump() == before
    wire.client.zrem(wire.key("repeat"), "s")
    assert verbs.remove(wire, job_id) == 1
    assert wire.get("wait") is None
    assert wire.events()[-1] == f"removed jobId={job_id} prev=wait"


# --- trees ---------------------------------------------------------------------------------------------------


def grove(wire: Wire) -> None:
    """R waits for A and B; A for a1 (done), a2 (failed, told R nothing), a3; B runs no more and has failed."""
    wire.add("R", children=True)
    wire.add("A", children=True, parent=wire.child_of("R"))
    wire.add("a1", parent=wire.child_of("A"))
    wire.add("a2", parent=wire.child_of("A", idof=True))
    wire.add("a3", parent=wire.child_of("A"), delay=9)
    wire.add("B", parent=wire.child_of("R"))
    for job_id in ("a1", "a2", "B"):
        wire.take()
        wire.finish(job_id, "boom", failed=job_id != "a1")


def test_a_tree_goes_whole(wire: Wire) -> None:
    grove(wire)
    wire.events()
    assert verbs.remove(wire, "R", children=True) == 1
    left = wire.dump()
    told = wire.events()
    assert sorted(event for event in told if event.startswith("removed")) == [
        "removed jobId=A prev=wait",
        "removed jobId=B prev=failed",
        "removed jobId=R prev=wait",
        "removed jobId=a1 prev=completed",
        "removed jobId=a2 prev=failed",
        "removed jobId=a3 prev=delayed",
    ], "the last child lets its parent go just before that is removed itself"
    assert sorted(left) == ["events", "id", "marker", "meta"]


def test_children_still_to_come_go_and_what_has_ended_or_runs_stays(wire: Wire) -> None:
    grove(wire)
    wire.add("C", parent=wire.child_of("R"))
    wire.take()
    wire.add("D", parent=wire.child_of("R"), priority=1)
    wire.events()
    assert verbs.remove_unprocessed(wire, "R") is None
    assert sorted(wire.events()) == [
        "removed jobId=A prev=wait",
        "removed jobId=D prev=prioritized",
        "removed jobId=a3 prev=delayed",
        "waiting jobId=A prev=waiting-children",
    ]
    assert wire.get("R:dependencies") == sorted([wire.key("B"), wire.key("C")])
    assert wire.get("completed") == {"a1": NOW}
    assert wire.get("active") == ["C"]


def test_a_parent_whose_last_pending_child_was_removed_goes_on(wire: Wire) -> None:
    family()(wire)
    wire.events()
    verbs.remove_unprocessed(wire, "P")
    assert wire.get("wait") == ["P"]
    assert "waiting jobId=P prev=waiting-children" in wire.events()


def test_a_child_in_another_queue_is_removed_and_told_there(wire: Wire, queue_name: str) -> None:
    other = Wire(wire.client, queue_name + "x")
    wire.add("P", children=True)
    other.add("j", parent=wire.child_of("P"))
    wire.events()
    other.events()
    assert verbs.remove(wire, "P", children=True) == 1
    assert other.events() == ["removed jobId=j prev=wait"]
    assert wire.events() == ["waiting jobId=P prev=waiting-children", "removed jobId=P prev=wait"]
    assert other.get("wait") is None


DEPENDENCY = {
    "of an unknown child": Row(
        family(), lambda w: verbs.remove_child_dependency(w, w.key("x"), w.key("P")), -1
    ),
    "of an unknown parent": Row(
        family(), lambda w: verbs.remove_child_dependency(w, w.key("j"), w.key("x")), -5
    ),
    "of one that is no child": Row(
        steps(family(), add("i")), lambda w: verbs.remove_child_dependency(w, w.key("i"), w.key("P")), 1
    ),
    "of the last": Row(
        steps(family(), remove("k")),
        lambda w: verbs.remove_child_dependency(w, w.key("j"), w.key("P")),
        0,
        {"j": {"parentKey": None, "parent": None}, "P:dependencies": None, "waiting-children": None}
        | {"wait": ["j", "P"]},
        ["waiting jobId=P prev=waiting-children"],
    ),
}


@pytest.mark.parametrize("case", DEPENDENCY)
def test_the_dependency_is_removed(wire: Wire, case: str) -> None:
    check(wire, DEPENDENCY[case])


def test_a_deduplication_id_is_freed_by_its_owner_only(wire: Wire) -> None:
    wire.add("j", de={"id": "x"})
    before = wire.dump()
    assert wire.on("removeDeduplicationKey", "de:x", "i") == 0
    assert wire.dump() == before
    assert wire.on("removeDeduplicationKey", "de:x", "j") == 1
    del before["de:x"]
    assert wire.dump() == before
    assert wire.on("removeDeduplicationKey", "de:x", "j") == 0
