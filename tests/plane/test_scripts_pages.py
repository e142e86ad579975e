# SPDX-License-Identifier: MIT
"""What is read by page, and what is only counted."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support import verbs
from tests.support.wire import NOW, Wire, flat

IDS = [f"j{number}" for number in range(5)]  # oldest first


@pytest.fixture
def stocked(wire: Wire) -> Wire:
    """Five jobs wait and five are delayed, j0 and d0 the first of them."""
    for number, job_id in enumerate(IDS):
        wire.add(job_id)
        wire.add(f"d{number}", delay=10 + number)
    return wire


@pytest.mark.parametrize(
    ("first", "last", "ids"),
    [(0, -1, IDS), (0, 1, IDS[:2]), (1, 3, IDS[1:4]), (3, 99, IDS[3:]), (-2, -1, IDS[3:]), (4, 3, [])],
)
def test_ranges_with_the_oldest_first(stocked: Wire, first: int, last: int, ids: list[str]) -> None:
    """Ids of lists come unreversed: whoever asks turns them round."""
    before = stocked.dump()
    waiting, delayed, parked = verbs.ranges(stocked, first, last, "wait", "delayed", "paused", asc=True)
    if first >= 0:
        assert waiting == ids[::-1]
    assert delayed == [job_id.replace("j", "d") for job_id in ids]
    assert parked == []
    assert stocked.dump() == before


@pytest.mark.parametrize(
    ("first", "last", "ids"),
    [(0, -1, IDS[::-1]), (0, 1, ["j4", "j3"]), (1, 3, ["j3", "j2", "j1"]), (-2, -1, ["j1", "j0"])],
)
def test_ranges_with_the_newest_first(stocked: Wire, first: int, last: int, ids: list[str]) -> None:
    waiting, delayed = verbs.ranges(stocked, first, last, "wait", "delayed")
    assert waiting == ids
    assert delayed == [job_id.replace("j", "d") for job_id in ids]


def test_jobs_come_with_their_fields_in_the_order_asked(stocked: Wire) -> None:
    before = stocked.dump()
    oldest, newest = (
        verbs.jobs(stocked, 0, 1, "wait", "delayed", "failed", asc=asc) for asc in (True, False)
    )
    assert [[row[0] for row in page] for page in oldest] == [["j0", "j1"], ["d0", "d1"], []]
    assert [[row[0] for row in page] for page in newest] == [["j4", "j3"], ["d4", "d3"], []]
    assert flat(oldest[0][0][1]) == before["j0"]
    assert stocked.dump() == before


def test_a_page_is_filled_up_where_jobs_are_missing(stocked: Wire) -> None:
    stocked.client.delete(stocked.key("j0"), stocked.key("j2"))

    def page(first: int, last: int, **more: Any) -> list[str]:
        return [row[0] for row in verbs.jobs(stocked, first, last, "wait", asc=True, **more)[0]]

    assert page(0, 1) == ["j1", "j3"]
    assert page(0, 1, windows=1) == ["j1"]
    assert page(0, 3) == ["j1", "j3", "j4"]
    assert page(0, -1) == ["j1", "j3", "j4"]
    assert page(-3, -2) == ["j3"], "seen from the end nothing is filled up"


def test_a_set_and_a_hash_are_read_by_page(wire: Wire) -> None:
    assert verbs.paginate(wire, "P:processed", 0, -1) == [0, 0, [], 0]
    members = {wire.key(f"c{number}"): str(number) for number in range(7)}
    wire.client.sadd(wire.key("P:dependencies"), *members)
    wire.client.hset(wire.key("P:processed"), mapping=members)
    wire.client.hset(wire.key("c0"), "name", "x")
    before = wire.dump()
    cursor, passed, items, total, jobs = verbs.paginate(wire, "P:processed", 0, -1, fetch=True)
    assert (cursor, passed, total) == ("0", 7, 7)
    assert flat([value for item in items for value in item]) == members
    assert sorted(map(len, jobs)) == [0] * 6 + [2]
    cursor, passed, items, total, jobs = verbs.paginate(wire, "P:dependencies", 2, 4)
    assert (cursor, passed, len(items), total, jobs) == ("0", 5, 3, 7, [])
    assert wire.dump() == before


def test_a_big_set_is_read_in_several_calls(wire: Wire) -> None:
    members = {str(number) for number in range(3_000)}
    wire.client.sadd(wire.key("s"), *members)
    seen: list[str] = []
    cursor, passed, calls = "0", 0, 0
    while not calls or cursor != "0":
        cursor, passed, items, total, _ = verbs.paginate(wire, "s", len(seen), -1, cursor, passed, scans=2)
        seen += items
        calls += 1
    assert total == 3_000
    assert set(seen) == members
    assert calls > 5


def test_a_page_of_another_kind_of_key_is_an_error(wire: Wire) -> None:
    wire.client.set(wire.key("text"), "x")
    with pytest.raises(redis.ResponseError):
        verbs.paginate(wire, "text", 0, -1)


def test_children_are_counted_by_how_they_ended(wire: Wire) -> None:
    assert verbs.child_counts(wire, "P", *verbs.KINDS) == [0, 0, 0, 0]
    wire.client.hset(wire.key("P:processed"), "a", 1)
    wire.client.sadd(wire.key("P:dependencies"), "b", "c")
    wire.client.hset(wire.key("P:failed"), mapping={"d": 1, "e": 1, "f": 1})
    wire.client.zadd(wire.key("P:unsuccessful"), {"g": 1, "h": 1, "i": 1, "k": 1})
    assert verbs.child_counts(wire, "P", *verbs.KINDS) == [1, 2, 3, 4]
    assert verbs.child_counts(wire, "P", "failed", "processed") == [4, 1]


def test_waiting_jobs_are_counted_by_priority(wire: Wire) -> None:
    for priority in (0, 0, 1, 2, 2, 2, 2_097_151):
        wire.add(priority=priority)
    asked = [0, 1, 2, 3, 2_097_151]
    assert wire.on("getCountsPerPriority", "wait prioritized", *asked) == [2, 1, 3, 0, 1]


def test_metrics_are_read_by_page(wire: Wire) -> None:
    def read(first: int, last: int) -> Any:
        return wire.on("getMetrics", "metrics:completed metrics:completed:data", first, last)

    assert read(0, -1) == [[None, None, None], [], 0]
    wire.client.hset(wire.key("metrics:completed"), mapping={"count": 9, "prevTS": NOW, "prevCount": 6})
    wire.client.rpush(wire.key("metrics:completed:data"), 3, 2, 1)
    assert read(0, -1) == [["9", str(NOW), "6"], ["3", "2", "1"], 3]
    assert read(1, 1) == [["9", str(NOW), "6"], ["2"], 3]


def test_a_queue_is_maxed_by_its_concurrency_alone(wire: Wire) -> None:
    def maxed() -> Any:
        return wire.on("isMaxed", "meta active")

    wire.pause()
    assert maxed() is None
    wire.resume()
    wire.client.hset(wire.key("meta"), "concurrency", 1)
    assert maxed() is None
    wire.add()
    wire.take()
    assert maxed() == 1


def test_an_id_is_found_in_a_list(stocked: Wire) -> None:
    assert [stocked.on("isJobInList", "wait", job_id) for job_id in ("j0", "d0", "x")] == [1, None, None]


@pytest.mark.parametrize("script", ["getState", "getStateV2"])
def test_both_ways_of_asking_for_a_state_agree(stocked: Wire, script: str) -> None:
    stocked.client.lpush(stocked.key("paused"), "parked")
    stocked.add("P", children=True)
    stocked.add("p", priority=1)
    stocked.take()
    states = {
        job_id: verbs.state(stocked, job_id, script) for job_id in ("j0", "j1", "d0", "p", "P", "parked", "x")
    }
    assert states == {
        "j0": "active",
        "j1": "waiting",
        "d0": "delayed",
        "p": "prioritized",
        "P": "waiting-children",
        "parked": "waiting",
        "x": "unknown",
    }


def test_how_long_a_rate_limit_lasts(wire: Wire) -> None:
    def ttl(own: int) -> Any:
        return wire.on("getRateLimitTtl", "limiter meta", own)

    assert [ttl(0), ttl(2)] == [-2, 0]
    wire.client.set(wire.key("limiter"), 3)
    assert [ttl(0), ttl(2)] == [-1, 0], "a counter without end never limits"
    wire.client.pexpire(wire.key("limiter"), 60_000)
    assert ttl(4) == 0, "the window is not full"
    assert 0 < ttl(3) <= 60_000
    assert 0 < ttl(0) <= 60_000, "without any max it is the plain time to live"
    wire.client.hset(wire.key("meta"), "max", 9)
    assert ttl(0) == 0
    assert ttl(3) > 0, "one's own max comes before the queue's"
