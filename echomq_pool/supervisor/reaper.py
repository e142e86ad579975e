# SPDX-License-Identifier: MIT
"""The one reaper: nothing else in the supervisor waits for a process.

Signals merge (fifty deaths may leave four wakeup bytes), so a notice only means "look". The look is a
peek that leaves the zombie in place: while it is there its pid and its process group belong to nobody
else, its grandchildren can be killed by group and its socket be read to the end. Only then is it reaped.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable

from echomq_pool.supervisor.prctl import adopt_orphans
from echomq_pool.supervisor.status import WaitStatus, from_wait

logger = logging.getLogger("echomq.reaper")


class Reaper:
    """Tells our dead children from adopted orphans and buries both.

    Args:
        ours: is this pid a child that we started and have not yet reaped? Ownership comes before status: an
            adopted orphan's exit code means nothing to us.
        learn: called once per look before a stranger is reaped; reads what zygotes have answered, since a
            worker they forked may die before we knew that it was ours.
    """

    def __init__(self, ours: Callable[[int], bool], learn: Callable[[], None] = lambda: None) -> None:
        self._ours = ours
        self._learn = learn
        if os.getpid() != 1:
            adopt_orphans()

    def collect(self, bury: Callable[[int], None], limit: int = 64) -> list[WaitStatus]:
        """Reaps up to `limit` dead processes; returns the ends of those that are ours, in order.

        Args:
            bury: called for each of ours while it is still a zombie (kill its group, read its socket).
        """
        ends: list[WaitStatus] = []
        learned = False
        for _ in range(limit):
            pid = _peek()
            if pid is None:
                break
            if not self._ours(pid) and not learned:
                self._learn()
                learned = True
            if self._ours(pid):
                bury(pid)
                ends.append(reap(pid))
            else:
                end = reap(pid)
                logger.debug("reaped an adopted orphan: pid %d, %s", pid, end)
        return ends


def reap(pid: int) -> WaitStatus:
    """Takes the zombie away. An unknown status means that someone else had reaped it."""
    try:
        _, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return WaitStatus(pid)
    return from_wait(pid, status, usage.ru_maxrss)


def kill_group(pid: int, signum: int = signal.SIGKILL) -> bool:
    """Ends what a child has started. Only while `pid` is alive or a zombie: it leads the group of its number.

    Returns:
        Whether there was such a group (a child that died before setsid() has none).
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)
        return True
    return False


def signal_child(pidfd: int, signum: int) -> bool:
    """Sends a signal that can reach nobody but this child. False: it has been reaped."""
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        return False
    return True


def _peek() -> int | None:
    """The pid of some dead child, left as it is; None when there is none."""
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return info.si_pid if info is not None else None
