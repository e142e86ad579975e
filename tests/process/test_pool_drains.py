# SPDX-License-Identifier: MIT
"""A worker that is to leave and cannot: it is no hostage taker either."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomq_pool import SyncQueue
from echomq_pool.supervisor.control import ControlError, call
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

BODY = """
[supervisor]
control = "@CONTROL@"
hang_timeout = "6s"

[[workers]]
name = "load"
queues = ["QUEUE"]
processor = "tests.support.processors:deadlock"
processes = 2
concurrency = 1
max_stalled_count = 0
"""


def test_a_deadlocked_worker_that_was_asked_to_leave_gives_its_job_back(
    tmp_path: Path, valkey_server: Server, queue_name: str
) -> None:
    """law 3, case C056: without a deadline the watchdog goes on watching"""
    pool = PoolProcess(tmp_path, valkey_server.url, BODY.replace("QUEUE", queue_name))
    try:
        pool.start()
        with SyncQueue(queue_name, url=valkey_server.url) as queue:
            job = queue.add("work", {"folder": str(tmp_path)})
            eventually(lambda: (tmp_path / "locked").exists())
            held = int((tmp_path / "locked").read_text())
            child = next(c["id"] for c in pool.children("load") if c["pid"] == held)
            # Asked to go well before its silence is noticed; the answer would come when it has gone.
            with pytest.raises(ControlError):
                call(pool.control, "restart", {"child": child}, timeout_s=0.1)
            eventually(lambda: queue.get_state(job.id) == "failed", within=30)
            eventually(lambda: held not in [p.pid for p in pool.tree()], within=10)
    finally:
        pool.destroy()
