# SPDX-License-Identifier: MIT
"""moveToFinished: keys before and after, codes, retention, metrics, drained, and the next job."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support.wire import NOW, Wire, flat


def test_a_finish_unlocks_files_and_announces(wire: Wire) -> None:
    """promise 0.13, 4.20: the trace of a plain job; drained is told when nothing is left at all."""
    wire.add()
    wire.take(name="wk")
    wire.now += 7
    assert wire.finish("1", '{"ok":true}', fetch=True) == 0
    assert wire.dump() == {
        "id": "1",
        "meta": {"opts.maxLenEvents": "10000"},
        "1": {
            "name": "job",
            "data": "{}",
            "opts": "{}",
            "timestamp": str(NOW),
            "delay": "0",
            "priority": "0",
            "processedOn": str(NOW),
            "pb": "wk",
            "ats": "1",
            "atm": "1",
            "returnvalue": '{"ok":true}',
            "finishedOn": str(NOW + 7),
        },
        "completed": {"1": NOW + 7},
        "marker": {"0": 0},
        "events": [
            "added jobId=1 name=job",
            "waiting jobId=1",
            "active jobId=1 prev=waiting",
            'completed jobId=1 returnvalue={"ok":true} prev=active',
            "drained",
        ],
    }


def test_a_failure_writes_its_fields_and_clears_the_deferred_failure(wire: Wire) -> None:
    wire.add(attempts=2)
    wire.take()
    wire.client.hset(wire.key("1"), "defa", "job stalled more than allowable limit")
    wire.events()
    fields = ["failedReason", "boom", "stacktrace", '["a","b"]']
    assert wire.finish("1", "boom", failed=True, fields=fields, attempts=2) == 0
    stored = wire.get("1")
    assert (stored["failedReason"], stored["stacktrace"], stored["atm"]) == ("boom", '["a","b"]', "1")
    assert "defa" not in stored
    assert wire.get("failed") == {"1": NOW}
    assert wire.events() == ["failed jobId=1 failedReason=boom prev=active", "drained"]


def test_the_last_attempt_says_so_after_failed(wire: Wire) -> None:
    wire.add(attempts=2)
    wire.take()
    wire.retry("1")
    wire.take()
    wire.events()
    wire.finish("1", "boom", failed=True, attempts=2)
    assert wire.events()[:2] == [
        "failed jobId=1 failedReason=boom prev=active",
        "retries-exhausted jobId=1 attemptsMade=2",
    ]


def test_the_next_job_comes_with_the_answer_under_the_same_token(wire: Wire) -> None:
    wire.add()
    wire.add(data='{"n":2}')
    wire.take()
    wire.events()
    hash_, job_id, *_ = wire.finish("1", fetch=True, token="w:0", name="wk")
    assert job_id == "2"
    assert flat(hash_) == wire.get("2")
    assert wire.get("2:lock") == "w:0"
    assert wire.get("1:lock") is None
    assert wire.events() == [
        "completed jobId=1 returnvalue=null prev=active",
        "active jobId=2 prev=waiting",
    ]


@pytest.mark.parametrize("failed", [False, True])
def test_a_finish_without_fetch_leaves_the_next_job_waiting(wire: Wire, failed: bool) -> None:
    wire.add()
    wire.add()
    wire.take()
    assert wire.finish("1", failed=failed) == 0
    assert wire.get("wait") == ["2"]
    assert "drained" not in wire.events()


# --- refusals --------------------------------------------------------------------------------------


def test_an_unknown_job_is_refused(wire: Wire) -> None:
    assert wire.finish("nobody") == -1
    assert wire.dump() == {}


@pytest.mark.parametrize("failed", [False, True])
def test_a_stale_token_changes_nothing(wire: Wire, failed: bool) -> None:
    """law 5"""
    wire.add()
    wire.take()
    before = wire.dump()
    wire.token = "stale:0"
    assert wire.finish("1", "x", failed=failed, fields=["failedReason", "x"]) == -6
    assert wire.dump() == before
    wire.lose_lock("1")
    assert wire.finish("1", "x", failed=failed) == -2
    del before["1:lock"]
    assert wire.dump() == before


def test_a_job_that_left_active_is_refused_with_its_lock_gone_and_its_fields_written(wire: Wire) -> None:
    wire.add()
    wire.take()
    wire.client.sadd(wire.key("stalled"), "1")
    wire.client.delete(wire.key("active"))
    before = wire.dump()
    assert wire.finish("1", "x", failed=True, fields=["failedReason", "x"]) == -3
    del before["1:lock"], before["stalled"]
    before["1"]["failedReason"] = "x"
    assert wire.dump() == before


def test_pending_and_failed_children_refuse_a_completion_and_the_lock_stays(wire: Wire) -> None:
    wire.add("P")
    wire.take()
    wire.client.sadd(wire.key("P:dependencies"), "child")
    wire.client.zadd(wire.key("P:unsuccessful"), {"other": 1})
    before = wire.dump()
    assert wire.finish("P") == -4
    wire.client.delete(wire.key("P:dependencies"))
    assert wire.finish("P") == -9
    del before["P:dependencies"]
    assert wire.dump() == before
    assert wire.finish("P", "why", failed=True) == 0


def test_a_finish_clears_the_stalled_mark(wire: Wire) -> None:
    wire.add()
    wire.take()
    wire.sweep()
    assert wire.get("stalled") == ["1"]
    wire.finish("1")
    assert wire.get("stalled") is None


@pytest.mark.parametrize("keep", [{"count": 0}, {"count": -1}])
def test_a_finish_without_a_token_leaves_anothers_lock_alone(wire: Wire, keep: dict[str, int]) -> None:
    wire.add()
    wire.take()
    wire.token = "0"
    assert wire.finish("1", keep=keep) == 0
    assert wire.get("1:lock") == "w:0"


def test_a_failure_without_a_number_of_attempts_is_a_mistake_of_the_caller(wire: Wire) -> None:
    wire.add()
    wire.take()
    with pytest.raises(redis.ResponseError):
        wire.finish("1", "x", failed=True, attempts=None)


# --- retention --------------------------------------------------------------------------------------


def finish_all(wire: Wire, count: int, prefix: str = "j", **opts: Any) -> None:
    for n in range(1, count + 1):
        wire.add(f"{prefix}{n}")
        wire.take()
        wire.now += 1
        assert wire.finish(f"{prefix}{n}", **opts) == 0


def test_a_job_that_is_not_to_be_kept_leaves_no_key(wire: Wire) -> None:
    wire.add()
    wire.take()
    for suffix in ("logs", "processed", "failed"):
        wire.client.set(wire.key(f"1:{suffix}"), "x")
    wire.finish("1", "x", failed=True, keep={"count": 0})
    assert set(wire.dump()) == {"id", "meta", "marker", "events"}
    assert wire.events()[-3:] == [
        "failed jobId=1 failedReason=x prev=active",
        "retries-exhausted jobId=1 attemptsMade=1",
        "drained",
    ]


@pytest.mark.parametrize("failed", [False, True])
def test_only_the_newest_are_kept(wire: Wire, failed: bool) -> None:
    finish_all(wire, 4, keep={"count": 2}, failed=failed)
    assert list(wire.get("failed" if failed else "completed")) == ["j3", "j4"]
    assert wire.get("j1") is None
    assert wire.get("j2") is None
    assert wire.get("j3") is not None


def test_age_evicts_what_is_old_and_age_zero_the_job_itself(wire: Wire) -> None:
    finish_all(wire, 3, keep={"count": -1})
    wire.now += 10_000
    finish_all(wire, 1, "new", keep={"age": 5})
    assert list(wire.get("completed")) == ["new1"]
    wire.add("self")
    wire.take()
    wire.finish("self", keep={"age": 0})
    assert wire.get("completed") is None
    assert wire.get("self") is None


def test_age_evicts_at_most_its_limit_and_the_newest_of_the_old_first(wire: Wire) -> None:
    finish_all(wire, 5, keep={"count": -1})
    wire.now += 60_000
    wire.add("x")
    wire.take()
    wire.finish("x", keep={"age": 1, "limit": 2})
    assert list(wire.get("completed")) == ["j1", "j2", "j3", "x"]
    assert wire.get("j4") is None


def test_an_evicted_child_leaves_its_parent(wire: Wire) -> None:
    wire.add("P", children=True, priority=4)
    wire.add("k", parent=wire.child_of("P"))
    wire.take()
    wire.finish("k", "boom", failed=True, keep={"count": 1})
    assert wire.get("waiting-children") == {"P": NOW}
    wire.now += 1
    wire.add("other")
    wire.take()
    wire.events()
    wire.finish("other", "boom", failed=True, keep={"count": 1})
    assert wire.get("P:dependencies") is None
    assert wire.get("wait") == ["P"], "detaching ignores the parent's priority"
    assert wire.events()[0] == "waiting jobId=P prev=waiting-children"


def test_thousands_are_evicted_in_one_call(wire: Wire) -> None:
    """case C136"""
    old = {f"o{n}": n for n in range(20_000)}
    wire.client.zadd(wire.key("completed"), old)
    wire.add()
    wire.take()
    assert wire.finish("1", keep={"age": 1, "limit": 9_000}) == 0
    assert wire.client.zcard(wire.key("completed")) == 11_001
    wire.add()
    wire.take()
    assert wire.finish("2", keep={"count": 1}) == 0
    assert list(wire.get("completed")) == ["2"]


# --- metrics ----------------------------------------------------------------------------------------


def test_metrics_are_off_by_an_empty_text(wire: Wire) -> None:
    finish_all(wire, 1, maxMetricsSize="")
    assert wire.get("metrics:completed") is None


def test_metrics_close_a_point_per_minute_newest_first(wire: Wire) -> None:
    """The job that closes a point belongs to the next one; minutes without jobs are zeros."""
    wire.now = NOW // 60_000 * 60_000
    finish_all(wire, 3, maxMetricsSize=10)
    start = wire.now - 2
    assert wire.get("metrics:completed") == {"count": "3", "prevTS": str(start), "prevCount": "0"}
    assert wire.get("metrics:completed:data") is None
    wire.now += 3 * 60_000
    finish_all(wire, 1, "k", maxMetricsSize=10)
    assert wire.get("metrics:completed") == {"count": "4", "prevTS": str(wire.now), "prevCount": "3"}
    assert wire.get("metrics:completed:data") == ["0", "0", "3"]
    wire.now += 100 * 60_000
    finish_all(wire, 1, "l", maxMetricsSize=4)
    assert wire.get("metrics:completed:data") == ["0", "0", "0", "1"]


# --- drained and the other answers of a fetch ---------------------------------------------------------


def last_event(wire: Wire) -> str:
    return wire.events()[-1].split()[0]


def test_drained_waits_for_the_last_active_job(wire: Wire) -> None:
    wire.add()
    wire.add()
    wire.take()
    wire.take()
    wire.finish("1", fetch=True)
    assert last_event(wire) == "completed"
    wire.finish("2", fetch=True)
    assert last_event(wire) == "drained"


def test_a_delayed_job_keeps_a_fetch_from_saying_drained_but_not_a_plain_finish(wire: Wire) -> None:
    for fetch, last in ((True, "completed"), (False, "drained")):
        wire.add(f"now{fetch}")
        wire.add(f"later{fetch}", delay=60_000)
        wire.take()
        answer = wire.finish(f"now{fetch}", fetch=fetch)
        assert answer == ([0, 0, 0, NOW + 60_000] if fetch else 0)
        assert last_event(wire) == last


def test_a_paused_full_or_limited_queue_answers_and_is_not_drained(wire: Wire) -> None:
    wire.add()
    wire.take()
    wire.pause()
    assert wire.finish("1", fetch=True) == [0, 0, 0, 0]
    assert last_event(wire) == "completed"
    wire.resume()
    wire.add()
    wire.take()
    wire.client.set(wire.key("limiter"), 5, px=60_000)
    assert wire.finish("2", fetch=True, limiter={"max": 5, "duration": 1})[2] > 50_000
    assert last_event(wire) == "completed"


def test_a_finish_frees_the_slot_of_a_full_queue_for_its_own_fetch(wire: Wire) -> None:
    wire.client.hset(wire.key("meta"), "concurrency", 1)
    wire.add()
    wire.add()
    wire.take()
    assert wire.take() == [0, 0, 0, 0]
    assert wire.finish("1", fetch=True)[1] == "2"


def test_a_fetch_promotes_what_is_due(wire: Wire) -> None:
    wire.add()
    wire.take()
    wire.add(delay=5)
    wire.now += 5
    assert wire.finish("1", fetch=True)[1] == "2"


def test_the_stream_is_trimmed_before_the_event_so_that_it_survives(wire: Wire) -> None:
    wire.client.hset(wire.key("meta"), "opts.maxLenEvents", 0)
    wire.add()
    wire.take()
    wire.finish("1")
    assert wire.events()[-2:] == ["completed jobId=1 returnvalue=null prev=active", "drained"]
