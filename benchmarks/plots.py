# SPDX-License-Identifier: MIT
"""`python -m benchmarks.plots`: draws the figures of the last run as SVG files for `docs/tuning.md`."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "plots"
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 230, 40, 50
COLOURS = ("#0b6e99", "#c2410c", "#3f7d20", "#7c3aed", "#b91c6b", "#57534e")

Points = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Plot:
    """One picture: a line for each value of `line` over the column `x`. `only`: rows with these values."""

    name: str
    table: str
    line: str
    x: str
    y: str
    x_title: str
    y_title: str
    only: tuple[tuple[str, Any], ...] = ()


PLOTS = (
    Plot("probe", "EXISTS probe", "form", "jobs", "wall ms", "active jobs", "ms for one probe"),
    Plot("renewal", "Renewal", "form", "leases", "wall ms", "leases", "ms for one tick", (("workers", 1),)),
    Plot(
        "renewal-calls",
        "Renewal",
        "form",
        "leases",
        "calls",
        "leases",
        "calls for one tick",
        (("workers", 1),),
    ),
    Plot(
        "throughput",
        "Throughput: no-op jobs",
        "processes",
        "concurrency",
        "jobs per s",
        "concurrency",
        "jobs a second",
    ),
    Plot("idle", "Idle", "", "workers", "requests per s", "workers", "client requests a second, idle"),
)


def main(path: Path) -> int:
    tables = json.loads(path.read_text())["tables"]
    OUT.mkdir(parents=True, exist_ok=True)
    for plot in PLOTS:
        points = points_of(plot, tables)
        if points:
            (OUT / f"{plot.name}.svg").write_text("\n".join(draw(plot, points)) + "\n")
    return 0


def points_of(plot: Plot, tables: dict[str, Any]) -> Points:
    found: Points = defaultdict(list)
    rows = next((t["rows"] for title, t in tables.items() if title.split(":")[0] == plot.table), None)
    rows = rows or next((t["rows"] for title, t in tables.items() if title == plot.table), [])
    for row in rows:
        if all(row.get(name) == value for name, value in plot.only):
            name = f"{row[plot.line]}" if plot.line else plot.y_title
            label = f"{plot.line}: {name}" if plot.line == "processes" else name
            found[label].append((float(row[plot.x]), float(row[plot.y])))
    return {name: sorted(points) for name, points in found.items()}


def draw(plot: Plot, points: Points) -> Iterator[str]:
    """The picture, both axes logarithmic."""
    xs = decades([x for line in points.values() for x, _ in line])
    ys = decades([y for line in points.values() for _, y in line])

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - xs[0]) / (xs[-1] - xs[0])
        up = (math.log10(max(y, 10 ** ys[0])) - ys[0]) / (ys[-1] - ys[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    yield ' font-family="sans-serif" font-size="12">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    for power in xs:
        x, bottom = at(10**power, 10 ** ys[0])
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="#ddd"/>'
        yield words(x, bottom + 18, number(10**power), "middle")
    for power in ys:
        left, y = at(10 ** xs[0], 10**power)
        yield f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        yield words(left - 8, y + 4, number(10**power), "end")
    yield words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, plot.x_title, "middle")
    yield words(LEFT - 60, TOP - 16, plot.y_title, "start")
    for index, (name, line) in enumerate(points.items()):
        colour = COLOURS[index % len(COLOURS)]
        corners = [at(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in corners)
        row = TOP + 14 + index * 20
        yield f'<rect x="{WIDTH - RIGHT + 14}" y="{row - 9}" width="12" height="12" fill="{colour}"/>'
        yield words(WIDTH - RIGHT + 32, row + 2, name, "start")
    yield "</svg>"


def decades(values: Sequence[float]) -> list[int]:
    """Powers of ten that embrace the values; at least two."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    return list(range(low, max(high, low + 1) + 1))


def number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 1 else f"{value:g}"


def words(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222">{escape(text)}</text>'


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".benchmarks" / "figures-full.json"))
