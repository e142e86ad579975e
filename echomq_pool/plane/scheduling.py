# SPDX-License-Identifier: MIT
"""The script calls of job schedulers as values (protocol, sections 6.13 to 6.16 and 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echomq_pool.plane.calls import Call
from echomq_pool.plane.job_record import JobRecord, encode_opts
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.pack import pack
from echomq_pool.plane.schedule import SchedulerRecord, every_next, job_opts, next_occurrence, pattern_next


def advance(keys: QueueKeys, job: JobRecord, now: int) -> Call | None:
    """The call by which the taker of a scheduler's job makes the next one; None when the series is over.

    Raises:
        InputError: the job's pattern or zone cannot be used.
    """
    if job.rjk is None:
        return None
    found = next_occurrence(keys, job.rjk, job.opts, now)
    if found is None:
        return None
    args = (
        "" if found.next_ms is None else found.next_ms,
        job.rjk,
        job.data,
        pack(found.opts),
        now,
        keys.base,
        job.id,
    )
    names = ("repeat", "delayed", "wait", "paused", "meta", "prioritized", "marker", "id", "events", "pc")
    return Call("updateJobScheduler", (*map(keys.key, names), keys.job(job.id), keys.key("active")), args)


def upsert(
    keys: QueueKeys,
    scheduler_id: str,
    name: str,
    data: bytes,
    template: Mapping[str, Any],
    repeat: Mapping[str, Any],
    next_ms: int | None,
    now: int,
) -> Call:
    """The call that makes or replaces a scheduler. `repeat` holds the wire's names, dates in ms."""
    iteration = int(repeat.get("count") or 0) + 1
    record_names = ("startDate", "endDate", "tz", "pattern", "every", "limit", "offset")
    record = {"name": name} | {k: repeat[k] for k in record_names if repeat.get(k) is not None}
    args = (
        "" if next_ms is None else next_ms,
        pack(record),
        scheduler_id,
        data,
        pack(encode_opts(template)),
        pack(job_opts(keys, scheduler_id, template, repeat, iteration, next_ms, now)),
        now,
        keys.base,
        "",
    )
    return Call("addJobScheduler", _upsert_keys(keys), args)


def get(keys: QueueKeys, scheduler_id: str) -> Call:
    return Call("getJobScheduler", (keys.key("repeat"),), (scheduler_id,))


def remove(keys: QueueKeys, scheduler_id: str) -> Call:
    names = (keys.key("repeat"), keys.key("delayed"), keys.key("events"))
    return Call("removeJobScheduler", names, (scheduler_id, keys.base))


def repair(keys: QueueKeys, record: SchedulerRecord, now: int) -> Call | None:
    """The call that makes a series' next job again if it is nowhere; None when the series is over.

    A slot that is still to come is filled again; one that is past is followed by the next of the grid.

    Raises:
        InputError: the record's pattern or zone cannot be used.
    """
    if record.ended(now):
        return None
    slot: int | None = record.next_ms
    if record.next_ms <= now:
        slot = _after(record, now)
    if slot is None:
        return None
    iteration = record.iterations + (slot != record.next_ms)
    opts = job_opts(keys, record.id, record.opts or {}, record.repeat_options(), iteration, slot, now)
    if record.every_ms:
        opts.pop("prevMillis", None)
    args = (keys.base, now, record.id, record.next_ms, slot, pack(opts))
    return Call("repairScheduler", _upsert_keys(keys), args)


def _after(record: SchedulerRecord, now: int) -> int | None:
    if record.every_ms:
        return every_next(record.next_ms, record.every_ms, now, record.offset_ms or 0, record.start_ms)[0]
    if record.pattern:
        base = max(now, record.next_ms)
        return pattern_next(record.pattern, record.tz, base, record.start_ms, record.end_ms)
    return None


def _upsert_keys(keys: QueueKeys) -> tuple[str, ...]:
    names = (
        "repeat",
        "delayed",
        "wait",
        "paused",
        "meta",
        "prioritized",
        "marker",
        "id",
        "events",
        "pc",
        "active",
    )
    return tuple(map(keys.key, names))
