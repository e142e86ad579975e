# SPDX-License-Identifier: MIT
"""retryJob, moveToDelayed and moveJobFromActiveToWait: the ways back for a job that has not ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.wire import NOW, Wire, flat

Move = Callable[[Wire, str], Any]

MOVES: list[Any] = [
    pytest.param(lambda wire, job_id: wire.retry(job_id, fields=["failedReason", "x"]), id="retry"),
    pytest.param(lambda wire, job_id: wire.delay(job_id, 5, fields=["failedReason", "x"]), id="delay"),
    pytest.param(lambda wire, job_id: wire.release(job_id), id="release"),
]


@pytest.mark.parametrize("move", MOVES)
def test_unknown_jobs_and_stale_tokens_change_nothing(wire: Wire, move: Move) -> None:
    """law 5"""
    assert move(wire, "nobody") == -1
    assert wire.dump() == {}
    wire.add()
    wire.take()
    before = wire.dump()
    wire.token = "stale:1"
    assert move(wire, "1") == -6
    assert wire.dump() == before
    wire.lose_lock("1")
    assert move(wire, "1") == -2
    del before["1:lock"]
    assert wire.dump() == before


@pytest.mark.parametrize("move", MOVES[:2])
def test_a_job_that_left_active_is_refused_with_its_lock_gone_and_its_fields_written(
    wire: Wire, move: Move
) -> None:
    wire.add()
    wire.take()
    wire.client.delete(wire.key("active"))
    before = wire.dump()
    assert move(wire, "1") == -3
    del before["1:lock"]
    before["1"]["failedReason"] = "x"
    assert wire.dump() == before


@pytest.mark.parametrize("move", MOVES)
def test_every_way_back_clears_the_stalled_mark(wire: Wire, move: Move) -> None:
    wire.add()
    wire.take()
    wire.sweep()
    move(wire, "1")
    assert wire.get("stalled") is None
    assert wire.get("active") is None
    assert wire.get("1:lock") is None


# --- retry -------------------------------------------------------------------------------------------


def test_a_retry_goes_to_the_back_counts_and_says_so(wire: Wire) -> None:
    """promise 4.20"""
    wire.add(attempts=3)
    wire.add()
    wire.take()
    wire.client.delete(wire.key("marker"))
    wire.events()
    assert wire.retry("1", fields=["failedReason", "boom", "stacktrace", "[]"]) == 0
    assert wire.get("wait") == ["1", "2"]
    stored = wire.get("1")
    assert (stored["atm"], stored["ats"], stored["failedReason"]) == ("1", "1", "boom")
    assert wire.get("marker") == {"0": 0}
    assert wire.events() == ["waiting jobId=1 prev=active"]


def test_a_lifo_retry_is_next_in_line(wire: Wire) -> None:
    wire.add()
    wire.add()
    wire.take()
    wire.retry("1", push="RPUSH")
    assert wire.get("wait") == ["2", "1"]


def test_a_prioritized_retry_queues_behind_its_equals(wire: Wire) -> None:
    wire.add(priority=2)
    wire.add(priority=2)
    wire.take()
    wire.retry("1")
    assert wire.get("prioritized") == {"2": 2 * 2**32 + 2, "1": 2 * 2**32 + 3}


def test_a_retry_promotes_what_is_due_even_when_it_is_refused(wire: Wire) -> None:
    wire.add(delay=1)
    wire.now += 1
    assert wire.retry("nobody") == -1
    assert wire.get("wait") == ["1"]


@pytest.mark.parametrize("blocked", [{"paused": 1}, {"concurrency": 1}])
def test_blocked_is_judged_after_the_job_has_left_active(wire: Wire, blocked: dict[str, int]) -> None:
    wire.add()
    wire.take()
    wire.client.hset(wire.key("meta"), mapping=blocked)
    wire.client.delete(wire.key("marker"))
    wire.retry("1")
    assert wire.get("wait") == ["1"]
    assert wire.get("marker") == (None if "paused" in blocked else {"0": 0})


# --- delay -------------------------------------------------------------------------------------------


def test_a_delay_files_by_the_moment_counts_and_sets_the_alarm(wire: Wire) -> None:
    """promise 4.20"""
    wire.add()
    wire.take()
    wire.events()
    wire.now += 3
    assert wire.delay("1", 500, fields=["failedReason", "boom"]) == 0
    due = NOW + 503
    stored = wire.get("1")
    assert (stored["delay"], stored["atm"], stored["failedReason"]) == ("500", "1", "boom")
    assert wire.get("delayed") == {"1": due * 4096}
    assert wire.get("marker") == {"0": 0, "1": due}
    assert wire.events() == [f"delayed jobId=1 delay={due}"]


def test_a_delay_that_is_no_attempt_counts_none(wire: Wire) -> None:
    wire.add()
    wire.take()
    wire.delay("1", 5, skip=True)
    assert "atm" not in wire.get("1")


def test_a_delay_brings_the_next_job_but_no_other_answer(wire: Wire) -> None:
    wire.add()
    wire.add()
    wire.take()
    hash_, job_id, *_ = wire.delay("1", 60_000, fetch=True)
    assert job_id == "2"
    assert flat(hash_) == wire.get("2")
    assert wire.get("2:lock") == "w:0"
    assert wire.get("marker") == {"0": 0}, "with a job at hand the alarm is left to the next take"
    assert wire.delay("2", 60_000, fetch=True) == 0, "the next due moment is dropped here"
    assert wire.get("marker")["1"] == NOW + 60_000


def test_a_job_delayed_by_nothing_may_come_straight_back(wire: Wire) -> None:
    wire.add()
    wire.take()
    hash_, job_id, *_ = wire.delay("1", 0, fetch=True)
    assert job_id == "1"
    assert flat(hash_)["ats"] == "2"


# --- release -----------------------------------------------------------------------------------------


def test_a_release_goes_to_the_front_and_costs_no_attempt(wire: Wire) -> None:
    """promise 4.20"""
    wire.add()
    wire.add()
    wire.take()
    wire.client.delete(wire.key("marker"))
    wire.events()
    assert wire.release("1") == 0
    assert wire.get("wait") == ["2", "1"]
    assert wire.get("marker") == {"0": 0}
    assert "atm" not in wire.get("1")
    assert wire.events() == ["waiting jobId=1 prev=active"]


def test_a_prioritized_release_is_the_first_of_its_priority_and_sets_no_marker(wire: Wire) -> None:
    wire.add(priority=2)
    wire.add(priority=2)
    wire.take()
    wire.client.delete(wire.key("marker"))
    wire.release("1")
    assert wire.get("prioritized") == {"1": 2 * 2**32, "2": 2 * 2**32 + 2}
    assert wire.get("marker") is None


def test_a_release_answers_how_long_the_rate_limit_lasts(wire: Wire) -> None:
    wire.add()
    wire.take()
    wire.client.set(wire.key("limiter"), 9007199254740991, px=60_000)
    assert 59_000 < wire.release("1") <= 60_000


def test_a_release_of_a_job_that_left_active_only_unlocks(wire: Wire) -> None:
    wire.add()
    wire.take()
    wire.client.delete(wire.key("active"))
    wire.events()
    assert wire.release("1") == 0
    assert wire.get("wait") is None
    assert wire.events() == []
    assert wire.get("1:lock") is None


def test_attempts_started_count_takes_and_attempts_made_count_ends(wire: Wire) -> None:
    wire.add()
    wire.take()
    wire.release("1")
    wire.take()
    wire.delay("1", 0, skip=True)
    wire.take()
    wire.retry("1")
    wire.take()
    wire.finish("1")
    assert (wire.get("1")["ats"], wire.get("1")["atm"]) == ("4", "2")
