# SPDX-License-Identifier: MIT
"""What the jobs themselves wrote down: who ran what, from when to when, and whether two ever ran at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Run:
    """One run of a job, in monotonic milliseconds; `ended_ms` None: it never came to its end."""

    job_id: str
    pid: int
    started_ms: int
    ended_ms: int | None = None


def read_runs(path: Path) -> list[Run]:
    """All runs so far, in the order of their starts."""
    runs: list[Run] = []
    open_runs: dict[tuple[str, int], Run] = {}
    for word, job_id, pid, moment in _lines(path):
        key = (job_id, int(pid))
        if word == "start":
            open_runs[key] = Run(job_id, int(pid), int(moment))
            runs.append(open_runs[key])
        elif key in open_runs:
            open_runs.pop(key).ended_ms = int(moment)
    return runs


def running(runs: list[Run]) -> dict[int, list[Run]]:
    """Runs without an end, by process."""
    found: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        if run.ended_ms is None:
            found[run.pid].append(run)
    return found


def overlaps(runs: list[Run], killed_pid: int, killed_ms: int) -> list[str]:
    """Jobs of which two runs went on at the same time; a run of the killed process ended with it."""
    doubled: set[str] = set()
    latest: dict[str, int] = {}
    for run in sorted(runs, key=lambda run: run.started_ms):
        end = run.ended_ms
        if end is None:
            end = killed_ms if run.pid == killed_pid else run.started_ms
        if run.started_ms < latest.get(run.job_id, 0):
            doubled.add(run.job_id)
        latest[run.job_id] = max(end, latest.get(run.job_id, 0))
    return sorted(doubled)


def recovery_times(runs: list[Run], killed_pid: int, killed_ms: int) -> list[int]:
    """For every run the kill cut off: milliseconds until the job ran again somewhere else."""
    cut = [run.job_id for run in runs if run.pid == killed_pid and run.ended_ms is None]
    found = []
    for job_id in cut:
        later = [run.started_ms for run in runs if run.job_id == job_id and run.pid != killed_pid]
        found.extend(sorted(moment - killed_ms for moment in later if moment >= killed_ms)[:1])
    return found


def _lines(path: Path) -> Iterator[list[str]]:
    if not path.exists():
        return
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        words = line.split()
        if len(words) == 4:  # a kill may cut the last line short
            yield words
