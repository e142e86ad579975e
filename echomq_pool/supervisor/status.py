# SPDX-License-Identifier: MIT
"""How a process ended: the kernel's word, and what it means together with what else we know.

The wait status alone lies: `sys.exit(256)` reads as 0, and a job that calls `sys.exit(0)` would look like a
normal end. So the kind of an end has three witnesses (see `judge`):

    normal        bye "normal" and exit 0
    recycle       bye "recycle" and exit 11
    shutdown      we asked, then exit 0 or 10 (or the reason for which we asked: scale, reload, recycle …)
    killed        our SIGKILL after the patience of a stop
    hang, timeout, cancel, memory
                  our SIGKILL (or SIGABRT, for the stack) for that reason
    boot_failed   no ack before the end, or exit 13
    orphaned      exit 12: it saw us go
    oom           SIGKILL that is not ours, and the cgroup's oom_kill counter rose
    signal        any other signal that is not ours
    crash         any other exit code, or 0 without a bye
    unknown       somebody else reaped it
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from echomq_pool.supervisor.reason import ExitReason, Why, signal_name

EXIT_STOPPED: Final = (0, 10)
EXIT_RECYCLED: Final = 11
EXIT_ORPHANED: Final = 12
EXIT_BOOT_FAILED: Final = 13
_NAMES: Final = {**errno.errorcode, errno.EAGAIN: "EAGAIN", errno.EDEADLK: "EDEADLK"}  # two have two names
_BY_KILL: Final = frozenset({Why.HANG, Why.TIMEOUT, Why.CANCEL, Why.MEMORY})


@dataclass(frozen=True, slots=True)
class WaitStatus:
    """The end of one process. Exactly one of `code` and `signum` is set, unless somebody else reaped it."""

    pid: int
    code: int | None = None  # exit code 0..255
    signum: int | None = None  # the signal that killed it
    core: bool = False  # it left a core dump
    peak_bytes: int = 0  # its largest resident size, as the kernel counted it

    @property
    def unknown(self) -> bool:
        """Reaped by someone else (ECHILD): nothing is known, and it is our bug."""
        return self.code is None and self.signum is None

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit code {self.code}"
        if self.signum is None:
            return "unknown"
        return f"signal {signal_name(self.signum)}" + (" (core dumped)" if self.core else "")


def errno_name(error: OSError) -> str:
    """EAGAIN for 11; OSError when the kernel gave no number."""
    return _NAMES.get(error.errno or 0, "OSError")


def from_wait(pid: int, status: int, peak_kib: int = 0) -> WaitStatus:
    """Decodes what wait4 returned."""
    if os.WIFSIGNALED(status):
        return WaitStatus(pid, None, os.WTERMSIG(status), os.WCOREDUMP(status), peak_kib * 1024)
    return WaitStatus(pid, os.WEXITSTATUS(status), None, False, peak_kib * 1024)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the supervisor knows about a child besides its wait status."""

    acked: bool = False  # Ready was received
    asked: bool = False  # Stop was sent
    why: Why | None = None  # the reason for which we asked or killed, if it was not the pool's own stop
    killed: bool = False  # we sent SIGKILL
    aborted: bool = False  # we sent SIGABRT, for its stack
    bye: str | None = None  # reason of its last frame
    oom: bool = False  # the out-of-memory counter rose


def judge(end: WaitStatus, known: Evidence) -> ExitReason:
    """The reason of one end. First match wins, in the order of the table above read from what is surest."""
    if end.unknown:
        return ExitReason(Why.UNKNOWN, detail="reaped by somebody else")
    ours = (known.killed and end.signum == signal.SIGKILL) or (known.aborted and end.signum == signal.SIGABRT)
    if ours:
        return _killed_by_us(end, known)
    if end.code == EXIT_ORPHANED:
        return ExitReason(Why.ORPHANED, code=end.code)
    if known.asked and end.code in EXIT_STOPPED:
        return ExitReason(known.why or Why.SHUTDOWN, code=end.code)
    if end.code == EXIT_BOOT_FAILED or not known.acked:
        text = "ran out of memory" if known.oom and end.signum == signal.SIGKILL else str(end)
        return ExitReason(Why.BOOT_FAILED, end.code, end.signum, end.core, f"{text} before it was ready")
    if end.signum is not None:
        return _signalled(end, known)
    return _exited(end, known)


def _killed_by_us(end: WaitStatus, known: Evidence) -> ExitReason:
    detail = "" if known.why is None else str(known.why)
    if not known.acked and not known.asked:
        return ExitReason(Why.BOOT_FAILED, signal=end.signum, detail="not ready in time")
    if known.why in _BY_KILL:
        return ExitReason(known.why, signal=end.signum)
    return ExitReason(Why.KILLED, signal=end.signum, detail=detail)


def _signalled(end: WaitStatus, known: Evidence) -> ExitReason:
    if end.signum == signal.SIGKILL and known.oom:
        return ExitReason(Why.OOM, signal=end.signum)
    detail = "from outside" if end.signum == signal.SIGKILL else ""
    return ExitReason(Why.SIGNAL, signal=end.signum, core=end.core, detail=detail)


def _exited(end: WaitStatus, known: Evidence) -> ExitReason:
    if end.code == 0 and known.bye == "normal":
        return ExitReason(Why.NORMAL, code=0)
    if end.code == EXIT_RECYCLED and known.bye == "recycle":
        return ExitReason(Why.RECYCLE, code=end.code)
    return ExitReason(Why.CRASH, code=end.code, detail=known.bye or "")


class OomMeter:
    """Counts the kernel's out-of-memory kills in our control group: whose SIGKILL was it?

    `rose()` answers whether the count has grown since the last look; False too when no counter can be read.
    """

    _ROOT: Final = Path("/sys/fs/cgroup")

    def __init__(self, root: Path = _ROOT, membership: Path = Path("/proc/self/cgroup")) -> None:
        self._files = _counters(root, membership)
        self._seen = self.count()

    def count(self) -> int | None:
        """Kills so far, None when neither cgroup version shows a counter."""
        for file in self._files:
            found = _oom_kill(file)
            if found is not None:
                return found
        return None

    def rose(self) -> bool:
        """True once per growth of the counter."""
        before, self._seen = self._seen, self.count()
        return before is not None and self._seen is not None and self._seen > before


def _counters(root: Path, membership: Path) -> list[Path]:
    """Where the counter may be: v2 first, then v1; by our own path, then by the namespace's root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    files: list[Path] = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            files += [root / path.lstrip("/") / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            v1 = root / "memory"
            files += [v1 / path.lstrip("/") / "memory.oom_control", v1 / "memory.oom_control"]
    return files


def _oom_kill(file: Path) -> int | None:
    try:
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return None
