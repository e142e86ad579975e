# SPDX-License-Identifier: MIT
"""Job schedulers: make, see, list, repair and end a series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echomq_pool.api.ask import Op, ask_read, ask_script
from echomq_pool.api.ops_look import LookOps
from echomq_pool.api.options import check_options
from echomq_pool.api.repeats import Repeat
from echomq_pool.errors import InputError
from echomq_pool.plane import codec, scheduling
from echomq_pool.plane.codes import check
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.plane.schedule import SchedulerRecord


class SeriesOps(LookOps):
    """Protocol, section 8."""

    def upsert_scheduler(
        self, scheduler_id: str, repeat: Repeat, name: str | None, data: Any, options: Mapping[str, Any]
    ) -> Op[JobRecord | None]:
        """Makes or replaces a series; returns its next job, None when the pattern has no further instant."""
        _check_scheduler_id(scheduler_id)
        now = self._clock.now_ms()
        template = check_options(options)
        raw = codec.encode({} if data is None else data)
        due, next_ms = repeat.first(now)
        if not due:
            return None
        call = scheduling.upsert(
            self.keys, scheduler_id, name or scheduler_id, raw, template, repeat.wire(), next_ms, now
        )
        (reply,) = yield [ask_script(call)]
        check(reply, scheduler_id, "schedule")
        return (yield from self.load(codec.to_text(reply[0])))

    def get_scheduler(self, scheduler_id: str) -> Op[SchedulerRecord | None]:
        (reply,) = yield [ask_script(scheduling.get(self.keys, scheduler_id))]
        return SchedulerRecord.from_reply(scheduler_id, reply)

    def remove_scheduler(self, scheduler_id: str) -> Op[bool]:
        (reply,) = yield [ask_script(scheduling.remove(self.keys, scheduler_id))]
        return int(reply) == 0

    def scheduler_ids(self, start: int = 0, end: int = -1, asc: bool = True) -> Op[list[str]]:
        command = "ZRANGE" if asc else "ZREVRANGE"
        (ids,) = yield [ask_read(command, self.keys.key("repeat"), start, end)]
        return [codec.to_text(found) for found in ids]

    def schedulers(self, start: int, end: int, asc: bool) -> Op[list[SchedulerRecord]]:
        ids = yield from self.scheduler_ids(start, end, asc)
        if not ids:
            return []
        replies = yield [ask_script(scheduling.get(self.keys, scheduler_id)) for scheduler_id in ids]
        found = [
            SchedulerRecord.from_reply(scheduler_id, reply)
            for scheduler_id, reply in zip(ids, replies, strict=True)
        ]
        return [record for record in found if record is not None]

    def scheduler_count(self) -> Op[int]:
        (count,) = yield [ask_read("ZCARD", self.keys.key("repeat"))]
        return int(count)

    def repair_scheduler(self, scheduler_id: str) -> Op[tuple[str, str]]:
        """(what was done, job id): gone | moved | alive | taken | made | ended."""
        record = yield from self.get_scheduler(scheduler_id)
        if record is None:
            return "gone", ""
        call = scheduling.repair(self.keys, record, self._clock.now_ms())
        if call is None:
            return "ended", ""
        (reply,) = yield [ask_script(call)]
        return codec.to_text(reply[0]), codec.to_text(reply[1])


def _check_scheduler_id(scheduler_id: object) -> None:
    if not isinstance(scheduler_id, str) or not scheduler_id.strip():
        raise InputError(f"scheduler id: expected a non-empty text, got {scheduler_id!r}")
