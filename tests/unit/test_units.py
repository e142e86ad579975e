# SPDX-License-Identifier: MIT
"""Durations and sizes: always with a unit, exact, and printable again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.config.units import UnitError, duration_ms, show_duration, show_size, size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30_000),
        ("250ms", 250),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("2w", 1_209_600_000),
        ("0", 0),
        ("0s", 0),
        (" 7 s ", 7_000),
    ],
)
def test_a_duration_is_read_in_milliseconds(text: str, expected: int) -> None:
    """case C145"""
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("512MB", 512_000_000),
        ("512mb", 512_000_000),
        ("1.5GB", 1_500_000_000),
        ("256MiB", 2**28),
        ("7B", 7),
    ],
)
def test_a_size_is_read_in_bytes(text: str, expected: int) -> None:
    """case C145"""
    assert size_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["30", "", "s", "-1s", "1 year", "30S", "1e3s", "٣s", "1.5ms", "1s2", "nan", "0.5"]
)
def test_what_is_no_duration_is_refused_with_the_form(text: str) -> None:
    """case C145"""
    with pytest.raises(UnitError, match="unit"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["512", "12XB", "-1MB", "0.5B", "MB"])
def test_what_is_no_size_is_refused_with_the_form(text: str) -> None:
    """case C145"""
    with pytest.raises(UnitError, match="unit"):
        size_bytes(text)


@given(st.integers(0, 10**13))
def test_what_is_shown_reads_back_as_the_same_amount(amount: int) -> None:
    """`check` prints what the pool understood, so its output must mean the same"""
    assert duration_ms(show_duration(amount)) == amount
    assert size_bytes(show_size(amount)) == amount
