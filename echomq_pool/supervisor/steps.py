# SPDX-License-Identifier: MIT
"""The queue of a group: stop these, wait, start those; one step begins when the one before it is over."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from echomq_pool.supervisor.node import Node, State


class Do(Enum):
    """What a step does."""

    STOP = "stop"
    START = "start"
    WAIT = "wait"


class Step:
    """One step. Its nodes go together; static groups put one node in each step, pools put all in one."""

    __slots__ = ("at", "begun", "do", "nodes", "pending")

    def __init__(self, do: Do, nodes: Sequence[Node] = (), at: int = 0) -> None:
        self.do = do
        self.nodes = tuple(nodes)
        self.at = at
        self.begun = False
        self.pending: set[Node] = set()

    def covers(self, node: Node) -> bool:
        """Whether this step still has to do with that node."""
        return node in self.pending if self.begun else node in self.nodes

    def settle(self, node: Node) -> None:
        """Takes note of a node's new state."""
        if self.resolved(node):
            self.pending.discard(node)

    def resolved(self, node: Node) -> bool:
        """Whether the step is through with that node. One that ended up DOWN in a start step was ignored or stopped."""
        return node.state is State.DOWN or (self.do is Do.START and node.state is State.RUNNING)
