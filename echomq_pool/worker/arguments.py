# SPDX-License-Identifier: MIT
"""What a `Worker` is given, checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from echomq_pool.api.tasks import Task
from echomq_pool.children.processor import Processor, is_async, load_processor
from echomq_pool.children.routing import load_tasks, route
from echomq_pool.config.schema import KeepConfig, LimiterConfig
from echomq_pool.errors import InputError, WrongPlane


def processor_of(
    processor: Callable[[Any], Any] | str | None, tasks: Sequence[Task[..., Any] | str], concurrency: int
) -> Processor:
    if processor is not None and tasks:
        raise InputError("worker: expected a processor or tasks, got both")
    if tasks:
        found = {one.name: one for one in tasks if isinstance(one, Task)}
        found |= load_tasks([name for name in tasks if isinstance(name, str)])
        return route(found, concurrency, "tasks")
    if isinstance(processor, str):
        return load_processor(processor)
    if processor is None:
        return Processor("none", _never, True)
    if isinstance(processor, Task):
        raise InputError(f"processor: {processor.name} is a @task; say tasks=[{processor.name}] instead")
    if not callable(processor):
        raise InputError(f"processor: expected a function of one argument, got {processor!r}")
    return Processor(getattr(processor, "__name__", "processor"), processor, is_async(processor))


def _never(job: Any) -> Awaitable[None]:
    raise AssertionError(f"job {job.id} was taken by a worker without a processor")


def recovery_of(word: Any) -> str:
    if word not in ("sweep", "reap"):
        raise InputError(f"recovery: expected 'sweep' or 'reap', got {word!r}")
    return str(word)


def check_lease(**given: Any) -> None:
    """Refuses what a lease-plane worker cannot have, by the name of what was given.

    Raises:
        WrongPlane: with the reason.
    """
    reasons = {
        "prefix": "its keys are emq:{queue}:…",
        "hash_tag": "its keys are emq:{queue}:…",
        "remove_on_complete": "completed jobs are always removed",
        "remove_on_fail": "dead jobs stay until they are retried or removed",
        "metrics_points": "it keeps no numbers per minute",
    }
    for name, value in given.items():
        if value:
            raise WrongPlane(f"{name}: the lease plane has no such option: {reasons[name]}")


def whole(name: str, value: Any, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{name}: expected a whole number from {low}, got {value!r}")
    return value


def limiter_of(value: Any) -> LimiterConfig:
    try:
        most, duration_ms = value
    except (TypeError, ValueError):
        raise InputError(f"limiter: expected (max, duration_ms), got {value!r}") from None
    return LimiterConfig(whole("limiter max", most, 1), whole("limiter duration_ms", duration_ms, 1))


def keep_of(name: str, value: Any) -> KeepConfig:
    if isinstance(value, bool):
        return KeepConfig(count=0 if value else -1)
    if isinstance(value, int):
        return KeepConfig(count=whole(name, value, 0))
    if isinstance(value, dict) and not set(value) - {"count", "age", "limit"}:
        return KeepConfig(
            count=whole(f"{name}.count", value.get("count", -1), -1),
            age_s=whole(f"{name}.age", value.get("age", 0), 0),
            limit=whole(f"{name}.limit", value.get("limit", 0), 0),
        )
    raise InputError(f"{name}: expected true, false, a number or {{count, age, limit}}, got {value!r}")
