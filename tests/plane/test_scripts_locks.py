# SPDX-License-Identifier: MIT
"""extendLocks, extendLock and releaseLock: only the holder's token moves or ends a lock."""

from __future__ import annotations

import pytest

from tests.support.waiting import eventually
from tests.support.wire import Wire

LOCK = "1:lock"


@pytest.fixture
def held(wire: Wire) -> Wire:
    """A queue with job 1 taken by `w:0`, marked as stalled, its lock down to ten seconds."""
    wire.add()
    wire.take()
    wire.sweep()
    wire.client.pexpire(wire.key(LOCK), 10_000)
    return wire


def ttl(wire: Wire, job_id: str = "1") -> int:
    return int(wire.client.pttl(wire.key(f"{job_id}:lock")))


def extend_one(wire: Wire, token: str, duration: int = 30_000) -> object:
    return wire.on("extendLock", f"{LOCK} stalled", token, duration, "1")


def test_a_renewal_moves_the_end_forward_and_clears_the_mark(held: Wire) -> None:
    """promise 0.6, 4.8, 4.10, 4.24, 2.14"""
    assert ttl(held) <= 10_000
    assert held.extend([("1", "w:0")]) == []
    assert 29_000 < ttl(held) <= 30_000
    assert held.get("stalled") is None


def test_only_the_stolen_and_the_missing_come_back_as_failed(wire: Wire) -> None:
    """promise 4.8, 4.9"""
    for n in range(3):
        wire.add()
        wire.token = f"w:{n}"
        wire.take()
    wire.sweep()
    wire.client.set(wire.key("2:lock"), "thief:0", px=5_000)
    pairs = [("1", "w:0"), ("2", "w:1"), ("3", "w:2"), ("gone", "w:3")]
    assert wire.extend(pairs, duration=60_000) == ["2", "gone"]
    assert ttl(wire, "1") > 50_000
    assert ttl(wire, "3") > 50_000
    assert ttl(wire, "2") <= 5_000
    assert wire.get("2:lock") == "thief:0"
    assert wire.get("gone:lock") is None
    assert wire.get("stalled") == ["2"]


def test_a_stale_workers_renewal_leaves_the_new_owners_lock_alone(held: Wire) -> None:
    """promise 0.26, law 5"""
    before = held.dump()
    assert held.extend([("1", "stale:0")]) == ["1"]
    assert extend_one(held, "stale:0") == 0
    assert held.dump() == before
    assert ttl(held) <= 10_000


def test_ten_thousand_renewals_are_one_call(wire: Wire) -> None:
    """promise 4.8, law 10"""
    pairs = [(f"j{n}", f"w:{n}") for n in range(10_000)]
    pipe = wire.client.pipeline(transaction=False)
    for job_id, token in pairs:
        pipe.set(wire.key(f"{job_id}:lock"), token, px=10_000)
    pipe.sadd(wire.key("stalled"), *(job_id for job_id, _ in pairs))
    pipe.execute()
    assert wire.extend([*pairs, ("lost", "w:x")]) == ["lost"]
    assert wire.get("stalled") is None
    assert min(ttl(wire, job_id) for job_id, _ in pairs[::997]) > 20_000
    assert wire.extend([]) == []


def test_one_lock_is_renewed_by_its_token_only(held: Wire) -> None:
    """promise 3.3, 3.4"""
    assert extend_one(held, "w:0") == 1
    assert ttl(held) > 20_000
    assert held.get("stalled") is None
    assert extend_one(held, "w:1", 90_000) == 0
    assert ttl(held) <= 30_000


def test_a_lapsed_lock_is_not_brought_back(held: Wire) -> None:
    """promise 3.5"""
    held.client.pexpire(held.key(LOCK), 1)
    eventually(lambda: held.client.exists(held.key(LOCK)) == 0)
    assert extend_one(held, "w:0") == 0
    assert held.extend([("1", "w:0")]) == ["1"]
    assert held.get(LOCK) is None


def test_a_lock_is_released_by_its_token_only(held: Wire) -> None:
    """promise 3.11"""
    before = held.dump()
    assert held.on("releaseLock", LOCK, "stale:0", "") == 0
    assert held.dump() == before
    assert held.on("releaseLock", LOCK, "w:0", "") == 1
    del before[LOCK]
    assert held.dump() == before
    assert held.on("releaseLock", LOCK, "w:0", "") == 0
    assert held.get("stalled") == ["1"], "releasing leaves the mark: the sweep may go on"
