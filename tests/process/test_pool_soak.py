# SPDX-License-Identifier: MIT
"""Kill everything, at random, under load; then the supervisor; then look at what the jobs themselves say."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from echomq_pool import SyncQueue
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

VICTIMS = ("load-", "lock_manager", "stalled_checker", "job_scheduler", "queue_events")

TOP = """
[supervisor]
control = "@CONTROL@"
max_restarts = 1000
max_seconds = 10
backoff = { initial = "1ms", max = "5ms", jitter = 0.0 }

[infra]
max_restarts = 1000
max_seconds = 10

"""

GROUP = """
[[workers]]
name = "load-NAME"
queues = ["QUEUE"]
plane = "PLANE"
processor = "tests.support.soak_jobs:work"
processes = PROCESSES
concurrency = 8
max_stalled_count = 1000
max_restarts = 1000
max_seconds = 10
"""
PLANES = {"lock": ("lock",), "lease": ("lease",), "both": ("lock", "lease")}


def start_pool(
    folder: Path, server: Server, queue: str, planes: tuple[str, ...], name: str = "soak"
) -> PoolProcess:
    groups = [
        GROUP.replace("NAME", plane)
        .replace("QUEUE", f"{queue}-{plane}")
        .replace("PLANE", plane)
        .replace("PROCESSES", str(4 // len(planes)))
        for plane in planes
    ]
    return PoolProcess(folder, server.url, TOP + "".join(groups), name=name).start()


def kill_one(pool: PoolProcess, rng: random.Random) -> str:
    """SIGKILLs one random child, workers as often as all others together."""
    kind = rng.choice(VICTIMS[1:]) if rng.random() < 0.5 else VICTIMS[0]
    pids = pool.pids(kind)
    if not pids:
        return ""
    os.kill(rng.choice(pids), signal.SIGKILL)
    return kind


def check_no_doubling(folder: Path) -> None:
    doubled = [row for row in ledger(folder) if row[0] == "doubled"]
    assert not doubled, f"ran twice at once: {doubled[:5]}"


def finals(queues: list[SyncQueue]) -> int:
    return sum(row["completed"] + row["failed"] for row in (queue.get_job_counts() for queue in queues))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("planes", PLANES)
@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.soak)])
def test_random_kills_of_every_child_and_then_of_the_supervisor_lose_and_double_nothing(
    tmp_path: Path, own_server: Server, queue_name: str, seconds: int, planes: str
) -> None:
    """law 9, law 2, promise 2.1, 2.2, case C029, C038, C060; on either plane, and on both in one pool"""
    rng = random.Random(seconds)
    pool = start_pool(tmp_path, own_server, queue_name, PLANES[planes])
    added = 0
    killed: Counter[str] = Counter()
    try:
        with ExitStack() as stack:
            queues = [
                stack.enter_context(SyncQueue(f"{queue_name}-{plane}", plane=plane, url=own_server.url))
                for plane in PLANES[planes]
            ]
            end = time.monotonic() + seconds
            files = psutil.Process(pool.pid).num_fds()
            while time.monotonic() < end:
                rng.choice(queues).add_bulk(
                    ("load", {"n": added + i, "ms": rng.choice((1, 20, 150)), "folder": str(tmp_path)}, {})
                    for i in range(40)
                )  # fmt: skip
                added += 40
                killed[kill_one(pool, rng)] += 1
                time.sleep(0.2)
            eventually(pool.is_ready, within=40, why="whole again")
            assert abs(psutil.Process(pool.pid).num_fds() - files) <= 2, "the supervisor leaks descriptors"
            family = pool.tree()
            os.kill(pool.pid, signal.SIGKILL)
            pool.wait()
            eventually(
                lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family),
                within=10,
            )
            heir = start_pool(tmp_path, own_server, queue_name, PLANES[planes], name="heir")
            try:
                eventually(
                    lambda: finals(queues) == added, within=120, why=f"{finals(queues)} of {added} done"
                )
                assert sum(queue.get_job_counts()["completed"] for queue in queues) == added
                assert heir.stop() == 0
            finally:
                heir.destroy()
        check_no_doubling(tmp_path)
        assert killed[VICTIMS[0]] > 0
        assert sum(killed.values()) >= seconds * 2
    finally:
        pool.destroy()
