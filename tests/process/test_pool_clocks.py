# SPDX-License-Identifier: MIT
"""A pool on a host whose wall clock is wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq_pool import SyncQueue
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

BODY = """
[observer]
bind = "127.0.0.1:0"

[[workers]]
name = "work"
queues = ["QUEUE"]
processor = "tests.support.soak_jobs:work"
processes = 1
concurrency = 4
lock_duration = "2s"
lock_renew_time = "1s"
stalled_interval = "500ms"
"""
SKEW_S = 6


@pytest.fixture
def late_pool(tmp_path: Path, own_server: Server, queue_name: str) -> Iterator[PoolProcess]:
    """A pool whose clock is some seconds behind; the monotonic clock is the host's."""
    if shutil.which("faketime") is None:
        raise FileNotFoundError("faketime is missing: apt-get install faketime")
    pool = PoolProcess(tmp_path, own_server.url, BODY.replace("QUEUE", queue_name))
    # uvloop reads its clocks in ways that the preloaded library does not reach.
    env = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "ECHOMQ_POOL_UVLOOP": "0"}
    yield pool.start("faketime", "-f", f"-{SKEW_S}s", env=env)
    pool.destroy()


def test_a_clock_that_is_behind_delays_delayed_jobs_by_the_skew_and_touches_no_lease(
    tmp_path: Path, own_server: Server, queue_name: str, late_pool: PoolProcess
) -> None:
    """case C091, law 7"""
    with SyncQueue(queue_name, url=own_server.url) as queue:
        data = {"n": 1, "folder": str(tmp_path)}
        now = queue.add("now", {**data, "ms": 4_000}).id
        later = queue.add("later", {**data, "ms": 1}, delay=500).id
        assert now is not None
        assert later is not None
        added = time.monotonic()
        eventually(lambda: queue.get_state(now) == "completed", within=20)
        eventually(lambda: queue.get_state(later) == "completed", within=SKEW_S + 20)
        assert time.monotonic() - added <= SKEW_S + 15
        assert [row[0] for row in ledger(tmp_path) if row[1] == now] == ["start", "end"], (
            "a long job kept its lease"
        )
        job = queue.get_job(now)
        assert job is not None
        assert job.stalled_counter == 0
    totals = late_pool.status()["totals"]
    assert all(value >= 0 for value in totals["gauges"].values())
    assert all(value >= 0 for row in totals["histograms"].values() for value in row)
