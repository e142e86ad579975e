# SPDX-License-Identifier: MIT
"""A worker that dies between the server's claim and its own knowledge of it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from echomq_pool import SyncQueue
from tests.support.pool import PoolProcess
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

BODY = """
[[workers]]
name = "work"
queues = ["QUEUE"]
processor = "tests.support.soak_jobs:work"
processes = 1
concurrency = 1
"""


class WithheldReply:
    """Holds back the first chunk that carries the job's data: the claim has happened, its holder never hears of it."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.held = threading.Event()

    def __call__(self, chunk: bytes) -> bytes:
        if self.mark in chunk and not self.held.is_set():
            self.held.set()
            return b""
        return chunk


def test_a_worker_killed_between_its_take_and_its_held_leaves_no_job_to_the_stalled_sweep(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """law 1, law 9, case C036: stalled_interval is the default 30 s, so a sweep would come too late for this test."""
    proxy = Proxy(own_server.port).start()
    withheld = WithheldReply(b"only-this-job")
    proxy.edit = withheld
    pool = PoolProcess(tmp_path, f"redis://127.0.0.1:{proxy.port}/0", BODY.replace("QUEUE", queue_name))
    try:
        pool.start()
        with SyncQueue(queue_name, url=own_server.url) as queue:
            job_id = queue.add("job", {"note": "only-this-job", "ms": 1, "folder": str(tmp_path)}).id
            assert job_id is not None
            assert withheld.held.wait(20)
            assert queue.get_state(job_id) == "active"
            assert not ledger(tmp_path), "its holder knows nothing of it"
            os.kill(pool.pids("work")[0], signal.SIGKILL)
            eventually(lambda: queue.get_state(job_id) == "completed", within=10)
            job = queue.get_job(job_id)
            assert job is not None
            assert job.attempts_made == 1
        assert pool.stop() == 0
    finally:
        pool.destroy()
        proxy.close()


def test_a_claim_whose_reply_was_lost_with_the_connection_is_found_again_by_its_worker(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """law 6: the take is not repeated blindly; the worker looks for what is its own."""
    proxy = Proxy(own_server.port).start()
    withheld = WithheldReply(b"only-this-job")
    proxy.edit = withheld
    pool = PoolProcess(tmp_path, f"redis://127.0.0.1:{proxy.port}/0", BODY.replace("QUEUE", queue_name))
    try:
        pool.start()
        with SyncQueue(queue_name, url=own_server.url) as queue:
            job_id = queue.add("job", {"note": "only-this-job", "ms": 1, "folder": str(tmp_path)}).id
            assert job_id is not None
            assert withheld.held.wait(20)
            proxy.cut()
            eventually(lambda: queue.get_state(job_id) == "completed", within=20)
            job = queue.get_job(job_id)
            assert job is not None
            assert job.attempts_made == 1
            assert job.stalled_counter == 0
            assert job.fencing_token == 1, "it was taken once"
        assert [row[0] for row in ledger(tmp_path)] == ["start", "end"]
        assert pool.stop() == 0
    finally:
        pool.destroy()
        proxy.close()
