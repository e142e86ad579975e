# SPDX-License-Identifier: MIT
"""When a series runs next, as BullMQ computes it on the client (protocol, section 8). Pure.

`every` is computed in the scripts, on a grid fixed by the first run; only `repairScheduler` needs it here.
A pattern is computed here, by our cron evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echomq_pool import cron
from echomq_pool.plane.job_record import decode_opts, encode_opts, number
from echomq_pool.plane.keys import QueueKeys


@dataclass(frozen=True, slots=True)
class SchedulerRecord:
    """The hash of a scheduler. Times are wall ms, 0 or None if not given. `next_ms` is its current slot."""

    id: str
    name: str
    next_ms: int
    every_ms: int = 0
    pattern: str = ""
    tz: str = ""
    limit: int = 0
    start_ms: int = 0
    end_ms: int = 0
    offset_ms: int | None = None
    iterations: int = 0
    data: bytes = b"{}"
    opts: dict[str, Any] | None = None

    @classmethod
    def from_reply(cls, scheduler_id: str, reply: Any) -> SchedulerRecord | None:
        """Reads `[flat hash, score]` of getJobScheduler; None when there is no such scheduler."""
        if not reply or len(reply) < 2 or reply[1] is None:
            return None
        flat = reply[0] or []
        raw = {flat[i]: flat[i + 1] for i in range(0, len(flat) - 1, 2)}
        text = {key.decode(): value.decode("utf-8", "replace") for key, value in raw.items()}
        offset = text.get("offset")
        return cls(
            id=scheduler_id,
            name=text.get("name", ""),
            next_ms=int(number(reply[1])),
            every_ms=int(number(text.get("every"))),
            pattern=text.get("pattern", ""),
            tz=text.get("tz", ""),
            limit=int(number(text.get("limit"))),
            start_ms=int(number(text.get("startDate"))),
            end_ms=int(number(text.get("endDate"))),
            offset_ms=None if offset is None else int(number(offset)),
            iterations=int(number(text.get("ic"))),
            data=raw.get(b"data") or b"{}",
            opts=decode_opts(raw.get(b"opts")),
        )

    def ended(self, now: int) -> bool:
        """True when the series is over by its own limit or end, so that a missing next job is no damage."""
        return bool((self.limit and self.iterations >= self.limit) or (self.end_ms and now > self.end_ms))

    def repeat_options(self) -> dict[str, Any]:
        """The `repeat` options of its jobs, without the count."""
        found = {
            "every": self.every_ms,
            "pattern": self.pattern,
            "tz": self.tz,
            "limit": self.limit,
            "startDate": self.start_ms,
            "endDate": self.end_ms,
            "offset": self.offset_ms,
        }
        return {name: value for name, value in found.items() if value}


def every_next(prev: int | None, every: int, now: int, offset: int = 0, start: int = 0) -> tuple[int, int]:
    """(next slot, offset of the grid) of an `every` series. Missed slots are skipped, not made up for."""
    if prev is None:
        if start:
            found = max(start, now)
        elif offset:
            found = now // every * every + offset
            found += every if found <= now else 0
        else:
            found = now
    else:
        found = prev + every
        if found < now:
            aligned = now // every * every + offset
            found = aligned + every if aligned <= now else aligned
    return found, offset or found - found // every * every


def pattern_next(pattern: str, tz: str, base: int, start: int = 0, end: int = 0) -> int | None:
    """First instant of the pattern strictly after max(base, start); None past `end`.

    Raises:
        InputError: the pattern or the zone cannot be used.
    """
    found = cron.parse(pattern).next_after(max(base, start), tz or None)
    if found is None or (end and found > end):
        return None
    return found


@dataclass(frozen=True, slots=True)
class Occurrence:
    """The next job of a series. `next_ms` None: the script computes it (`every`)."""

    next_ms: int | None
    opts: dict[str, Any]  # with wire names


def next_occurrence(
    keys: QueueKeys, scheduler_id: str, opts: Mapping[str, Any], now: int
) -> Occurrence | None:
    """The successor of a scheduler's job, from that job's own options. None: the series is over.

    Raises:
        InputError: the pattern or the zone cannot be used.
    """
    repeat = dict(opts.get("repeat") or {})
    iteration = int(number(repeat.get("count"))) + 1
    limit, end = number(repeat.get("limit")), int(number(repeat.get("endDate")))
    if (limit and iteration > limit) or (end and now > end):
        return None
    next_ms = None
    if repeat.get("pattern"):
        base = max(now, int(number(opts.get("prevMillis"))))
        start = int(number(repeat.get("startDate")))
        next_ms = pattern_next(str(repeat["pattern"]), str(repeat.get("tz") or ""), base, start, end)
        if next_ms is None:
            return None
    return Occurrence(next_ms, job_opts(keys, scheduler_id, opts, repeat, iteration, next_ms, now))


def job_opts(
    keys: QueueKeys,
    scheduler_id: str,
    template: Mapping[str, Any],
    repeat: Mapping[str, Any],
    iteration: int,
    next_ms: int | None,
    now: int,
) -> dict[str, Any]:
    """Options of a produced job, with wire names; the scripts overwrite `jobId` and `delay`."""
    opts = encode_opts({k: v for k, v in template.items() if k != "prevMillis"})
    kept = {k: v for k, v in repeat.items() if k != "immediately" and v is not None}
    opts["repeat"] = {**kept, "count": iteration}
    opts["jobId"] = keys.occurrence(scheduler_id, next_ms or 0)
    opts["delay"] = max(0, (next_ms or now) - now)
    opts["timestamp"] = now
    opts["repeatJobKey"] = scheduler_id
    if next_ms is not None:
        opts["prevMillis"] = next_ms
    return opts
