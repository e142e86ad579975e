# SPDX-License-Identifier: MIT
"""What `echomq-pool status` prints: one line per process, the facts of the pool above them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

COLUMNS = ("id", "pid", "state", "restarts", "busy", "jobs")
STATE_STYLES = {"running": "green", "starting": "yellow", "stopping": "yellow", "failed": "red"}


def render(answer: Any, out: TextIO) -> None:
    """Prints the answer of `status`: `children` as a table, everything else as lines above it."""
    console = Console(file=out, highlight=False)
    status = answer if isinstance(answer, dict) else {"answer": answer}
    for key, value in status.items():
        if key != "children" and not isinstance(value, (dict, list)):
            console.print(f"{key}: {value}", markup=False)
    children = status.get("children")
    if isinstance(children, list):
        console.print(_table(children))


def _table(children: list[Any]) -> Table:
    rows = [row for row in children if isinstance(row, dict)]
    columns = list(_columns(rows))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in ("pid", "restarts", "busy", "jobs") else "left")
    for row in rows:
        style = STATE_STYLES.get(str(row.get("state")), "")
        table.add_row(*(_cell(row.get(column)) for column in columns), style=style)
    return table


def _columns(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The known columns first, then whatever else a row holds that fits into a cell."""
    seen = {key for row in rows for key, value in row.items() if not isinstance(value, (dict, list))}
    yield from (column for column in COLUMNS if column in seen)
    yield from sorted(seen - set(COLUMNS))


def _cell(value: Any) -> str:
    return "" if value is None or isinstance(value, (dict, list)) else str(value)
