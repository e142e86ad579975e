# SPDX-License-Identifier: MIT
"""What a piece of work cost: wall time, CPU of this process and of the server, commands, bytes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import psutil

from tests.support.servers import Server

OURS = ("info", "config|resetstat", "client|list", "ping")  # what measuring itself sends


@dataclass
class Spent:
    """Seconds, counts and bytes. `script_us` and `scripts` are EVALSHA's and EVAL's alone."""

    wall_s: float = 0.0
    client_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    commands: int = 0
    scripts: int = 0
    script_us: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0


class Meter:
    """`with Meter(server) as spent:`; the figures are there afterwards."""

    def __init__(self, server: Server) -> None:
        self._client = server.client()
        self.spent = Spent()

    def __enter__(self) -> Spent:
        self._before = self._snapshot()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        return self.spent

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        spent = self.spent
        spent.wall_s = time.perf_counter() - self._wall
        spent.client_cpu_s = time.process_time() - self._cpu
        after = self._snapshot()
        for name, value in after.items():
            setattr(spent, name, value - self._before[name])
        self._client.close()

    def _snapshot(self) -> dict[str, Any]:
        info = self._client.info("everything")
        stats = {k.removeprefix("cmdstat_"): v for k, v in info.items() if k.startswith("cmdstat_")}
        scripts = [stats[name] for name in ("evalsha", "eval") if name in stats]
        return {
            "server_cpu_s": info["used_cpu_user"] + info["used_cpu_sys"],
            "commands": sum(v["calls"] for k, v in stats.items() if k not in OURS),
            "scripts": sum(v["calls"] for v in scripts),
            "script_us": sum(v["usec"] for v in scripts),
            "bytes_in": info["total_net_input_bytes"],
            "bytes_out": info["total_net_output_bytes"],
        }


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which `share` (0–1) of them lie; nan of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """CPU so far of those processes that still live."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def pss_mb(pids: Iterable[int]) -> float:
    """Proportional set size in MB: shared pages are counted by their share."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as file:  # noqa: PTH123 – a file of the kernel
            total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return total / 1024


def context_switches(processes: Iterable[psutil.Process]) -> int:
    """Voluntary switches so far: each is a wake-up that ended in waiting again."""
    total = 0
    for process in processes:
        try:
            total += process.num_ctx_switches().voluntary
        except psutil.NoSuchProcess:
            continue
    return total
