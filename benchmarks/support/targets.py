# SPDX-License-Identifier: MIT
"""The targets: what was aimed at, what this run gave, and whether that is enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.peers.catalog import NODE, OURS, OURS_LEASE

TITLE = "Targets"
METHOD = (
    "Ratios within one run on one machine, server included. `at least`: the figure must not be below the target; `at "
    "most`: not above it."
)
Row = Callable[..., None]


def judge(
    row: Row, what: str, figure: float, *, at_least: float | None = None, at_most: float | None = None
) -> bool:
    """Adds the row of one target; whether it is met."""
    met = figure >= at_least if at_least is not None else figure <= (at_most or 0.0)
    target = f"at least {at_least:g}" if at_least is not None else f"at most {at_most:g}"
    row(TITLE, METHOD, what=what, target=target, figure=float(figure), met="yes" if met else "NO")
    return met


Results = Mapping[str, Mapping[str, Mapping[str, Any]]]  # first word of a measure → peer → figures


def against_peers(row: Row, results: Results) -> None:
    """The targets that compare with other libraries, as far as this run has both sides."""
    _throughput(row, results.get("noop", {}))
    _enqueue(row, results.get("enqueue", {}))
    _latency(row, results.get("latency", {}))


def _of(peers: Mapping[str, Mapping[str, Any]], name: str, figure: str) -> float | None:
    value = peers.get(name, {}).get(figure)
    return float(value) if value else None


def _ratio(row: Row, what: str, ours: float | None, theirs: float | None, **target: float) -> None:
    if ours is not None and theirs is not None:
        judge(row, what, ours / theirs, **target)


def _throughput(row: Row, peers: Mapping[str, Mapping[str, Any]]) -> None:
    ours, lease = _of(peers, OURS, "jobs_per_s"), _of(peers, OURS_LEASE, "jobs_per_s")
    node, python = _of(peers, NODE, "jobs_per_s"), _of(peers, "bullmq (Python)", "jobs_per_s")
    _ratio(row, "no-op drain, lock plane ÷ BullMQ Node", ours, node, at_least=1.5)
    _ratio(row, "no-op drain, lock plane ÷ bullmq for Python", ours, python, at_least=10)
    others = [v["jobs_per_s"] for name, v in peers.items() if name not in (OURS, OURS_LEASE, NODE) and v]
    _ratio(row, "no-op drain, lock plane ÷ best Python peer", ours, max(others, default=None), at_least=1)
    _ratio(row, "no-op drain, lease plane ÷ BullMQ Node", lease, node, at_least=4)
    for figure, what, most in (
        ("server_us", "server CPU per job, lock plane ÷ BullMQ's scripts", 0.6),
        ("pool_us", "own CPU per job, lock plane ÷ BullMQ Node", 0.5),
    ):
        _ratio(row, what, _of(peers, OURS, figure), _of(peers, NODE, figure), at_most=most)


def _enqueue(row: Row, peers: Mapping[str, Mapping[str, Any]]) -> None:
    for figure, what, least in (
        ("bulk_per_s", "enqueue in bulk ÷ BullMQ Node", 1.3),
        ("one_by_one_per_s", "enqueue one by one ÷ BullMQ Node", 1.0),
    ):
        _ratio(row, what, _of(peers, OURS, figure), _of(peers, NODE, figure), at_least=least)


def _latency(row: Row, peers: Mapping[str, Mapping[str, Any]]) -> None:
    others = [v["p50_ms"] for name, v in peers.items() if name not in (OURS, OURS_LEASE) and v]
    ours = _of(peers, OURS, "p50_ms")
    _ratio(row, "add → start, idle, p50 ÷ best peer's", ours, min(others, default=None), at_most=1)
    ours, python = _of(peers, OURS, "p99_ms"), _of(peers, "bullmq (Python)", "p99_ms")
    _ratio(row, "add → start, idle, p99 ÷ bullmq for Python's", ours, python, at_most=1)
