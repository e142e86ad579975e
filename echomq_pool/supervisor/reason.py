# SPDX-License-Identifier: MIT
"""Why a child ended, as a value.

`status.py` decides the kind from the wait status, from what we had asked, and from the child's last
frame: an exit status alone lies (a job that calls `sys.exit(0)` would look like a normal end).
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass
from enum import StrEnum

from echomq_pool.supervisor.spec import Restart

NO_HELP = 78  # exit code of a child that knows that no restart will help (as 125 does for s6)


class Why(StrEnum):
    """Kinds of ends. The page of evidence for each is the docstring of `supervisor/status.py`."""

    NORMAL = "normal"  # bye(normal) and exit 0
    SHUTDOWN = "shutdown"  # we asked, and it left
    RECYCLE = "recycle"  # it left by itself to be replaced: max_jobs, max_age, max_memory
    BOOT_FAILED = "boot_failed"  # it never got as far as its ack
    CRASH = "crash"  # any other exit code, or 0 without a bye
    SIGNAL = "signal"  # a signal that we did not send
    KILLED = "killed"  # our own SIGKILL, after the patience of a stop
    OOM = "oom"  # SIGKILL from outside, and the cgroup counted an out-of-memory kill
    ORPHANED = "orphaned"  # exit 12: the child believed that we were gone
    UNKNOWN = "unknown"  # somebody else reaped it: our own bug
    HANG = "hang"  # the watchdog ended it
    TIMEOUT = "timeout"  # a job over its time limit that could not be stopped from inside
    CANCEL = "cancel"  # a cancelled job that could not be stopped from inside
    MEMORY = "memory"  # over its memory limit
    SCALE = "scale"
    RELOAD = "reload"
    GAVE_UP = "gave_up"  # a group past its budget
    FORK_FAILED = "fork_failed"  # the kernel gave us no process


_CALM = frozenset({Why.NORMAL, Why.SHUTDOWN, Why.RECYCLE, Why.SCALE, Why.RELOAD})
_PLANNED = frozenset({Why.RECYCLE, Why.HANG, Why.TIMEOUT, Why.CANCEL, Why.MEMORY, Why.SCALE, Why.RELOAD})
# A hung process shows that its jobs may be to blame: they are recovered as stalls, though no budget is spent.
_HANDED_BACK = (_PLANNED - {Why.HANG}) | {Why.NORMAL, Why.SHUTDOWN, Why.KILLED}


@dataclass(frozen=True, slots=True)
class ExitReason:
    """One end of one child. `code` for exits, `signal` for signals, `detail` for what a person should read."""

    kind: Why
    code: int | None = None
    signal: int | None = None
    core: bool = False
    detail: str = ""

    @property
    def abnormal(self) -> bool:
        """Whether a transient child is restarted after it."""
        return self.kind not in _CALM

    @property
    def planned(self) -> bool:
        """We decided this end while the child was to go on: it is replaced and costs no budget."""
        return self.kind in _PLANNED

    @property
    def hands_back(self) -> bool:
        """Whether the jobs held by it go back without cost; otherwise they are recovered as stalls."""
        return self.kind in _HANDED_BACK

    @property
    def final(self) -> bool:
        """No restart will help."""
        return self.kind is Why.CRASH and self.code == NO_HELP

    def restarts(self, restart: Restart) -> bool:
        """Whether a child of that restart kind is started again after this end."""
        if restart is Restart.PERMANENT:
            return True
        if restart is Restart.TEMPORARY:
            return False
        return self.abnormal or self.planned

    def clean_stop(self, restart: Restart) -> bool:
        """Whether an asked-for stop that ended like this needs no `shutdown_error` report."""
        if self.kind is Why.NORMAL:
            return restart is not Restart.PERMANENT
        return self.kind in _CALM

    @property
    def text(self) -> str:
        """The reason in the words of a log line, such as ``signal SIGSEGV (core dumped)``."""
        return f"{self._what()}: {self.detail}" if self.detail else self._what()

    def _what(self) -> str:
        if self.kind is Why.CRASH:
            return f"exit code {self.code}" + (" without a bye" if self.code == 0 else "")
        if self.kind is Why.SIGNAL:
            return f"signal {signal_name(self.signal)}" + (" (core dumped)" if self.core else "")
        return self.kind.value


def signal_name(number: int | None) -> str:
    """`SIGKILL` for 9; the number itself for signals without a name."""
    try:
        return signals.Signals(number or 0).name
    except ValueError:
        return str(number)


NORMAL = ExitReason(Why.NORMAL)
SHUTDOWN = ExitReason(Why.SHUTDOWN)
