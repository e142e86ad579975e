# SPDX-License-Identifier: MIT
"""The pool as PID 1 of a container, as far as a kernel namespace goes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from echomq_pool import SyncQueue
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc")


def namespace() -> tuple[str, ...]:
    """Root may unshare at once; others need a user namespace of their own."""
    return UNSHARE if os.geteuid() == 0 else (*UNSHARE, "--user", "--map-root-user")


def test_as_pid_1_the_pool_reaps_orphans_drains_on_term_and_exits_0(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """case C054, C152"""
    body = f"""
[[workers]]
name = "one"
queues = ["{queue_name}"]
processor = "tests.support.soak_jobs:leave_orphan"
processes = 1
concurrency = 2
"""
    pool = PoolProcess(tmp_path, own_server.url, body).start(*namespace())
    try:
        init = psutil.Process(pool.pid).children()[0]
        with SyncQueue(queue_name, url=own_server.url) as queue:
            job = queue.add("orphan", {"ms": 1_500, "folder": str(tmp_path)})
            eventually(lambda: any(row[0] == "start" for row in ledger(tmp_path)))
            os.kill(init.pid, signal.SIGTERM)
            family = init.children(recursive=True)
            assert pool.wait() == 0, pool.log()[-3000:]
            assert queue.get_state(job.id) == "completed"
        assert not [p for p in family if p.is_running()]
        assert "Traceback" not in pool.log()
    finally:
        pool.destroy()


def test_pools_of_one_name_with_the_same_pids_are_told_apart(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """case C159: as in two containers of one deployment, whose process numbers are the same"""
    body = f"""
[[workers]]
name = "one"
queues = ["{queue_name}"]
processor = "tests.support.soak_jobs:work"
processes = 1
concurrency = 1
"""
    pools = [PoolProcess(folder_of(tmp_path, n), own_server.url, body) for n in range(2)]
    try:
        for pool in pools:
            pool.start(*namespace())
        assert len({pool.status()["children"][-1]["pid"] for pool in pools}) == 1, "the numbers are the same"
        with SyncQueue(queue_name, url=own_server.url) as queue:
            named = {worker["rawname"].rpartition(":w:")[2] for worker in queue.get_workers()}
            assert len(named) == 2
            job_id = str(queue.add("job", {"folder": str(tmp_path)}).id)
            eventually(lambda: queue.get_state(job_id) == "completed")
            job = queue.get_job(job_id)
            assert job is not None
            assert job.processed_by in named, "which of the two it was"
    finally:
        for pool in pools:
            pool.destroy()


def folder_of(parent: Path, number: int) -> Path:
    folder = parent / str(number)
    folder.mkdir()
    return folder
