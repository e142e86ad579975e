# SPDX-License-Identifier: MIT
"""How long to wait before the next try. Pure: randomness and custom strategies are passed in."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from echomq_pool.errors import InputError

MAX_DELAY_MS = 2**53 - 1  # beyond it, a double cannot tell one ms from the next

Strategy = Callable[[int], float]
Random = Callable[[], float]


def retry_delay(
    attempt: int,
    attempts: int,
    backoff: Mapping[str, Any] | None,
    *,
    custom: Strategy | None = None,
    rng: Random = random.random,
) -> float | None:
    """What follows a failed run: None = fail for good, 0 = back to wait, else ms to be delayed.

    Args:
        attempt: number of the run that failed, 1 for the first.
        attempts: how many runs are allowed.
        backoff: the job's `{type, delay, jitter?}`, None for none.
        custom: strategy of a type that is neither fixed nor exponential; -1 from it means "stop". Without one
            such a type is retried after its plain `delay`.
    """
    if attempt >= attempts:
        return None
    delay = job_delay(attempt, backoff, custom=custom, rng=rng)
    return None if delay == -1 else max(0.0, delay)


def job_delay(
    attempt: int,
    backoff: Mapping[str, Any] | None,
    *,
    custom: Strategy | None = None,
    rng: Random = random.random,
) -> float:
    """Delay in ms before the run after `attempt`, as BullMQ computes it."""
    if not backoff:
        return 0
    delay, jitter = _number(backoff.get("delay")), _number(backoff.get("jitter"))
    kind = backoff.get("type")
    if kind == "exponential":
        # 2 ** (n - 1) as a float overflows long after the longest delay anybody can wait for.
        delay = min(_round(2.0 ** min(attempt - 1, 1_000) * delay), MAX_DELAY_MS)
    elif kind not in (None, "fixed") and custom is not None:
        return custom(attempt)
    return jittered(delay, jitter, rng)


def jittered(delay: float, jitter: float, rng: Random = random.random) -> float:
    """`delay` with the share `jitter` of it drawn at random, rounded down; unchanged without jitter."""
    if not jitter:
        return delay
    if not 0 <= jitter <= 1:
        raise InputError(f"jitter: expected 0 to 1, got {jitter!r}")
    return math.floor(rng() * delay * jitter + delay * (1 - jitter))


def pause(
    attempt: int, initial_ms: float, max_ms: float, jitter: float, rng: Random = random.random
) -> float:
    """Pause before try number `attempt` (0, the first, waits for nothing): doubling, capped, ± jitter."""
    if attempt <= 0:
        return 0
    delay = min(initial_ms * 2.0 ** min(attempt - 1, 1_000), max_ms)
    return delay * (1 + jitter * (2 * rng() - 1))


def _round(value: float) -> float:
    """Half up, as JavaScript rounds."""
    return math.floor(value + 0.5) if math.isfinite(value) else MAX_DELAY_MS


def _number(value: Any) -> float:
    try:
        return float(value or 0)
    except (TypeError, ValueError):
        return 0.0
