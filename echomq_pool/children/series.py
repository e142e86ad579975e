# SPDX-License-Identifier: MIT
"""Declared schedules against what the server has: same, changed, new, no longer declared. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import orjson

from echomq_pool.config.schema import SchedulerConfig
from echomq_pool.plane.calls import Call
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.schedule import SchedulerRecord, pattern_next
from echomq_pool.plane.scheduling import upsert


def declared_field(pool: str) -> str:
    """Field of the queue's meta hash that lists the schedules which this pool's configuration declared.

    Other clients ignore meta fields that they do not know; without the list a schedule dropped from the
    configuration could not be told from one that somebody else made.
    """
    return f"echomq-pool:{pool}:schedulers"


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be done in one queue: upsert these, remove those."""

    upsert: list[SchedulerConfig]
    remove: list[str]


def changes(
    wanted: list[SchedulerConfig], stored: dict[str, SchedulerRecord | None], declared_before: list[str]
) -> Changes:
    """Compares the configuration with the records; unchanged series keep their next job untouched."""
    ids = {config.id for config in wanted}
    return Changes(
        [config for config in wanted if not is_same(config, stored.get(config.id))],
        [scheduler_id for scheduler_id in declared_before if scheduler_id not in ids],
    )


def is_same(config: SchedulerConfig, record: SchedulerRecord | None) -> bool:
    """Whether an upsert would change nothing."""
    if record is None:
        return False
    same_time = (config.every_ms, config.pattern, config.tz, config.limit, config.start_ms, config.end_ms) == (
        record.every_ms, record.pattern, record.tz, record.limit, record.start_ms, record.end_ms,
    )  # fmt: skip
    if config.offset_ms is not None and config.offset_ms != record.offset_ms:
        return False
    same_job = config.name == record.name and _json(config.data) == _json(record.data)
    return same_time and same_job and _plain(config.opts) == _plain(record.opts or {})


def upsert_call(keys: QueueKeys, config: SchedulerConfig, now_ms: int) -> Call | None:
    """The script call that makes the series as declared; None when it can have no occurrence any more.

    Raises:
        InputError: the pattern or the zone cannot be used (the configuration was checked, so: not here).
    """
    if config.end_ms and now_ms > config.end_ms:
        return None
    next_ms = None
    if config.pattern:
        next_ms = pattern_next(config.pattern, config.tz, now_ms, config.start_ms, config.end_ms)
        if next_ms is None:
            return None
    repeat: dict[str, Any] = {
        "every": config.every_ms or None,
        "pattern": config.pattern or None,
        "tz": config.tz or None,
        "limit": config.limit or None,
        "startDate": config.start_ms or None,
        "endDate": config.end_ms or None,
        "offset": config.offset_ms,
    }
    return upsert(keys, config.id, config.name, config.data.encode(), config.opts, repeat, next_ms, now_ms)


def _json(text: bytes | str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def _plain(opts: dict[str, Any]) -> Any:
    """Options as they look after the scripts' JSON: no empty values, no difference between 3 and 3.0."""
    return json.loads(json.dumps({key: value for key, value in opts.items() if value not in (None, {}, [])}))
