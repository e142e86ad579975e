# SPDX-License-Identifier: MIT
"""Poison jobs, modules that do not import, workers that do not boot: the whole program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq_pool import JobFailed, SyncQueue
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

STALL_REASON = "job stalled more than allowable limit"


def body(queue: str, processor: str, extra: str = "", supervisor: str = "") -> str:
    return f"""
[supervisor]
control = "@CONTROL@"
backoff = {{ initial = "10ms", max = "50ms", jitter = 0.0 }}
{supervisor}

[[workers]]
name = "work"
queues = ["{queue}"]
processor = "{processor}"
processes = 2
concurrency = 2
max_restarts = 100
{extra}
"""


@pytest.fixture
def queue(own_server: Server, queue_name: str) -> Iterator[SyncQueue]:
    with SyncQueue(queue_name, url=own_server.url) as queue:
        yield queue


def starts_of(folder: Path, job_id: str) -> int:
    return sum(1 for word, job, _, _ in ledger(folder) if word == "start" and job == job_id)


def test_a_poison_job_fails_with_the_standard_reason_and_the_others_go_on(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C030, C032, C034, C152, promise 2.17, 2.18, 4.14"""
    text = body(queue.name, "tests.support.soak_jobs:poison_by_name", "max_stalled_count = 2")
    pool = PoolProcess(tmp_path, own_server.url, text).start()
    try:
        data = {"n": 1, "ms": 20, "folder": str(tmp_path)}
        others = [queue.add("good", data).id for _ in range(10)]
        poison = queue.add("poison", data, attempts=5).id
        others += [queue.add("good", data).id for _ in range(10)]
        assert poison is not None
        with pytest.raises(JobFailed, match=STALL_REASON):
            queue.wait_until_finished(poison, timeout=40)
        eventually(lambda: all(queue.get_state(str(job)) == "completed" for job in others))
        assert starts_of(tmp_path, poison) == 3
        job = queue.get_job(poison)
        assert job is not None
        assert job.failed_reason == STALL_REASON
        assert any("SIGKILL" in line for line in job.stacktrace), "the evidence of its deaths is kept"
        assert pool.stop() == 0
    finally:
        pool.destroy()


def test_a_poison_job_that_is_to_be_removed_leaves_an_event_and_no_key(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C034, C137"""
    text = body(queue.name, "tests.support.soak_jobs:poison", "max_stalled_count = 0")
    pool = PoolProcess(tmp_path, own_server.url, text).start()
    try:
        job_id = queue.add("poison", {"folder": str(tmp_path)}, job_id="poison-x", remove_on_fail=True).id
        with own_server.client() as client:
            stream = f"emq:{{{queue.name}}}:events"

            def failures() -> list[dict[bytes, bytes]]:
                entries = [fields for _, fields in client.xrange(stream)]
                return [e for e in entries if e[b"event"] == b"failed" and e[b"jobId"] == b"poison-x"]

            eventually(failures)
            eventually(lambda: not client.exists(f"emq:{{{queue.name}}}:{job_id}"))
            assert len(failures()) == 1
            assert failures()[0][b"failedReason"].decode() == STALL_REASON
            before = starts_of(tmp_path, "poison-x")
            queue.add("poison", {"folder": str(tmp_path)}, job_id="poison-x", remove_on_fail=True)
            eventually(lambda: starts_of(tmp_path, "poison-x") > before)
    finally:
        pool.destroy()


def test_a_worker_that_cannot_import_once_is_replaced_and_no_job_notices(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C044, C048"""
    flag = tmp_path / "flag"
    text = body(queue.name, "tests.support.flaky_module:work")
    pool = PoolProcess(tmp_path, own_server.url, text)
    try:
        pool.start(env={"ECHOMQ_TEST_FLAG": str(flag)})
        flag.write_text("a passing shortage")
        os.kill(pool.pids("work")[0], signal.SIGKILL)
        eventually(lambda: "a passing shortage" in pool.log())
        jobs = [queue.add("job", {}).id for _ in range(20)]
        eventually(
            lambda: all(queue.get_state(str(job)) == "completed" for job in jobs), why="the other one works"
        )
        flag.unlink()
        eventually(pool.is_ready)
        assert pool.stop() == 0
    finally:
        pool.destroy()


def test_scaling_up_with_broken_code_is_reported_and_leaves_the_healthy_alone(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C048"""
    flag = tmp_path / "flag"
    pool = PoolProcess(tmp_path, own_server.url, body(queue.name, "tests.support.flaky_module:work"))
    try:
        pool.start(env={"ECHOMQ_TEST_FLAG": str(flag)})
        before = pool.pids("work")
        flag.write_text("broken code")
        asked = subprocess.run(
            [sys.executable, "-m", "echomq_pool", "scale", "work", "3", "--control", str(pool.control)],
            capture_output=True,
            text=True,
        )
        assert asked.returncode != 0
        assert "broken code" in asked.stderr
        assert pool.pids("work")[: len(before)] == before
        job = queue.add("job", {}).id
        eventually(lambda: queue.get_state(str(job)) == "completed")
    finally:
        pool.destroy()


def test_a_first_boot_that_fails_exits_13_with_the_childs_traceback_and_leaves_nothing(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C046, C051"""
    flag = tmp_path / "flag"
    flag.write_text("the module is broken")
    pool = PoolProcess(tmp_path, own_server.url, body(queue.name, "tests.support.flaky_module:work"))
    try:
        pool.start(ready=False, env={"ECHOMQ_TEST_FLAG": str(flag)})
        family = pool.tree()
        assert pool.wait() == 13
        assert "the module is broken" in pool.log()
        assert "flaky_module.py" in pool.log(), "the child's own traceback"
        assert not [p for p in family if p.is_running()]
        assert not pool.control.exists()
    finally:
        pool.destroy()


def test_during_a_drain_only_the_grace_time_rules(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C063, C056"""
    supervisor = 'hang_timeout = "1s"\nshutdown_timeout = "20s"'
    pool = PoolProcess(
        tmp_path, own_server.url, body(queue.name, "tests.support.flaky_module:sleep", "", supervisor)
    )
    try:
        pool.start()
        job = queue.add("job", {"ms": 4_000}).id
        eventually(lambda: queue.get_state(str(job)) == "active")
        assert pool.stop() == 0
        assert queue.get_state(str(job)) == "completed"
    finally:
        pool.destroy()


def test_failing_jobs_never_pile_up_processes(tmp_path: Path, own_server: Server, queue: SyncQueue) -> None:
    """case C049"""
    pool = PoolProcess(
        tmp_path, own_server.url, body(queue.name, "tests.support.soak_jobs:poison", "max_stalled_count = 0")
    )
    try:
        pool.start()
        workers = 2
        for _ in range(20):
            queue.add("poison", {"folder": str(tmp_path)})
        most = 0

        def finished() -> bool:
            nonlocal most
            most = max(most, len(pool.pids("work")))
            return queue.get_job_counts()["failed"] == 20

        eventually(finished, within=60)
        assert most <= workers + 1
    finally:
        pool.destroy()


def test_among_jobs_that_have_all_stalled_once_only_the_poison_is_convicted(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """law 9 (poison jobs), case C030: a suspect is never held beside others, so its death convicts nobody else"""
    data = {"n": 1, "ms": 20, "folder": str(tmp_path)}
    names = ["good", "good", "poison", "good", "good", "good"]
    jobs = [str(queue.add(name, data).id) for name in names]
    with own_server.client() as client:
        for job_id in jobs:
            client.hset(f"emq:{{{queue.name}}}:{job_id}", "stc", 1)
    text = body(queue.name, "tests.support.soak_jobs:poison_by_name", "max_stalled_count = 1")
    pool = PoolProcess(tmp_path, own_server.url, text.replace("concurrency = 2", "concurrency = 8")).start()
    try:
        eventually(lambda: queue.get_job_counts()["completed"] == 5 and queue.get_job_counts()["failed"] == 1)
        for job_id in jobs:
            job = queue.get_job(job_id)
            assert job is not None
            assert job.stalled_counter == (2 if job.name == "poison" else 1)
        assert pool.stop() == 0
    finally:
        pool.destroy()
