# SPDX-License-Identifier: MIT
"""When a process has time to spare: it neither computes nor waits for an answer, most of the time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.clock import FakeClock
from echomq_pool.plane.slack import WINDOW_MS, Pace, Slack


class Machine:
    """A process whose time is spent by hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.spent = 0
        self.slack = Slack(self.clock, lambda: self.spent)

    def rest(self, ms: int) -> None:
        self.clock.advance(ms)

    def compute(self, ms: int) -> None:
        self.clock.advance(ms)
        self.spent += ms

    def ask(self, ms: int) -> None:
        """One call, answered after `ms`."""
        self.slack.sent()
        self.clock.advance(ms)
        self.slack.answered()


def test_without_a_measure_there_is_never_time_to_spare() -> None:
    pace = Pace()
    for _ in range(10):
        pace.sent()
        pace.answered()
    assert not pace.relaxed


def test_a_process_that_mostly_rests_is_relaxed_when_a_window_has_passed() -> None:
    machine = Machine()
    machine.ask(1)
    machine.rest(WINDOW_MS - 2)
    machine.ask(0)
    assert not machine.slack.relaxed, "the window is not over"
    machine.rest(1)
    machine.ask(1)
    assert machine.slack.relaxed


def test_a_process_that_computes_is_not_relaxed_however_seldom_it_asks() -> None:
    machine = Machine()
    for _ in range(5):
        machine.compute(WINDOW_MS)
        machine.ask(1)
        assert not machine.slack.relaxed


def test_a_process_that_waits_for_answers_is_not_relaxed_since_the_server_is_busy() -> None:
    machine = Machine()
    for _ in range(100):
        machine.ask(3)
        machine.rest(1)
        assert not machine.slack.relaxed


def test_a_change_of_load_is_seen_within_two_windows() -> None:
    machine = Machine()
    machine.rest(10 * WINDOW_MS)
    machine.ask(1)
    assert machine.slack.relaxed
    for _ in range(2):
        machine.compute(WINDOW_MS)
        machine.ask(1)
    assert not machine.slack.relaxed


def test_calls_that_overlap_are_waited_for_once() -> None:
    machine = Machine()
    machine.slack.sent()
    machine.rest(5)
    machine.slack.sent()  # 5 ms with one, 5 with two, 5 with one: 15 of 40
    machine.rest(5)
    machine.slack.answered()
    machine.rest(5)
    machine.slack.answered()
    machine.rest(25)
    machine.ask(0)
    assert machine.slack.relaxed


@given(st.lists(st.tuples(st.sampled_from(["rest", "compute", "ask"]), st.integers(0, 30)), max_size=60))
def test_the_judgement_is_the_sum_of_what_was_spent_since_the_last_one(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    resting = length = 0
    relaxed = False
    for what, ms in steps:
        if what == "ask" and length >= WINDOW_MS:
            relaxed, resting, length = 2 * resting > length, 0, 0
        getattr(machine, what)(ms)
        resting += ms if what == "rest" else 0
        length += ms
        assert machine.slack.relaxed == relaxed
