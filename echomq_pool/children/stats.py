# SPDX-License-Identifier: MIT
"""The numbers of one child on their way to the supervisor: at most one record per second, and only after a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from echomq_pool.ipc.messages import Message, Stats
from echomq_pool.metrics import Metrics

EVERY_S = 1.0


class StatsSender:
    """Calls `send` within a second of `touch`. An idle child sends nothing and keeps no timer."""

    def __init__(self, metrics: Metrics, send: Callable[[Message], None], before: Callable[[], None]) -> None:
        self._metrics = metrics
        self._send = send
        self._before = before  # fills in the gauges
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """Something was counted."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY_S, self.send_now)

    def send_now(self) -> None:
        """Sends the figures if any of them has changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._before()
        if self._metrics.changed:
            counters, gauges, histograms = self._metrics.snapshot()
            self._send(Stats(counters, gauges, histograms))
