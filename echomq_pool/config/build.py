# SPDX-License-Identifier: MIT
"""From checked tables to the frozen configuration: defaults filled in, what must fit together looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from echomq_pool import cron
from echomq_pool.config import models, planes
from echomq_pool.config.control import CONTROL_MAX, default_control, embedded_socket
from echomq_pool.config.cpus import CpuCount, usable_cpus
from echomq_pool.config.problems import path_text, shown
from echomq_pool.config.redis_table import redis_config
from echomq_pool.config.schema import (
    BackoffConfig,
    InfraConfig,
    LimiterConfig,
    LogConfig,
    ObserverConfig,
    PoolConfig,
    SchedulerConfig,
    SupervisorConfig,
    WorkersConfig,
)
from echomq_pool.config.units import show_duration

KeyPath = tuple[str | int, ...]
Problems = list[tuple[KeyPath, str]]


def build(
    file: models.File, folder: Path, environ: Mapping[str, str], cpus: CpuCount | None, problems: Problems
) -> PoolConfig:
    """The configuration of a file whose tables are each in order; contradictions go into `problems`.

    Args:
        folder: relative paths in the file are relative to this.
        cpus: what `processes = "auto"` stands for; looked up when None.
    """
    top = settings(PoolConfig, file, only=("name", "prefix", "hash_tag"))
    workers = [
        _workers(file.defaults, entry, place, cpus, problems) for place, entry in enumerate(file.workers)
    ]
    supervisor = _supervisor(file, environ, problems)
    redis = redis_config(file.redis, folder, problems)
    if redis.embedded is not None:
        redis = replace(redis, unix_path=embedded_socket(supervisor.control))
    config = PoolConfig(
        **top,
        redis=redis,
        supervisor=supervisor,
        infra=InfraConfig(**settings(InfraConfig, file.infra)),
        hooks=file.hooks.model_dump(exclude_unset=True),
        workers=tuple(workers),
        schedulers=tuple(_scheduler(entry, place, problems) for place, entry in enumerate(file.schedulers)),
        observer=ObserverConfig(**settings(ObserverConfig, file.observer)),
        log=LogConfig(**settings(LogConfig, file.log)),
    )
    problems.extend(_contradictions(config))
    problems.extend(planes.contradictions(file, config))
    return config


def settings(target: type[Any], table: BaseModel, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the table sets, by the dataclass's names: `timeout` becomes `timeout_ms`; no nested tables."""
    known = {f.name for f in fields(target)}
    found: dict[str, Any] = {}
    for key in table.model_fields_set:
        value = getattr(table, key)
        name = f"{key}_ms" if f"{key}_ms" in known else key
        if name in known and not isinstance(value, (BaseModel, list)) and (not only or key in only):
            found[name] = value
    return found


def _supervisor(file: models.File, environ: Mapping[str, str], problems: Problems) -> SupervisorConfig:
    table = file.supervisor
    chosen = settings(SupervisorConfig, table)
    if table.backoff is not None:
        chosen["backoff"] = BackoffConfig(**settings(BackoffConfig, table.backoff))
        if chosen["backoff"].max_ms < chosen["backoff"].initial_ms:
            problems.append((("supervisor", "backoff"), "max must not be shorter than initial"))
    chosen.setdefault("control", default_control(file.name or PoolConfig().name, environ))
    if len(chosen["control"].encode()) > CONTROL_MAX:
        sentence = f"expected a path of at most {CONTROL_MAX} bytes, got {shown(chosen['control'])}"
        problems.append((("supervisor", "control"), sentence))
    return SupervisorConfig(**chosen)


def _workers(
    defaults: models.Defaults, entry: models.Workers, place: int, cpus: CpuCount | None, problems: Problems
) -> WorkersConfig:
    path: KeyPath = ("workers", place)
    chosen = {**settings(WorkersConfig, defaults), **settings(WorkersConfig, entry)}
    for key in ("remove_on_complete", "remove_on_fail"):
        for table in (defaults, entry):
            if key in table.model_fields_set:
                chosen[key] = getattr(table, key).config()
    limiter = entry.limiter if "limiter" in entry.model_fields_set else defaults.limiter
    if limiter is not None:
        chosen["limiter"] = LimiterConfig(max=limiter.max, duration_ms=limiter.duration)
    if not chosen.get("processes"):
        found = cpus or usable_cpus()
        chosen |= {"processes": found.count, "processes_from": found.source}
    if "lock_renew_time_ms" not in chosen and "lock_duration_ms" in chosen:
        chosen["lock_renew_time_ms"] = chosen["lock_duration_ms"] // 2
    chosen.setdefault("max_restarts", 5 + chosen["processes"])
    chosen |= {"tasks": tuple(entry.tasks), "middleware": tuple(entry.middleware)}
    workers = WorkersConfig(queues=tuple(entry.queues), **chosen)
    if bool(workers.processor) == bool(workers.tasks):
        got = "both" if workers.tasks else "neither"
        problems.append((path, f"expected exactly one of processor and tasks, got {got}"))
    problems.extend((path + where, sentence) for where, sentence in _lease_problems(workers))
    if not entry.queues:
        problems.append(((*path, "queues"), "expected at least one queue, got an empty list"))
    return workers


def _lease_problems(workers: WorkersConfig) -> Iterator[tuple[KeyPath, str]]:
    lease = show_duration(workers.lock_duration_ms)
    for key, renewal in (
        ("lock_renew_time", workers.lock_renew_time_ms),
        ("renew_interval", workers.renew_interval_ms),
    ):
        if workers.lock_duration_ms < 2 * renewal:
            # One missed renewal must never cost a lease.
            expected = f'at most half of lock_duration "{lease}"'
            yield (key,), f'expected {expected}, got "{show_duration(renewal)}"'


def _scheduler(entry: models.Scheduler, place: int, problems: Problems) -> SchedulerConfig:
    path: KeyPath = ("schedulers", place)
    problems.extend((path + where, sentence) for where, sentence in _schedule_problems(entry))
    return SchedulerConfig(
        id=entry.id,
        queue=entry.queue,
        name=entry.name,
        every_ms=entry.every,
        pattern=entry.pattern,
        tz=entry.tz,
        offset_ms=entry.offset if "offset" in entry.model_fields_set else None,
        limit=entry.limit if "limit" in entry.model_fields_set else 0,
        start_ms=entry.start_date,
        end_ms=entry.end_date,
        data=_json(entry.data, (*path, "data"), problems),
        opts=job_options(entry.opts),
        plane=entry.plane,
    )


def _schedule_problems(entry: models.Scheduler) -> Iterator[tuple[KeyPath, str]]:
    given = [key for key in ("every", "pattern") if key in entry.model_fields_set]
    if len(given) != 1:
        yield (), f"expected exactly one of every and pattern, got {' and '.join(given) or 'neither'}"
    if entry.pattern:
        try:
            cron.parse(entry.pattern)
        except cron.CronError as error:
            yield ("pattern",), str(error)
        if "offset" in entry.model_fields_set:
            yield ("offset",), "goes with every only"
    elif entry.tz:
        yield ("tz",), "goes with pattern only"
    if entry.tz:
        try:
            cron.check_zone(entry.tz)
        except cron.CronError as error:
            yield ("tz",), f'{error}; expected an IANA name such as "Europe/London"'
    if entry.end_date and entry.end_date <= entry.start_date:
        yield ("end_date",), "must be later than start_date"


def _json(data: Any, path: KeyPath, problems: Problems) -> str:
    try:
        return json.dumps(
            {} if data is None else data, allow_nan=False, ensure_ascii=False, separators=(",", ":")
        )
    except (TypeError, ValueError) as error:
        problems.append((path, f"expected data that JSON can hold ({error})"))
        return "{}"


def job_options(opts: models.JobOptions) -> dict[str, Any]:
    """Job options by their names on the wire (camelCase, milliseconds, seconds for an age)."""
    wire: dict[str, Any] = {}
    for key in opts.model_fields_set:
        value = getattr(opts, key)
        head, *rest = key.split("_")
        wire[head + "".join(part.capitalize() for part in rest)] = _wire_value(value)
    return dict(sorted(wire.items()))


def _wire_value(value: Any) -> Any:
    if isinstance(value, models.JobBackoff):
        backoff = {"type": value.type, "delay": value.delay}
        return {**backoff, "jitter": value.jitter} if "jitter" in value.model_fields_set else backoff
    if isinstance(value, models.Keep):
        kept = value.config()
        if kept.age_s == 0 and kept.limit == 0:
            return kept.count if kept.count > 0 else kept.count == 0
        numbers = {"count": kept.count, "age": kept.age_s, "limit": kept.limit}
        return {key: number for key, number in numbers.items() if number > 0 or (key, number) == ("count", 0)}
    return value


def _contradictions(config: PoolConfig) -> Iterator[tuple[KeyPath, str]]:
    if not config.workers and not config.schedulers:
        yield (), "nothing to do: expected at least one [[workers]] entry (or a [[schedulers]] entry)"
    yield from _twice((("workers", i, "name"), w.name) for i, w in enumerate(config.workers))
    yield from _twice((("schedulers", i, "id"), (s.queue, s.id)) for i, s in enumerate(config.schedulers))
    for place, workers in enumerate(config.workers):
        yield from _twice(
            (("workers", place, "queues", i), q.strip("{}") if config.hash_tag else q)
            for i, q in enumerate(workers.queues)
        )
    yield from _disagreements(config)
    if config.redis.cluster and not config.hash_tag and "{" not in config.prefix:
        for place, workers in enumerate(config.workers):
            if not all("{" in queue for queue in workers.queues):
                where: KeyPath = ("workers", place, "queues")
                yield (
                    where,
                    "a cluster needs all keys of a queue in one slot: hash_tag = true or names in braces",
                )


def _twice(values: Iterator[tuple[KeyPath, Any]]) -> Iterator[tuple[KeyPath, str]]:
    seen: dict[Any, KeyPath] = {}
    for path, value in values:
        if value in seen:
            name = value if isinstance(value, str) else value[-1]
            yield path, f"{shown(name)} is already used by {path_text(seen[value])}"
        seen.setdefault(value, path)


def _disagreements(config: PoolConfig) -> Iterator[tuple[KeyPath, str]]:
    """Groups that share a queue share its stalled checker: one interval, one limit."""
    first: dict[str, tuple[int, WorkersConfig]] = {}
    for place, workers in enumerate(config.workers):
        for queue in workers.queues:
            other_place, other = first.setdefault(queue, (place, workers))
            for key in ("stalled_interval_ms", "max_stalled_count", "recovery"):
                if getattr(workers, key) != getattr(other, key):
                    name = key.removesuffix("_ms")
                    sentence = (
                        f'queue "{queue}" is also served by workers[{other_place}], which sets another value'
                    )
                    yield ("workers", place, name), sentence
