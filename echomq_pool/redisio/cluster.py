# SPDX-License-Identifier: MIT
"""A cluster, as far as one queue needs it: its keys live in one slot, so one node at a time serves them."""

from __future__ import annotations

import asyncio

from echomq_pool.redisio.boot import Ask
from echomq_pool.redisio.replies import Action, ErrorReply, as_int, as_text, classify, target_of, to_error

Node = tuple[str, int]


class Nodes:
    """Where to connect next: the node last pointed to, else the seed and every node heard of, in turn."""

    def __init__(self) -> None:
        self._known: list[Node] = []
        self._pointed: Node | None = None
        self._turn = 0

    def point(self, node: Node) -> None:
        """A reply told us to go there."""
        self._pointed = node

    def learn(self, nodes: list[Node]) -> None:
        """Remembers nodes for the day when the seed is down."""
        self._known = nodes or self._known

    def next(self) -> Node | None:
        """The node to try now; None is the configured address."""
        if self._pointed is not None:
            node, self._pointed = self._pointed, None
            return node
        choices: list[Node | None] = [None, *self._known]
        choice = choices[self._turn % len(choices)]
        self._turn += 1
        return choice

    def settled(self, node: Node | None) -> None:
        """This node serves us: after a loss it is the first to be tried again."""
        self._turn = ([None, *self._known].index(node)) if node in self._known else 0


async def find_owner(ask: Ask, slot_key: bytes | str | None) -> tuple[Node | None, list[Node]]:
    """Asks whether this node serves the slot of `slot_key`: (where to go instead, all nodes).

    Raises:
        ServerUnready: CLUSTERDOWN, TRYAGAIN and the like.
        LinkRefused: the ACL says no.
    """
    commands: list[tuple[bytes | str, ...]] = [("CLUSTER", "SLOTS")]
    if slot_key is not None:
        commands.append(("EXISTS", slot_key))
    slots, *probe = await asyncio.gather(*ask(commands))
    nodes = [] if isinstance(slots, ErrorReply) else _nodes(slots)
    if probe and isinstance(probe[0], ErrorReply):
        verdict = classify(probe[0])
        if verdict.action is Action.MOVED:
            return target_of(str(probe[0])), nodes
        if verdict.action is not Action.ASK:
            raise to_error(verdict)
    return None, nodes


def _nodes(slots: list[list[object]]) -> list[Node]:
    """Host and port of every node in a CLUSTER SLOTS reply, masters first; those without a host left out."""
    found: dict[Node, None] = {}
    for position in (2, 3, 4):
        for entry in slots:
            if len(entry) > position and isinstance(entry[position], list):
                host, port = entry[position][0], entry[position][1]  # type: ignore[index]
                if host:
                    found[(as_text(host), as_int(port))] = None
    return list(found)
