# SPDX-License-Identifier: MIT
"""What the jobs of every contestant do. Standard library only: it is imported in every peer's own environment.

`BENCH_DIR` is the folder of the run. Each worker process keeps one file in it with its count and the monotonic
times of its first and last job, written anew by every job: one small pwrite, the same for everybody.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

IO_S = 0.05
CPU_NS = 2_000_000
ROW = struct.Struct("<QQQ")

_file = -1
_owner = 0
_count = 0
_first = 0


def folder() -> Path:
    return Path(os.environ["BENCH_DIR"])


def url() -> str:
    return os.environ["BENCH_URL"]


def setting(name: str, default: int) -> int:
    """A number that the driver chose, such as `concurrency`."""
    return int(os.environ.get(f"BENCH_{name.upper()}", default))


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


def producer(
    bulk: Callable[[str, int], None],
    one: Callable[[str, int], None],
    timed: Callable[[], None],
    hold: Callable[[str, float], None],
) -> None:
    """The command line of a peer's producer: `bulk KIND N`, `one KIND N`, `timed N GAP_MS`, `hold KEY SECONDS`.

    Prints the seconds that it took.
    """
    verb, *args = sys.argv[1:]
    began = time.perf_counter()
    if verb == "bulk":
        bulk(args[0], int(args[1]))
    elif verb == "one":
        one(args[0], int(args[1]))
    elif verb == "hold":
        hold(args[0], float(args[1]))
    else:
        for _ in range(int(args[0])):
            timed()
            time.sleep(int(args[1]) / 1000)
    print(json.dumps({"seconds": time.perf_counter() - began}))
