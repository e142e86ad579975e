# SPDX-License-Identifier: MIT
"""A job's options, checked before anything is written (law 13). Refuses what Node refuses, and what it should.

Names are accepted as Python writes them (`remove_on_complete`) and as BullMQ does (`removeOnComplete`).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any

from echomq_pool.errors import InputError
from echomq_pool.plane import codec
from echomq_pool.plane.adding import NewJob, Parent
from echomq_pool.plane.job_record import encode_opts
from echomq_pool.plane.keys import check_job_id

MAX_PRIORITY = 2_097_151
FAILURES = (  # what its failure means to its parent
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)
MAX_TIME_MS = 8_640_000_000_000_000  # the last moment that JavaScript can tell


def check_job(name: object, data: Any, options: Mapping[str, Any], now: int) -> NewJob:
    """Checks one job to be added.

    Args:
        name: the job's name.
        data: anything that is JSON.
        options: by either kind of name; None means "not given".
        now: wall ms, the timestamp of a job that names none.

    Raises:
        InputError: in one sentence with the place, what was expected and what came.
    """
    if not isinstance(name, str):
        raise InputError(f"name: expected a text, got {_kind(name)} {name!r}")
    opts = check_options(options)
    raw = codec.encode({} if data is None else data)
    limit = opts.get("sizeLimit")
    if limit is not None and len(raw) > limit:
        raise InputError(f"data: {len(raw)} bytes of JSON are more than the size limit of {limit}")
    opts.setdefault("attempts", 0)
    parent = opts.get("parent")
    if parent is not None and "deduplication" in opts:
        raise InputError("deduplication: a job with a parent cannot have one")
    timestamp = int(opts.get("timestamp", now))
    if timestamp + opts.get("delay", 0) > MAX_TIME_MS:
        raise InputError(f"delay: {opts['delay']!r} ms is beyond the end of time on the wire")
    above = None if parent is None else Parent(parent["id"], parent["queue"])
    return NewJob(name, raw, encode_opts(opts), opts.get("jobId", ""), timestamp, above)


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under BullMQ's long names, each of the right kind.

    Raises:
        InputError: an unknown name (with the nearest known one) or an unusable value.
    """
    checked: dict[str, Any] = {}
    for name, value in options.items():
        long = _NAMES.get(name)
        if long is None:
            raise InputError(f"{name}: there is no such option{_nearest(name)}")
        if value is not None:
            checked[long] = _CHECKS[long](name, value)
    fates = [name for name in FAILURES if checked.get(name)]
    if len(fates) > 1:
        raise InputError(f"{fates[0]} and {fates[1]}: a job can have only one of {', '.join(FAILURES)}")
    return checked


def check_backoff(name: str, value: Any) -> dict[str, Any]:
    """`{type, delay?, jitter?}`; a bare number is a fixed delay."""
    if _is_number(value):
        return {"type": "fixed", "delay": check_delay(name, value)}
    if not isinstance(value, Mapping):
        raise InputError(f"{name}: expected ms or {{type, delay, jitter}}, got {value!r}")
    _known_keys(name, value, ("type", "delay", "jitter"))
    kind = value.get("type")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{name}.type: expected 'fixed', 'exponential' or a strategy's name, got {kind!r}")
    checked: dict[str, Any] = {"type": kind}
    if value.get("delay") is not None:
        checked["delay"] = check_delay(f"{name}.delay", value["delay"])
    if value.get("jitter") is not None:
        jitter = value["jitter"]
        if not _is_number(jitter) or not 0 <= jitter <= 1:
            raise InputError(f"{name}.jitter: expected 0 to 1, got {jitter!r}")
        checked["jitter"] = jitter
    return checked


def _attempts(name: str, value: Any) -> int:
    return _whole(name, value, 0)


def check_priority(name: str, value: Any) -> int:
    return _whole(name, value, 0, MAX_PRIORITY)


def _count(name: str, value: Any) -> int:
    return _whole(name, value, 0)


def check_delay(name: str, value: Any) -> int | float:
    """Milliseconds, whole or not."""
    if not _is_number(value) or not math.isfinite(value) or not 0 <= value <= MAX_TIME_MS:
        raise InputError(f"{name}: expected a number of ms from 0, got {value!r}")
    return int(value) if value == int(value) else float(value)


def _moment(name: str, value: Any) -> int:
    return int(check_delay(name, value))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name}: expected true or false, got {value!r}")
    return value


def _job_id(name: str, value: Any) -> str:
    check_job_id(value)
    return str(value)


def _keep(name: str, value: Any) -> Any:
    """True, False, how many to keep, or {count, age in seconds, limit}."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        _known_keys(name, value, ("count", "age", "limit"))
        return {key: _whole(f"{name}.{key}", item, -1) for key, item in value.items() if item is not None}
    return _whole(name, value, -1)


def _deduplication(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name}: expected {{id, ttl, extend, replace, keep_last_if_active}}, got {value!r}")
    given = {_DEDUP_NAMES.get(str(key), str(key)): item for key, item in value.items() if item is not None}
    _known_keys(name, given, ("id", "ttl", "extend", "replace", "keepLastIfActive"))
    dedup_id = given.get("id")
    if not isinstance(dedup_id, str) or not dedup_id:
        raise InputError(f"{name}.id: expected a non-empty text, got {dedup_id!r}")
    checked: dict[str, Any] = {"id": dedup_id}
    if "ttl" in given:
        checked["ttl"] = check_delay(f"{name}.ttl", given["ttl"])
    for key in ("extend", "replace", "keepLastIfActive"):
        if key in given:
            checked[key] = _flag(f"{name}.{key}", given[key])
    return checked


def _parent(name: str, value: Any) -> dict[str, str]:
    """`{id, queue}` with the queue's qualified name (`emq:{orders}`), or the parent's own `Job`."""
    if isinstance(value, Mapping):
        _known_keys(name, value, ("id", "queue"))
        parent = {"id": value.get("id"), "queue": value.get("queue")}
    else:
        parent = {"id": getattr(value, "id", None), "queue": getattr(value, "queue_key", None)}
    for key, item in parent.items():
        if not isinstance(item, str) or not item:
            raise InputError(f"{name}.{key}: expected a non-empty text, got {item!r}")
    if ":" not in str(parent["queue"]):
        raise InputError(
            f"{name}.queue: expected a qualified name such as 'emq:{{orders}}', got {parent['queue']!r}"
        )
    return {key: str(item) for key, item in parent.items()}


def _telemetry(name: str, value: Any) -> dict[str, Any]:
    """`{metadata, omit_context}`: the trace's context as text, or the wish for none."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name}: expected {{metadata, omit_context}}, got {value!r}")
    given = {"omitContext" if key == "omit_context" else key: item for key, item in value.items()}
    _known_keys(name, given, ("metadata", "omitContext"))
    if given.get("omitContext") is not None:
        _flag(f"{name}.omit_context", given["omitContext"])
    metadata = given.get("metadata")
    if metadata is not None and not isinstance(metadata, str):
        raise InputError(f"{name}.metadata: expected a text, got {metadata!r}")
    return {key: item for key, item in given.items() if item is not None}


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "attempts": _attempts,
    "backoff": check_backoff,
    "continueParentOnFailure": _flag,
    "deduplication": _deduplication,
    "delay": check_delay,
    "failParentOnFailure": _flag,
    "ignoreDependencyOnFailure": _flag,
    "jobId": _job_id,
    "keepLogs": _count,
    "lifo": _flag,
    "parent": _parent,
    "priority": check_priority,
    "removeDependencyOnFailure": _flag,
    "removeOnComplete": _keep,
    "removeOnFail": _keep,
    "sizeLimit": _count,
    "stackTraceLimit": _count,
    "telemetry": _telemetry,
    "timestamp": _moment,
}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


_NAMES = {name: name for name in _CHECKS} | {_snake(name): name for name in _CHECKS}
_DEDUP_NAMES = {"keep_last_if_active": "keepLastIfActive"}


def _nearest(name: str) -> str:
    found = difflib.get_close_matches(name, _NAMES, n=1)
    return (
        f", did you mean {found[0]!r}?" if found else f"; known are {', '.join(sorted(map(_snake, _CHECKS)))}"
    )


def _known_keys(name: str, value: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in value:
        if key not in known:
            raise InputError(f"{name}.{key}: there is no such option; known are {', '.join(known)}")


def _whole(name: str, value: Any, low: int, high: int = 2**53 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bounds = f"from {low} to {high}" if high < 2**53 - 1 else f"from {low}"
        raise InputError(f"{name}: expected a whole number {bounds}, got {value!r}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: object) -> str:
    return type(value).__name__
