# SPDX-License-Identifier: MIT
"""The four add scripts: every key before and after, answers, and the order of events."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from tests.support.wire import NOW, Wire, as_json

META = {"opts.maxLenEvents": "10000"}


def job(**fields: Any) -> dict[str, Any]:
    plain = {"name": "job", "data": "{}", "opts": "{}", "timestamp": str(NOW), "delay": "0", "priority": "0"}
    return {**plain, **fields}


def test_a_standard_job_is_stored_pushed_to_the_left_and_announced(wire: Wire) -> None:
    """promise 4.20"""
    assert wire.add() == "1"
    assert wire.dump() == {
        "id": "1",
        "meta": META,
        "1": job(),
        "wait": ["1"],
        "marker": {"0": 0},
        "events": ["added jobId=1 name=job", "waiting jobId=1"],
    }
    wire.add()
    assert wire.get("wait") == ["2", "1"]


def test_a_lifo_job_is_next_in_line(wire: Wire) -> None:
    wire.add()
    wire.add(lifo=True)
    assert wire.get("wait") == ["1", "2"]


def test_a_prioritized_job_is_scored_by_priority_and_turn(wire: Wire) -> None:
    assert wire.add(priority=3) == "1"
    wire.add(priority=2)
    assert wire.dump() == {
        "id": "2",
        "pc": "2",
        "meta": META,
        "1": job(opts='{"priority":3}', priority="3"),
        "2": job(opts='{"priority":2}', priority="2"),
        "prioritized": {"2": 2 * 2**32 + 2, "1": 3 * 2**32 + 1},
        "marker": {"0": 0},
        "events": [
            f"{event} jobId={n}" + " name=job" * (event == "added")
            for n in (1, 2)
            for event in ("added", "waiting")
        ],
    }


def test_a_delayed_job_sets_the_alarm_and_its_event_bears_the_moment(wire: Wire) -> None:
    assert wire.add(delay=500, priority=7) == "1"
    due = NOW + 500
    dump = wire.dump()
    assert as_json(dump["1"].pop("opts")) == {"delay": 500, "priority": 7}
    assert dump == {
        "id": "1",
        "meta": META,
        "1": {key: value for key, value in job(delay="500", priority="7").items() if key != "opts"},
        "delayed": {"1": due * 4096},
        "marker": {"1": due},
        "events": ["added jobId=1 name=job", f"delayed jobId=1 delay={due}"],
    }


def test_jobs_due_in_the_same_millisecond_keep_their_order_up_to_4096(wire: Wire) -> None:
    for _ in range(3):
        wire.add(delay=500)
    low = (NOW + 500) * 4096
    assert wire.get("delayed") == {"1": low, "2": low + 1, "3": low + 2}
    wire.client.zadd(wire.key("delayed"), {"last": low + 4095})
    wire.add(delay=500)
    assert wire.get("delayed")["4"] == low + 4095


def test_a_fractional_delay_keeps_its_fraction(wire: Wire) -> None:
    wire.add(delay=12.5)
    assert wire.get("1")["delay"] == "12.5"
    assert wire.get("delayed") == {"1": (NOW + 12.5) * 4096}
    assert wire.events()[-1] == f"delayed jobId=1 delay={NOW + 12.5}"


def test_a_parent_job_waits_for_children_and_keeps_its_priority_for_later(wire: Wire) -> None:
    assert wire.add("P", children=True, priority=4) == "P"
    assert wire.dump() == {
        "id": "1",
        "meta": META,
        "P": job(opts='{"priority":4}', priority="4"),
        "waiting-children": {"P": NOW},
        "events": ["added jobId=P name=job", "waiting-children jobId=P"],
    }


@pytest.mark.parametrize("opts", [{}, {"delay": 9}, {"priority": 1}, {"children": True}])
def test_a_child_names_its_parent_and_is_among_its_dependencies(wire: Wire, opts: dict[str, Any]) -> None:
    wire.add("P", children=True)
    wire.add("K", parent=wire.child_of("P", fpof=True), **opts)
    stored = wire.get("K")
    assert stored["parentKey"] == wire.key("P")
    assert as_json(stored["parent"]) == {"id": "P", "queueKey": wire.base[:-1], "fpof": True}
    assert wire.get("P:dependencies") == [wire.key("K")]


@pytest.mark.parametrize("opts", [{}, {"delay": 9}, {"priority": 1}, {"children": True}])
def test_a_missing_parent_is_refused_before_anything_is_written(wire: Wire, opts: dict[str, Any]) -> None:
    assert wire.add("K", parent=wire.child_of("nobody"), **opts) == -5
    assert wire.dump() == {}


@pytest.mark.parametrize("opts", [{}, {"delay": 9}, {"priority": 1}, {"children": True}])
def test_a_taken_id_is_answered_and_only_the_counter_moves(wire: Wire, opts: dict[str, Any]) -> None:
    wire.add("X", data='{"first":1}')
    before = wire.dump()
    assert wire.add("X", data='{"second":1}', **opts) == "X"
    before["id"] = "2"
    before["events"].append("duplicated jobId=X")
    assert wire.dump() == before


def test_a_taken_id_is_adopted_by_a_parent_unless_another_living_one_has_it(wire: Wire) -> None:
    for parent in ("P", "Q"):
        wire.add(parent, children=True)
    wire.add("X")
    assert wire.add("X", parent=wire.child_of("P")) == "X"
    assert wire.get("P:dependencies") == [wire.key("X")]
    assert wire.get("X")["parentKey"] == wire.key("P")
    assert wire.add("X", parent=wire.child_of("P")) == "X"
    assert wire.add("X", parent=wire.child_of("Q")) == -7
    assert wire.get("id") == "6"
    wire.client.delete(wire.key("P"))
    assert wire.add("X", parent=wire.child_of("Q")) == "X"
    assert wire.get("Q:dependencies") is None, "a parent that is gone keeps the job, as on the protocol page"


def test_a_completed_job_adopted_by_a_parent_counts_as_processed(wire: Wire) -> None:
    wire.add("X")
    wire.take()
    wire.finish("X", '{"sum":3}')
    wire.add("P", children=True)
    assert wire.add("X", parent=wire.child_of("P")) == "X"
    assert wire.get("P:processed") == {wire.key("X"): '{"sum":3}'}
    assert wire.get("wait") == ["P"]


def test_a_paused_queue_stores_and_pushes_but_wakes_nobody(wire: Wire) -> None:
    wire.pause()
    wire.add()
    wire.add(priority=1)
    assert wire.get("wait") == ["1"]
    assert list(wire.get("prioritized")) == ["2"]
    assert wire.get("marker") is None
    wire.add(delay=5)
    assert wire.get("marker") == {"1": NOW + 5}, "the alarm is set even while paused"


def test_a_full_queue_wakes_nobody_either(wire: Wire) -> None:
    wire.client.hset(wire.key("meta"), "concurrency", 1)
    wire.add()
    wire.take()
    wire.client.delete(wire.key("marker"))
    wire.add()
    assert wire.get("marker") is None
    wire.client.hset(wire.key("meta"), "concurrency", 2)
    wire.add()
    assert wire.get("marker") == {"0": 0}


def test_the_cap_of_the_stream_is_read_from_meta_and_kept(wire: Wire) -> None:
    """Whole nodes of the stream are dropped, so the length may exceed the cap by one node."""
    wire.client.hset(wire.key("meta"), "opts.maxLenEvents", 50)
    for _ in range(300):
        wire.add()
    assert wire.client.xlen(wire.key("events")) < 50 + 100 + 1
    assert wire.get("meta") == {"opts.maxLenEvents": "50"}


def test_an_add_accepts_both_ways_of_packing_numbers_and_maps(wire: Wire) -> None:
    """Python packs whole numbers as such, Node packs large ones as floats and maps as map16."""
    suffixes = "wait paused meta id completed delayed active events marker"
    for moment in (1795981424790, 1795981424790.0):
        row = msgpack.packb([wire.base, "", "pay", moment, None, None, None, None, None])
        opts = b"\xde\x00\x01" + msgpack.packb("attempts") + msgpack.packb(3)
        wire.on("addStandardJob", suffixes, row, "{}", opts, "a fourth argument is ignored")
    first, second = wire.get("1"), wire.get("2")
    assert first == second == job(name="pay", timestamp="1795981424790", opts='{"attempts":3}')


def test_absent_options_vanish_and_empty_lists_become_objects(wire: Wire) -> None:
    wire.add(attempts=3, backoff=None, removeOnComplete=True, tags=[])
    assert as_json(wire.get("1")["opts"]) == {"attempts": 3, "removeOnComplete": True, "tags": {}}


def test_data_passes_as_opaque_text(wire: Wire) -> None:
    """case C109"""
    data = '{"id":9007199254740993,"f":0.1,"s":"\\u0000x","t":"\U0001f4a5 中文","half":"\\ud83d"}'
    wire.add(data=data, attempts=9)
    wire.take()
    wire.retry("1")
    wire.take()
    wire.delay("1", 10)
    wire.now += 10
    wire.take()
    wire.sweep()
    wire.lose_lock("1")
    wire.sweep_again()
    assert wire.get("1")["data"] == data
    wire.upsert_scheduler("s", {"name": "n", "every": 1000}, data=data)
    slot = f"repeat:s:{wire.now}"
    wire.advance_scheduler("s", slot, repeat={"every": 1000, "count": 2})
    assert wire.get(slot)["data"] == wire.get(f"repeat:s:{wire.now + 1000}")["data"] == data
    wire.client.hset(wire.key("P"), "name", "parent")
    wire.client.sadd(wire.key("P:dependencies"), wire.key("K"))
    wire.add("K", data=data, parent=wire.child_of("P"))
    assert wire.get("K")["data"] == data
