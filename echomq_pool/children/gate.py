# SPDX-License-Identifier: MIT
"""Who may run beside whom in one process: a job that has stalled once runs alone."""

from __future__ import annotations

import asyncio

from echomq_pool.children.run import Run


class Gate:
    """Lets runs in. An `alone` run waits until nobody is inside, and while it is inside nobody else gets in."""

    def __init__(self) -> None:
        self._inside = 0
        self._closed = False  # one that runs alone is inside
        self._waiting: list[tuple[Run, bool]] = []

    def enter(self, alone: bool) -> bool:
        """Lets the caller in if that is possible at once; whoever is in must `leave`."""
        if self._closed or (alone and self._inside):
            return False
        self._inside += 1
        self._closed = alone
        return True

    async def wait(self, run: Run, alone: bool) -> bool:
        """Waits to be let in. False: the run was ended meanwhile (`run.waits` set from outside); it is not in."""
        entry = (run, alone)
        run.waits = asyncio.Event()
        self._waiting.append(entry)
        await run.waits.wait()
        run.waits = None
        if entry not in self._waiting:
            return True
        self._waiting.remove(entry)
        return False

    def leave(self, alone: bool) -> None:
        """Out, and in with those who may follow."""
        self._inside -= 1
        if alone:
            self._closed = False
        if not self._waiting:
            return
        # Those that may run beside others go first; takes are held back, so the lonely ones get their turn.
        for entry in sorted(self._waiting, key=lambda entry: entry[1]):
            run, wants_alone = entry
            if self.enter(wants_alone):
                self._waiting.remove(entry)
                if run.waits is not None:
                    run.waits.set()
