# SPDX-License-Identifier: MIT
"""Reads what the jobs of a run wrote, and watches a drain: how fast, and what it cost in CPU and commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.peers.common import ROW
from benchmarks.support.meter import cpu_seconds
from tests.support.servers import Server

SLOW_JOBS, SLOW_S = 200, 3.0  # who has done so many after so long is up, if slow
QUIET = ("info", "ping")


@dataclass(frozen=True)
class Ticks:
    """Jobs done so far, by all processes together; monotonic ns."""

    done: int = 0
    processes: int = 0
    all_busy_ns: int = 0  # when the last process did its first job
    last_ns: int = 0


def ticks(folder: Path) -> Ticks:
    """The counters of all processes."""
    rows = [
        ROW.unpack(path.read_bytes()) for path in folder.glob("tick-*") if path.stat().st_size == ROW.size
    ]
    if not rows:
        return Ticks()
    return Ticks(sum(r[0] for r in rows), len(rows), max(r[1] for r in rows), max(r[2] for r in rows))


def latencies_ms(folder: Path) -> list[float]:
    path = folder / "latency"
    return [int(line) / 1e6 for line in path.read_text().split()] if path.exists() else []


def starts(folder: Path, key: str) -> list[tuple[int, int]]:
    """(pid, monotonic ns) of every start of the job `key`."""
    path = folder / "started"
    rows = (line.split() for line in path.read_text().splitlines()) if path.exists() else iter(())
    return [(int(pid), int(ns)) for name, pid, ns in rows if name == key]


def clear(folder: Path) -> None:
    for path in folder.glob("*"):
        if path.name.startswith("tick-") or path.name in ("latency", "started"):
            path.unlink()


@dataclass(frozen=True)
class Drain:
    """One drain between 10 % and 95 % of its jobs, start-up and tail left out."""

    rate: float  # jobs a second
    pool_us: float  # CPU of all processes but the server, per job
    server_us: float  # CPU of the server, per job
    commands: float  # per job, those inside scripts included
    scripts: float  # EVALSHA per job
    seconds: float


@dataclass(frozen=True)
class _Sample:
    at: float
    done: int
    pool_cpu: float
    server_cpu: float
    commands: int
    scripts: int


def watch_drain(
    server: Server,
    folder: Path,
    total: int,
    tree: Callable[[], Sequence[psutil.Process]],
    within_s: float,
    *,
    partial: bool = False,
) -> Drain:
    """Waits until `total` jobs are done.

    Args:
        partial: when the time is up, rate what was done, if it was a fifth or a thousand jobs.

    Raises:
        TimeoutError: they were not, within `within_s` seconds; the message says how far it got.
    """
    deadline = time.monotonic() + within_s
    begin: _Sample | None = None
    seen = 0.0
    while True:
        done = ticks(folder).done
        seen = seen or (time.monotonic() if done else 0.0)
        slow = done >= SLOW_JOBS and time.monotonic() - seen > SLOW_S
        if begin is None and (done >= total * 0.1 or slow):
            begin = _sample(server, folder, tree())
        if begin is not None and done >= total * 0.95:
            return _drain(begin, _sample(server, folder, tree()))
        if time.monotonic() > deadline:
            if partial and begin is not None and done >= min(1_000, total / 5):
                return _drain(begin, _sample(server, folder, tree()))
            raise TimeoutError(f"{done} of {total} jobs after {within_s:.0f} s")
        # A look takes 0.2 ms of the cores that are measured. The last twentieth of a long run is longer than a pause.
        time.sleep(0.05 if seen and time.monotonic() - seen > 1.0 else 0.01)


def _sample(server: Server, folder: Path, tree: Sequence[psutil.Process]) -> _Sample:
    with server.client() as client:
        info = client.info("everything")
    stats = {k.removeprefix("cmdstat_"): v["calls"] for k, v in info.items() if k.startswith("cmdstat_")}
    return _Sample(
        time.monotonic(),
        ticks(folder).done,
        cpu_seconds(tree),
        info["used_cpu_user"] + info["used_cpu_sys"],
        sum(calls for name, calls in stats.items() if name not in QUIET),
        stats.get("evalsha", 0) + stats.get("eval", 0),
    )


def _drain(begin: _Sample, end: _Sample) -> Drain:
    jobs = max(1, end.done - begin.done)
    seconds = max(1e-6, end.at - begin.at)
    return Drain(
        rate=jobs / seconds,
        pool_us=(end.pool_cpu - begin.pool_cpu) / jobs * 1e6,
        server_us=(end.server_cpu - begin.server_cpu) / jobs * 1e6,
        commands=(end.commands - begin.commands) / jobs,
        scripts=(end.scripts - begin.scripts) / jobs,
        seconds=seconds,
    )
