# SPDX-License-Identifier: MIT
"""When a worker process has done enough: so many jobs, so old, so much private memory.

It asks once and goes on working: the heir is started first, and only then is this process stopped. Limits carry a
jitter fixed at the start, so that equal load does not recycle all processes in the same moment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import psutil

from echomq_pool.clock import Clock
from echomq_pool.config.schema import WorkersConfig

SAMPLE_EVERY_MS = 1_000  # the figure costs a fifth of a millisecond and more with size


class Recycle:
    """Counts and samples; calls `wish` with the reason, once."""

    def __init__(
        self,
        config: WorkersConfig,
        clock: Clock,
        wish: Callable[[str], None],
        private_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._wish = wish
        self._private_bytes = private_bytes or _private_bytes
        self._max_memory = config.max_memory
        self._sampled_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self.wished = False
        self.jobs = 0
        self.max_jobs = _jittered(config.max_jobs, config.max_jobs_jitter)
        if config.max_age_ms:
            age_s = _jittered(config.max_age_ms, config.max_jobs_jitter) / 1000
            self._timer = asyncio.get_running_loop().call_later(age_s, self.ask, "max_age")

    def job_ended(self) -> None:
        """One more job is done, whatever became of it."""
        self.jobs += 1
        if self.max_jobs and self.jobs >= self.max_jobs:
            self.ask("max_jobs")
        elif self._max_memory and not self.wished:
            self._sample()

    def ask(self, reason: str) -> None:
        """Wishes to be replaced, unless that was said already."""
        if not self.wished:
            self.wished = True
            self._wish(reason)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sample(self) -> None:
        now = self._clock.mono_ms()
        if now - self._sampled_ms < SAMPLE_EVERY_MS:
            return
        self._sampled_ms = now
        if self._private_bytes() > self._max_memory:
            self.ask("max_memory")


def _jittered(limit: int, jitter: float) -> int:
    """`limit` ± the share `jitter`; 0 stays 0: no limit (case C082)."""
    if not limit:
        return 0
    return max(1, round(limit * random.uniform(1 - jitter, 1 + jitter)))


def _private_bytes() -> int:
    uss: int = psutil.Process().memory_full_info().uss
    return uss
