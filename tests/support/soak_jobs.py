# SPDX-License-Identifier: MIT
"""Processors that prove by themselves that no job runs twice at once.

Each run holds an flock on a file of its job. The kernel frees it when the process dies, so a second run that
finds it taken is a doubled job, whatever was killed in between. Starts and ends are appended to a ledger.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any


def _folder(job: Any) -> Path:
    return Path(job.data["folder"])


class _OneRun:
    """Context of one run: the lock, and its lines in the ledger."""

    def __init__(self, job: Any) -> None:
        self.folder = _folder(job)
        self.id = job.id

    def __enter__(self) -> _OneRun:
        self.fd = os.open(self.folder / f"{self.id}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.write("doubled")
            raise
        self.write("start")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.write("end" if kind is None else "broken")
        os.close(self.fd)

    def write(self, word: str) -> None:
        line = f"{word} {self.id} {os.getpid()} {time.monotonic_ns() // 1_000_000}\n".encode()
        fd = os.open(self.folder / "ledger", os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        os.write(fd, line)
        os.close(fd)


async def work(job: Any) -> dict[str, Any]:
    """An async job of `ms` milliseconds."""
    with _OneRun(job):
        await asyncio.sleep(job.data.get("ms", 5) / 1000)
        return {"n": job.data.get("n")}


def work_sync(job: Any) -> dict[str, Any]:
    """A blocking job of `ms` milliseconds."""
    with _OneRun(job):
        time.sleep(job.data.get("ms", 5) / 1000)
        return {"n": job.data.get("n")}


async def block(job: Any) -> None:
    """Blocks the loop of its process for `ms` milliseconds."""
    with _OneRun(job):
        time.sleep(job.data["ms"] / 1000)


async def mixed(job: Any) -> dict[str, Any]:
    """`fail_times` first runs fail; then as `work`. The count is kept by the attempts made."""
    with _OneRun(job):
        await asyncio.sleep(job.data.get("ms", 2) / 1000)
        if job.attempts_made < job.data.get("fail_times", 0):
            raise RuntimeError(f"planned failure of {job.name}")
        return {"n": job.data.get("n")}


def ledger(folder: Path) -> list[tuple[str, str, int, int]]:
    """All lines so far: (word, job id, pid, monotonic ms)."""
    path = folder / "ledger"
    if not path.exists():
        return []
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(word, job_id, int(pid), int(ms)) for word, job_id, pid, ms in rows]


async def deadlock_once(job: Any) -> None:
    """Hangs the loop of its process for ever, the first time."""
    with _OneRun(job):
        hung = _folder(job) / "hung"
        if not hung.exists():
            hung.touch()
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()


def leave_orphan(job: Any) -> None:
    """Starts a grandchild whose parent ends at once; it exits 13 a moment later, like a child that failed to boot."""
    with _OneRun(job):
        first = os.fork()
        if first == 0:
            if os.fork() == 0:
                time.sleep(0.3)
                os._exit(13)
            os._exit(0)
        os.waitpid(first, 0)
        time.sleep(job.data.get("ms", 5) / 1000)


def poison(job: Any) -> None:
    """Kills its own process, as an out-of-memory kill would."""
    with _OneRun(job):
        os.kill(os.getpid(), signal.SIGKILL)


async def poison_by_name(job: Any) -> dict[str, Any]:
    """Jobs called `poison` kill their process, all others work."""
    if job.name == "poison":
        poison(job)
    return await work(job)
