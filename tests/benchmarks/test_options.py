# SPDX-License-Identifier: MIT
"""`pytest --benchmark`: our option, not pytest-benchmark's, which refuses the bare word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def collected(*options: str) -> tuple[set[str], str]:
    """(top folders of the tests that would run, the whole output)."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.partition("/")[0] for line in done.stdout.splitlines() if "::" in line}, done.stdout


def test_the_option_selects_the_benchmarks_in_full() -> None:
    folders, output = collected("--benchmark")
    assert folders == {"benchmarks"}
    assert "100000" in output


def test_without_it_they_are_tiny() -> None:
    folders, output = collected("benchmarks")
    assert folders == {"benchmarks"}
    assert "100000" not in output


@pytest.mark.parametrize("options", [("--benchmark", "--quick"), ("--benchmark", "--server", "redis")])
def test_sets_and_servers_can_be_chosen(options: tuple[str, ...]) -> None:
    assert collected(*options)[0] == {"benchmarks"}


def test_a_named_file_is_what_runs() -> None:
    _, output = collected("--benchmark", "benchmarks/test_sweeps.py")
    assert {line.partition("::")[0] for line in output.splitlines() if "::" in line} == {
        "benchmarks/test_sweeps.py"
    }
