# SPDX-License-Identifier: MIT
"""The pool as `status`, `/readyz` and `/metrics` show it: plain data about the tree and its processes."""

from __future__ import annotations

import os
from typing import Any, Protocol

from echomq_pool.config.schema import PoolConfig
from echomq_pool.ipc.board import Board
from echomq_pool.metrics import Totals
from echomq_pool.supervisor.family import Family, child_row
from echomq_pool.supervisor.group import Group
from echomq_pool.supervisor.node import Node, State
from echomq_pool.supervisor.tree import Tree, walk


class Pictured(Protocol):
    """What a picture is taken of."""

    board: Board
    config: PoolConfig
    family: Family
    generation: int
    restarts: dict[str, int]
    server: str
    totals: Totals
    tree: Tree

    def now(self) -> int: ...
    def state(self) -> str: ...


def picture(root: Pictured, uptime_ms: int) -> dict[str, Any]:
    """The whole pool, JSON-able."""
    groups = [node for node in walk(root.tree.root) if isinstance(node, Group)]
    return {
        "pool": root.config.name,
        "pid": os.getpid(),
        "state": root.state(),
        "server": root.server,
        "generation": root.generation,
        "uptime_s": uptime_ms // 1000,
        "groups": [_group_row(group) for group in groups],
        "children": [row for group in groups for row in _child_rows(root, group)],
        "recovering": len(root.family.buried),
        "restarts": dict(root.restarts),
        "totals": root.totals.as_dict(),
    }


def _group_row(group: Group) -> dict[str, Any]:
    return {
        "id": group.id,
        "state": group.state.value,
        "dynamic": group.spec.pool,
        "target": group.target,
        "restarts": group.restarts,
    }


def _child_rows(root: Pictured, group: Group) -> list[dict[str, Any]]:
    return [_child_row(root, group, node) for node in group.children if not isinstance(node, Group)]


def _child_row(root: Pictured, group: Group, node: Node) -> dict[str, Any]:
    member = root.family.members.get(node.handle) if node.live else None
    if member is not None:
        busy = root.board.busy(member.slot)
        return child_row(member, node.state.value, node.restarts, busy, root.now())
    left = node.state is State.DOWN and node.last is None and node.was_up
    return {
        "id": node.id,
        "group": group.id,
        "pid": 0,
        "slot": -1,
        "state": "ignored" if left else node.state.value,
        "restarts": node.restarts,
        "busy": 0,
        "connected": False,
        "detail": node.last_failure,
        "generation": 0,
        "age_s": 0,
    }
