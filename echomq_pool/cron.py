# SPDX-License-Identifier: MIT
"""Cron patterns, evaluated as Node's cron-parser does, so that both can serve one scheduler.

Six fields, seconds first; missing leading fields are second 0 and "every". Names, lists, ranges, steps,
`L`, one `#`, `?` and the `@daily` family. Day of month and day of week, both given: either matches.

Daylight saving, the part in which libraries differ: a pattern whose hour is open follows real time (both
passes of a repeated hour, nothing made up for a skipped one); a pattern with fixed hours runs once per
local time: at its first pass when it is repeated, and as much after the gap as it was due inside it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from echomq_pool.errors import InputError

DAY_S = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
SEARCH_YEARS = 50  # a fifth Friday in February comes every 28 years, a leap day every 4 or 8
SPAN_S = 2 * DAY_S  # looked at second by second of local time; beyond, whole days are jumped over
PROBE_S = 7_200  # no zone changes its offset twice within two hours
SLACK_S = DAY_S + 3_600  # the largest change ever made to an offset (Samoa, 24 h) and an hour

MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = {name: number for number, name in enumerate(MONTH_NAMES, 1)}
WEEKDAYS = {name: number for number, name in enumerate(WEEKDAY_NAMES)}
MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
NAMED = {
    "@secondly": "* * * * * *",
    "@minutely": "0 * * * * *",
    "@hourly": "0 0 * * * *",
    "@daily": "0 0 0 * * *",
    "@weekly": "0 0 0 * * 0",
    "@weekdays": "0 0 0 * * 1-5",
    "@weekends": "0 0 0 * * 0,6",
    "@monthly": "0 0 0 1 * *",
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
}
DEFAULTS = ("0", "*", "*", "*", "*", "*")

OffsetAt = Callable[[int], int]
"""Epoch seconds → seconds that local time is ahead of UTC."""


class CronError(InputError):
    """A pattern that cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: dict[str, int] | None = None


SECOND = _Field("second", 0, 59)
MINUTE = _Field("minute", 0, 59)
HOUR = _Field("hour", 0, 23)
MONTH_DAY = _Field("day of month", 1, 31)
MONTH = _Field("month", 1, 12, MONTHS)
WEEKDAY = _Field("day of week", 0, 7, WEEKDAYS)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed pattern. Made by `parse`."""

    pattern: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    days: frozenset[int]
    last_day: bool
    any_day: bool
    weekdays: frozenset[int]
    last_weekdays: frozenset[int]
    nth: int
    any_weekday: bool

    def next_after(self, after_ms: int, tz: str | None = None) -> int | None:
        """The first instant strictly after `after_ms`, in epoch milliseconds; None within 50 years.

        `tz` is an IANA name; without one the local zone of this process counts.

        Raises:
            CronError: no such zone.
        """
        offset_at = _offsets(tz)
        start = after_ms // 1000 + 1
        limit = time.gmtime(start).tm_year + SEARCH_YEARS
        while True:
            end = start + SPAN_S
            found = self._within(start, end, offset_at, limit)
            if found is not None:
                return found * 1000
            wall = self._next_wall(end + offset_at(end) - SLACK_S, limit)
            if wall is None:
                return None
            # Nothing is due before `wall`; land a day early, so that the span covers any change of offset.
            start = max(end, wall - offset_at(wall) - DAY_S)

    def _within(self, start: int, end: int, offset_at: OffsetAt, limit: int) -> int | None:
        due: list[int] = []
        for low, high, offset in self._windows(start, end, offset_at):
            wall = self._next_wall(low + offset, limit)
            if wall is not None and wall - offset < high:
                due.append(wall - offset)
        return min(due, default=None)

    def _windows(self, start: int, end: int, offset_at: OffsetAt) -> Iterator[tuple[int, int, int]]:
        """Pieces of [start, end) with the offset by which local time is read in each."""
        real_time = len(self.hours) == 24
        low, offset = start - SLACK_S, offset_at(start - SLACK_S)
        for moment, new in _changes(start - SLACK_S, end, offset_at):
            yield max(low, start), moment, offset
            jump = new - offset
            low = moment
            if jump > 0 and not real_time:  # skipped local times, read on the old clock
                yield max(moment, start), min(moment + jump, end), offset
            elif jump < 0 and not real_time:  # the second pass of repeated ones does not count
                low = moment - jump
            offset = new
        yield max(low, start), end, offset

    def _next_wall(self, wall: int, limit: int) -> int | None:
        """The first matching local time at or after `wall`, both counted in seconds as if they were UTC."""
        ordinal, second = divmod(wall, DAY_S)
        today = date.fromordinal(ordinal + EPOCH_ORDINAL)
        time_of_day = self._time_at_or_after(second)
        if time_of_day is None:
            today, time_of_day = date.fromordinal(today.toordinal() + 1), self._first_time()
        day = self._day_at_or_after(today, limit)
        if day is None:
            return None
        if day != today:
            time_of_day = self._first_time()
        return (day.toordinal() - EPOCH_ORDINAL) * DAY_S + time_of_day

    def _first_time(self) -> int:
        return self.hours[0] * 3600 + self.minutes[0] * 60 + self.seconds[0]

    def _time_at_or_after(self, second: int) -> int | None:
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        if hour in self.hours:
            if minute in self.minutes and second <= self.seconds[-1]:
                at = self.seconds[bisect_left(self.seconds, second)]
                return hour * 3600 + minute * 60 + at
            if minute < self.minutes[-1]:
                at = self.minutes[bisect_left(self.minutes, minute + 1)]
                return hour * 3600 + at * 60 + self.seconds[0]
        if hour >= self.hours[-1]:
            return None
        at = self.hours[bisect_left(self.hours, hour + 1)]
        return at * 3600 + self.minutes[0] * 60 + self.seconds[0]

    def _day_at_or_after(self, day: date, limit: int) -> date | None:
        year, month, first = day.year, day.month, day.day
        while year <= limit:
            if month in self.months:
                length = monthrange(year, month)[1]
                for number in range(first, length + 1):
                    if self._is_due_on(year, month, number, length):
                        return date(year, month, number)
            first = 1
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return None

    def _is_due_on(self, year: int, month: int, day: int, length: int) -> bool:
        weekday = date(year, month, day).isoweekday() % 7
        by_day = day in self.days or (self.last_day and day == length)
        by_weekday = weekday in self.weekdays and self.nth in (0, (day - 1) // 7 + 1)
        by_weekday = by_weekday or (weekday in self.last_weekdays and day > length - 7)
        if self.any_day and self.any_weekday:
            return True
        if self.any_day or self.any_weekday:
            return by_weekday if self.any_day else by_day
        return by_day or by_weekday


def parse(pattern: str) -> Cron:
    """Reads a cron pattern of up to six fields, or a name such as `@daily`.

    Raises:
        CronError: it cannot be read, or no date can ever match it.
    """
    text = pattern.strip()
    if text.startswith("@"):
        text = NAMED.get(text.lower(), text)
    parts = text.split()
    if not parts:
        raise CronError("cron pattern is empty; expected 5 fields, or 6 with leading seconds")
    if text.startswith("@"):
        raise CronError(f"cron name {pattern.strip()!r} is unknown; known: {', '.join(NAMED)}")
    if len(parts) > 6:
        raise CronError(f"cron pattern {pattern!r} has {len(parts)} fields; expected 5, or 6 with seconds")
    second, minute, hour, day, month, weekday = (*DEFAULTS[: 6 - len(parts)], *parts)
    days, last_day = _month_days(day)
    weekdays, last_weekdays, nth = _weekdays(weekday)
    cron = Cron(
        pattern=pattern,
        seconds=tuple(sorted(_values(SECOND, second))),
        minutes=tuple(sorted(_values(MINUTE, minute))),
        hours=tuple(sorted(_values(HOUR, hour))),
        months=frozenset(_values(MONTH, month)),
        days=days,
        last_day=last_day,
        any_day=day in ("*", "?"),
        weekdays=weekdays,
        last_weekdays=last_weekdays,
        nth=nth,
        any_weekday=weekday in ("*", "?"),
    )
    _refuse_impossible_dates(cron)
    return cron


def _refuse_impossible_dates(cron: Cron) -> None:
    possible = any(day <= MONTH_LENGTHS[month - 1] for day in cron.days for month in cron.months)
    if possible or cron.last_day or not cron.any_weekday:
        return
    raise CronError(f"cron pattern {cron.pattern!r}: day of month never occurs in the given month")


def _month_days(text: str) -> tuple[frozenset[int], bool]:
    items = text.split(",")
    plain = [item for item in items if item != "L"]
    values = _values(MONTH_DAY, ",".join(plain)) if plain else set()
    return frozenset(values), len(plain) < len(items)


def _weekdays(text: str) -> tuple[frozenset[int], frozenset[int], int]:
    """(weekdays, weekdays meant as the last of the month, which of the month: 0 = every)"""
    body, nth = _split_nth(text)
    last: set[int] = set()
    plain: list[str] = []
    for item in body.split(","):
        if len(item) > 1 and item[-1] == "L" and not nth:
            last.add(_number(WEEKDAY, item[:-1]) % 7)
        else:
            plain.append(item)
    values = _values(WEEKDAY, ",".join(plain)) if plain else set()
    return frozenset(v % 7 for v in values), frozenset(last), nth


def _split_nth(text: str) -> tuple[str, int]:
    body, mark, number = text.partition("#")
    if not mark:
        return text, 0
    if any(sign in body for sign in ",-/*?") or number not in ("1", "2", "3", "4", "5"):
        raise _refusal(WEEKDAY, text, "'#' needs one day before it and 1 to 5 behind it")
    return body, int(number)


def _values(field: _Field, text: str) -> set[int]:
    values: set[int] = set()
    # Node refuses a value listed twice, but overlooks a doubled 0. What it stores must be readable here.
    overlooked = {0, 7} if field is WEEKDAY else {0}
    for item in text.split(","):
        found = _range(field, item)
        if values.intersection(found) - overlooked:
            raise _refusal(field, text, "a value is listed twice")
        values.update(found)
    return values


def _range(field: _Field, item: str) -> range:
    body, slash, step_text = item.partition("/")
    step = _digits(field, step_text, item) if slash else 1
    if step < 1:
        raise _refusal(field, item, "a step must be at least 1")
    if body in ("*", "?"):
        top = 6 if field is WEEKDAY else field.high
        return range(field.low, top + 1, step)
    first, dash, last = body.partition("-")
    low = _number(field, first)
    high = _number(field, last) if dash else (field.high if slash else low)
    if low > high:
        raise _refusal(field, item, "a range must not run backwards")
    return range(low, high + 1, step)


def _number(field: _Field, text: str) -> int:
    if field.names is not None and text.upper() in field.names:
        return field.names[text.upper()]
    value = _digits(field, text, text)
    if not field.low <= value <= field.high:
        raise _refusal(field, text, f"accepted: {field.low} to {field.high}")
    return value


def _digits(field: _Field, text: str, item: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _refusal(field, item, "not a number")
    return int(text)


def _refusal(field: _Field, text: str, why: str) -> CronError:
    return CronError(f"cron field {field.name}: {text!r} cannot be used ({why})")


def check_zone(tz: str) -> None:
    """Refuses a time zone that does not exist.

    Raises:
        CronError: no such zone.
    """
    _zone(tz)


def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise CronError(f"time zone {tz!r} does not exist") from error


def _offsets(tz: str | None) -> OffsetAt:
    if not tz:
        return lambda second: time.localtime(second).tm_gmtoff
    zone = _zone(tz)

    def offset_at(second: int) -> int:
        offset = datetime.fromtimestamp(second, zone).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())

    return offset_at


def _changes(start: int, end: int, offset_at: OffsetAt) -> Iterator[tuple[int, int]]:
    """(first second, offset from then on) of every change of the offset in (start, end]."""
    left, offset = start, offset_at(start)
    while left < end:
        right = min(left + PROBE_S, end)
        new = offset_at(right)
        if new != offset:
            yield _first_with(left, right, new, offset_at), new
        left, offset = right, new


def _first_with(low: int, high: int, offset: int, offset_at: OffsetAt) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if offset_at(middle) == offset else (middle, high)
    return high
