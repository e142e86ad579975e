# SPDX-License-Identifier: MIT
"""What must fit together because of the planes: one queue, one plane, and nothing asked of a plane that it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echomq_pool.config import models
from echomq_pool.config.schema import PoolConfig, WorkersConfig

KeyPath = tuple[str | int, ...]
Found = Iterator[tuple[KeyPath, str]]

# The lease plane's own grammar: it is part of its wire.
_LEASE_QUEUE = re.compile(r"(?!emq$)[A-Za-z0-9._-]{1,128}")
LEASE_QUEUE_WORDS = 'on the lease plane 1 to 128 of A-Z a-z 0-9 . _ - and not "emq"'

LEASE_ONLY = ("batch", "recovery")
LOCK_ONLY = {
    "remove_on_complete": "the lease plane keeps no completed jobs",
    "remove_on_fail": "the lease plane keeps dead jobs until somebody reprocesses or removes them",
    "stalled_interval": "on the lease plane lapsed leases are looked for at every beat",
}
LOCK_ONLY_SCHEDULE = ("limit", "start_date", "end_date", "offset")
LOCK_ONLY_OPTIONS = ("priority", "lifo", "remove_on_complete", "remove_on_fail")


def applies(key: str, workers: WorkersConfig) -> bool:
    """Whether an option means anything to this entry; what does not is refused when a file says it."""
    if workers.plane != "lease":
        return key not in LEASE_ONLY
    return key not in LOCK_ONLY and not (key == "max_stalled_count" and workers.recovery == "reap")


def contradictions(file: models.File, config: PoolConfig) -> Found:
    """What the tables of `file` ask of the planes and cannot have."""
    for place, entry in enumerate(file.workers):
        for where, sentence in _workers(entry):
            yield ("workers", place, *where), sentence
    for place, schedule in enumerate(file.schedulers):
        if config.plane_of(schedule.queue) == "lease":
            for where, sentence in _schedule(schedule):
                yield ("schedulers", place, *where), sentence
    yield from _one_plane_each(file)
    if any(w.plane == "lease" for w in config.workers):
        yield from _keys(config)


def _workers(entry: models.Workers) -> Found:
    given = entry.model_fields_set
    if entry.plane != "lease":
        for key in LEASE_ONLY:
            if key in given:
                yield (key,), 'goes with plane = "lease" only'
        return
    for key, reason in LOCK_ONLY.items():
        if key in given:
            yield (key,), f'goes with plane = "lock" only: {reason}'
    if entry.recovery == "reap" and "max_stalled_count" in given:
        yield ("max_stalled_count",), 'means nothing with recovery = "reap", which counts no stalls'
    for index, queue in enumerate(entry.queues):
        if not _LEASE_QUEUE.fullmatch(_bare(queue)):
            yield ("queues", index), f"expected a queue name: {LEASE_QUEUE_WORDS}"


def _schedule(entry: models.Scheduler) -> Found:
    for key in LOCK_ONLY_SCHEDULE:
        if key in entry.model_fields_set:
            yield (key,), 'goes with plane = "lock" only'
    for key in LOCK_ONLY_OPTIONS:
        if key in entry.opts.model_fields_set:
            yield ("opts", key), 'goes with plane = "lock" only'
    if not _LEASE_QUEUE.fullmatch(_bare(entry.queue)):
        yield ("queue",), f"expected a queue name: {LEASE_QUEUE_WORDS}"


def _one_plane_each(file: models.File) -> Found:
    first: dict[str, tuple[str, str]] = {}
    for place, entry in enumerate(file.workers):
        for queue in entry.queues:
            name, where = _bare(queue), f"workers[{place}]"
            other, other_place = first.setdefault(name, (entry.plane, where))
            if other != entry.plane:
                sentence = f'queue "{queue}" is on the {other} plane in {other_place}; a queue has one plane'
                yield ("workers", place, "plane"), sentence
    for place, schedule in enumerate(file.schedulers):
        other, other_place = first.get(_bare(schedule.queue), ("", ""))
        if schedule.plane and other and other != schedule.plane:
            sentence = (
                f'queue "{schedule.queue}" is on the {other} plane in {other_place}; a queue has one plane'
            )
            yield ("schedulers", place, "plane"), sentence


def _keys(config: PoolConfig) -> Found:
    if config.prefix != "emq":
        yield ("prefix",), f'the lease plane\'s keys start with "emq", got "{config.prefix}"'
    if not config.hash_tag:
        yield ("hash_tag",), "the lease plane's keys have the queue's name in braces: expected true"


def _bare(queue: str) -> str:
    return queue[1:-1] if queue[:1] == "{" and queue[-1:] == "}" else queue
