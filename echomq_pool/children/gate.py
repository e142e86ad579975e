# SPDX-License-Identifier: MIT
"""Who may run beside whom in one process: a job that has stalled once runs alone.

Nobody waits inside the process. A death convicts every job that the process holds, started or not, so whoever cannot
run at once goes back to the front of the line, at no cost, and takes are held back until the process is empty.
"""

from __future__ import annotations

from collections.abc import Callable


class Gate:
    """Lets runs in, or says that they must go back. Whoever is in leaves once its job is settled, not before.

    Args:
        hold_back: stops takes; called once until `let_go`.
        let_go: the process is empty, takes may go on.
    """

    def __init__(self, hold_back: Callable[[], None], let_go: Callable[[], None]) -> None:
        self._inside = 0
        self._lonely = False  # one that runs alone is inside
        self._holding = False
        self._hold_back = hold_back
        self._let_go = let_go

    def enter(self, alone: bool) -> bool:
        """Lets the caller in if that is possible now; False: give the job back."""
        if self._lonely or (alone and self._inside):
            self._hold()
            return False
        self._inside += 1
        if alone:
            self._lonely = True
            self._hold()
        return True

    def leave(self, alone: bool) -> None:
        """Out, the job being settled. The last one out opens for takes again."""
        self._inside -= 1
        if alone:
            self._lonely = False
        if not self._inside and self._holding:
            self._holding = False
            self._let_go()

    def _hold(self) -> None:
        if not self._holding:
            self._holding = True
            self._hold_back()
