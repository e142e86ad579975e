# SPDX-License-Identifier: MIT
"""Time limits and cancellation that really stop a job, whatever the job does: the whole program."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from echomq_pool import SyncQueue
from tests.support.pool import PLANES, PoolProcess, is_done, plane_of
from tests.support.servers import Server
from tests.support.waiting import eventually

BODY = """
[supervisor]
control = "@CONTROL@"
backoff = { initial = "10ms", max = "50ms", jitter = 0.0 }

[[workers]]
name = "work"
queues = ["QUEUE"]
plane = "PLANE"
processor = "tests.process.test_pool_time_limits:run"
processes = 1
concurrency = 3
timeout = "1s"
"""


def _mark(job: Any) -> None:
    with (Path(job.data["folder"]) / job.name).open("a") as file:
        file.write(f"{os.getpid()}\n")


def run(job: Any) -> str:
    """A synchronous processor: what it does is in the job's name."""
    _mark(job)
    if job.name == "gil":
        ctypes.PyDLL(None).usleep(30_000_000)  # holds the interpreter lock: no timer of this process can fire
    elif job.name == "stuck":
        time.sleep(30)
    elif job.name == "grandchild":
        child = subprocess.Popen(["sleep", "300"])
        (Path(job.data["folder"]) / "sleeper").write_text(str(child.pid))
        time.sleep(30)
    elif job.name == "neighbour":
        end = time.monotonic() + 0.9
        while time.monotonic() < end and not job.cancelled:
            time.sleep(0.01)
    return "done"


@pytest.fixture(params=PLANES)
def queue(own_server: Server, queue_name: str, request: pytest.FixtureRequest) -> Iterator[SyncQueue]:
    with SyncQueue(queue_name, url=own_server.url, plane=request.param) as queue:
        yield queue


@pytest.fixture
def pool(tmp_path: Path, own_server: Server, queue: SyncQueue) -> Iterator[PoolProcess]:
    body = BODY.replace("QUEUE", queue.name).replace("PLANE", plane_of(queue))
    pool = PoolProcess(tmp_path, own_server.url, body).start()
    yield pool
    pool.destroy()


def runs(folder: Path, name: str) -> int:
    path = folder / name
    return len(path.read_text().split()) if path.exists() else 0


@pytest.mark.parametrize("name", ["stuck", "gil"])
def test_a_job_over_its_time_limit_is_ended_from_outside_and_retried_by_its_policy(
    tmp_path: Path, queue: SyncQueue, pool: PoolProcess, name: str
) -> None:
    """case C161, C162, C163, C042, C152"""
    job_id = queue.add(name, {"folder": str(tmp_path)}, attempts=2).id
    assert job_id is not None
    eventually(lambda: queue.get_state(job_id) == "failed", within=30)
    job = queue.get_job(job_id)
    assert job is not None
    assert job.attempts_made == 2
    assert job.stalled_counter == 0
    assert "exceeded its time limit" in str(job.failed_reason)
    assert runs(tmp_path, name) == 2
    eventually(pool.is_ready)
    assert all(child["restarts"] == 0 or child["id"].startswith("work") for child in pool.children())
    assert not [p for p in pool.tree() if p.status() == psutil.STATUS_ZOMBIE]


def test_what_a_job_started_ends_with_its_process(
    tmp_path: Path, queue: SyncQueue, pool: PoolProcess
) -> None:
    """case C067"""
    queue.add("grandchild", {"folder": str(tmp_path)})
    sleeper = int(eventually(lambda: (p := tmp_path / "sleeper").exists() and p.read_text()))
    eventually(lambda: not psutil.pid_exists(sleeper), within=15)


def test_the_neighbours_of_a_cancelled_job_are_handed_back_without_cost(
    tmp_path: Path, queue: SyncQueue, pool: PoolProcess
) -> None:
    """case C166, C165"""
    stuck = queue.add("stuck", {"folder": str(tmp_path)}, attempts=5).id
    assert stuck is not None
    eventually(lambda: runs(tmp_path, "stuck") == 1)
    neighbour = queue.add("neighbour", {"folder": str(tmp_path)}).id
    assert neighbour is not None
    eventually(lambda: runs(tmp_path, "neighbour") == 1)
    queue.cancel(stuck, "not needed any more")
    eventually(lambda: queue.get_state(stuck) == "failed")
    eventually(lambda: is_done(queue, neighbour))
    ended, other = queue.get_job(stuck), queue.get_job(neighbour)
    assert ended is not None
    assert ended.failed_reason == "not needed any more"
    assert runs(tmp_path, "stuck") == 1, "a cancelled job is not tried again"
    if other is not None:  # the lease plane keeps no completed jobs
        assert other.attempts_made == 1
        assert other.stalled_counter == 0


def test_cancel_over_the_command_line_ends_the_job(
    tmp_path: Path, queue: SyncQueue, pool: PoolProcess
) -> None:
    """case C166"""
    job_id = queue.add("stuck", {"folder": str(tmp_path)}).id
    assert job_id is not None
    eventually(lambda: runs(tmp_path, "stuck") == 1)
    command = [
        sys.executable,
        "-m",
        "echomq_pool",
        "cancel",
        queue.name,
        job_id,
        "--control",
        str(pool.control),
    ]
    assert subprocess.run(command, capture_output=True).returncode == 0
    eventually(lambda: queue.get_state(job_id) == "failed")
