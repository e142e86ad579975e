# SPDX-License-Identifier: MIT
"""Figures of a run: collected as rows, printed as tables for people, written as JSON for programs."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

Value = str | int | float


@dataclass
class Table:
    """One table. `method` says in a sentence how the figures came about."""

    title: str
    method: str
    rows: list[dict[str, Value]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The table as Markdown that is aligned, so that it can be read in a terminal as well."""
        heads = list(dict.fromkeys(key for row in self.rows for key in row))
        heads.sort(key=lambda head: head in ("settings", "note"))  # words after the numbers
        cells = [heads, *([text(row.get(head, "")) for head in heads] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
        numeric = [all(not isinstance(row.get(head, 0), str) for row in self.rows) for head in heads]

        def line(row: list[str]) -> str:
            parts = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True))
            return f"| {' | '.join(parts)} |"

        yield line(cells[0])
        yield f"|{'|'.join('-' * (w + 1) + (':' if n else '-') for w, n in zip(widths, numeric, strict=True))}|"
        yield from (line(row) for row in cells[1:])


def text(value: Value) -> str:
    """A number with three significant digits and thin groups: 12 300, 4.56, 0.0123."""
    if isinstance(value, str):
        return " ".join(value.split()).replace("|", "/")
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{round(value):,}".replace(",", " ")
    return f"{value:.3g}"


class Report:
    """All tables of a run, in the order of their first row."""

    def __init__(self, scale: str, server: str) -> None:
        self.scale = scale
        self.server = server
        self.tables: dict[str, Table] = {}

    def row(self, title: str, method: str, **values: Value) -> None:
        """Adds a row; keyword `a_b` becomes the column `a b`."""
        table = self.tables.setdefault(title, Table(title, method))
        table.rows.append({name.replace("_", " "): value for name, value in values.items()})

    def lines(self) -> Iterator[str]:
        yield from machine_lines(self.server)
        for table in self.tables.values():
            yield from ("", f"### {table.title}", "", table.method, "")
            yield from table.lines()

    def write(self, path: Path) -> None:
        """Writes everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tables = {t.title: {"method": t.method, "rows": t.rows} for t in self.tables.values()}
        facts = {"machine": list(machine_lines(self.server)), "scale": self.scale, "tables": tables}
        path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def machine_lines(server: str) -> Iterator[str]:
    """What the figures were taken on, and how busy it was with other things."""
    memory_gb = psutil.virtual_memory().total / 2**30
    load = os.getloadavg()
    now = datetime.datetime.now(datetime.UTC)
    yield f"Machine: {cpu_model()}, {os.cpu_count()} cores, {memory_gb:.0f} GB, Linux {platform.release()}"
    yield f"Python {platform.python_version()}, {server}; {now:%Y-%m-%d %H:%M} UTC"
    yield f"Load average at the time of printing: {load[0]:.1f} / {load[1]:.1f} / {load[2]:.1f}"


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def server_version(binary: str) -> str:
    """`Valkey server v=9.1.0` and the like."""
    out: str = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return out.split(" sha")[0].strip()


def flat(**values: Any) -> dict[str, Any]:
    """For pytest-benchmark's `extra_info`: rounded, JSON-able."""
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in values.items()}
