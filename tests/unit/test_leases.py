# SPDX-License-Identifier: MIT
"""The book of leases and its ticks, on numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echomq_pool.children.leases import (
    CHUNK,
    NEVER,
    Lease,
    LeaseBook,
    Ticks,
    batches,
    early,
    good_since,
    misses_survived,
    stamp,
)
from echomq_pool.config.schema import WorkersConfig
from echomq_pool.ipc.messages import Held, HeldJob, Settled

L, TICK = 30_000, 7_500


def held_job(
    job_id: str, *, queue: str = "orders", taken_ms: int = 0, token: str = "w:1", ats: int = 1
) -> HeldJob:
    return HeldJob(queue, job_id, token, ats, 0, 1, None, False, taken_ms, 0, "job")


def book_of(*jobs: HeldJob, worker: str = "w", slot: int = 1) -> LeaseBook:
    book = LeaseBook()
    book.up(worker, slot)
    book.hold(Held(worker, list(jobs)), 0)
    return book


def ids(leases: list[Lease]) -> list[str]:
    return [lease.job.id for lease in leases]


# --- cadence --------------------------------------------------------------------------------------------


def test_the_tick_follows_from_the_lock_duration() -> None:
    """promise 0.7, 4.6"""
    assert WorkersConfig("g", ("q",), "p").tick_ms == 7_500
    assert WorkersConfig("g", ("q",), "p", lock_duration_ms=8_000, lock_renew_time_ms=4_000).tick_ms == 2_000
    assert WorkersConfig("g", ("q",), "p", renew_interval_ms=10_000).tick_ms == 10_000


@pytest.mark.parametrize(
    ("interval", "misses"),
    [(10_000, 1), (9_999, 2), (15_000, 0), (7_500, 2), (14_999, 1), (30_000, -1)],
)
def test_the_cadence_table_counts_misses_strictly(interval: int, misses: int) -> None:
    """promise 0.9, 0.10, 3.9: with a renewal every L/3 the third one is due at L itself, one ms too late, and
    half a lease (not a full one) is left to a missed tick at L/2."""
    assert misses_survived(L, interval) == misses


@given(st.integers(1, 10**6), st.integers(1, 10**6))
@settings(deadline=None)
def test_the_misses_survived_are_the_most_that_the_inequality_allows(duration: int, interval: int) -> None:
    """promise 0.9, 0.10, 0.11, 3.8"""
    m = misses_survived(duration, interval)
    assert (m + 1) * interval < duration
    assert (m + 2) * interval >= duration


def run_schedule(
    duration: int, tick: int, taken: int, misses: set[int], jitter: list[int], ticks: int
) -> int:
    """Plays ticks over one lease on a model server; returns when the lock lapsed, or -1."""
    book = book_of(held_job("1", taken_ms=taken))
    clock = Ticks({"orders": tick}, 0)
    expires = taken + duration
    for n in range(ticks):
        due_at = clock.next_ms()
        assert due_at is not None
        now = due_at + jitter[n % len(jitter)]
        if now >= expires:
            return expires
        for queue, at in clock.take(now):
            due = book.due(queue, at, tick)
            if due and n not in misses:
                stamp(due, at)
                expires = now + duration
    return -1


@given(
    st.integers(8, 40_000),
    st.integers(0, 40_000),
    st.lists(st.integers(0, 3), min_size=1, max_size=7),
    st.integers(0, 20),
)
@settings(deadline=None)
def test_one_missed_tick_at_the_default_cadence_never_lapses_a_lease(
    quarter: int, taken: int, jitter: list[int], miss: int
) -> None:
    """promise 0.11, 3.8, 4.6: whatever the phase of the take and the lateness of the timer."""
    tick = quarter + 8
    taken %= tick
    assert run_schedule(4 * tick, tick, taken, {miss}, jitter, 40) == -1


def test_two_misses_between_renewals_survive_at_the_default_cadence_and_three_lapse() -> None:
    """promise 0.9, 0.10"""
    assert run_schedule(L, TICK, 0, {3, 4}, [0], 30) == -1
    assert run_schedule(L, TICK, 0, {3, 4, 5}, [1], 30) > 0


def test_a_plain_interval_of_a_third_comes_early_enough_to_survive_two_misses() -> None:
    """promise 0.8, 0.9, 0.10"""
    tick = early(10_000, L)
    assert L // tick == 3
    assert misses_survived(L, tick) == 2
    assert run_schedule(L, tick, 0, {3, 4}, [0, 7, 50], 30) == -1
    assert run_schedule(L, tick, 0, {3, 4, 5}, [0], 30) > 0
    assert early(7_000, L) == 7_000


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9))
@settings(deadline=None)
def test_a_late_timer_costs_no_tick(jitter: list[int]) -> None:
    """promise 0.12, 4.6: renewals come every tick, not every second one."""
    book = book_of(held_job("1", taken_ms=0))
    clock = Ticks({"orders": 100}, 0)
    renewed = 0
    for n in range(50):
        now = 100 * (n + 1) + jitter[n % len(jitter)]
        for queue, at in clock.take(now):
            due = book.due(queue, at, 100)
            renewed += len(due)
            stamp(due, at)
    assert renewed == 50


# --- what is due ------------------------------------------------------------------------------------------


def test_a_lease_is_due_from_the_age_of_a_tick_on() -> None:
    """promise 4.7: 3 s ago is skipped, 8 s ago is renewed, exactly one tick ago is renewed."""
    book = book_of(
        held_job("a", taken_ms=97_000), held_job("b", taken_ms=92_000), held_job("c", taken_ms=92_500)
    )
    assert ids(book.due("orders", 100_000, TICK)) == ["b", "c"]


def test_a_failed_renewal_stays_due() -> None:
    """promise 0.11: the stamp moves on success only."""
    book = book_of(held_job("a", taken_ms=0), held_job("b", taken_ms=0))
    due = book.due("orders", TICK, TICK)
    stamp(due[:1], TICK)
    assert ids(book.due("orders", TICK + 1, TICK)) == ["b"]


MANY = [Lease(held_job(str(i)), "w", 0) for i in range(35_000)]


@given(st.integers(0, len(MANY)))
@settings(deadline=None, max_examples=30)
def test_the_number_of_calls_is_one_per_ten_thousand(n: int) -> None:
    """law 10; promise 0.22, 4.5"""
    leases = MANY[:n]
    made = list(batches(leases))
    assert len(made) == -(-n // CHUNK)
    assert sum(len(batch) for batch in made) == n


def test_one_id_never_comes_twice_in_a_call() -> None:
    """promise 4.9: the reply names ids only, so two holders of one job are asked for apart."""
    leases = [Lease(held_job("1", token="a:1"), "a", 0), Lease(held_job("1", token="b:1"), "b", 0)]
    assert [[x.worker_id for x in batch] for batch in batches(leases)] == [["a"], ["b"]]


# --- telling ------------------------------------------------------------------------------------------------


def test_what_is_not_told_again_is_forgotten_at_the_end_mark() -> None:
    """law 9"""
    book = book_of(held_job("a"), held_job("b"))
    book.hold(Held("w", [held_job("a")], full=True), 1)
    assert len(book) == 2
    book.hold(Held("w", [held_job("c")]), 1)  # taken while the re-telling was under way
    book.hold(Held("w", [], full=True, end=True), 1)
    assert sorted(ids(book.due("orders", 0, 0))) == ["a", "c"]


def test_a_lease_first_heard_of_in_a_re_telling_is_due_at_once() -> None:
    """law 9"""
    book = LeaseBook()
    book.hold(Held("w", [held_job("a", taken_ms=99)], full=True, end=True), 100)
    (lease,) = book.due("orders", 100, TICK)
    assert lease.stamp_ms == NEVER


def test_a_re_told_lease_keeps_its_stamp_and_a_new_take_under_the_same_token_is_new() -> None:
    """law 4"""
    book = book_of(held_job("a", taken_ms=10))
    old = book.find("orders", "a")[0]
    stamp([old], 5_000)
    book.hold(Held("w", [held_job("a", taken_ms=10)], full=True, end=True), 6_000)
    assert book.find("orders", "a")[0].stamp_ms == 5_000
    book.hold(Held("w", [held_job("a", taken_ms=6_000, ats=2)]), 6_000)
    assert not book.has(old)
    assert book.find("orders", "a")[0].stamp_ms == 6_000


def test_settled_and_dead_workers_leave_nothing_behind() -> None:
    """case C022"""
    book = book_of(held_job("a"), held_job("b", taken_ms=5), held_job("c", taken_ms=3))
    book.settle(Settled("w", [["orders", "a", "w:1"], ["orders", "never", "w:9"]]), 1)
    assert ids(book.down("w")) == ["c", "b"]
    assert len(book) == 0
    assert book.down("w") == []


def test_a_lost_lease_counts_as_running_until_its_worker_settles_it() -> None:
    """law 4"""
    book = book_of(held_job("a"), held_job("b"))
    book.remove(book.find("orders", "a")[0])
    assert len(book) == 1
    assert book.holders["w"].running() == 2
    book.settle(Settled("w", [["orders", "a", "w:1"]]), 1)
    assert book.holders["w"].running() == 1


# --- the word on the board ------------------------------------------------------------------------------------


TAKES = st.lists(st.integers(0, 5_000), min_size=1, max_size=6)


@given(TAKES, st.lists(st.booleans(), min_size=40, max_size=40), st.integers(1, 900))
@settings(deadline=None)
def test_the_word_never_claims_more_than_the_server_did(
    takes: list[int], outcomes: list[bool], tick: int
) -> None:
    """law 4: whatever fails, a worker's belief is never newer than the last call that renewed its lease."""
    book = LeaseBook()
    book.up("w", 1)
    clock = Ticks({"orders": tick}, 0)
    proven: dict[str, int] = {}
    word = 0
    waiting = sorted((taken, str(i)) for i, taken in enumerate(takes))
    for n in range(40):
        now = clock.next_ms()
        assert now is not None
        while waiting and waiting[0][0] <= now:
            taken, job_id = waiting.pop(0)
            proven[job_id] = taken
            book.hold(Held("w", [held_job(job_id, taken_ms=taken)]), now)
        for queue, at in clock.take(now):
            due = book.due(queue, at, tick)
            for lease in due if outcomes[n] else due[1:]:  # one of them fails, or none
                stamp([lease], at)
                proven[lease.job.id] = at
            if due and book.covered("w", queue, at, tick):
                word = at
        for job_id, since in proven.items():
            assert good_since(takes[int(job_id)], word, tick) <= since


def test_the_word_does_not_cover_a_lease_younger_than_a_tick() -> None:
    """law 4"""
    assert good_since(taken_ms=95_000, renewed_ms=100_000, tick_ms=TICK) == 95_000
    assert good_since(taken_ms=92_500, renewed_ms=100_000, tick_ms=TICK) == 100_000


def test_the_word_stays_while_one_lease_of_the_worker_could_not_be_renewed() -> None:
    """law 4"""
    book = book_of(held_job("a", taken_ms=0), held_job("b", taken_ms=0))
    due = book.due("orders", TICK, TICK)
    stamp(due[:1], TICK)
    assert not book.covered("w", "orders", TICK, TICK)
    stamp(due[1:], TICK)
    assert book.covered("w", "orders", TICK, TICK)


# --- ticks ------------------------------------------------------------------------------------------------------


def test_one_timer_serves_queues_of_different_cadence() -> None:
    """promise 0.21, 4.3"""
    ticks = Ticks({"slow": 1_000, "fast": 300}, 0)
    fired = []
    for _ in range(6):
        now = ticks.next_ms()
        assert now is not None
        fired += [(queue, at) for queue, at in ticks.take(now)]
    assert fired == [
        ("fast", 300),
        ("fast", 600),
        ("fast", 900),
        ("slow", 1_000),
        ("fast", 1_200),
        ("fast", 1_500),
    ]


def test_ticks_missed_in_a_long_stop_are_not_made_up_for() -> None:
    """law 10"""
    ticks = Ticks({"q": 100}, 0)
    assert ticks.take(1_050) == [("q", 1_050)]
    assert ticks.next_ms() == 1_150
    ticks.restart("q", 2_000)
    assert ticks.next_ms() == 2_100
    ticks.bring_forward("q", 2_050)
    assert ticks.next_ms() == 2_050


def test_a_changed_held_job_is_taken_over() -> None:
    """law 9: a re-telling may bring a new time limit; the lease stays the same."""
    book = book_of(held_job("a"))
    lease = book.find("orders", "a")[0]
    book.hold(Held("w", [held_job("a")._replace(deadline_ms=77)]), 1)
    assert book.has(lease)
    assert lease.job.deadline_ms == 77
