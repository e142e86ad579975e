# SPDX-License-Identifier: MIT
"""What one group reports of its children's ends."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from echomq_pool.supervisor.node import Node, State, World
from echomq_pool.supervisor.reason import ExitReason, Why
from echomq_pool.supervisor.report import Report
from echomq_pool.supervisor.spec import GroupSpec, Restart

SHOWN = 10  # ids named in a folded report


class Source(Protocol):
    """The group that the news come from."""

    id: str
    world: World
    spec: GroupSpec
    state: State


class News:
    """Ends by themselves at once; ends during the stop of a pool folded to a count."""

    def __init__(self, group: Source) -> None:
        self._group = group
        self._stopped: list[
            tuple[str, str]
        ] = []  # (id, reason) of pool children that ended otherwise than asked

    def ended(self, node: Node, reason: ExitReason) -> None:
        """A child ended that was to go on."""
        trouble = reason.abnormal or (node.restart is Restart.PERMANENT and not reason.planned)
        report = Report(self._group.id, "child_terminated", reason.text, node.offender(), trouble=trouble)
        self._group.world.emit(report)

    def stopped(self, node: Node, reason: ExitReason, *, brutal: bool) -> None:
        """An asked-for stop; no news if it went as it should (`brutal`: it was to be killed)."""
        if reason.clean_stop(node.restart) or (brutal and reason.kind is Why.KILLED):
            return
        if self._group.spec.pool and self._group.state is State.STOPPING:
            self._stopped.append((node.id, reason.text))
        else:
            report = Report(self._group.id, "shutdown_error", reason.text, node.offender())
            self._group.world.emit(report)

    def fold(self) -> None:
        """One report for all children of a pool whose stop ended in the same way."""
        for text, count in Counter(text for _, text in self._stopped).items():
            ids = [i for i, its in self._stopped if its == text][:SHOWN]
            report = Report(
                self._group.id, "shutdown_error", text, {"id": ids[0], "count": count, "ids": ids}
            )
            self._group.world.emit(report)
        self._stopped = []
