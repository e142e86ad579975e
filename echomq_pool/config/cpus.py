# SPDX-License-Identifier: MIT
"""How many processes `processes = "auto"` means: the CPU time this container may really use.

The number of host cores is no measure: 64 cores with a quota of one and a half run two processes well
and sixty-four badly. The smallest of cgroup quota (v2 or v1, every level above us) and affinity counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST = 32  # beyond, a person should choose: each process is an interpreter with the app in it


@dataclass(frozen=True, slots=True)
class CpuCount:
    """A number of processes and the words that tell where it came from."""

    count: int
    source: str


def usable_cpus(root: Path = Path("/"), affinity: int | None = None) -> CpuCount:
    """CPUs this process may use, rounded up, at most `MOST`.

    Args:
        root: where /proc and /sys are found; tests put files there.
        affinity: number of CPUs the scheduler allows; asked of the system when None.
    """
    allowed = affinity if affinity is not None else len(os.sched_getaffinity(0))
    best = CpuCount(allowed, f"{allowed} CPU{'s' if allowed != 1 else ''} by affinity")
    for count, words in _quotas(root):
        if count < best.count:
            best = CpuCount(count, words)
    if best.count > MOST:
        return CpuCount(MOST, f"{best.source}, capped at {MOST}")
    return CpuCount(max(1, best.count), best.source)


def _quotas(root: Path) -> Iterator[tuple[int, str]]:
    for kind, folder in _folders(root):
        found = _v2(folder) if kind == "v2" else _v1(folder)
        if found is None:
            continue
        quota, period = found
        yield -(-quota // period), f"cgroup {kind} quota {quota}/{period}"


def _folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Our cgroup's folders and all above them; in a container the path may lead outside: then the mount."""
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            yield from (("v2", folder) for folder in _upwards(mount, path))
        elif "cpu" in controllers.split(","):
            yield from (("v1", folder) for folder in _upwards(mount / controllers, path))
            yield from (("v1", folder) for folder in _upwards(mount / "cpu", path))
    yield "v2", mount


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    folder = mount / path.strip("/")
    while True:
        yield folder
        if folder == mount or mount not in folder.parents:
            return
        folder = folder.parent


def _v2(folder: Path) -> tuple[int, int] | None:
    words = _text(folder / "cpu.max").split()
    if len(words) != 2 or not (words[0].isdigit() and words[1].isdigit()) or int(words[1]) == 0:
        return None  # "max 100000", or no such file
    return int(words[0]), int(words[1])


def _v1(folder: Path) -> tuple[int, int] | None:
    quota, period = _text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()
    if not (quota.isdigit() and period.isdigit()) or int(period) == 0:
        return None  # -1: no limit
    return int(quota), int(period)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
