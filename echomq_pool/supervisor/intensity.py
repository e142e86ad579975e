# SPDX-License-Identifier: MIT
"""Restart intensity and restart back-off: numbers in, numbers out."""

from __future__ import annotations

from random import Random

from echomq_pool.supervisor.spec import Backoff

Times = tuple[int, ...]
FORK_RETRY_MS = (
    1_000  # least delay after a failed fork: the kernel has no process to give, asking faster frees none
)
OOM_RETRY_MS = 1_000  # least delay after an out-of-memory kill: the memory has to come back first


def add_restart(times: Times, now_ms: int, max_restarts: int, period_ms: int) -> tuple[Times, bool]:
    """Puts one restart attempt on the list of times.

    Returns:
        The attempts within the last `period_ms`, this one included, and whether they are more than `max_restarts`.
    """
    kept = (*(t for t in times if t >= now_ms - period_ms), now_ms)
    return kept, len(kept) > max_restarts


def restart_delay(backoff: Backoff, failures: int, rng: Random) -> int:
    """Milliseconds to wait before the restart that follows `failures` earlier ones (0 for the first)."""
    if failures <= 0:
        return 0
    base = min(backoff.max_ms, backoff.initial_ms << min(failures - 1, 32))
    spread = base * backoff.jitter
    return max(0, min(backoff.max_ms, round(base + rng.uniform(-spread, spread))))
