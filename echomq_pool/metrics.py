# SPDX-License-Identifier: MIT
"""Counters, gauges and histograms as plain numbers: counted in each child, added up in one place.

A name may carry one label value after a bar: ``completed|orders``. Totals never fall: what a process had
counted when it ended stays in the sum, and nothing else of it stays (case C156).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """What one process counts about itself."""

    __slots__ = ("changed", "counters", "gauges", "histograms")

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.histograms: dict[str, list[float]] = {}  # one count per bucket, one for +Inf, then the sum in s
        self.changed = False

    def count(self, name: str, n: float = 1) -> None:
        """Adds `n` (never negative) to a counter."""
        self.counters[name] = self.counters.get(name, 0) + n
        self.changed = True

    def gauge(self, name: str, value: float) -> None:
        """Sets a gauge."""
        if self.gauges.get(name) != value:
            self.gauges[name] = value
            self.changed = True

    def observe(self, name: str, seconds: float) -> None:
        """Adds one observation, in seconds, to a histogram with the buckets `BUCKETS_S`."""
        row = self.histograms.get(name)
        if row is None:
            row = self.histograms[name] = [0.0] * (len(BUCKETS_S) + 2)
        row[bisect_left(BUCKETS_S, seconds)] += 1
        row[-1] += seconds
        self.changed = True

    def snapshot(self) -> tuple[dict[str, float], dict[str, float], dict[str, list[float]]]:
        """Copies of all numbers, as `ipc.messages.Stats` carries them; resets `changed`."""
        self.changed = False
        return dict(self.counters), dict(self.gauges), {k: list(v) for k, v in self.histograms.items()}


class Totals:
    """Sums over all processes, dead ones included for counters and histograms."""

    def __init__(self) -> None:
        self._ended = Metrics()
        self._live: dict[int, tuple[dict[str, float], dict[str, float], dict[str, list[float]]]] = {}

    def update(
        self,
        process: int,
        counters: dict[str, float],
        gauges: dict[str, float],
        histograms: dict[str, list[float]],
    ) -> None:
        """Takes the latest figures of a live process; `process` is a number that is never reused."""
        self._live[process] = (counters, gauges, histograms)

    def end(self, process: int) -> None:
        """The process is gone: its totals stay, its gauges do not."""
        counters, _, histograms = self._live.pop(process, ({}, {}, {}))
        _add(self._ended.counters, counters)
        _add_rows(self._ended.histograms, histograms)

    def counters(self) -> dict[str, float]:
        """Sum of each counter since the pool started."""
        total = dict(self._ended.counters)
        for counters, _, _ in self._live.values():
            _add(total, counters)
        return total

    def gauges(self) -> dict[str, float]:
        """Sum of each gauge over the processes that live now."""
        total: dict[str, float] = {}
        for _, gauges, _ in self._live.values():
            _add(total, gauges)
        return total

    def histograms(self) -> dict[str, list[float]]:
        """Sum of each histogram since the pool started."""
        total = {name: list(row) for name, row in self._ended.histograms.items()}
        for _, _, histograms in self._live.values():
            _add_rows(total, histograms)
        return total

    def as_dict(self) -> dict[str, Any]:
        """All three, JSON-able, as the status and the observer carry them."""
        return {"counters": self.counters(), "gauges": self.gauges(), "histograms": self.histograms()}


def _add(total: dict[str, float], part: dict[str, float]) -> None:
    for name, value in part.items():
        total[name] = total.get(name, 0) + value


def _add_rows(total: dict[str, list[float]], part: dict[str, list[float]]) -> None:
    for name, row in part.items():
        known = total.get(name)
        total[name] = list(row) if known is None else [a + b for a, b in zip(known, row, strict=True)]
