# SPDX-License-Identifier: MIT
"""What the jobs of every contestant do, and the command line of every adapter.

Standard library only: it is imported in every peer's own environment. `BENCH_DIR` is the folder of the run. Each
worker process keeps one file in it with its count and the monotonic times of its first and last job, written anew
by every job: one small pwrite, the same for everybody.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

IO_S = 0.05
CPU_NS = 2_000_000
ROW = struct.Struct("<QQQ")

_file = -1
_owner = 0
_count = 0
_first = 0


# --- inside a job


def tick() -> None:
    """One job is done."""
    global _file, _owner, _count, _first
    now = time.monotonic_ns()
    if _owner != os.getpid():  # after a fork too
        path = folder() / f"tick-{os.getpid()}"
        _file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        _owner, _count, _first = os.getpid(), 0, now
    _count += 1
    os.pwrite(_file, ROW.pack(_count, _first, now), 0)


def burn() -> None:
    """Uses 2 ms of this thread's CPU."""
    end = time.thread_time_ns() + CPU_NS
    while time.thread_time_ns() < end:
        pass


def mark(added_ns: int) -> None:
    """Notes how many ns ago (wall clock, one machine) the job was added."""
    _append("latency", str(time.time_ns() - added_ns))


def started(key: str) -> None:
    """Notes that a job runs, in which process and since when (monotonic ns)."""
    _append("started", f"{key} {os.getpid()} {time.monotonic_ns()}")


def _append(name: str, line: str) -> None:
    fd = os.open(folder() / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


# --- what the driver has decided


def folder() -> Path:
    return Path(os.environ["BENCH_DIR"])


def url() -> str:
    return os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0")


def concurrency() -> int:
    """Jobs at once in a process."""
    return int(os.environ.get("BENCH_CONCURRENCY", "32"))


def quickest() -> bool:
    """Whether recovery is to be set as quick as the settings allow, instead of being left at its defaults."""
    return os.environ.get("BENCH_QUICKEST") == "1"


@dataclass(frozen=True)
class Load:
    """What the workers are started for: noop | io | cpu | mark | hold | idle."""

    kind: str
    processes: int
    concurrency: int


class Adapter(Protocol):
    """One contestant's half. The first three add jobs of a kind that takes no data."""

    def describe(self, load: Load) -> dict[str, Any]:
        """{"commands": [argv, …], "settings": "what was chosen, for people"}"""

    def bulk(self, kind: str, count: int) -> None:
        """Adds many jobs in the quickest way there is."""

    def one(self, kind: str, count: int) -> None:
        """Adds them one by one, each after the reply to the one before."""

    def mark(self) -> None:
        """Adds one job `mark` with `time.time_ns()`."""

    def hold(self, key: str, seconds: float) -> None:
        """Adds one job `hold`."""


def run(adapter: Adapter) -> None:
    """The command line: describe KIND PROCESSES CONCURRENCY | bulk KIND N | one KIND N | timed N GAP_MS | hold KEY S.

    Prints one line of JSON.
    """
    verb, *args = sys.argv[1:]
    if verb == "describe":
        print(json.dumps(adapter.describe(Load(args[0], int(args[1]), int(args[2])))))
        return
    if verb == "timed":
        adapter.hold("warm", 0.0)  # connections and imports are not what is timed
    began = time.perf_counter()
    if verb == "bulk":
        adapter.bulk(args[0], int(args[1]))
    elif verb == "one":
        adapter.one(args[0], int(args[1]))
    elif verb == "hold":
        adapter.hold(args[0], float(args[1]))
    elif verb == "timed":
        for _ in range(int(args[0])):
            adapter.mark()
            time.sleep(int(args[1]) / 1000)
    print(json.dumps({"seconds": time.perf_counter() - began}))


def python(*args: str) -> list[str]:
    """A command of the environment that this runs in."""
    return [sys.executable, *args]


def tool(name: str, *args: str) -> list[str]:
    """A script that this environment has installed."""
    return [str(Path(sys.executable).parent / name), *args]
