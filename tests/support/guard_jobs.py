# SPDX-License-Identifier: MIT
"""Jobs that hold a lease, and write what they see of it into the ledger of their folder."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from pathlib import Path
from typing import Any


def note(job: Any, word: str, lease: Any) -> None:
    """One line: word, name of the lease, pid, fencing token."""
    line = f"{word} {lease.name} {os.getpid()} {lease.fencing_token}\n".encode()
    fd = os.open(Path(job.data["folder"]) / "leases", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(fd, line)
    os.close(fd)


def notes(folder: Path, word: str) -> list[tuple[str, int, int]]:
    """(name, pid, fencing token) of each line with this word."""
    path = folder / "leases"
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(row[1], int(row[2]), int(row[3])) for row in rows if row[0] == word]


def with_the_gil(ms: int) -> None:
    """Sleeps in C without letting go of the GIL: no thread of this process runs meanwhile."""
    ctypes.PyDLL(None).usleep(ms * 1000)


async def hold(job: Any) -> str:
    """Holds the lease `lease` for `ms` by doing `how`, and says at once whether it still does."""
    ms = job.data["ms"]
    async with job.lease(job.data["lease"], ttl=job.data["ttl"]) as lease:
        note(job, "won", lease)
        if job.data["how"] == "gil":
            with_the_gil(ms)
        elif job.data["how"] == "block":
            time.sleep(ms / 1000)
        else:
            await asyncio.sleep(ms / 1000)
        note(job, "kept" if lease.held and not lease.lost else "lost", lease)
    return "done"


def hold_sync(job: Any) -> str:
    """The same in a thread."""
    ms = job.data["ms"]
    with job.lease(job.data["lease"], ttl=job.data["ttl"]) as lease:
        note(job, "won", lease)
        if job.data["how"] == "gil":
            with_the_gil(ms)
        else:
            time.sleep(ms / 1000)
        note(job, "kept" if lease.held and not lease.lost else "lost", lease)
    return "done"
