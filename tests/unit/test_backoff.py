# SPDX-License-Identifier: MIT
"""Delays between attempts, exactly as BullMQ computes them (protocol, section 7.7)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.backoff import jittered, job_delay, pause, retry_delay
from echomq_pool.errors import InputError


def test_a_fixed_delay_stays_the_same() -> None:
    assert [job_delay(n, {"type": "fixed", "delay": 500}) for n in (1, 2, 9)] == [500, 500, 500]


def test_an_exponential_delay_doubles_from_its_first_value() -> None:
    assert [job_delay(n, {"type": "exponential", "delay": 100}) for n in (1, 2, 3, 4)] == [100, 200, 400, 800]


def test_an_exponential_delay_rounds_half_up_as_javascript_does() -> None:
    assert job_delay(1, {"type": "exponential", "delay": 2.5}) == 3
    assert job_delay(1, {"type": "exponential", "delay": 0.4}) == 0


def test_no_number_of_attempts_overflows() -> None:
    assert math.isfinite(job_delay(100_000, {"type": "exponential", "delay": 1_000}))


@given(st.floats(0, 1), st.floats(0, 1, exclude_max=True), st.integers(0, 10**9))
def test_jitter_takes_a_share_of_the_delay(jitter: float, drawn: float, delay: int) -> None:
    found = jittered(delay, jitter, lambda: drawn)
    assert math.floor(delay * (1 - jitter)) <= found <= delay
    assert found == (math.floor(drawn * delay * jitter + delay * (1 - jitter)) if jitter else delay)


def test_jitter_outside_its_share_is_refused() -> None:
    with pytest.raises(InputError, match="jitter"):
        jittered(100, 1.5)


def test_a_custom_strategy_is_asked_with_the_attempt() -> None:
    backoff = {"type": "mine", "delay": 7}
    assert job_delay(3, backoff, custom=lambda n: n * 10) == 30
    assert job_delay(3, backoff) == 7, "whoever does not have the strategy falls back to the plain delay"


TABLE = [
    # attempt, attempts, backoff, what follows
    (1, 0, None, None),
    (1, 1, None, None),
    (1, 2, None, 0),
    (2, 2, {"type": "fixed", "delay": 5}, None),
    (1, 2, {"type": "fixed", "delay": 5}, 5),
    (1, 2, {"type": "fixed", "delay": 0}, 0),
    (1, 2, {"type": "exponential", "delay": 5}, 5),
]


@pytest.mark.parametrize(("attempt", "attempts", "backoff", "expected"), TABLE)
def test_what_follows_a_failed_run(
    attempt: int, attempts: int, backoff: dict | None, expected: float | None
) -> None:
    assert retry_delay(attempt, attempts, backoff) == expected


def test_a_custom_strategy_ends_the_attempts_by_minus_one() -> None:
    assert retry_delay(1, 9, {"type": "mine"}, custom=lambda n: -1) is None


def test_a_pause_doubles_up_to_its_cap_and_the_first_try_waits_for_nothing() -> None:
    middle = lambda: 0.5  # noqa: E731
    assert [pause(n, 100, 1_000, 0.25, middle) for n in range(6)] == [0, 100, 200, 400, 800, 1_000]
    assert pause(1, 100, 1_000, 0.25, lambda: 0.0) == 75
    assert pause(1, 100, 1_000, 0.25, lambda: 1.0) == 125
