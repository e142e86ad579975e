# SPDX-License-Identifier: MIT
"""How the demo shows itself: a moving bar on a terminal, a few plain lines elsewhere, a summary at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


@dataclass(slots=True)
class Summary:
    """What came of it."""

    added: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    seconds: float = 0.0
    killed: str = ""
    recovered_ms: list[int] = field(default_factory=list)
    pool_exit: int = 0
    facts: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Nothing lost, nothing doubled, nothing failed, the killed worker's jobs run again, a clean end."""
        wrong = self.lost or self.doubled or self.failed or self.pool_exit
        return not wrong and self.done == self.added and bool(self.recovered_ms)


class View:
    """The bar while it runs."""

    def __init__(self, total: int) -> None:
        self.console = Console()
        self.total = total
        self.told = 0
        columns = (
            TextColumn("{task.description}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.progress.add_task("jobs done", total=total)

    def __enter__(self) -> View:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def say(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def show(self, done: int) -> None:
        """Moves the bar; without a terminal, a line per tenth."""
        self.progress.update(self.task, completed=done)
        tenth = done * 10 // self.total
        if not self.console.is_terminal and tenth > self.told:
            self.told = tenth
            self.say(f"{done} of {self.total} jobs done")

    def summary(self, summary: Summary) -> None:
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        for name, value in _rows(summary):
            table.add_row(name, value)
        self.console.print()
        self.console.print(table)


def _rows(summary: Summary) -> list[tuple[str, str]]:
    waits = sorted(summary.recovered_ms)
    recovered = f"{len(waits)} jobs, running again after {waits[0]} to {waits[-1]} ms" if waits else "none"
    rate = summary.done / summary.seconds if summary.seconds else 0
    rows = [
        ("jobs done", f"{summary.done:,} of {summary.added:,}"),
        ("lost", f"{summary.lost}"),
        ("doubled", f"{summary.doubled}"),
        ("failed", f"{summary.failed}"),
        ("killed", summary.killed or "nobody"),
        ("recovered", recovered),
        ("jobs per second", f"{rate:,.0f}"),
        ("exit code of the pool", f"{summary.pool_exit}"),
    ]
    return rows + [(f"  {name} counted", f"{count:,}") for name, count in summary.facts.items()]
