# SPDX-License-Identifier: MIT
"""What a child is given at birth. Built by `supervisor/spawn.py` after the fork, used by `children/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from echomq_pool.clock import Clock
from echomq_pool.config.schema import PoolConfig
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel


@dataclass(frozen=True, slots=True)
class ChildContext:
    """Plain data and the two ways to the rest of the pool; no socket, loop or lock of the parent."""

    id: str  # "lock_manager", "default-3": unique among living children
    incarnation: int  # never reused; the supervisor's handle of this process
    slot: int  # this process's place on the board
    parent_pid: int  # the supervisor; a getppid() that differs means it is gone
    config: PoolConfig
    args: dict[str, Any]  # worker: {"group": name}
    channel: Channel
    board: Board
    clock: Clock
