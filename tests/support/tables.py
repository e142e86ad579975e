# SPDX-License-Identifier: MIT
"""Table tests of scripts: one row is a call, its reply, its events and all keys that it changes, out of all keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.wire import Wire

Step = Callable[[Wire], object]


def nothing(wire: Wire) -> None:
    """The queue is empty."""


def steps(*parts: Step) -> Step:
    """One after the other."""

    def run(wire: Wire) -> None:
        for part in parts:
            part(wire)

    return run


@dataclass(frozen=True)
class Row:
    """`changes` maps keys to what becomes of them: None for gone, a text or list as a whole, a dict of the fields or
    members that differ (None for gone). Whatever is not named must stay as it was."""

    before: Step
    move: Step
    reply: Any
    changes: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)


def check(wire: Wire, row: Row) -> None:
    """Runs one row and compares the whole keyspace of its queue.

    Raises:
        AssertionError: the reply, an event or any key differs.
    """
    row.before(wire)
    wire.events()
    expected = wire.dump()
    assert row.move(wire) == row.reply
    for key, change in row.changes.items():
        value = _changed(expected.get(key), change)
        if value:
            expected[key] = value
        else:
            expected.pop(key, None)
    found = wire.dump()
    assert found.pop("events", []) == row.events
    assert found == expected


def _changed(value: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    merged = {**(value or {}), **change}
    return {name: item for name, item in merged.items() if item is not None}
