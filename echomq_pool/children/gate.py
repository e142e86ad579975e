# SPDX-License-Identifier: MIT
"""Who may run beside whom in one process: a job that has stalled once runs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from echomq_pool.children.run import Run


class Gate:
    """Lets runs in. An `alone` run waits until nobody is inside, and while it is inside nobody else gets in."""

    def __init__(self) -> None:
        self._inside = 0
        self._closed = False  # one that runs alone is inside
        self._waiting: list[tuple[Run, bool]] = []

    @asynccontextmanager
    async def passage(self, run: Run, *, alone: bool) -> AsyncIterator[None]:
        """Inside, the run may start. It is also let in when it was ended while it waited."""
        if not self._may_enter(alone):
            run.waits = asyncio.Event()
            self._waiting.append((run, alone))
            await run.waits.wait()
            run.waits = None
            if (run, alone) in self._waiting:  # not admitted: ended from outside
                self._waiting.remove((run, alone))
                yield
                return
        else:
            self._enter(alone)
        try:
            yield
        finally:
            self._leave(alone)

    def _may_enter(self, alone: bool) -> bool:
        return not self._closed and not (alone and self._inside)

    def _enter(self, alone: bool) -> None:
        self._inside += 1
        self._closed = alone

    def _leave(self, alone: bool) -> None:
        self._inside -= 1
        if alone:
            self._closed = False
        # Those that may run beside others go first; takes are held back, so the lonely ones get their turn.
        for entry in sorted(self._waiting, key=lambda entry: entry[1]):
            run, wants_alone = entry
            if self._may_enter(wants_alone):
                self._waiting.remove(entry)
                self._enter(wants_alone)
                if run.waits is not None:
                    run.waits.set()
