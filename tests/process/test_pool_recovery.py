# SPDX-License-Identifier: MIT
"""What happens to the jobs of a process that dies, hangs or is stopped, under the default 30 s lock."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq_pool import SyncQueue
from tests.support.pool import PLANES, PoolProcess, is_done, plane_of
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

BODY = """
[supervisor]
control = "@CONTROL@"
max_restarts = 100
hang_timeout = "4s"

[infra]
max_restarts = 100

[[workers]]
name = "orders"
queues = ["QUEUE"]
plane = "PLANE"
processor = "tests.support.soak_jobs:PROCESSOR"
processes = PROCESSES
concurrency = 4
max_stalled_count = 100
max_restarts = 100
"""


def body(queue: SyncQueue, processor: str = "work", processes: int = 2) -> str:
    text = BODY.replace("QUEUE", queue.name).replace("PLANE", plane_of(queue)).replace("PROCESSOR", processor)
    return text.replace("PROCESSES", str(processes))


@pytest.fixture(params=PLANES)
def queue(own_server: Server, queue_name: str, request: pytest.FixtureRequest) -> Iterator[SyncQueue]:
    with SyncQueue(queue_name, url=own_server.url, plane=request.param) as queue:
        yield queue


def burnt(server: Server, queue: SyncQueue) -> list[dict[bytes, bytes]]:
    """Waiting jobs of a lease-plane queue that were charged an attempt or a stall."""
    if plane_of(queue) == "lock":
        return []
    with server.client() as client:
        rows = [client.hgetall(key) for key in client.scan_iter(queue.keys.base + "job:*")]
    return [row for row in rows if row.get(b"stalled") or row[b"attempts"] != row.get(b"budget_base", b"0")]


def start_of(folder: Path, job_id: str, after_ms: int = 0) -> tuple[int, int] | None:
    """(pid, monotonic ms) of the first start of the job after `after_ms`."""
    rows = [
        (pid, ms)
        for word, job, pid, ms in ledger(folder)
        if word == "start" and job == job_id and ms >= after_ms
    ]
    return rows[0] if rows else None


def add(queue: SyncQueue, folder: Path, ms: int) -> str:
    job = queue.add("job", {"n": 1, "ms": ms, "folder": str(folder)})
    assert job.id is not None
    return job.id


def test_the_job_of_a_killed_worker_runs_again_within_milliseconds(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """law 1, case C027, C028, C037"""
    pool = PoolProcess(tmp_path, own_server.url, body(queue)).start()
    delays = []
    try:
        for _ in range(5):
            job_id = add(queue, tmp_path, 1_500)
            first = eventually(lambda j=job_id: start_of(tmp_path, j))
            killed_ms = time.monotonic_ns() // 1_000_000
            os.kill(first[0], signal.SIGKILL)
            again = eventually(lambda j=job_id, t=killed_ms: start_of(tmp_path, j, t))
            delays.append(again[1] - killed_ms)
            eventually(lambda j=job_id: is_done(queue, j))
            eventually(pool.is_ready)
        assert statistics.median(delays) <= 250, delays
        assert pool.stop() == 0
    finally:
        pool.destroy()


def test_a_stop_hands_running_jobs_back_without_an_attempt_or_a_stall(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C056, C061, law 9"""
    text = body(queue).replace('hang_timeout = "4s"', 'hang_timeout = "4s"\nshutdown_timeout = "500ms"')
    pool = PoolProcess(tmp_path, own_server.url, text).start()
    try:
        job_id = add(queue, tmp_path, 20_000)
        eventually(lambda: start_of(tmp_path, job_id))
        began = time.monotonic()
        assert pool.stop() == 0
        assert time.monotonic() - began < 10
        assert queue.get_state(job_id) == "waiting"
        job = queue.get_job(job_id)
        assert job is not None
        assert job.attempts_made == 0
        assert job.stalled_counter == 0
    finally:
        pool.destroy()


def test_a_sync_job_that_outlives_the_stop_is_killed_and_given_back(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """law 2, case C056"""
    text = body(queue, "work_sync").replace('hang_timeout = "4s"', 'shutdown_timeout = "500ms"')
    pool = PoolProcess(tmp_path, own_server.url, text).start()
    try:
        job_id = add(queue, tmp_path, 60_000)
        eventually(lambda: start_of(tmp_path, job_id))
        assert pool.stop() == 75
        assert queue.get_state(job_id) == "waiting"
        job = queue.get_job(job_id)
        assert job is not None
        assert job.attempts_made == 0
        assert job.stalled_counter == 0
    finally:
        pool.destroy()


def test_a_hung_worker_is_killed_and_only_then_its_job_runs_again(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """law 2, law 3, case C042"""
    text = body(queue, "deadlock_once").replace('"4s"', '"1s"')
    pool = PoolProcess(tmp_path, own_server.url, text).start()
    try:
        job_id = add(queue, tmp_path, 20)
        pid, hung_ms = eventually(lambda: start_of(tmp_path, job_id))
        other, began_ms = eventually(lambda: start_of(tmp_path, job_id, hung_ms + 1))
        assert other != pid
        assert 500 <= began_ms - hung_ms < 10_000
        eventually(lambda: is_done(queue, job_id))
        assert not [row for row in ledger(tmp_path) if row[0] == "doubled"]
        assert pool.stop() == 0
    finally:
        pool.destroy()


def test_a_worker_that_was_stopped_by_a_signal_is_woken_and_goes_on(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """promise 2.9, law 1"""
    pool = PoolProcess(tmp_path, own_server.url, body(queue).replace('"4s"', '"1s"')).start()
    try:
        job_id = add(queue, tmp_path, 2_500)
        pid, _ = eventually(lambda: start_of(tmp_path, job_id))
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: is_done(queue, job_id))
        assert [row[0] for row in ledger(tmp_path)] == ["start", "end"]
        assert pool.stop() == 0
    finally:
        pool.destroy()


@pytest.mark.parametrize("who", ["lock_manager", "supervisor"])
def test_a_stopped_lock_manager_or_supervisor_lapses_no_living_lease(
    tmp_path: Path, own_server: Server, queue: SyncQueue, who: str
) -> None:
    """law 1, law 3"""
    text = body(queue) + 'lock_duration = "2s"\nlock_renew_time = "1s"\n'
    if plane_of(queue) == "lock":  # the lease plane looks at every beat
        text += 'stalled_interval = "500ms"\n'
    pool = PoolProcess(
        tmp_path, own_server.url, text.replace('hang_timeout = "4s"', 'hang_timeout = "30s"')
    ).start()
    try:
        job_id = add(queue, tmp_path, 8_000)
        eventually(lambda: start_of(tmp_path, job_id))
        pid = pool.pid if who == "supervisor" else pool.pids("lock_manager")[0]
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: is_done(queue, job_id), within=30)
        os.kill(pid, signal.SIGCONT)
        starts = [row for row in ledger(tmp_path) if row[0] == "start" and row[1] == job_id]
        assert len(starts) == 1
        job = queue.get_job(job_id)
        assert job is None if plane_of(queue) == "lease" else job is not None and job.stalled_counter == 0
        eventually(pool.is_ready)
        assert pool.stop() == 0
    finally:
        pool.destroy()


def left_ms(server: Server, queue: SyncQueue, job_id: str) -> float:
    """What is left of the lease of a job; below 0 once it has lapsed."""
    with server.client() as client:
        if plane_of(queue) == "lock":
            return float(client.pttl(queue.keys.job(job_id) + ":lock"))
        seconds, micros = client.time()
        score = client.zscore(queue.keys.key("active"), job_id)
        return -1.0 if score is None else float(score) - seconds * 1_000 - micros / 1_000


def test_a_lease_outlives_its_lock_manager_while_the_loop_of_its_worker_is_blocked(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """law 1, law 9: the worker cannot tell the new one what it holds, the server can"""
    text = body(queue, "block", 1) + 'lock_duration = "4s"\n'
    pool = PoolProcess(tmp_path, own_server.url, text).start()
    try:
        job = add(queue, tmp_path, 9_000)
        eventually(lambda: start_of(tmp_path, job))
        os.kill(pool.pids("lock_manager")[0], signal.SIGKILL)
        lowest = 4_000.0
        while len(ledger(tmp_path)) < 2:
            left = left_ms(own_server, queue, job)
            if len(ledger(tmp_path)) < 2:  # else it may have been settled
                lowest = min(lowest, left)
            time.sleep(0.02)
        assert lowest > 0
        eventually(lambda: is_done(queue, job))
        assert len(ledger(tmp_path)) == 2
        assert pool.stop() == 0
    finally:
        pool.destroy()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("times", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_stops_under_load_lose_double_and_burn_nothing(
    tmp_path: Path, own_server: Server, queue: SyncQueue, times: int
) -> None:
    """case C055, C061, C153, law 9"""
    text = body(queue).replace('hang_timeout = "4s"', 'shutdown_timeout = "1s"')
    total = 60 * times
    for start in range(0, total, 1_000):
        queue.add_bulk([("job", {"n": n, "ms": 150, "folder": str(tmp_path)}, {}) for n in range(start, min(total, start + 1_000))])  # fmt: skip  # noqa: E501
    for n in range(times):
        pool = PoolProcess(tmp_path, own_server.url, text, name=f"stop-{n}").start()
        try:
            done = len(ledger(tmp_path))
            eventually(lambda d=done: len(ledger(tmp_path)) > d + 10)
            began = time.monotonic()
            assert pool.stop() == 0, pool.log()[-3000:]
            assert time.monotonic() - began < 4.5
            assert queue.get_job_counts()["active"] == 0
            assert burnt(own_server, queue) == []
            assert "WARNING" not in pool.log()
            assert "ERROR" not in pool.log()
        finally:
            pool.destroy()
    pool = PoolProcess(tmp_path, own_server.url, text, name="last").start()
    try:
        eventually(lambda: queue.get_job_counts()["completed"] == total, within=120)
        assert not [row for row in ledger(tmp_path) if row[0] == "doubled"]
        assert queue.get_job_counts()["failed"] == 0
        if plane_of(queue) == "lock":
            jobs = [queue.get_job(str(n)) for n in range(1, total + 1, 7)]
            assert all(
                job is not None and job.attempts_made == 1 and job.stalled_counter == 0 for job in jobs
            )
    finally:
        pool.destroy()
