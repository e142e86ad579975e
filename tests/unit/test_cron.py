# SPDX-License-Identifier: MIT
"""Cron patterns against recorded answers of Node's parser, a second library, and their own definition."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from echomq_pool.cron import CronError, check_zone, parse

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "cron_vectors.json").read_text()
)
LORD_HOWE = "Australia/Lord_Howe"  # its clocks move by half an hour, which the recorded parser gets wrong
LORD_HOWE_RIGHT = {
    # 2 o'clock to half past is skipped: what was due at 2:00 runs at 2:30
    ("0 2 * * *", "2026-10-03T14:00:00Z"): ["04T02:30+1100", "05T02:00+1100", "06T02:00+1100"],
    ("0 2-4 * * *", "2026-10-03T14:00:00Z"): ["04T02:30+1100", "04T03:00+1100", "04T04:00+1100"],
    # an open hour follows real time: no half hour is left out, none is run once too often
    ("*/30 * * * *", "2026-10-03T14:00:00Z"): [
        "04T01:00+1030",
        "04T01:30+1030",
        "04T02:30+1100",
        "04T03:00+1100",
    ],
    ("*/30 * * * *", "2026-04-04T13:00:00Z"): [
        "05T00:30+1100",
        "05T01:00+1100",
        "05T01:30+1100",
        "05T01:30+1030",
        "05T02:00+1030",
    ],
}


def millis(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def runs(pattern: str, tz: str | None, base_ms: int, count: int) -> list[int]:
    cron, found = parse(pattern), []
    for _ in range(count):
        after = cron.next_after(base_ms, tz)
        assert after is not None
        found.append(after)
        base_ms = after
    return found


def local(moments_ms: list[int], tz: str, form: str = "%dT%H:%M%z") -> list[str]:
    return [datetime.fromtimestamp(m / 1000, ZoneInfo(tz)).strftime(form) for m in moments_ms]


def row_id(row: dict[str, Any]) -> str:
    return f"{row['pattern']} {row['tz']} {row['base']}"


@pytest.mark.parametrize("row", VECTORS, ids=row_id)
def test_every_recorded_answer_of_nodes_parser_is_given_here_too(row: dict[str, Any]) -> None:
    """promise 4.17"""
    base = millis(row["base"])
    if row.get("refused"):
        with pytest.raises(CronError):
            parse(row["pattern"])
        return
    right = LORD_HOWE_RIGHT.get((row["pattern"], row["base"])) if row["tz"] == LORD_HOWE else None
    if right is not None:
        assert local(runs(row["pattern"], row["tz"], base, len(right)), row["tz"]) == right
        return
    assert [m // 1000 for m in runs(row["pattern"], row["tz"], base, len(row["next"]))] == row["next"]


def test_the_recorded_answers_are_all_there() -> None:
    """promise 4.17"""
    assert len(VECTORS) == 410
    assert {row["tz"] for row in VECTORS} >= {"UTC", "America/New_York", "Europe/London", LORD_HOWE}


def test_a_local_time_that_comes_twice_runs_once() -> None:
    """case C099"""
    weekly = runs("0 6 * * MON", "America/New_York", millis("2026-10-24T12:00:00Z"), 3)
    assert local(weekly, "America/New_York") == ["26T06:00-0400", "02T06:00-0500", "09T06:00-0500"]
    nightly = runs("30 1 * * *", "America/New_York", millis("2026-10-31T12:00:00Z"), 3)
    assert local(nightly, "America/New_York") == ["01T01:30-0400", "02T01:30-0500", "03T01:30-0500"]


@pytest.mark.parametrize(
    ("day", "hours"),
    [("2026-03-29", 23), ("2026-10-25", 25), ("2026-07-01", 24)],
    ids=["spring", "autumn", "-"],
)
def test_an_hourly_pattern_runs_every_real_hour_of_the_day(day: str, hours: int) -> None:
    """case C100"""
    zone = ZoneInfo("Europe/Berlin")
    midnight = datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=zone)
    moments = runs("0 * * * *", "Europe/Berlin", int(midnight.timestamp() * 1000) - 1, hours + 1)
    assert [b - a for a, b in pairwise(moments)] == [3_600_000] * hours
    following = datetime.fromtimestamp(moments[hours] / 1000, zone)
    assert (following.date(), following.hour) == ((midnight + timedelta(days=1)).date(), 0)


@pytest.mark.parametrize("change", ["2026-03-29", "2026-10-25"])
def test_the_day_after_a_change_of_clocks_is_on_time(change: str) -> None:
    """case C100"""
    moments = runs("0 9 * * *", "Europe/Berlin", millis(f"{change}T12:00:00Z"), 2)
    assert [text[3:8] for text in local(moments, "Europe/Berlin")] == ["09:00", "09:00"]


def test_a_day_that_a_country_skipped_runs_right_after_it() -> None:
    """promise 4.17: Samoa had no 30 December 2011."""
    moments = runs("0 9 30 12 *", "Pacific/Apia", millis("2011-12-01T00:00:00Z"), 2)
    assert local(moments, "Pacific/Apia", "%Y-%m-%dT%H:%M") == ["2011-12-31T09:00", "2012-12-30T09:00"]


@pytest.mark.parametrize(
    ("pattern", "field"),
    [
        ("60 * * * *", "minute"),
        ("0 60 * * * *", "minute"),
        ("61 0 * * * *", "second"),
        ("0 24 * * *", "hour"),
        ("0 0 0 * *", "day of month"),
        ("0 0 31 2 *", "day of month"),
        ("0 0 31 4,6 *", "day of month"),
        ("0 0 15W * *", "day of month"),
        ("0 0 * 13 *", "month"),
        ("0 0 * FOO *", "month"),
        ("0 0 * * 8", "day of week"),
        ("0 0 * * L", "day of week"),
        ("0 0 * * 1#6", "day of week"),
        ("0 0 * * 1-3#2", "day of week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("1,1 * * * *", "minute"),
        ("H * * * *", "minute"),
        ("-5 * * * *", "minute"),
        ("٣ * * * *", "minute"),
        ("", "empty"),
        ("   ", "empty"),
        ("* * * * * * *", "7 fields"),
        ("@every 5m", "@every"),
        ("@reboot", "@reboot"),
    ],
)
def test_a_refused_pattern_names_the_field(pattern: str, field: str) -> None:
    """promise 4.17; a bad pattern is refused when it is read, never when it is due"""
    with pytest.raises(CronError, match=field):
        parse(pattern)


def test_day_of_month_and_day_of_week_together_mean_either() -> None:
    """promise 4.17"""
    moments = runs("0 0 15 * 1#2", "UTC", millis("2026-01-30T00:00:00Z"), 4)
    assert local(moments, "UTC", "%m-%d") == ["02-09", "02-15", "03-09", "03-15"]
    ignored = runs("0 0 30 2 1", "UTC", millis("2026-01-30T00:00:00Z"), 2)
    assert local(ignored, "UTC", "%m-%d") == ["02-02", "02-09"]


def test_a_date_that_comes_every_28_years_is_found_quickly() -> None:
    """promise 4.17: the search is bounded and jumps over what cannot match."""
    began = time.perf_counter()
    moments = runs("0 0 * 2 FRI#5", "UTC", millis("2026-01-01T00:00:00Z"), 2)
    assert time.perf_counter() - began < 1
    assert local(moments, "UTC", "%Y-%m-%d") == ["2036-02-29", "2064-02-29"]


def test_a_date_out_of_reach_is_none() -> None:
    """promise 4.17"""
    assert parse("0 0 * 2 FRI#5").next_after(millis("2036-03-01T00:00:00Z"), "UTC") is not None
    assert parse("0 0 29 2 *").next_after(millis("2026-01-01T00:00:00.500Z"), "UTC") == millis(
        "2028-02-29T00:00:00Z"
    )


def test_without_a_zone_the_local_zone_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """promise 4.17: as Node does."""
    base = millis("2026-11-01T04:00:00Z")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        here = runs("30 1 * * *", None, base, 5)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert here == runs("30 1 * * *", "America/New_York", base, 5)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "Europe/", "Europe"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    """promise 4.17"""
    with pytest.raises(CronError, match="time zone"):
        check_zone(zone)


FIELDS = [(0, 59), (0, 23), (1, 28), (1, 12), (0, 6)]


@st.composite
def patterns(draw: st.DrawFn) -> str:
    parts = []
    for low, high in FIELDS:
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        step = draw(st.integers(1, 20))
        parts.append(draw(st.sampled_from(["*", str(first), f"{first}-{last}", f"*/{step}"])))
    return " ".join(parts)


INSTANTS = st.integers(millis("1990-01-01T00:00:00Z"), millis("2060-01-01T00:00:00Z"))
ZONES = st.sampled_from(
    ["UTC", "America/New_York", "Europe/London", LORD_HOWE, "Asia/Kolkata", "Africa/Cairo"]
)


@settings(max_examples=300, deadline=None)
@given(pattern=patterns(), base_ms=INSTANTS)
def test_a_second_library_gives_the_same_times_where_no_clock_changes(pattern: str, base_ms: int) -> None:
    """promise 4.17"""
    day, weekday = pattern.split()[2], pattern.split()[4]
    if "*/" in day or "*/" in weekday:  # there cronsim keeps Vixie's old rule, Node does not
        return
    base = datetime.fromtimestamp(base_ms / 1000, ZoneInfo("UTC"))
    iterator = CronSim(pattern, base)
    expected = [int(next(iterator).timestamp() * 1000) for _ in range(3)]
    assert runs(pattern, "UTC", base_ms, 3) == expected


@settings(max_examples=300, deadline=None)
@given(pattern=patterns(), base_ms=INSTANTS, tz=ZONES)
def test_an_answer_is_later_and_matches_its_pattern(pattern: str, base_ms: int, tz: str) -> None:
    """promise 4.17"""
    cron = parse(pattern)
    found = cron.next_after(base_ms, tz)
    assert found is not None
    assert found > base_ms
    assert found % 1000 == 0
    moment = datetime.fromtimestamp(found / 1000, ZoneInfo(tz))
    day_before = datetime.fromtimestamp(found / 1000 - 86_400, ZoneInfo(tz))
    if moment.utcoffset() == day_before.utcoffset():  # else a skipped time may have been made up for
        assert moment.minute in cron.minutes
        assert moment.hour in cron.hours
        assert moment.month in cron.months
    assert cron.next_after(found - 1, tz) == found


@settings(max_examples=50, deadline=None)
@given(base_ms=INSTANTS, tz=ZONES)
def test_no_second_is_lost_by_a_pattern_of_every_second(base_ms: int, tz: str) -> None:
    """promise 4.17"""
    assert parse("* * * * * *").next_after(base_ms, tz) == (base_ms // 1000 + 1) * 1000
