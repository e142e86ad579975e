# SPDX-License-Identifier: MIT
"""moveToActive: what is taken, in which order, and what stops a take."""

from __future__ import annotations

import pytest
import redis

from tests.support.wire import NOW, Wire, flat

NOTHING = [0, 0, 0, 0]


def test_a_take_moves_locks_counts_and_answers_the_job_as_it_is_now_stored(wire: Wire) -> None:
    """promise 0.1, 0.2, 0.4, 0.13"""
    wire.add(data='{"a":1}', attempts=3)
    wire.events()
    hash_, job_id, limit, delay = wire.take(name="wk")
    assert (job_id, limit, delay) == ("1", 0, 0)
    dump = wire.dump()
    assert flat(hash_) == dump["1"]
    assert dump == {
        "id": "1",
        "meta": {"opts.maxLenEvents": "10000"},
        "1": {
            "name": "job",
            "data": '{"a":1}',
            "opts": '{"attempts":3}',
            "timestamp": str(NOW),
            "delay": "0",
            "priority": "0",
            "processedOn": str(NOW),
            "ats": "1",
            "pb": "wk",
        },
        "1:lock": "w:0",
        "active": ["1"],
        "marker": {"0": 0},
        "events": ["active jobId=1 prev=waiting"],
    }
    assert 29_000 < wire.client.pttl(wire.key("1:lock")) <= 30_000


def test_the_lock_lies_beside_the_job_under_the_key_all_clients_know(wire: Wire) -> None:
    """promise 0.2, 0.3, 0.5"""
    wire.add("an-id")
    wire.take()
    assert wire.client.get(f"{wire.base}an-id:lock") == b"w:0"
    assert wire.base.startswith("emq:{q")


def test_later_takes_answer_the_fields_of_the_newest_take(wire: Wire) -> None:
    wire.add()
    for n, name in ((1, None), (2, "first"), (3, "second"), (4, None)):
        wire.now += 5
        hash_, *_ = wire.take(name=name)
        stored = wire.get("1")
        assert flat(hash_) == stored
        assert len(hash_) == 2 * len(stored), "no field comes twice"
        assert stored["ats"] == str(n)
        assert stored["processedOn"] == str(wire.now)
        wire.release("1")
    assert wire.get("1")["pb"] == "second", "a worker without a name leaves the last one"


def test_wait_runs_from_the_right_and_before_all_priorities(wire: Wire) -> None:
    wire.add("high", priority=1)
    wire.add("low", priority=2)
    wire.add("plain")
    wire.add("plain2")
    assert [wire.take()[1] for _ in range(4)] == ["plain", "plain2", "high", "low"]
    assert wire.get("active") == ["low", "high", "plain2", "plain"]


def test_every_take_wakes_the_next_sleeper(wire: Wire) -> None:
    wire.add()
    wire.client.delete(wire.key("marker"))
    wire.take()
    assert wire.get("marker") == {"0": 0}


def test_an_empty_queue_answers_zeros_and_forgets_the_priority_counter(wire: Wire) -> None:
    wire.add(priority=1)
    wire.take()
    assert wire.get("pc") == "1"
    wire.client.delete(wire.key("marker"))
    assert wire.take() == NOTHING
    assert wire.get("pc") is None
    assert wire.get("marker") is None, "a take that finds nothing leaves the marker alone"


def test_the_next_due_moment_is_answered_in_absolute_time(wire: Wire) -> None:
    wire.add(delay=700)
    assert wire.take() == [0, 0, 0, NOW + 700]


def test_due_jobs_are_promoted_up_to_and_including_now_in_order(wire: Wire) -> None:
    """Ascending by time, each to the left: the first one due runs first. Priorities are honoured."""
    for job_id, delay in (("c", 11), ("b", 10), ("b2", 10), ("a", 5)):
        wire.add(job_id, delay=delay)
    wire.add("p", delay=7, priority=2)
    wire.events()
    wire.now += 10
    assert wire.take()[1] == "a"
    assert wire.get("wait") == ["b2", "b"]
    assert wire.get("prioritized") == {"p": 2 * 2**32 + 1}
    assert list(wire.get("delayed")) == ["c"]
    assert wire.get("b")["delay"] == "0"
    assert wire.events() == [
        "waiting jobId=a prev=delayed",
        "waiting jobId=p prev=delayed",
        "waiting jobId=b prev=delayed",
        "waiting jobId=b2 prev=delayed",
        "active jobId=a prev=waiting",
    ]


def test_at_most_a_thousand_are_promoted_per_call(wire: Wire) -> None:
    wire.client.zadd(wire.key("delayed"), {f"j{n:04}": (NOW - 1) * 4096 + n for n in range(1500)})
    wire.take()
    assert len(wire.get("delayed")) == 500
    assert len(wire.get("wait")) == 999
    wire.take()
    assert wire.get("delayed") is None


@pytest.mark.parametrize("why", ["paused", "maxed"])
def test_a_blocked_queue_still_promotes_but_gives_nothing(wire: Wire, why: str) -> None:
    wire.add()
    wire.take()
    wire.add(delay=1)
    wire.client.hset(wire.key("meta"), "paused" if why == "paused" else "concurrency", 1)
    wire.client.delete(wire.key("marker"))
    wire.now += 1
    assert wire.take() == NOTHING
    assert wire.get("wait") == ["2"]
    assert wire.get("marker") is None


def test_the_rate_limit_counts_takes_and_comes_before_the_pause(wire: Wire) -> None:
    limiter = {"max": 2, "duration": 60_000}
    for _ in range(4):
        wire.add()
    assert [wire.take(limiter=limiter)[1] for _ in range(2)] == ["1", "2"]
    assert wire.get("limiter") == "2"
    assert 59_000 < wire.client.pttl(wire.key("limiter")) <= 60_000
    wire.pause()
    job, job_id, ttl, due = wire.take(limiter=limiter)
    assert (job, job_id, due) == (0, 0, 0)
    assert 59_000 < ttl <= 60_000
    assert wire.get("wait") == ["4", "3"]


def test_the_window_starts_with_its_first_take_and_promotion_goes_on_meanwhile(wire: Wire) -> None:
    limiter = {"max": 2, "duration": 60_000}
    for _ in range(2):
        wire.add()
    wire.take(limiter=limiter)
    wire.client.pexpire(wire.key("limiter"), 30_000)
    wire.take(limiter=limiter)
    assert wire.client.pttl(wire.key("limiter")) <= 30_000
    wire.add(delay=1)
    wire.client.delete(wire.key("marker"))
    wire.now += 1
    assert wire.take(limiter=limiter)[2] > 0
    assert wire.get("wait") == ["3"]
    assert wire.get("marker") == {"0": 0}


def test_the_queues_own_max_beats_the_workers_and_its_duration_does_not(wire: Wire) -> None:
    wire.client.hset(wire.key("meta"), mapping={"max": 1, "duration": 5_000})
    wire.add()
    wire.add()
    assert wire.take(limiter={"max": 100, "duration": 60_000})[1] == "1"
    assert wire.client.pttl(wire.key("limiter")) > 50_000
    assert wire.take(limiter={"max": 100, "duration": 60_000})[2] > 50_000


def test_a_limit_without_duration_errs_after_the_move_and_leaves_no_lock(wire: Wire) -> None:
    wire.client.hset(wire.key("meta"), "max", 1)
    wire.add()
    with pytest.raises(redis.ResponseError):
        wire.take()
    assert wire.get("active") == ["1"]
    assert wire.get("1:lock") is None


def test_a_manual_limit_stops_only_workers_with_a_max(wire: Wire) -> None:
    wire.client.set(wire.key("limiter"), 9007199254740991, px=60_000)
    wire.add()
    assert wire.take(limiter={"max": 3, "duration": 1000})[2] > 50_000
    assert wire.take()[1] == "1"


def test_a_counter_without_ttl_never_limits(wire: Wire) -> None:
    wire.client.set(wire.key("limiter"), 99)
    wire.add()
    assert wire.take(limiter={"max": 3, "duration": 1000})[1] == "1"
    assert wire.get("limiter") == "100"


def test_the_token_zero_means_no_lock(wire: Wire) -> None:
    wire.add()
    wire.token = "0"
    wire.take()
    assert wire.get("1:lock") is None
    assert wire.finish("1") == 0


def test_markers_of_ancient_versions_are_skipped(wire: Wire) -> None:
    wire.add()
    wire.client.rpush(wire.key("wait"), "0:1795981424790", "0:1")
    assert wire.take()[1] == "1"
    assert wire.get("active") == ["1"]
    wire.client.rpush(wire.key("wait"), "0:2")
    assert wire.take() == NOTHING
    assert wire.get("active") == ["1"]


def test_an_id_without_a_hash_shows_itself_by_having_no_name_and_leaves_without_a_trace(wire: Wire) -> None:
    """case C021: the ghost reaches the worker as a job without a name; failing it, unkept, clears every key."""
    wire.client.lpush(wire.key("wait"), "ghost")
    hash_, job_id, *_ = wire.take()
    assert job_id == "ghost"
    assert flat(hash_) == {"processedOn": str(NOW), "ats": "1"}
    assert wire.finish("ghost", "no such job", failed=True, keep={"count": 0}) == 0
    left = wire.dump()
    assert set(left) == {"events", "meta", "marker"}
