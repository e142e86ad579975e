# SPDX-License-Identifier: MIT
"""Repeats of the lease plane: each occurrence is a new job, and the next time is set in the same step.

Times are those of the server. Two pumps fire an occurrence once, since the script fires only from the time that its
caller read. Patterns are evaluated here; periods (`every_ms`) by the script, which skips those that were missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echomq_pool import cron
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import InputError
from echomq_pool.plane import codec, lease_row
from echomq_pool.plane.branded import Mint
from echomq_pool.plane.job_record import decode_opts
from echomq_pool.plane.lease_desk import Desk
from echomq_pool.plane.schedule import SchedulerRecord

PUMP_BATCH = 100
NEVER_MS = 253_402_300_799_000  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class Due:
    """A repeat whose time has come: the time, and its record."""

    name: str
    at_ms: int
    record: dict[str, bytes]

    @property
    def every_ms(self) -> int:
        return int(self.record.get("every_ms") or 0)

    @property
    def template(self) -> bytes:
        return self.record.get("template", b"")

    def fields(self) -> list[bytes | str]:
        """What its jobs carry besides the template."""
        extra: list[bytes | str] = ["repeat", codec.to_wire(self.name)]
        for field, source in (("name", "job_name"), ("opts", "job_opts")):
            if source in self.record:
                extra += [field, self.record[source]]
        return extra


class Repeats:
    """The repeats of one queue.

    Args:
        desk: the queue.
        clock: wall time for the ids of new jobs; decides nothing.
    """

    def __init__(self, desk: Desk, clock: Clock = SYSTEM_CLOCK) -> None:
        self._desk = desk
        self._keys = desk.keys
        self._mint = Mint(clock=clock)

    async def register(
        self,
        name: str,
        every_ms: int,
        template: bytes | str,
        first_in_ms: int = 0,
        *,
        job_name: str = "",
        opts: Mapping[str, Any] | None = None,
    ) -> str:
        """A job every `every_ms`. Returns `registered`, or `exists` when the name is taken: nothing changes."""
        if every_ms < 1:
            raise InputError(f"every_ms: expected a whole number from 1, got {every_ms}")
        if first_in_ms < 0:
            raise InputError(f"first_in_ms: expected 0 or more, got {first_in_ms}")
        return await self._register(name, every_ms, template, "in", first_in_ms, job_name, opts, [])

    async def register_cron(
        self,
        name: str,
        pattern: str,
        template: bytes | str,
        *,
        now_ms: int,
        tz: str = "",
        job_name: str = "",
        opts: Mapping[str, Any] | None = None,
    ) -> str:
        """A job at each time of a cron pattern after `now_ms`. Returns `registered` or `exists`.

        Raises:
            InputError: the pattern or the zone cannot be used, or has no time to come.
        """
        first = _next_time(pattern, now_ms, tz)
        if first == NEVER_MS:
            raise InputError(f"repeat {name!r}: the pattern {pattern!r} has no time to come")
        rule = ["pattern", pattern, *(("tz", tz) if tz else ())]
        return await self._register(name, 0, template, "at", first, job_name, opts, rule)

    async def _register(
        self,
        name: str,
        every_ms: int,
        template: bytes | str,
        mode: str,
        first: int,
        job_name: str,
        opts: Mapping[str, Any] | None,
        rule: list[str],
    ) -> str:
        if not name:
            raise InputError("repeat: the name must not be empty")
        args = (name, every_ms, template, mode, first, self._keys.base, *rule, *_job_fields(job_name, opts))
        reply = await self._desk.ask("repeatRegister", self._pair(name), args)
        return "registered" if reply else "exists"

    async def upsert(
        self,
        name: str,
        template: bytes,
        *,
        every_ms: int = 0,
        pattern: str = "",
        tz: str = "",
        immediately: bool = False,
        job_name: str = "",
        opts: Mapping[str, Any] | None = None,
    ) -> int:
        """Makes or replaces a repeat. Returns its next time, server ms.

        Args:
            every_ms, pattern: one of them, checked by the caller. A period fires at once, a pattern at its next time.
            immediately: fires at once, whatever its rule. Else a repeat that keeps its rule keeps its next time.

        Raises:
            InputError: the pattern has no time to come.
        """
        at_once = immediately or not pattern
        first = 0 if at_once else _next_time(pattern, await self._server_ms(), tz)
        if first == NEVER_MS:
            raise InputError(f"repeat {name!r}: the pattern {pattern!r} has no time to come")
        rule = (first, int(immediately), self._keys.base, pattern, tz)
        args = (name, every_ms, template, *rule, *_job_fields(job_name, opts))
        return int(await self._desk.ask("repeatUpsert", self._pair(name), args))

    async def get(self, name: str) -> SchedulerRecord | None:
        """A repeat as callers of both planes know schedulers; None when there is none."""
        link = self._desk.link
        score, flat = await asyncio.gather(
            link.call("ZSCORE", self._keys.key("repeat"), name), link.call("HGETALL", self._keys.repeat(name))
        )
        return None if score is None or not flat else _shown(name, score, flat)

    async def page(self, start: int = 0, end: int = -1, *, asc: bool = True) -> list[SchedulerRecord]:
        """Repeats `start` to `end` (inclusive, -1 = the last), the next to fire first when `asc`."""
        args = (self._keys.base, start, end, int(asc))
        rows = await self._desk.ask("repeats", (self._keys.key("repeat"),), args)
        return [_shown(codec.to_text(name), at, flat) for name, at, flat in rows]

    async def due(self, limit: int = PUMP_BATCH) -> list[Due]:
        """Repeats whose time has come on the server's clock, earliest first."""
        return (await self._due(limit))[0]

    async def _due(self, limit: int) -> tuple[list[Due], int, int]:
        reply = await self._desk.ask("repeatDue", (self._keys.key("repeat"),), (self._keys.base, limit))
        rows, now, following = reply
        found = [Due(codec.to_text(name), int(at), _record(flat)) for name, at, flat in rows]
        return found, int(now), int(following)

    async def fire(self, due: Due, job_id: str = "", next_ms: int = 0) -> str | None:
        """Adds the job of one occurrence and moves the repeat on. Returns the job's id.

        None: somebody else has done it, or it is gone.
        """
        job_id = job_id or self._mint.new()
        keys = (*self._pair(due.name), self._keys.job(job_id), self._keys.key("pending"))
        args = (self._keys.base, due.name, due.at_ms, job_id, next_ms, *due.fields())
        reply = await self._desk.ask("repeatFire", keys, args, job_id=job_id, action="add")
        return job_id if int(reply) > 0 else None

    async def pump(self, limit: int = PUMP_BATCH) -> int:
        """Fires all that is due. Returns how many this call fired."""
        found, now, _ = await self._due(limit)
        return sum([await self._fire_one(due, now) for due in found])

    async def turn(self, limit: int = PUMP_BATCH) -> tuple[int, int | None]:
        """Fires all that is due. Returns how many this call fired, and ms until the next; None = there is none."""
        found, now, following = await self._due(limit)
        fired = sum([await self._fire_one(due, now) for due in found])
        if found:
            return fired, 0  # their own next times are not known here
        return fired, following - now if following else None

    async def record(self, name: str) -> dict[str, bytes] | None:
        """What is registered under a name; None when nothing is."""
        flat = await self._desk.link.call("HGETALL", self._keys.repeat(name))
        return _record(flat) or None

    async def _fire_one(self, due: Due, now: int) -> bool:
        pattern = codec.to_text(due.record.get("pattern", b""))
        following = 0
        if pattern:
            following = _next_time(pattern, max(now, due.at_ms), codec.to_text(due.record.get("tz", b"")))
        fired = await self.fire(due, next_ms=following) is not None
        if following == NEVER_MS:
            await self.cancel(due.name)
        return fired

    async def next_ms(self) -> int:
        """Server time of the earliest repeat; 0 = there is none."""
        found = await self._desk.link.call("ZRANGE", self._keys.key("repeat"), 0, 0, "WITHSCORES")
        return int(float(found[1])) if found else 0

    async def cancel(self, name: str) -> str:
        """Returns `cancelled` or `absent`."""
        return "cancelled" if await self._desk.ask("repeatCancel", self._pair(name), (name,)) else "absent"

    async def count(self) -> int:
        return int(await self._desk.link.call("ZCARD", self._keys.key("repeat")))

    async def _server_ms(self) -> int:
        seconds, micros = await self._desk.link.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def _pair(self, name: str) -> tuple[str, str]:
        return self._keys.key("repeat"), self._keys.repeat(name)


def _next_time(pattern: str, after_ms: int, tz: str) -> int:
    found = cron.parse(pattern).next_after(after_ms, tz or None)
    return NEVER_MS if found is None else found


def _job_fields(job_name: str, opts: Mapping[str, Any] | None) -> list[bytes | str]:
    """What the jobs of a repeat carry besides the template, as its record names it."""
    extra = lease_row.extra_fields(job_name, opts)
    return [{"name": "job_name", "opts": "job_opts"}.get(str(part), part) for part in extra]


def _shown(name: str, at: Any, flat: Any) -> SchedulerRecord:
    record = _record([part for pair in flat.items() for part in pair] if isinstance(flat, dict) else flat)
    return SchedulerRecord(
        id=name,
        name=codec.to_text(record.get("job_name", b"")),
        next_ms=int(float(at)),
        every_ms=int(record.get("every_ms") or 0),
        pattern=codec.to_text(record.get("pattern", b"")),
        tz=codec.to_text(record.get("tz", b"")),
        data=record.get("template", b"{}"),
        opts=decode_opts(record.get("job_opts")),
    )


def _record(flat: list[bytes]) -> dict[str, bytes]:
    return {codec.to_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
