# SPDX-License-Identifier: MIT
"""The pool's figures as Prometheus families. Pure: numbers in, families out.

A counter named `completed|orders` becomes `echomq_completed_total{queue="orders"}`; the part behind the bar is
a label whose name depends on the family (`queue`, unless LABELS says otherwise).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from echomq_pool.children.depths import Depths
from echomq_pool.metrics import BUCKETS_S

LABELS = {"restarts": "reason", "hooks_run": "event", "hooks_failed": "event"}


def families(
    status: dict[str, Any],
    depths: dict[str, Depths],
    events: dict[str, dict[str, int]],
    beats: dict[str, int],
) -> Iterator[Metric]:
    """Everything that /metrics shows. `beats`: the oldest beat in a group, as its age in ms."""
    totals = status.get("totals", {})
    yield from _counters(totals.get("counters", {}))
    yield from _counters({f"restarts|{reason}": n for reason, n in status.get("restarts", {}).items()})
    yield from _gauges(totals.get("gauges", {}))
    yield from _histograms(totals.get("histograms", {}))
    yield from _children(status.get("children", []))
    yield from _queues(depths)
    yield from _events(events)
    yield from _beats(beats)


def _by_family(names: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    grouped: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in sorted(names):
        family, _, label = name.partition("|")
        grouped[family].append((name, label))
    return grouped


def _label_of(family: str, rows: list[tuple[str, str]]) -> list[str]:
    return [LABELS.get(family, "queue")] if any(label for _, label in rows) else []


def _counters(numbers: dict[str, float]) -> Iterator[Metric]:
    for family, rows in _by_family(numbers).items():
        labels = _label_of(family, rows)
        metric = CounterMetricFamily(f"echomq_{family}", family.replace("_", " "), labels=labels)
        for name, label in rows:
            metric.add_metric([label] if labels else [], numbers[name])
        yield metric


def _gauges(numbers: dict[str, float]) -> Iterator[Metric]:
    for family, rows in _by_family(numbers).items():
        labels = _label_of(family, rows)
        metric = GaugeMetricFamily(f"echomq_{family}", family.replace("_", " "), labels=labels)
        for name, label in rows:
            metric.add_metric([label] if labels else [], numbers[name])
        yield metric


def _histograms(numbers: dict[str, list[float]]) -> Iterator[Metric]:
    for family, rows in _by_family(numbers).items():
        labels = _label_of(family, rows)
        metric = HistogramMetricFamily(f"echomq_{family}_seconds", family.replace("_", " "), labels=labels)
        for name, label in rows:
            *counts, total = numbers[name]
            metric.add_metric([label] if labels else [], buckets=_cumulative(counts), sum_value=total)
        yield metric


def _cumulative(counts: list[float]) -> list[tuple[str, float]]:
    sums, running = [], 0.0
    for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], counts, strict=True):
        running += count
        sums.append((bound, running))
    return sums


def _children(children: list[dict[str, Any]]) -> Iterator[Metric]:
    up = GaugeMetricFamily("echomq_children", "children by group and state", labels=["group", "state"])
    tally: defaultdict[tuple[str, str], int] = defaultdict(int)
    for child in children:
        tally[child["group"], child["state"]] += 1
    for key, n in sorted(tally.items()):
        up.add_metric(list(key), n)
    yield up


def _queues(depths: dict[str, Depths]) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("echomq_queue_jobs", "jobs by queue and state", labels=["queue", "state"])
    oldest = GaugeMetricFamily(
        "echomq_queue_oldest_waiting_seconds", "age of the next job in line", labels=["queue"]
    )
    paused = GaugeMetricFamily("echomq_queue_paused", "1 while the queue is paused", labels=["queue"])
    for queue, depth in sorted(depths.items()):
        for state, n in depth.counts.items():
            jobs.add_metric([queue, state], n)
        oldest.add_metric([queue], depth.oldest_ms / 1000)
        paused.add_metric([queue], float(depth.paused))
    yield from (jobs, oldest, paused)


def _events(events: dict[str, dict[str, int]]) -> Iterator[Metric]:
    metric = CounterMetricFamily("echomq_events", "events read from the streams", labels=["queue", "event"])
    for queue, names in sorted(events.items()):
        for name, n in sorted(names.items()):
            metric.add_metric([queue, name], n)
    yield metric


def _beats(beats: dict[str, int]) -> Iterator[Metric]:
    metric = GaugeMetricFamily(
        "echomq_beat_age_seconds",
        "since the loop that is behind all others of its group has turned",
        labels=["group"],
    )
    for group, age_ms in sorted(beats.items()):
        metric.add_metric([group], age_ms / 1000)
    yield metric
