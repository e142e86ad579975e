# SPDX-License-Identifier: MIT
"""Where children come from: forked at once, or asked of the zygote that has their app imported."""

from __future__ import annotations

import selectors
from typing import Any

from echomq_pool.clock import Clock
from echomq_pool.config.schema import PoolConfig
from echomq_pool.ipc.board import Board
from echomq_pool.supervisor.spawn import Closable, ForkFailed, Spawned, Spawner
from echomq_pool.supervisor.spec import ChildSpec
from echomq_pool.supervisor.zygote import Zygote

ZYGOTE_START = "echomq_pool.supervisor.zygote:serve"
# These live by end of file: one has to bury the workers when we are gone, the other to end its server.
OUTLIVE_US = frozenset(
    {"echomq_pool.children.entry:lock_manager", "echomq_pool.children.entry:embedded_server"}
)

Born = Spawned | ForkFailed


class Nursery:
    """One `spawn` for both ways. A worker of a zygote is born later: see `read`."""

    def __init__(self, board: Board, clock: Clock) -> None:
        self._spawner = Spawner(board, clock)
        self._zygotes: dict[int, tuple[str, Zygote]] = {}  # by handle: (group, zygote)
        self._expected: dict[int, ChildSpec] = {}

    def own(self, thing: Closable) -> None:
        """A descriptor of the supervisor's that no child may keep."""
        self._spawner.own(thing)

    def spawn(self, spec: ChildSpec, slot: int, handle: int, config: PoolConfig) -> Born | None:
        """Makes a child; None: its zygote was asked, and `read` tells."""
        if spec.start == ZYGOTE_START:
            zygote = Zygote.start(self._spawner, spec, slot, handle, config)
            if isinstance(zygote, ForkFailed):
                return zygote
            self._zygotes[handle] = (spec.args["group"], zygote)
            return zygote.process
        kind, _, group = spec.spawner.partition(":")
        if kind == "zygote":
            return self._ask_zygote(group, spec, slot, handle)
        stays = spec.start in OUTLIVE_US
        return self._spawner.spawn(spec, slot, handle, config, dies_with_parent=not stays)

    def zygote_of(self, handle: int) -> Zygote | None:
        found = self._zygotes.get(handle)
        return None if found is None else found[1]

    def read(self) -> list[tuple[Born, ChildSpec]]:
        """Workers that zygotes have made, or could not make, since the last call."""
        born = [b for _, zygote in self._zygotes.values() for b in zygote.read()]
        return [(b, self._expected.pop(b.incarnation)) for b in born if b.incarnation in self._expected]

    def lost(self, handle: int, selector: selectors.BaseSelector) -> list[tuple[Born, ChildSpec]]:
        """A child is dead; if it was a zygote, what it still owed."""
        found = self._zygotes.pop(handle, None)
        if found is None:
            return []
        zygote = found[1]
        fd: Any = zygote.fileno()
        if fd >= 0 and fd in selector.get_map():
            selector.unregister(fd)
        born = zygote.lost()
        return [(b, self._expected.pop(b.incarnation)) for b in born if b.incarnation in self._expected]

    def _ask_zygote(self, group: str, spec: ChildSpec, slot: int, handle: int) -> ForkFailed | None:
        """The newest zygote of the group is asked: after a reload that is the one with the new code."""
        zygotes = [zygote for name, zygote in self._zygotes.values() if name == group and not zygote.closed]
        if not zygotes:
            return ForkFailed(handle, "ESRCH", f"no zygote of {group} is running")
        self._expected[handle] = spec
        failed = zygotes[-1].request(spec, slot, handle)
        if failed is not None:
            del self._expected[handle]
        return failed
