# SPDX-License-Identifier: MIT
"""The whole program against servers that go away, forget, or are set up dangerously."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from echomq_pool import SyncQueue
from tests.support.pool import PLANES, PoolProcess, is_done, plane_of
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

BODY = """
[[workers]]
name = "work"
queues = ["QUEUE"]
plane = "PLANE"
processor = "tests.support.soak_jobs:work"
processes = 2
concurrency = 2
"""


on_both_planes = pytest.mark.parametrize("queue", PLANES, indirect=True)


@pytest.fixture
def queue(own_server: Server, queue_name: str, request: pytest.FixtureRequest) -> Iterator[SyncQueue]:
    plane = getattr(request, "param", "lock")
    with SyncQueue(queue_name, plane=plane, url=own_server.url) as queue:
        yield queue


@pytest.fixture
def pool(tmp_path: Path, own_server: Server, queue: SyncQueue) -> Iterator[PoolProcess]:
    body = BODY.replace("QUEUE", queue.name).replace("PLANE", plane_of(queue))
    pool = PoolProcess(tmp_path, own_server.url, body)
    yield pool
    pool.destroy()


def add(queue: SyncQueue, folder: Path, ms: int = 1, **options: object) -> str:
    job_id = queue.add("job", {"n": 1, "ms": ms, "folder": str(folder)}, **options).id
    assert job_id is not None
    return job_id


def is_completed(queue: SyncQueue, job_id: str) -> bool:
    return is_done(queue, job_id)


@on_both_planes
def test_an_outage_ends_no_child_and_spends_no_budget(
    tmp_path: Path, own_server: Server, queue: SyncQueue, pool: PoolProcess
) -> None:
    """case C006, C001, C002, C007"""
    pool.start()
    before = pool.pids()
    running = add(queue, tmp_path, ms=1_500)
    eventually(lambda: ledger(tmp_path))
    own_server.stop()
    eventually(lambda: not any(child["connected"] for child in pool.children("work")))
    own_server.start()
    eventually(lambda: is_completed(queue, running))
    assert is_completed_once(tmp_path, running)
    later = add(queue, tmp_path)
    eventually(lambda: is_completed(queue, later))
    assert pool.pids() == before
    assert all(child["restarts"] == 0 for child in pool.children())
    assert pool.stop() == 0


def is_completed_once(folder: Path, job_id: str) -> bool:
    return [row[0] for row in ledger(folder) if row[1] == job_id] == ["start", "end"]


@on_both_planes
def test_a_term_during_an_outage_is_obeyed_at_once(
    own_server: Server, queue: SyncQueue, pool: PoolProcess
) -> None:
    """case C003"""
    pool.start()
    own_server.stop()
    eventually(lambda: not any(child["connected"] for child in pool.children("work")))
    assert pool.stop(within=8) == 0


@on_both_planes
@pytest.mark.parametrize("how", ["frozen", "restarted"])
def test_leases_that_all_lapse_in_an_outage_are_taken_back_before_anything_is_recovered(
    tmp_path: Path, own_server: Server, queue: SyncQueue, pool: PoolProcess, how: str
) -> None:
    """law 2, law 4: the outage lasts three leases, and two pools look for lapsed ones when it ends"""
    short = pool.config.read_text().replace("concurrency = 2", 'concurrency = 2\nlock_duration = "1s"')
    pool.config.write_text(short)
    pool.start()
    jobs = [add(queue, tmp_path, ms=6_000) for _ in range(3)]
    eventually(lambda: len(ledger(tmp_path)) == 3)
    other = PoolProcess(tmp_path, own_server.url, short.split("\n", 3)[3], name="other")
    other.config.write_text(short.replace('"test"', '"other"').replace("test.sock", "other.sock"))
    try:
        other.start()
        if how == "frozen":
            own_server.freeze()
            time.sleep(3)  # the length of the outage itself
            own_server.thaw()
        else:
            own_server.stop()
            time.sleep(3)
            own_server.start()
        eventually(lambda: all(is_completed(queue, job_id) for job_id in jobs))
        assert all(is_completed_once(tmp_path, job_id) for job_id in jobs)
        assert [other.stop(), pool.stop()] == [0, 0]
    finally:
        other.destroy()


@on_both_planes
def test_a_delayed_job_due_during_an_outage_runs_once_the_server_is_back(
    tmp_path: Path, own_server: Server, queue: SyncQueue, pool: PoolProcess
) -> None:
    """case C090"""
    pool.start()
    job_id = add(queue, tmp_path, delay=1_000)
    own_server.stop()
    own_server.start()
    eventually(lambda: is_completed(queue, job_id), within=15)


def test_a_dangerous_eviction_policy_is_warned_of_exactly_once(own_server: Server, pool: PoolProcess) -> None:
    """case C015"""
    with own_server.client() as client:
        client.config_set("maxmemory-policy", "volatile-lru")
        pool.start()
        eventually(lambda: "maxmemory-policy is volatile-lru" in pool.log())
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        eventually(lambda: all(child["connected"] for child in pool.children("job_scheduler")))
    assert pool.log().count("maxmemory-policy") == 1


def test_no_job_is_fetched_for_a_process_that_is_gone(
    tmp_path: Path, queue: SyncQueue, pool: PoolProcess
) -> None:
    """case C040, C024"""
    pool.start()
    os.kill(pool.pids("work")[0], signal.SIGKILL)
    jobs = [add(queue, tmp_path, ms=50) for _ in range(8)]
    eventually(lambda: all(is_completed(queue, job_id) for job_id in jobs))
    assert all(is_completed_once(tmp_path, job_id) for job_id in jobs)


def test_logging_into_a_slow_pipe_freezes_nobody(tmp_path: Path, queue: SyncQueue, pool: PoolProcess) -> None:
    """case C150, C043"""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "echomq_pool", "--config", str(pool.config)]
    pool.config.write_text(pool.config.read_text().replace('level = "debug"', 'level = "debug"'))
    process = subprocess.Popen(command, stdout=write_end, stderr=write_end, stdin=subprocess.DEVNULL)
    os.close(write_end)
    pool.process = process
    stop = threading.Event()
    reader = threading.Thread(target=_read_slowly, args=(read_end, stop))
    reader.start()
    try:
        eventually(pool.is_ready, within=40)
        for _ in range(12):
            eventually(pool.is_ready)
            with contextlib.suppress(ProcessLookupError):  # the status may be a moment old
                os.kill(pool.pids("work")[0], signal.SIGKILL)
            eventually(lambda: len(pool.pids("work")) >= 1)
        job_id = add(queue, tmp_path)
        eventually(lambda: is_completed(queue, job_id))
        assert process.poll() is None
    finally:
        pool.destroy()
        stop.set()
        reader.join(timeout=20)


def _read_slowly(fd: int, stop: threading.Event) -> None:
    """About a kilobyte a second, until told to stop."""
    while not stop.wait(0.1):
        os.read(fd, 100)
    os.close(fd)


def test_status_is_fresh_and_says_so_when_the_pool_is_gone(
    tmp_path: Path, queue: SyncQueue, pool: PoolProcess
) -> None:
    """case C158"""
    pool.start()
    for _ in range(3):
        add(queue, tmp_path)
    counted = f"completed|{queue.name}"
    eventually(lambda: pool.status()["totals"]["counters"].get(counted) == 3, within=10)
    os.kill(pool.pid, signal.SIGKILL)
    pool.wait()
    asked = subprocess.run(
        [sys.executable, "-m", "echomq_pool", "status", "--config", str(pool.config)],
        capture_output=True,
        text=True,
    )
    assert asked.returncode != 0
    assert "is it running" in asked.stderr


def test_a_hang_up_or_a_term_in_the_middle_of_the_boot_leaves_no_process(pool: PoolProcess) -> None:
    """case C053, C052"""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
        pool.start(ready=False)
        eventually(lambda: len(pool.tree()) > 2)
        family = pool.tree()
        pool.signal(number)
        if number == signal.SIGHUP:
            eventually(pool.is_ready, within=40)
            pool.signal(signal.SIGTERM)
        assert pool.wait() in (0, 13)
        eventually(
            lambda f=family: not [p for p in f if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        )


def test_a_host_program_with_children_and_handlers_of_its_own_may_start_a_pool_as_a_subprocess(
    pool: PoolProcess,
) -> None:
    """case C041, C074, C072: embedding is starting the program; nothing of the host reaches into it."""
    seen: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: seen.append(number))
    try:
        pool.start()
        ours = subprocess.Popen(["sh", "-c", "exit 7"])
        os.kill(pool.pids("work")[0], signal.SIGKILL)
        eventually(pool.is_ready)
        assert ours.wait(timeout=20) == 7
        assert pool.stop() == 0
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert seen, "the host's own handler was not called for its own children"


def health(pool: PoolProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "echomq_pool", "health", *words, "--control", str(pool.control)]
    return subprocess.run(command, capture_output=True, text=True)


def test_an_outage_or_a_quiet_pool_is_not_ready_but_not_ill(own_server: Server, pool: PoolProcess) -> None:
    """case C154, C160"""
    pool.start()
    eventually(lambda: health(pool, "--ready").returncode == 0)
    own_server.stop()
    eventually(lambda: health(pool, "--ready").returncode == 1)
    assert "not connected" in health(pool, "--ready").stderr
    assert health(pool).returncode == 0
    own_server.start()
    eventually(lambda: health(pool, "--ready").returncode == 0)
    pool.ask("quiet")
    assert "quiet" in health(pool, "--ready").stderr
    assert health(pool).returncode == 0


def test_a_failed_attempt_is_one_line_that_says_what_happens_next(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C151, C152"""
    text = (
        BODY.replace("QUEUE", queue.name)
        .replace("PLANE", "lock")
        .replace("soak_jobs:work", "soak_jobs:mixed")
    )
    pool = PoolProcess(tmp_path, own_server.url, text).start()
    try:
        data = {"folder": str(tmp_path), "fail_times": 2}
        job_id = queue.add("charge", data, attempts=2, backoff={"type": "fixed", "delay": 5}).id
        eventually(lambda: queue.get_state(str(job_id)) == "failed")
        line = f"job {job_id} (charge) of {queue.name} failed, attempt"
        eventually(lambda: f"{line} 2 of 2, not tried again: planned failure of charge" in pool.log())
        assert f"{line} 1 of 2, tried again in 5 ms: planned failure of charge" in pool.log()
    finally:
        pool.destroy()
