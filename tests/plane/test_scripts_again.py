# SPDX-License-Identifier: MIT
"""Jobs that have finished run again, one or many."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import verbs
from tests.support.tables import Row, check, nothing, steps
from tests.support.wire import NOW, Wire


def pause(wire: Wire) -> None:
    wire.pause()


def no_marker(wire: Wire) -> None:
    wire.client.delete(wire.key("marker"))


def finished(*, failed: bool = False, **opts: Any) -> Any:
    def run(wire: Wire) -> None:
        wire.add("j", **opts)
        wire.take()
        wire.finish("j", "boom" if failed else "3", failed=failed)
        wire.client.delete(wire.key("marker"))

    return run


def family(*, failed: bool, **flags: bool) -> Any:
    def run(wire: Wire) -> None:
        wire.add("P", children=True)
        wire.add("j", parent=wire.child_of("P", **flags))
        wire.add("other", parent=wire.child_of("P", **flags), delay=5)
        wire.take()
        wire.finish("j", "boom", failed=failed)
        wire.client.delete(wire.key("marker"))

    return run


# --- reprocessJob, moveJobsToWait ------------------------------------------------------------------------------

GONE = {"finishedOn": None, "processedOn": None}
FAILED_AGAIN = {"j": {**GONE, "failedReason": None}, "failed": None, "wait": ["j"], "marker": {"0": 0}}
COMPLETED_AGAIN = {"j": {**GONE, "returnvalue": None}, "completed": None, "wait": ["j"], "marker": {"0": 0}}
FROM_FAILED, FROM_COMPLETED = ["waiting jobId=j prev=failed"], ["waiting jobId=j prev=completed"]


REPROCESS = {
    "an unknown one": Row(nothing, lambda w: verbs.reprocess(w, "j"), -1),
    "one in the other state": Row(finished(), lambda w: verbs.reprocess(w, "j", "failed"), -3),
    "a failed one": Row(
        finished(failed=True), lambda w: verbs.reprocess(w, "j"), 1, FAILED_AGAIN, FROM_FAILED
    ),
    "a completed one, its priority ignored": Row(
        finished(priority=4),
        lambda w: verbs.reprocess(w, "j", "completed"),
        1,
        COMPLETED_AGAIN,
        FROM_COMPLETED,
    ),
    "with its attempts forgotten, at the front": Row(
        steps(finished(failed=True), lambda w: w.add("i"), lambda w: w.add("k")),
        lambda w: verbs.reprocess(w, "j", push="RPUSH", atm=True, ats=True),
        1,
        {
            "j": {**GONE, "failedReason": None, "atm": None, "ats": None},
            "failed": None,
            "wait": ["k", "i", "j"],
        },
        FROM_FAILED,
    ),
    "while paused": Row(
        steps(finished(failed=True), pause),
        lambda w: verbs.reprocess(w, "j"),
        1,
        FAILED_AGAIN | {"marker": None},
        FROM_FAILED,
    ),
}


@pytest.mark.parametrize("case", REPROCESS)
def test_a_finished_job_runs_again(wire: Wire, case: str) -> None:
    check(wire, REPROCESS[case])


@pytest.mark.parametrize(
    ("failed", "flags", "place", "back"),
    [
        (False, {}, "P:processed", True),
        (True, {"fpof": True}, "P:unsuccessful", True),
        (True, {"cpof": True}, "P:failed", True),
        (True, {"idof": True}, "P:failed", True),
        (True, {"rdof": True}, "P:failed", False),
        (True, {}, "P:failed", False),
    ],
)
def test_a_child_that_runs_again_is_waited_for_again(
    wire: Wire, failed: bool, flags: dict[str, bool], place: str, back: bool
) -> None:
    family(failed=failed, **flags)(wire)
    dependencies = wire.get("P:dependencies")
    assert ([*(wire.get(place) or [])] == [wire.key("j")]) is back
    assert verbs.reprocess(wire, "j", "failed" if failed else "completed") == 1
    assert wire.get(place) is None
    assert wire.get("P:dependencies") == (sorted([*dependencies, wire.key("j")]) if back else dependencies)


def test_a_child_whose_parent_is_gone_runs_again_alone(wire: Wire) -> None:
    family(failed=True, fpof=True)(wire)
    wire.client.delete(wire.key("P"))
    before = wire.dump()
    assert verbs.reprocess(wire, "j") == 1
    after = wire.dump()
    for key in ("P:unsuccessful", "P:dependencies"):
        assert after.get(key) == before.get(key)


def some_finished(failed: bool) -> Any:
    def run(wire: Wire) -> None:
        for number in range(3):
            wire.add(f"j{number}", priority=number)
            wire.take()
            wire.now += 10
            wire.finish(f"j{number}", "boom", failed=failed)
        no_marker(wire)

    return run


def some_delayed(wire: Wire) -> None:
    for number in range(3):
        wire.add(f"j{number}", delay=10 + number, priority=number)


def told(state: str, *numbers: int) -> list[str]:
    return [f"waiting jobId=j{number} prev={state}" for number in numbers]


UNFAILED, UNCOMPLETED = {**GONE, "failedReason": None}, {**GONE, "returnvalue": None}
BULK = {
    "none": Row(nothing, lambda w: verbs.move_to_wait(w, "failed"), 0),
    "all failed": Row(
        some_finished(failed=True),
        lambda w: verbs.move_to_wait(w, "failed"),
        0,
        {
            "failed": None,
            "wait": ["j2", "j1", "j0"],
            "marker": {"0": 0},
            "j0": UNFAILED,
            "j1": UNFAILED,
            "j2": UNFAILED,
        },
        told("failed", 0, 1, 2),
    ),
    "as many as asked, and there are more": Row(
        some_finished(failed=False),
        lambda w: verbs.move_to_wait(w, "completed", 2),
        1,
        {
            "completed": {"j0": None, "j1": None},
            "wait": ["j1", "j0"],
            "marker": {"0": 0},
            "j0": UNCOMPLETED,
            "j1": UNCOMPLETED,
        },
        told("completed", 0, 1),
    ),
    "as many as there are: one more call is asked for": Row(
        steps(some_finished(failed=True), pause),
        lambda w: verbs.move_to_wait(w, "failed", 3),
        1,
        {"failed": None, "wait": ["j2", "j1", "j0"], "j0": UNFAILED, "j1": UNFAILED, "j2": UNFAILED},
        told("failed", 0, 1, 2),
    ),
    "only those up to a moment": Row(
        some_finished(failed=True),
        lambda w: verbs.move_to_wait(w, "failed", until=NOW + 10),
        0,
        {"failed": {"j0": None}, "wait": ["j0"], "marker": {"0": 0}, "j0": UNFAILED},
        told("failed", 0),
    ),
    "all delayed, their priority and delay left alone": Row(
        some_delayed,
        lambda w: verbs.move_to_wait(w, "delayed"),
        0,
        {"delayed": None, "wait": ["j2", "j1", "j0"], "marker": {"0": 0}},
        told("delayed", 0, 1, 2),
    ),
}


@pytest.mark.parametrize("case", BULK)
def test_many_jobs_run_again(wire: Wire, case: str) -> None:
    check(wire, BULK[case])


def test_more_than_a_batch_runs_again_in_order(wire: Wire) -> None:
    ids = [f"j{number:05}" for number in range(7_500)]
    wire.client.zadd(wire.key("failed"), {job_id: index for index, job_id in enumerate(ids)})
    assert verbs.move_to_wait(wire, "failed", 20_000) == 0
    assert wire.get("wait") == ids[::-1]
    assert wire.get("failed") is None
