# SPDX-License-Identifier: MIT
"""`make demo`, in a small dose."""

from __future__ import annotations

import re
import subprocess
import sys


def test_the_demo_kills_a_worker_and_loses_nothing() -> None:
    """law 9; a worker is killed -9 in the middle: lost 0, doubled 0, recovered"""
    command = [sys.executable, "-m", "echomq_pool.demo", "--jobs", "600"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=110)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for line in (
        r"jobs done +600 of 600",
        r"lost +0",
        r"doubled +0",
        r"failed +0",
        r"exit code of the pool +0",
    ):
        assert re.search(line, done.stdout), done.stdout
    assert re.search(r"recovered +\d+ jobs, running again after \d+ to \d+ ms", done.stdout), done.stdout
