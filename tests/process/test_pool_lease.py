# SPDX-License-Identifier: MIT
"""What a pool does with lease-plane queues besides what it does with all queues."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq_pool import SyncQueue
from echomq_pool.errors import JobFailed, JobLocked, JobMissing, WaitTimeout
from tests.support.monitor import requests
from tests.support.pool import PoolProcess, is_done
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

BODY = """
[supervisor]
control = "@CONTROL@"
max_restarts = 100
backoff = { initial = "10ms", max = "50ms", jitter = 0.0 }

[infra]
max_restarts = 100

[[workers]]
name = "fast"
queues = ["QUEUE"]
plane = "lease"
processor = "tests.support.lease_jobs:by_name"
max_restarts = 100
"""


@pytest.fixture
def queue(own_server: Server, queue_name: str) -> Iterator[SyncQueue]:
    with SyncQueue(queue_name, plane="lease", url=own_server.url) as queue:
        yield queue


def pool_of(folder: Path, server: Server, queue: str, more: str = "", **options: str) -> PoolProcess:
    defaults = {"processes": 2, "concurrency": 8}
    lines = "".join(f"{key} = {value}\n" for key, value in {**defaults, **options}.items() if key != "name")
    body = BODY.replace("QUEUE", queue) + lines + more
    return PoolProcess(folder, server.url, body, name=options.get("name", "test"))


def add(queue: SyncQueue, folder: Path, name: str = "job", ms: int = 5, **more: object) -> str:
    options = {key: more.pop(key) for key in ("attempts", "backoff", "delay") if key in more}
    job_id = queue.add(name, {"ms": ms, "folder": str(folder), **more}, **options).id
    assert job_id is not None
    return job_id


def starts(folder: Path, job_id: str) -> list[int]:
    """Process ids of the runs of a job."""
    return [pid for word, job, pid, _ in ledger(folder) if word == "start" and job == job_id]


# --- one queue, one plane -------------------------------------------------------------------------------


@pytest.mark.parametrize("plane", ["lock", "lease"])
def test_a_queue_of_the_other_plane_is_refused_naming_both_and_left_alone(
    tmp_path: Path, own_server: Server, queue_name: str, plane: str
) -> None:
    """law 12, law 13; design, section 6"""
    other = "lease" if plane == "lock" else "lock"
    with SyncQueue(queue_name, plane=other, url=own_server.url) as queue, own_server.client() as client:
        queue.add("job", {"folder": str(tmp_path)})
        before = {key: client.type(key) for key in client.scan_iter(queue.keys.base + "*")}
        body = BODY.replace("QUEUE", queue_name).replace('"lease"', f'"{plane}"')
        pool = PoolProcess(tmp_path, own_server.url, body).start()
        try:
            sentence = f"belongs to the {other} plane"
            eventually(lambda: sentence in pool.log() and f"opened on the {plane} plane" in pool.log())
            eventually(lambda: any(sentence in child["detail"] for child in pool.children("fast")))
            eventually(lambda: not any(child["connected"] for child in pool.children("fast")))
            assert queue.get_job_counts()["waiting"] == 1
            assert {key: client.type(key) for key in client.scan_iter(queue.keys.base + "*")} == before
            assert pool.stop() == 0
        finally:
            pool.destroy()


def test_a_lock_plane_pool_leaves_a_queue_that_the_lease_plane_took_while_it_was_empty(
    tmp_path: Path, own_server: Server, queue_name: str
) -> None:
    """law 12: nobody knew whose it was when the pool opened it"""
    body = BODY.replace("QUEUE", queue_name).replace('"lease"', '"lock"')
    pool = PoolProcess(tmp_path, own_server.url, body).start()
    try:
        with SyncQueue(queue_name, plane="lease", url=own_server.url) as queue:
            queue.add_bulk([("job", {"folder": str(tmp_path)}, {}) for _ in range(3)])
            with own_server.client() as client:
                client.zadd(queue.keys.key("active"), {"JOB00000000000": 9e15})  # somebody works it
                client.zadd(queue.keys.base + "marker", {"0": 0})  # and the sleeping workers look
                eventually(lambda: "belongs to the lease plane" in pool.log())
            assert queue.get_job_counts("waiting") == {"waiting": 3}
        assert pool.stop() == 0
    finally:
        pool.destroy()


# --- jobs and their ends --------------------------------------------------------------------------------


def test_retries_delays_deaths_and_a_poison_job_go_by_the_same_rules(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """law 2, case C037, promise 1.3; the budget is attempts, the token only grows"""
    pool = pool_of(tmp_path, own_server, queue.name, max_stalled_count="1").start()
    try:
        recovers = add(queue, tmp_path, "fails", fail_times=2, attempts=3, backoff=20)
        dies = add(queue, tmp_path, "fails", fail_times=9, attempts=2)
        later = add(queue, tmp_path, delay=1_300)
        added_ms = time.monotonic_ns() // 1_000_000
        # A death costs its neighbours a delivery of their budget: these two must not be among them.
        eventually(lambda: queue.get_job_counts()["failed"] == 1 and queue.get_job_counts()["completed"] >= 1)
        tells = add(queue, tmp_path, "tells", ms=1_500)
        poison = add(queue, tmp_path, "poison")
        eventually(lambda: (job := queue.get_job(tells)) is not None and job.progress == {"half": True})
        job = queue.get_job(tells)
        assert job is not None
        assert job.data["n"] == 7
        # When the poison took it along, the evidence of that stands above.
        assert queue.get_job_logs(tells)[-1] == "on my way"
        eventually(lambda: queue.get_job_counts()["failed"] == 2 and queue.get_job_counts()["completed"] == 3)
        dead, poisoned = queue.get_job(dies), queue.get_job(poison)
        assert dead is not None
        assert poisoned is not None
        assert (dead.attempts_made, dead.fencing_token) == (2, 2)
        assert "planned failure" in str(dead.failed_reason)
        assert poisoned.failed_reason == "stalled"
        assert "signal SIGKILL" in str(poisoned.stacktrace)
        assert len(starts(tmp_path, poison)) == 2
        assert len(starts(tmp_path, recovers)) == 3
        began = next(ms for word, job_id, _, ms in ledger(tmp_path) if (word, job_id) == ("start", later))
        assert 1_250 <= began - added_ms < 2_600
        dead.retry()
        assert queue.get_state(dies) != "failed" or len(starts(tmp_path, dies)) > 2
        eventually(lambda: len(starts(tmp_path, dies)) == 4, why="a fresh budget of two")
        assert pool.stop() == 0
    finally:
        pool.destroy()


def test_results_reach_those_who_wait_and_a_cancelled_job_dies_with_its_reason(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """case C166"""
    pool = pool_of(tmp_path, own_server, queue.name).start()
    try:
        good = add(queue, tmp_path, ms=600, n=5)
        assert queue.wait_until_finished(good, 10) == {"n": 5}
        with pytest.raises(JobMissing, match="leaves nothing"):
            queue.wait_until_finished(good, 1)
        long = add(queue, tmp_path, ms=20_000)
        eventually(lambda: starts(tmp_path, long))
        with pytest.raises(WaitTimeout):
            queue.wait_until_finished(long, 0.05)
        queue.cancel(long, "not needed")
        eventually(lambda: queue.get_state(long) == "failed")
        with pytest.raises(JobFailed, match="not needed"):
            queue.wait_until_finished(long, 1)
        assert pool.stop() == 0
    finally:
        pool.destroy()


def test_hooks_hear_the_events_of_the_lease_plane(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """lease-plane section 18: events are published, one hook serves both planes"""
    heard = tmp_path / "heard"
    hooks = '\n[hooks]\non_completed = "tests.support.lease_jobs:note"\non_delayed = "tests.support.lease_jobs:note"\n'
    pool = pool_of(tmp_path, own_server, queue.name, hooks).start(env={"HOOK_FILE": str(heard)})
    try:
        # Whoever is not yet subscribed hears nothing: another job, until one is heard.
        def told() -> bool:
            add(queue, tmp_path, n=3)
            add(queue, tmp_path, "fails", fail_times=1, attempts=2, backoff=10)
            return heard.exists() and "completed" in heard.read_text() and "delayed" in heard.read_text()

        eventually(told)
        assert "{'n': 3}" in heard.read_text()
        assert pool.stop() == 0
    finally:
        pool.destroy()


# --- batches, idleness ------------------------------------------------------------------------------------


def test_a_worker_claims_and_settles_in_batches(tmp_path: Path, own_server: Server, queue: SyncQueue) -> None:
    """lease-plane section 7, 17; law 10"""
    with own_server.client() as client:
        pool = pool_of(tmp_path, own_server, queue.name, processes="1", concurrency="64", batch="32").start()
        try:
            queue.pause()
            queue.add_bulk([("job", {"ms": 1, "folder": str(tmp_path)}, {}) for _ in range(600)])
            before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
            queue.resume()
            eventually(lambda: queue.get_job_counts()["completed"] == 600)
            calls = client.info("commandstats")["cmdstat_evalsha"]["calls"] - before
            assert calls <= 600 / 3, f"{calls} script calls for 600 jobs"
            assert pool.stop() == 0
        finally:
            pool.destroy()


def test_an_idle_pool_sends_its_beats_and_nothing_else(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """law 11: one look of the maintenance and one of the schedules per ten seconds, for all workers"""
    pool = pool_of(tmp_path, own_server, queue.name, processes="4").start()
    try:
        with own_server.client() as client:
            eventually(lambda: len([c for c in client.client_list() if "b" in c["flags"]]) >= 4)
            heard = [f"{queue.keys.base}due", f"{queue.keys.base}due:repeat"]
            eventually(lambda: all(n == 1 for _, n in client.pubsub_numsub(*heard)))
            seen = requests(own_server, 20.0)
        # Each of the four workers blocks for ten seconds and then looks once; two or three looks of each other
        # kind, and what may be left of the start.
        assert seen["EVALSHA"] <= 3 * 4 + 3 * 2 + 4, seen
        assert seen.total() <= seen["EVALSHA"] + 3 * 4 + 8, seen
        assert pool.stop() == 0
    finally:
        pool.destroy()


# --- leases ---------------------------------------------------------------------------------------------


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("seconds", "lease"), [(2.5, "1s"), pytest.param(75, "30s", marks=pytest.mark.soak)])
def test_a_job_of_two_and_a_half_leases_runs_once_and_is_marked_as_held(
    tmp_path: Path, own_server: Server, queue: SyncQueue, seconds: float, lease: str
) -> None:
    """promise 3.2, 1.24, 3.30, 3.31; promise 3.1 is what happens without renewal"""
    pool = pool_of(tmp_path, own_server, queue.name, lock_duration=f'"{lease}"').start()
    try:
        job_id = add(queue, tmp_path, ms=int(seconds * 1000))
        with own_server.client() as client:
            marker = f"{queue.keys.base}job:{job_id}:lock"
            eventually(lambda: client.get(marker) == b"1", within=40, why="marked after its first renewal")
            with pytest.raises(JobLocked):
                queue.remove(job_id)
            eventually(lambda: is_done(queue, job_id), within=seconds + 30)
            assert client.exists(marker) == 0
        assert len(starts(tmp_path, job_id)) == 1
        counts = queue.get_job_counts()
        assert (counts["completed"], counts["active"], counts["failed"]) == (1, 0, 0)
        assert pool.stop() == 0
    finally:
        pool.destroy()


@pytest.mark.parametrize("recovery", ["sweep", "reap"])
def test_a_pool_that_is_gone_with_all_its_processes_is_recovered_by_another_one(
    tmp_path: Path, own_server: Server, queue: SyncQueue, recovery: str
) -> None:
    """promise 1.25, 3.22: within the lease and a beat, counted only where that is asked for"""
    options = {"lock_duration": '"1s"', "recovery": f'"{recovery}"'}
    lost = pool_of(tmp_path, own_server, queue.name, name="lost", **options).start()
    heir: PoolProcess | None = None
    try:
        job_id = add(queue, tmp_path, ms=30_000)
        eventually(lambda: starts(tmp_path, job_id))
        heir = pool_of(tmp_path, own_server, queue.name, name="heir", **options).start()
        for process in lost.tree():
            os.kill(process.pid, signal.SIGSTOP)  # nobody of them gives anything back
        stopped = time.monotonic()
        for process in lost.tree():
            os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: len(starts(tmp_path, job_id)) == 2)
        assert time.monotonic() - stopped < 1 + 1 + 1.5, "lease, beat, and what a busy machine adds"
        job = queue.get_job(job_id)
        assert job is not None
        assert (job.fencing_token, job.stalled_counter) == (2, 1 if recovery == "sweep" else 0)
    finally:
        lost.destroy()
        if heir is not None:
            heir.destroy()


def test_the_loop_of_the_maintenance_is_started_again_when_it_is_killed(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """promise 3.33"""
    pool = pool_of(tmp_path, own_server, queue.name).start()
    try:
        for child in ("stalled_checker", "job_scheduler"):
            os.kill(pool.pids(child)[0], signal.SIGKILL)
        job_id = add(queue, tmp_path, delay=200)
        eventually(lambda: is_done(queue, job_id))
        eventually(pool.is_ready)
        assert pool.stop() == 0
    finally:
        pool.destroy()


# --- schedules --------------------------------------------------------------------------------------------

SCHEDULES = """
[[schedulers]]
id = "often"
queue = "QUEUE"
name = "often"
every = "250ms"
data = { folder = "FOLDER" }

[[schedulers]]
id = "each-second"
queue = "QUEUE"
name = "cron"
pattern = "* * * * * *"
data = { folder = "FOLDER" }
"""


def test_two_pools_fire_each_occurrence_once_and_a_schedule_that_is_withdrawn_ends(
    tmp_path: Path, own_server: Server, queue: SyncQueue
) -> None:
    """law 6, law 7; lease-plane section 16: a repeat fires once, whoever looks"""
    more = SCHEDULES.replace("QUEUE", queue.name).replace("FOLDER", str(tmp_path))
    pools = [pool_of(tmp_path, own_server, queue.name, more, name=name).start() for name in ("one", "two")]
    try:
        began, before = time.monotonic(), queue.get_job_counts()["completed"]
        eventually(lambda: time.monotonic() - began > 4)
        fired = queue.get_job_counts()["completed"] - before
        seconds = time.monotonic() - began
        assert 0.6 * 5 * seconds <= fired <= 5 * seconds + 4, f"{fired} in {seconds:.1f} s"
        assert queue.get_job_schedulers_count() == 2
        assert [pool.stop() for pool in pools] == [0, 0]
        pools.append(pool_of(tmp_path, own_server, queue.name, name="one").start())
        eventually(lambda: queue.get_job_schedulers_count() == 0, why="pool one declares none any more")
    finally:
        for pool in pools:
            pool.destroy()
