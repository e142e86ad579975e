# SPDX-License-Identifier: MIT
"""What reimplementations get wrong, as the protocol page lists it: what no other test is about, by its number there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import verbs
from tests.support.wire import NOW, Wire, as_json

TURN = 2**32


def run(wire: Wire, job_id: str = "j", **opts: Any) -> None:
    wire.add(job_id, **opts)
    assert wire.take()[1] == job_id


def test_02_front_and_back_of_the_line(wire: Wire) -> None:
    """Released, stalled and freed parents are next; a retried job is last."""
    wire.add("P", children=True)
    for job_id in ("again", "back", "lost", "child"):
        run(wire, job_id, parent=wire.child_of("P") if job_id == "child" else None)
    wire.lose_lock("lost")
    wire.add("new")
    wire.retry("again")
    assert wire.get("wait") == ["again", "new"]
    wire.release("back")
    wire.finish("child")
    wire.sweep()
    wire.sweep_again()
    assert wire.get("wait") == ["again", "new", "back", "P", "lost"]


def test_06_promotion_runs_before_a_job_is_looked_at(wire: Wire) -> None:
    wire.add("d", delay=5)
    wire.now += 5
    assert wire.retry("nobody") == -1
    assert wire.get("wait") == ["d"]


def test_12_the_counter_of_turns_starts_anew_when_nothing_waits(wire: Wire) -> None:
    run(wire, "a", priority=1)
    assert wire.get("pc") == "1"
    wire.finish("a", fetch=True)
    assert wire.get("pc") is None


def test_15_an_unrecoverable_failure_with_attempts_left_exhausts_nothing(wire: Wire) -> None:
    run(wire, attempts=3)
    wire.events()
    wire.finish("j", "boom", failed=True, attempts=3)
    assert wire.events() == ["failed jobId=j failedReason=boom prev=active", "drained"]


def test_17_metrics_need_the_empty_text_to_be_off(wire: Wire) -> None:
    run(wire)
    wire.finish("j", maxMetricsSize="")
    assert not [key for key in wire.dump() if key.startswith("metrics")]


def test_21_the_token_zero_leaves_every_lock_alone(wire: Wire) -> None:
    run(wire)
    wire.token = "0"
    assert wire.retry("j") == 0
    assert wire.get("j:lock") == "w:0"
    run_id = wire.take()[1]
    assert run_id == "j"
    assert wire.get("j:lock") == "w:0"
    assert verbs.wait_for_children(wire, "j") == 1


@pytest.mark.parametrize("keep", [{"count": -1}, {"count": 0}])
def test_25_a_deferred_failure_ends_with_the_failure(wire: Wire, keep: dict[str, int]) -> None:
    run(wire)
    wire.client.hset(wire.key("j"), "defa", "why")
    wire.finish("j", "why", failed=True, keep=keep)
    assert "defa" not in (wire.get("j") or {})


def test_25_a_completion_keeps_a_deferred_failure(wire: Wire) -> None:
    run(wire)
    wire.client.hset(wire.key("j"), "defa", "why")
    wire.finish("j")
    assert wire.get("j")["defa"] == "why"


@pytest.mark.parametrize(
    ("flag", "place"), [("cpof", "failed"), ("idof", "failed"), ("fpof", "unsuccessful")]
)
def test_29_where_failed_children_are_remembered(wire: Wire, flag: str, place: str) -> None:
    wire.add("P", children=True)
    run(wire, parent=wire.child_of("P", **{flag: True}))
    wire.finish("j", "boom", failed=True)
    expected: Any = {wire.key("j"): NOW} if place == "unsuccessful" else {wire.key("j"): "boom"}
    assert wire.get(f"P:{place}") == expected
    kinds = dict(zip(verbs.KINDS, verbs.child_counts(wire, "P", *verbs.KINDS), strict=True))
    assert kinds == {"processed": 0, "unprocessed": 0, "ignored": place == "failed", "failed": flag == "fpof"}


def test_30_children_by_full_key_and_parents_twice(wire: Wire) -> None:
    wire.add("P", children=True)
    wire.add("j", parent=wire.child_of("P", rdof=True))
    assert wire.get("P:dependencies") == [wire.key("j")]
    job = wire.get("j")
    assert job["parentKey"] == wire.key("P")
    assert as_json(job["parent"]) == {"id": "P", "queueKey": wire.base[:-1], "rdof": True}


def test_36_a_duplicate_is_answered_with_its_id(wire: Wire) -> None:
    wire.add("P", children=True)
    wire.add("Q", children=True)
    wire.add("j", parent=wire.child_of("P"))
    assert wire.add("j") == "j"
    assert wire.add("j", parent=wire.child_of("P")) == "j"
    assert wire.add("j", parent=wire.child_of("Q")) == -7
    wire.client.delete(wire.key("P"))
    assert wire.add("j", parent=wire.child_of("Q")) == "j"


def test_37_who_heeds_a_priority_on_the_way_back_and_who_does_not(wire: Wire) -> None:
    for job_id in ("again", "bulk"):
        run(wire, job_id, priority=3)
        wire.finish(job_id)
    verbs.reprocess(wire, "again", "completed")
    verbs.move_to_wait(wire, "completed")
    assert wire.get("wait") == ["bulk", "again"]
    wire.add("promoted", delay=5, priority=3)
    wire.add("due", delay=1, priority=3)
    verbs.promote(wire, "promoted")
    wire.now += 1
    wire.take()
    assert list(wire.get("prioritized")) == ["promoted", "due"]


def test_39_what_removals_answer_and_that_locks_stay(wire: Wire) -> None:
    assert verbs.remove(wire, "unknown") == 1
    run(wire)
    assert verbs.remove(wire, "j") == 0
    current, _ = wire.upsert_scheduler("s", {"name": "n", "every": 1_000})
    assert verbs.remove(wire, current) == -8
    wire.add("i", lifo=True)
    wire.client.set(wire.key("i:lock"), "w:0")
    assert verbs.clean(wire, "wait", NOW) == ["i"]
    assert wire.get("i:lock") == "w:0"


def test_40_a_slot_is_written_the_same_everywhere(wire: Wire) -> None:
    for now in (1_700_000_000_000, 999_999_999_999, 1_000_000_000_000):
        wire.now = now
        job_id, _ = wire.upsert_scheduler("s", {"name": "n", "every": 1_000, "offset": 3})
        slot = int(wire.client.zscore(wire.key("repeat"), "s"))
        assert job_id == f"repeat:s:{slot}"
        assert wire.on("getJobScheduler", "repeat", "s")[1] == str(slot)
        assert as_json(wire.get(job_id)["opts"])["jobId"] == job_id
        wire.on("removeJobScheduler", "repeat delayed events", "s", wire.base)


def test_42_options_are_an_object_and_an_empty_list_is_one_too(wire: Wire) -> None:
    wire.add("j", attempts=2, backoff={"type": "fixed", "delay": 5}, tags=[], nothing=None)
    assert as_json(wire.get("j")["opts"]) == {
        "attempts": 2,
        "backoff": {"type": "fixed", "delay": 5},
        "tags": {},
    }


def test_43_lists_in_ascending_order(wire: Wire) -> None:
    for job_id in ("a", "b", "c"):
        wire.add(job_id)
    assert verbs.ranges(wire, 0, 1, "wait", asc=True) == [["b", "a"]]
    assert [row[0] for row in verbs.jobs(wire, 0, 1, "wait", asc=True)[0]] == ["a", "b"]


def test_44_three_things_named_paused(wire: Wire) -> None:
    wire.client.rpush(wire.key("paused"), "parked")
    wire.add("j")
    assert wire.take()[1] == "j", "a list of that name pauses nothing"
    wire.events()
    wire.pause()
    assert wire.events() == ["paused"]
    assert wire.get("meta")["paused"] == "1"
    wire.add("k")
    assert (wire.get("paused"), wire.get("wait")) == (["parked"], ["k"])
    wire.client.hset(wire.key("meta"), "paused", "0")
    assert wire.take() == [0, 0, 0, 0], "the field counts, whatever its value"
