# SPDX-License-Identifier: MIT
"""pause, progress, logs, data, stacktraces, and the scripts that only read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.wire import NOW, Wire

STATES = "completed failed delayed active wait paused waiting-children prioritized"


def state(wire: Wire, job_id: str) -> Any:
    return wire.on("getStateV2", STATES, job_id)


def is_finished(wire: Wire, job_id: str, value: str = "") -> Any:
    return wire.on("isFinished", f"completed failed {job_id}", job_id, value)


def counts(wire: Wire, *states: str) -> Any:
    return wire.run("getCounts", [wire.base], list(states))


# --- pause -------------------------------------------------------------------------------------------


def test_a_pause_is_a_field_an_event_and_no_marker(wire: Wire) -> None:
    """promise 4.20"""
    wire.add()
    assert wire.pause() == 0
    assert wire.get("meta")["paused"] == "1"
    assert wire.get("marker") is None
    assert wire.get("wait") == ["1"]
    assert wire.events()[-1] == "paused"


def test_resuming_wakes_for_what_waits_or_sets_the_alarm(wire: Wire) -> None:
    wire.add(delay=500)
    wire.pause()
    assert wire.resume() == 0
    assert "paused" not in wire.get("meta")
    assert wire.get("marker") == {"1": NOW + 500}
    assert wire.events()[-1] == "resumed"
    wire.pause()
    wire.add(priority=1)
    wire.resume()
    assert wire.get("marker") == {"0": 0}


def test_what_an_older_version_parked_is_merged_in_slices(wire: Wire) -> None:
    ids = [f"j{n}" for n in range(7_500)]
    wire.client.rpush(wire.key("paused"), *ids)
    wire.client.rpush(wire.key("wait"), "w")
    assert wire.resume() == 500
    assert wire.get("wait") == ["w", *ids[:7_000]]
    wire.events()
    swapped = "paused wait meta prioritized events delayed marker"
    assert wire.on("pause", swapped, "resumed", "0") == 0
    assert wire.get("wait") == ["w", *ids]
    assert wire.get("paused") is None
    assert wire.events() == []


def test_a_parked_list_alone_becomes_the_waiting_list(wire: Wire) -> None:
    wire.client.rpush(wire.key("paused"), "a", "b")
    assert wire.resume() == 0
    assert wire.get("wait") == ["a", "b"]
    assert wire.get("marker") == {"0": 0}


# --- writing to a job ----------------------------------------------------------------------------------


def test_progress_is_stored_and_told(wire: Wire) -> None:
    """promise 4.20"""
    assert wire.on("updateProgress", "1 events meta", "1", "50") == -1
    assert wire.dump() == {}
    wire.add()
    assert wire.on("updateProgress", "1 events meta", "1", '{"at":50}') == 0
    assert wire.get("1")["progress"] == '{"at":50}'
    assert wire.events()[-1] == 'progress jobId=1 data={"at":50}'


def test_logs_keep_the_newest_rows(wire: Wire) -> None:
    assert wire.on("addLog", "1 1:logs", "1", "row", "") == -1
    assert wire.dump() == {}
    wire.add()
    assert [wire.on("addLog", "1 1:logs", "1", f"row {n}", "") for n in range(3)] == [1, 2, 3]
    assert wire.on("addLog", "1 1:logs", "1", "row 3", 2) == 2
    assert wire.get("1:logs") == ["row 2", "row 3"]
    assert wire.on("addLog", "1 1:logs", "1", "row 4", 50) == 3


@pytest.mark.parametrize(
    ("script", "args", "fields"),
    [
        ("updateData", ['{"n":1}'], {"data": '{"n":1}'}),
        ("saveStacktrace", ['["a"]', "boom"], {"stacktrace": '["a"]', "failedReason": "boom"}),
    ],
)
def test_data_and_stacktrace_are_written_to_existing_jobs_only(
    wire: Wire, script: str, args: list[str], fields: dict[str, str]
) -> None:
    assert wire.on(script, "1", *args) == -1
    assert wire.dump() == {}
    wire.add()
    before = wire.dump()
    assert wire.on(script, "1", *args) == 0
    before["1"].update(fields)
    assert wire.dump() == before, "and nothing is told"


# --- reading --------------------------------------------------------------------------------------------


def test_the_state_is_where_the_id_sits(wire: Wire) -> None:
    wire.add("j-active")
    wire.take()
    wire.add("j-completed")
    wire.take()
    wire.finish("j-completed")
    wire.add("j-failed")
    wire.take()
    wire.finish("j-failed", failed=True)
    wire.add("j-waiting")
    wire.add("j-delayed", delay=5)
    wire.add("j-prioritized", priority=5)
    wire.add("j-waiting-children", children=True)
    for place in ("active", "completed", "failed", "waiting", "delayed", "prioritized", "waiting-children"):
        assert state(wire, f"j-{place}") == place
    wire.client.lpush(wire.key("paused"), "parked")
    assert state(wire, "parked") == "waiting"
    assert state(wire, "nobody") == "unknown"


def test_a_finished_job_tells_how_and_with_what(wire: Wire) -> None:
    assert is_finished(wire, "1") == -1
    code, sentence = is_finished(wire, "1", "1")
    assert code == -1
    assert wire.key("1") in sentence
    wire.add()
    assert is_finished(wire, "1") == 0
    assert is_finished(wire, "1", "1") == [0]
    wire.take()
    wire.finish("1", '{"sum":3}')
    assert is_finished(wire, "1") == 1
    assert is_finished(wire, "1", "1") == [1, '{"sum":3}']
    wire.add()
    wire.take()
    wire.finish("2", "boom", failed=True)
    assert is_finished(wire, "2") == 2
    assert is_finished(wire, "2", "1") == [2, "boom"]


def test_counts_come_in_the_order_asked(wire: Wire) -> None:
    for _ in range(3):
        wire.add()
    wire.take()
    wire.add(delay=5)
    wire.add(priority=5)
    asked = ("delayed", "wait", "active", "prioritized", "paused", "completed")
    assert counts(wire, *asked) == [1, 2, 1, 1, 0, 0]


def test_an_ancient_marker_is_not_counted(wire: Wire) -> None:
    wire.client.rpush(wire.key("wait"), "0:1")
    assert counts(wire, "wait") == [0]
    assert wire.get("wait") == ["0:1"], "alone it stays"
    wire.client.lpush(wire.key("wait"), "a")
    assert counts(wire, "wait") == [1]
    assert wire.get("wait") == ["a"]
