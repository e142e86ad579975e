# SPDX-License-Identifier: MIT
"""The two clocks of the pool, passed in wherever a decision depends on time.

Wall time goes on the wire (BullMQ's scripts take ``now`` from the client) and
decides no ownership; every local judgement uses the monotonic clock (law 7).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a component may ask about time."""

    def now_ms(self) -> int:
        """Wall clock, epoch milliseconds."""

    def mono_ms(self) -> int:
        """CLOCK_MONOTONIC in milliseconds; the same line for every process of this host."""


class SystemClock:
    """The real clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class FakeClock:
    """Clocks that move only when told to; for tests and for `echomq_pool.testing`."""

    __slots__ = ("mono", "wall")

    def __init__(self, wall_ms: int = 1_800_000_000_000, mono_ms: int = 1_000_000) -> None:
        self.wall = wall_ms
        self.mono = mono_ms

    def now_ms(self) -> int:
        return self.wall

    def mono_ms(self) -> int:
        return self.mono

    def advance(self, ms: int) -> None:
        """Moves both clocks forward by `ms` milliseconds."""
        self.wall += ms
        self.mono += ms


SYSTEM_CLOCK = SystemClock()
