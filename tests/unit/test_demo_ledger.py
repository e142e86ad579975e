# SPDX-License-Identifier: MIT
"""The demo's own judge: it must notice what it claims did not happen."""

from __future__ import annotations

from pathlib import Path

from echomq_pool.demo.ledger import overlaps, read_runs, recovery_times, running


def ledger(folder: Path, *lines: str) -> Path:
    path = folder / "ledger"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_runs_are_read_and_what_is_cut_short_is_left_open(tmp_path: Path) -> None:
    """make demo"""
    runs = read_runs(ledger(tmp_path, "start a 1 100", "start b 2 110", "end a 1 120", "start c 1 13"[:9]))
    assert [(run.job_id, run.ended_ms) for run in runs] == [("a", 120), ("b", None)]
    assert list(running(runs)) == [2]
    assert read_runs(tmp_path / "none") == []


def test_a_run_of_the_killed_process_ends_with_it(tmp_path: Path) -> None:
    """make demo"""
    runs = read_runs(ledger(tmp_path, "start a 1 100", "start a 2 155", "end a 2 160"))
    assert overlaps(runs, killed_pid=1, killed_ms=150) == []
    assert recovery_times(runs, killed_pid=1, killed_ms=150) == [5]


def test_two_runs_at_once_are_noticed(tmp_path: Path) -> None:
    """make demo"""
    lines = ("start a 1 100", "start a 2 110", "end a 2 120", "end a 1 130")
    assert overlaps(read_runs(ledger(tmp_path, *lines)), killed_pid=9, killed_ms=0) == ["a"]
    early = ("start a 1 100", "start a 2 140", "end a 2 160")
    assert overlaps(read_runs(ledger(tmp_path, *early)), killed_pid=1, killed_ms=150) == ["a"]
