# SPDX-License-Identifier: MIT
"""The pool's workers, for a LockManager whose supervisor has died: pidfds held since each worker's start.

A pidfd names one process for ever, so nobody else is waited for or killed, whoever has its number by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

GENERATIONS = 3  # a worker may have been forked by a helper of the supervisor


@dataclass(frozen=True, slots=True)
class Kin:
    """One worker process. `fd` is -1 when it was already gone as we heard of it."""

    pid: int
    fd: int


class Pidfds:
    """One pidfd per living worker, by worker id."""

    def __init__(self, supervisor_pid: int) -> None:
        self._supervisor_pid = supervisor_pid
        self._kin: dict[str, Kin] = {}

    def add(self, worker_id: str, pid: int) -> None:
        """Opens the pidfd of a worker of this pool; a number that is now somebody else's counts as gone."""
        known = self._kin.get(worker_id)
        if known is not None and known.pid == pid:
            return
        self.remove(worker_id)
        fd = -1
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            # Asked after the pidfd is ours: from here on the number cannot pass to another process unseen.
            # A supervisor that died in this very moment leaves a worker without its parent, but it is ours.
            if not _descends(pid, self._supervisor_pid) and os.getppid() == self._supervisor_pid:
                os.close(fd)
                fd = -1
        self._kin[worker_id] = Kin(pid, fd)

    def remove(self, worker_id: str) -> None:
        kin = self._kin.pop(worker_id, None)
        if kin is not None and kin.fd >= 0:
            os.close(kin.fd)

    def close(self) -> None:
        for worker_id in list(self._kin):
            self.remove(worker_id)

    def alive(self, worker_id: str) -> bool:
        """Whether the process still runs; a zombie does not."""
        kin = self._kin.get(worker_id)
        if kin is None or kin.fd < 0:
            return False
        poller = select.poll()
        poller.register(kin.fd, select.POLLIN)
        return not poller.poll(0)

    async def ended(self, worker_id: str, within_s: float) -> bool:
        """Waits until the process has ended; False when it still runs after `within_s`."""
        if not self.alive(worker_id):
            return True
        loop = asyncio.get_running_loop()
        fd = self._kin[worker_id].fd
        gone = asyncio.Event()
        loop.add_reader(fd, gone.set)
        try:
            await asyncio.wait_for(gone.wait(), within_s)
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(fd)
        return True

    def kill(self, worker_id: str) -> None:
        """SIGKILL for the process (if it still runs) and for what it started in its own process group."""
        kin = self._kin.get(worker_id)
        if kin is None:
            return
        if kin.fd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(kin.fd, signal.SIGKILL)
        if kin.fd >= 0 and kin.pid != os.getpgrp():
            # No process takes the number of a group that still has members; without members it is an error.
            with contextlib.suppress(OSError):
                os.killpg(kin.pid, signal.SIGKILL)


def _descends(pid: int, ancestor: int) -> bool:
    for _ in range(GENERATIONS):
        pid = _parent(pid)
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
    return False


def _parent(pid: int) -> int:
    """Parent of a process, 0 when there is none to be read."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])
