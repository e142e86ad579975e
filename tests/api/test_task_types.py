# SPDX-License-Identifier: MIT
"""What a type checker sees of a task: the function's own parameters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = """
from echomq_pool import Job, task

@task("charge", queue="orders", attempts=5)
async def charge(order: int, amount: float = 1.0) -> str:
    return f"{order} {amount}"

async def good() -> None:
    job: Job = await charge.enqueue(17, amount=2.5)
    charge.using(delay=5_000).enqueue_sync(order=18)
    text: str = await charge(19)

async def bad() -> None:
    await charge.enqueue(order="17")
    charge.enqueue_sync(ordr=17)
"""


def test_a_checker_finds_wrong_arguments_where_a_task_is_enqueued(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SOURCE)
    repository = Path(__file__).resolve().parents[2]
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path),
        str(tmp_path / "app.py"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=repository, timeout=110)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 2, done.stdout
    assert 'expected "int"' in errors[0]
    assert "ordr" in errors[1]
