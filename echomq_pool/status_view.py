# SPDX-License-Identifier: MIT
"""What `echomq-pool status` prints: the facts of the pool, then one line per process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

NUMBERS = ("pid", "restarts", "busy", "age")
STATE_STYLES = {"running": "green", "starting": "yellow", "stopping": "yellow", "restarting": "red"}
OUTCOMES = ("completed", "failed", "retried", "released", "moved", "lost")
UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def render(status: dict[str, Any], out: TextIO) -> None:
    """Prints the answer of the verb `status`."""
    console = Console(file=out, highlight=False)
    for name, value in _facts(status):
        console.print(f"{name:<10} {value}", markup=False, soft_wrap=True)
    children = status.get("children", [])
    if children:
        console.print()
        console.print(_table(children))


def _facts(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "pool", f"{status.get('pool')}, pid {status.get('pid')}, {status.get('state')}"
    yield "server", str(status.get("server") or "not reached yet")
    yield "uptime", _age(int(status.get("uptime_s") or 0))
    for group in status.get("groups", []):
        if group.get("dynamic"):
            yield "group", f"{group['id']}: {group.get('target')} workers, {group.get('restarts')} restarts"
    if status.get("recovering"):
        yield "recovering", f"{status['recovering']} dead workers"
    counters = (status.get("totals") or {}).get("counters") or {}
    jobs = {outcome: _sum(counters, outcome) for outcome in OUTCOMES}
    if any(jobs.values()):
        yield "jobs", ", ".join(f"{count:.0f} {outcome}" for outcome, count in jobs.items() if count)


def _sum(counters: dict[str, float], name: str) -> float:
    """Over all queues: a counter is called `completed|orders`."""
    return sum(count for key, count in counters.items() if key.partition("|")[0] == name)


def _table(children: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("id", "pid", "state", "restarts", "busy", "age", "link"):
        table.add_column(column, justify="right" if column in NUMBERS else "left")
    for row in children:
        table.add_row(*_cells(row), style=STATE_STYLES.get(str(row.get("state")), ""))
    return table


def _cells(row: dict[str, Any]) -> Iterator[str]:
    yield str(row.get("id", ""))
    yield str(row.get("pid") or "")
    yield str(row.get("state", ""))
    yield str(row.get("restarts", 0))
    yield str(row.get("busy") or "")
    yield _age(int(row.get("age_s") or 0)) if row.get("pid") else ""
    yield "up" if row.get("connected") else str(row.get("detail") or "")


def _age(seconds: int) -> str:
    """The largest unit that fits: 90 061 seconds are "1d 1h"."""
    for index, (length, unit) in enumerate(UNITS):
        if seconds >= length:
            rest, below = seconds % length, UNITS[index + 1] if index + 1 < len(UNITS) else (1, "s")
            return f"{seconds // length}{unit} {rest // below[0]}{below[1]}"
    return f"{seconds}s"
