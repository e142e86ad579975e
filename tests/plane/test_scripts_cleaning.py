# SPDX-License-Identifier: MIT
"""Jobs that go in numbers: old ones, waiting ones, the whole queue, and what nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import verbs
from tests.support.wire import NOW, Wire

# --- many: clean, drain --------------------------------------------------------------------------------------


def aged(state: str) -> Any:
    """j0 … j3, ten ms apart, in one state; the youngest is as old as `now`."""

    def run(wire: Wire) -> None:
        opts: dict[str, Any] = {"delayed": {"delay": 5_000}, "prioritized": {"priority": 1}}.get(state, {})
        for number in range(4):
            wire.add(f"j{number}", **opts)
            if state in ("active", "completed", "failed"):
                wire.take()
            if state in ("completed", "failed"):
                wire.finish(f"j{number}", failed=state == "failed")
            wire.now += 10
        wire.now -= 10
        if state == "active":
            for job_id in ("j0", "j1", "j3"):
                wire.lose_lock(job_id)
        if state == "paused":
            wire.client.rename(wire.key("wait"), wire.key("paused"))

    return run


STATES = ["wait", "paused", "active", "delayed", "prioritized", "completed", "failed"]


@pytest.mark.parametrize("state", STATES)
def test_what_is_old_is_cleaned(wire: Wire, state: str) -> None:
    aged(state)(wire)
    wire.events()
    before = wire.dump()
    assert verbs.clean(wire, state, wire.now - 20, 1) in (["j0"], ["j1"])
    removed = verbs.clean(wire, state, wire.now - 10)
    old = {"j1"} if state == "active" else {"j1", "j2"}
    assert set(removed) == old
    assert wire.events() == ["cleaned count=1", f"cleaned count={len(old)}"]
    after = wire.dump()
    left = [job_id for job_id in ("j3", "j2") if job_id in after]
    assert left == (["j3", "j2"] if state == "active" else ["j3"]), "a lock protects"
    for job_id in {"j0", *old}:
        before.pop(job_id)
    before[state] = (
        {k: v for k, v in before[state].items() if k in left} if isinstance(before[state], dict) else left
    )
    assert after == before


@pytest.mark.parametrize("state", ["wait", "paused", "active"])
def test_of_a_list_the_oldest_are_looked_at(wire: Wire, state: str) -> None:
    ids = [f"j{number}" for number in range(5)]
    wire.client.lpush(wire.key(state), *ids)
    assert verbs.clean(wire, state, NOW, 2) == ["j1", "j0"]
    assert wire.get(state) == ["j4", "j3", "j2"]


def test_a_clean_that_finds_nothing_says_so(wire: Wire) -> None:
    assert verbs.clean(wire, "failed", NOW) == []
    assert wire.events() == ["cleaned count=0"]


@pytest.mark.parametrize("where", ["wait", "prioritized", "delayed"])
def test_neither_clean_nor_drain_takes_the_current_run_of_a_scheduler(wire: Wire, where: str) -> None:
    more: dict[str, Any] = {"priority": 2} if where == "prioritized" else {}
    rule: dict[str, Any] = {"name": "n", "every": 1_000} | ({"offset": 7} if where == "delayed" else {})
    job_id, _ = wire.upsert_scheduler("s", rule, **more)
    assert verbs.clean(wire, where, NOW + 9_000) == []
    verbs.drain(wire, delayed=True)
    assert list(wire.get(where)) == [job_id]
    assert wire.get(job_id)["rjk"] == "s"


def test_drain_takes_what_waits_and_delayed_jobs_on_request(wire: Wire) -> None:
    wire.add("r")
    wire.take()
    for number in range(3):
        wire.add(f"w{number}", de={"id": f"x{number}"})
        wire.add(f"p{number}", priority=2)
    wire.add("d", delay=5)
    wire.client.rpush(wire.key("paused"), "parked")
    wire.events()
    assert verbs.drain(wire) is None
    keys = {"active", "r", "r:lock", "d", "delayed", "id", "meta", "marker", "pc"}
    assert set(wire.dump()) == keys
    assert verbs.drain(wire, delayed=True) is None
    assert set(wire.dump()) == keys - {"d", "delayed"}
    assert wire.events() == []


def test_a_drained_list_loses_as_many_ids_as_jobs_were_removed(wire: Wire) -> None:
    job_id, _ = wire.upsert_scheduler("s", {"name": "n", "every": 1_000})
    wire.add("a")
    wire.add("b")
    assert wire.get("wait") == ["b", "a", job_id]
    verbs.drain(wire)
    assert wire.get("wait") == [job_id]
    wire.add("c")
    wire.client.rpush(wire.key("wait"), "d")
    verbs.drain(wire)
    assert wire.get("wait") == ["d"], "the wrong end may remain: so it is on the wire"


def test_a_removed_last_child_takes_a_parent_of_the_same_queue_along(wire: Wire) -> None:
    wire.add("G", children=True)
    wire.add("P", children=True, parent=wire.child_of("G"))
    wire.add("j", parent=wire.child_of("P"), de={"id": "x"})
    assert verbs.clean(wire, "wait", NOW) == ["j"]
    assert set(wire.dump()) == {"id", "meta", "events", "marker"}


def test_a_removed_last_child_wakes_a_parent_of_another_queue_without_an_event(
    wire: Wire, queue_name: str
) -> None:
    other = Wire(wire.client, queue_name + "x")
    other.add("P", children=True, priority=3)
    wire.add("j", parent=other.child_of("P"))
    other.events()
    assert verbs.clean(wire, "wait", NOW) == ["j"]
    assert other.get("wait") == ["P"]
    assert other.get("marker") == {"0": 0}
    assert other.events() == []


def test_more_than_a_batch_is_cleaned_and_drained(wire: Wire) -> None:
    ids = {f"j{number}": number for number in range(7_500)}
    wire.client.zadd(wire.key("completed"), ids)
    wire.client.zadd(wire.key("prioritized"), ids)
    wire.client.rpush(wire.key("wait"), *ids)
    assert len(verbs.clean(wire, "completed", NOW)) == 7_500
    assert len(verbs.clean(wire, "wait", NOW, 7_200)) == 7_200
    verbs.drain(wire)
    assert set(wire.dump()) == {"events"}


# --- the queue -------------------------------------------------------------------------------------------------


def test_only_a_paused_queue_without_running_jobs_is_obliterated(wire: Wire) -> None:
    wire.add("r")
    wire.take()
    before = wire.dump()
    assert verbs.obliterate(wire) == -1
    assert wire.dump() == before
    wire.pause()
    before = wire.dump()
    assert verbs.obliterate(wire) == -2
    assert wire.dump() == before
    assert verbs.obliterate(wire, force=True) == 0
    assert wire.dump() == {}


def test_a_queue_is_obliterated_in_slices(wire: Wire) -> None:
    for state in STATES:
        aged(state)(wire)
        for suffix in wire.dump():
            if suffix.startswith("j"):
                wire.client.renamenx(wire.key(suffix), wire.key(f"{state}-{suffix}"))
    wire.upsert_scheduler("s", {"name": "n", "every": 1_000, "offset": 5})
    wire.client.set(wire.key("limiter"), 3)
    wire.add("P", children=True)
    wire.pause()
    calls = 1
    while verbs.obliterate(wire, 3, force=True) == 1:
        calls += 1
    assert calls > 7
    left = {key for key in wire.dump() if "-j" not in key}
    assert left == {"limiter", "P", "waiting-children"}


def test_a_budget_used_up_exactly_asks_for_one_more_call(wire: Wire) -> None:
    wire.add("a")
    wire.add("b")
    wire.pause()
    assert verbs.obliterate(wire, 2) == 1
    assert set(wire.dump()) == {"events", "id", "meta"}
    assert verbs.obliterate(wire, 2) == 0
    assert wire.dump() == {}


# --- orphans -----------------------------------------------------------------------------------------------------


def test_a_job_that_no_state_knows_is_an_orphan(wire: Wire) -> None:
    wire.add("w")
    wire.add("d", delay=5)
    wire.client.sadd(wire.key("stalled"), "s")
    for job_id in ("s", "o1", "o2"):
        wire.client.hset(wire.key(job_id), "name", "x")
    wire.client.rpush(wire.key("o1:logs"), "row")
    wire.client.set(wire.key("o1:lock"), "w:0")
    before = wire.dump()
    states = ["wait", "delayed", "stalled", "meta", "id", "nowhere"]
    assert verbs.orphans(wire, states, "w", "d", "s", "o1", "o2", "never") == 3
    for key in ("o1", "o1:logs", "o1:lock", "o2"):
        del before[key]
    assert wire.dump() == before
