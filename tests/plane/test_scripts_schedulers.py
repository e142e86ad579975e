# SPDX-License-Identifier: MIT
"""addJobScheduler, updateJobScheduler, getJobScheduler, removeJobScheduler."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.wire import Wire, as_json, flat

START = 1_795_981_424_818  # ms
EVERY = {"name": "tick", "every": 10_000}


@pytest.fixture
def series(wire: Wire) -> Wire:
    """A queue at `START`, where a period of ten seconds has the phase 4818."""
    wire.now = START
    return wire


def slot(moment: int, scheduler: str = "s") -> str:
    return f"repeat:{scheduler}:{moment}"


def remove(wire: Wire, scheduler: str = "s") -> Any:
    return wire.on("removeJobScheduler", "repeat delayed events", scheduler, wire.base)


def read(wire: Wire, scheduler: str = "s") -> Any:
    return wire.on("getJobScheduler", "repeat", scheduler)


def test_the_first_run_is_now_and_fixes_the_phase(series: Wire) -> None:
    """promise 4.16: every key of a new series."""
    template = {"attempts": 2, "backoff": {"type": "fixed", "delay": 1}}
    answer = series.upsert_scheduler("s", EVERY, data='{"a":1}', template=template)
    assert answer == [slot(START), 0]
    dump = series.dump()
    record = dump.pop("repeat:s")
    assert as_json(record.pop("opts")) == template
    assert record == {"name": "tick", "every": "10000", "offset": "4818", "data": '{"a":1}', "ic": "1"}
    job = dump.pop(slot(START))
    assert as_json(job.pop("opts")) == {
        **template,
        "delay": 0,
        "timestamp": START,
        "repeatJobKey": "s",
        "jobId": slot(START),
        "repeat": {"every": 10_000, "count": 1},
    }
    assert job == {
        "name": "tick",
        "data": '{"a":1}',
        "timestamp": str(START),
        "delay": "0",
        "priority": "0",
        "rjk": "s",
    }
    assert dump == {
        "id": "1",
        "meta": {"opts.maxLenEvents": "10000"},
        "repeat": {"s": START},
        "wait": [slot(START)],
        "marker": {"0": 0},
        "events": [f"added jobId={slot(START)} name=tick", f"waiting jobId={slot(START)}"],
    }


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        ({"offset": 2_500}, 1_795_981_432_500),
        ({"offset": 9_000}, 1_795_981_429_000),
        ({"startDate": START + 77_000}, START + 77_000),
        ({"startDate": START - 77_000}, START),
    ],
)
def test_offset_and_start_date_move_the_first_run(series: Wire, rule: dict[str, int], first: int) -> None:
    """promise 4.16"""
    assert series.upsert_scheduler("s", {**EVERY, **rule}) == [slot(first), first - START]
    assert series.get("repeat") == {"s": first}
    state = "wait" if first == START else "delayed"
    assert slot(first) in series.get(state)


def test_the_taker_of_the_current_run_makes_the_next(series: Wire) -> None:
    """promise 4.16: missed periods are skipped on the grid; only the current run may advance the series."""
    series.upsert_scheduler("s", EVERY, data='{"a":1}')
    first = slot(START)
    assert series.advance_scheduler("s", first, repeat={"every": 10_000, "count": 2}) == slot(START + 10_000)
    assert series.get("repeat:s")["ic"] == "2"
    assert series.get("id") == "2"
    made = series.get(slot(START + 10_000))
    assert (made["name"], made["data"], made["delay"], made["rjk"]) == ("tick", '{"a":1}', "10000", "s")
    assert as_json(made["opts"])["repeat"]["count"] == 2
    before = series.dump()
    assert series.advance_scheduler("s", first) is None, "a retried run does not advance"
    assert series.dump() == before
    series.now = START + 57_000
    assert series.advance_scheduler("s", slot(START + 10_000)) == slot(START + 60_000)
    assert series.advance_scheduler("nobody", first) is None


def test_a_next_run_that_exists_is_told_and_the_series_stops_there(series: Wire) -> None:
    series.upsert_scheduler("s", EVERY)
    series.client.hset(series.key(slot(START + 10_000)), "name", "in the way")
    series.events()
    assert series.advance_scheduler("s", slot(START)) is None
    assert series.events() == [f"duplicated jobId={slot(START + 10_000)}"]
    assert series.get("repeat") == {"s": START}


def test_a_pattern_takes_the_moment_it_is_given(series: Wire) -> None:
    """promise 4.17: the client computes, the script files."""
    rule = {"name": "cron", "pattern": "0 * * * *", "tz": "Europe/Berlin", "limit": 9, "endDate": START * 2}
    first, second = START + 500, START + 900
    assert series.upsert_scheduler("s", rule, at=first) == [slot(first), 500]
    record = series.get("repeat:s")
    assert record == {
        "name": "cron",
        "pattern": "0 * * * *",
        "tz": "Europe/Berlin",
        "limit": "9",
        "endDate": str(START * 2),
        "offset": "0",
        "ic": "1",
    }
    assert series.advance_scheduler("s", slot(first), at=second) == slot(second)
    assert series.get("repeat") == {"s": second}


def test_an_upsert_replaces_the_pending_run_in_its_slot(series: Wire) -> None:
    """case C098: no half-written hash stays behind."""
    series.upsert_scheduler("s", EVERY)
    series.take()
    series.advance_scheduler("s", slot(START))
    series.now += 3
    answer = series.upsert_scheduler("s", EVERY, data='{"new":1}', template={"priority": 2}, priority=2)
    assert answer == [slot(START + 10_000), 9_997]
    assert series.get(slot(START + 10_000))["data"] == '{"new":1}'
    assert series.get("repeat:s")["ic"] == "2"
    assert series.get("repeat:s")["offset"] == "4818"
    assert series.get("active") == [slot(START)], "the running one is untouched"
    jobs = [key for key in series.dump() if key.startswith("repeat:s:") and not key.endswith(":lock")]
    assert all("name" in series.get(key) for key in jobs)
    assert not any(event.startswith("removed") for event in series.events())


@pytest.mark.parametrize("where", ["wait", "prioritized"])
def test_a_run_that_waits_is_replaced_too(series: Wire, where: str) -> None:
    opts = {"priority": 5} if where == "prioritized" else {}
    for data in ('"old"', '"new"'):
        assert series.upsert_scheduler("s", EVERY, data=data, **opts) == [slot(START), 0]
    assert list(series.get(where)) == [slot(START)]
    assert series.get(slot(START))["data"] == '"new"'


def test_a_replaced_run_takes_its_deduplication_id_along(series: Wire) -> None:
    series.upsert_scheduler("s", EVERY, de={"id": "D"})
    series.client.set(series.key("de:D"), slot(START))
    series.upsert_scheduler("s", EVERY)
    assert series.get("de:D") is None


def test_a_changed_period_starts_anew(series: Wire) -> None:
    series.upsert_scheduler("s", EVERY)
    series.take()
    series.advance_scheduler("s", slot(START))
    series.now += 1_000
    answer = series.upsert_scheduler("s", {"name": "tick", "every": 3_000})
    assert answer == [slot(START + 1_000), 0]
    assert series.get("repeat") == {"s": START + 1_000}
    assert series.get(slot(START + 10_000)) is None
    assert series.get("repeat:s")["offset"] == "4818", "a replaced run leaves the old offset"


def test_occupied_slots_are_passed_over_for_thirty_two_steps(series: Wire) -> None:
    for n in range(32):
        series.client.hset(series.key(slot(START + n * 10_000)), "name", "finished long ago")
    last = START + 32 * 10_000
    assert series.upsert_scheduler("s", EVERY) == [slot(last), 320_000]
    remove(series)
    series.client.hset(series.key(slot(last)), "name", "one more")
    assert series.upsert_scheduler("s", EVERY) == -11
    assert series.get("repeat") is None


def test_an_occupied_moment_of_a_pattern_is_refused(series: Wire) -> None:
    series.client.hset(series.key(slot(START)), "name", "finished long ago")
    assert series.upsert_scheduler("s", {"name": "cron", "pattern": "x"}, at=START) == -10
    assert series.get("repeat") is None


def test_the_paused_quirk_leaves_the_old_run_and_moves_on(series: Wire) -> None:
    series.pause()
    series.upsert_scheduler("s", EVERY)
    series.now += 1
    assert series.upsert_scheduler("s", EVERY) == [slot(START + 10_000), 9_999]
    assert series.get("wait") == [slot(START)]


def test_a_scheduler_is_read_with_its_next_moment(series: Wire) -> None:
    assert read(series) == []
    series.upsert_scheduler("s", EVERY)
    record, score = read(series)
    assert flat(record) == series.get("repeat:s")
    assert score == str(START)


def test_removing_takes_the_delayed_run_along_and_leaves_the_others(series: Wire) -> None:
    """promise 4.20"""
    assert remove(series) == 1
    series.upsert_scheduler("s", EVERY)
    series.take()
    following = series.advance_scheduler("s", slot(START))
    series.events()
    assert remove(series) == 0
    assert series.events() == [f"removed jobId={following} prev=delayed"]
    left = set(series.dump())
    assert left == {"id", "meta", "marker", "active", slot(START), f"{slot(START)}:lock"}
    assert series.advance_scheduler("s", slot(START)) is None


def test_a_run_in_wait_outlives_its_scheduler(series: Wire) -> None:
    series.upsert_scheduler("s", EVERY)
    assert remove(series) == 0
    assert series.get("wait") == [slot(START)]
    assert series.take()[1] == slot(START)


def test_a_delayed_run_is_promoted_and_runs_by_its_priority(series: Wire) -> None:
    series.upsert_scheduler("s", {**EVERY, "startDate": START + 100}, priority=3)
    series.now += 100
    assert series.take()[1] == slot(START + 100)
