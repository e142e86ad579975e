# SPDX-License-Identifier: MIT
"""When a job scheduler runs: its options, checked, and its first instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from echomq_pool import cron
from echomq_pool.errors import InputError
from echomq_pool.plane.schedule import pattern_next

Moment = int | datetime


@dataclass(frozen=True, slots=True)
class Repeat:
    """Exactly one of `every_ms` and `pattern`. Made by `check_repeat`; times are wall ms, 0 = not given."""

    every_ms: int = 0
    pattern: str = ""
    tz: str = ""
    limit: int = 0
    offset_ms: int | None = None
    start_ms: int = 0
    end_ms: int = 0
    immediately: bool = False

    def wire(self) -> dict[str, Any]:
        """The repeat options under the wire's names, only those given."""
        found = {
            "every": self.every_ms,
            "pattern": self.pattern,
            "tz": self.tz,
            "limit": self.limit,
            "startDate": self.start_ms,
            "endDate": self.end_ms,
        }
        given = {name: value for name, value in found.items() if value}
        if self.offset_ms is not None:
            given["offset"] = self.offset_ms
        return given

    def first(self, now: int) -> tuple[bool, int | None]:
        """(there is a run, its wall ms). None for `every`: the script computes it on the grid.

        Raises:
            InputError: the series has ended before it began.
        """
        if self.end_ms and now > self.end_ms:
            raise InputError(f"end: {self.end_ms} is past, there is nothing to schedule")
        if not self.pattern:
            return True, None
        if self.immediately:
            return True, now
        found = pattern_next(self.pattern, self.tz, now, self.start_ms, self.end_ms)
        return found is not None, None if found is None else max(found, now)


def check_repeat(
    *,
    every: int | None = None,
    pattern: str | None = None,
    tz: str | None = None,
    limit: int | None = None,
    offset: int | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    immediately: bool = False,
) -> Repeat:
    """Checks the repeat options of a scheduler.

    Raises:
        InputError: both or neither of every and pattern, a bad pattern, zone, number or combination.
    """
    if (every is None) == (pattern is None):
        raise InputError("scheduler: expected exactly one of every (ms) and pattern (cron)")
    if immediately and start is not None:
        raise InputError("scheduler: immediately and start exclude each other")
    if pattern is not None:
        cron.parse(pattern)
    if tz is not None:
        cron.check_zone(tz)
    start_ms, end_ms = _moment("start", start), _moment("end", end)
    if start_ms and end_ms and end_ms < start_ms:
        raise InputError(f"scheduler end: {end_ms} lies before its start, {start_ms}")
    return Repeat(
        every_ms=_whole("every", every, 1),
        pattern=pattern or "",
        tz=tz or "",
        limit=_whole("limit", limit, 1),
        offset_ms=None if offset is None else _whole("offset", offset, 0),
        start_ms=start_ms,
        end_ms=end_ms,
        immediately=immediately,
    )


def _whole(name: str, value: object, low: int) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"scheduler {name}: expected a whole number from {low}, got {value!r}")
    return value


def _moment(name: str, value: object) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InputError(f"scheduler {name}: expected a datetime with its zone, got {value!r}")
        return int(value.timestamp() * 1000)
    return _whole(name, value, 1)
