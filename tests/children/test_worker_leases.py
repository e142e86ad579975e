# SPDX-License-Identifier: MIT
"""What a worker knows of its leases: kept whatever user code does, renewed by itself if need be, lost for good."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from echomq_pool.children.worker import Worker
from echomq_pool.ipc.messages import Linked, Lost, Stop
from echomq_pool.redisio.scripts import load_library
from tests.support.hub import SLOT, Hub, Jobs, config_for
from tests.support.inprocess import InProcess
from tests.support.processors import notes
from tests.support.servers import Server
from tests.support.waiting import eventually, eventually_async


def words(path: Path) -> list[str]:
    return [row[0] for row in notes(path)]


@pytest.mark.parametrize("processor", ["processors:burn", "processors:burn_loop", "processors:work"])
def test_long_jobs_of_any_kind_run_once_under_a_short_lease(
    valkey_server: Server, queue_name: str, tmp_path: Path, processor: str
) -> None:
    """case C018, promise 0.16: CPU in a thread, CPU on the loop, or asleep for many leases: one execution."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    job_id = jobs.put(ms=3_000, notes=str(path))
    with Hub(config_for(valkey_server, (queue_name,), processor, lock_duration_ms=1_000)):
        while jobs.client.zscore(jobs.key("completed"), job_id) is None:
            assert jobs.sweep_again(interval=500) == []
            time.sleep(0.1)
    assert words(path) == ["start", "end"]
    assert jobs.field(job_id, "stc") is None


def test_short_jobs_under_hasty_renewal_raise_no_alarm(valkey_server: Server, queue_name: str) -> None:
    """case C022: a renewal that meets a job just finished is no loss."""
    jobs = Jobs(valkey_server, queue_name)
    for _ in range(1_000):
        jobs.put(ms=2)
    config = config_for(valkey_server, (queue_name,), "processors:work", lock_renew_time_ms=5)
    with Hub(config) as hub:
        jobs.done(1_000, within=40)
        assert jobs.count("completed") == 1_000
        log = hub.log()
    assert "WARNING" not in log
    assert "ERROR" not in log


@pytest.mark.parametrize("processor", ["processors:work", "processors:work_sync"])
def test_a_worker_whose_lock_manager_is_stuck_renews_by_itself(
    valkey_server: Server, queue_name: str, processor: str
) -> None:
    """law 3: no renewal on the board, so the worker is its own second string, by one call for all its jobs."""
    jobs = Jobs(valkey_server, queue_name)
    ids = [jobs.put(ms=3_000) for _ in range(20)]
    config = config_for(valkey_server, (queue_name,), processor, lock_duration_ms=1_000, concurrency=20)
    lowest = 1_000
    calls = 0
    with jobs.client.monitor() as monitor, Hub(config, keep_leases=False):
        sha = load_library("lock")["extendLocks"].sha
        eventually(lambda: jobs.count("active") == 20)
        while jobs.count("completed") < 20:
            for job_id in ids[:3]:
                if (left := jobs.client.pttl(jobs.key(f"{job_id}:lock"))) >= 0:
                    lowest = min(lowest, left)
            time.sleep(0.02)
        jobs.client.set(jobs.key("the-end"), 1)
        for command in monitor.listen():
            calls += command["command"].startswith(f"EVALSHA {sha}") and command["client_type"] != "lua"
            if "the-end" in command["command"]:
                break
    assert jobs.count("failed") == 0
    assert lowest > 100
    assert 3 <= calls <= 12


def test_the_loser_writes_nothing(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """case C020, law 5: stopped for too long, its job taken by another; one line tells of it."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    job_id = jobs.put(ms=700, notes=str(path), opts={"attempts": 3})
    config = config_for(valkey_server, (queue_name,), "processors:watchful", lock_duration_ms=1_000)
    with Hub(config, keep_leases=False) as hub:
        eventually(lambda: words(path) == ["start"])
        os.kill(hub.pid, signal.SIGSTOP)
        eventually(lambda: not jobs.client.exists(jobs.key(f"{job_id}:lock")))
        jobs.sweep_again()
        assert jobs.sweep_again() == [job_id]
        jobs.token = "other:1"
        assert jobs.take()[1] == job_id
        before = jobs.get(job_id)
        os.kill(hub.pid, signal.SIGCONT)
        eventually(lambda: not hub.held)
        assert jobs.get(job_id) == before
        assert jobs.get(f"{job_id}:lock") == "other:1"
        assert jobs.get("active") == [job_id]
        lines = [line for line in hub.log().splitlines() if f"job {job_id} " in line and "lost" in line]
        assert len([line for line in lines if "may be" not in line]) <= 1


def test_a_lost_lease_cancels_an_async_job_and_writes_nothing(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """promise 3.6, 3.7: the job is told and cancelled; not one more renewal for it."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    job_id = jobs.put(ms=20_000, notes=str(path))
    other = jobs.put(ms=1_500)
    config = config_for(valkey_server, (queue_name,), "processors:work", lock_duration_ms=1_000)
    with Hub(config, keep_leases=False) as hub:
        eventually(lambda: len(hub.held) == 2)
        (token,) = (key[2] for key in hub.held if key[1] == job_id)
        jobs.client.set(jobs.key(f"{job_id}:lock"), "other:1")
        before = jobs.get(job_id)
        hub.send(Lost(hub.worker_id, [[queue_name, job_id, token]]))
        eventually(lambda: len(hub.held) == 1)
        with jobs.client.monitor() as monitor:
            jobs.ended(other, "completed")
            jobs.client.set(jobs.key("the-end"), 1)
            seen = []
            for command in monitor.listen():
                seen.append(command["command"])
                if "the-end" in command["command"]:
                    break
        assert not any(f"{job_id}:lock" in command and "PX" in command.upper() for command in seen)
        assert jobs.get(job_id) == before
        assert words(path) == ["start"]


def test_a_lost_sync_job_runs_on_unheard(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """promise 3.6: `job.lease_lost` is set at once; what the thread returns is thrown away."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    job_id = jobs.put(notes=str(path))
    with Hub(config_for(valkey_server, (queue_name,), "processors:watchful_sync")) as hub:
        eventually(lambda: len(hub.held) == 1)
        (key,) = hub.held
        before = jobs.get(job_id)
        hub.send(Lost("somebody-else", [list(key)]))
        hub.send(Lost(hub.worker_id, [list(key)]))
        eventually(lambda: words(path) == ["start", "lost", "end"], within=3)
        eventually(lambda: not hub.held)
        assert jobs.get(job_id) == before


def test_a_job_survives_a_blink_of_the_server(own_server: Server, queue_name: str, tmp_path: Path) -> None:
    """case C007: it runs on, and its result is written once the link is back."""
    jobs = Jobs(own_server, queue_name)
    path = tmp_path / "notes"
    job_id = jobs.put(ms=2_500, give="kept", notes=str(path))
    with Hub(config_for(own_server, (queue_name,), "processors:work", lock_duration_ms=10_000)) as hub:
        eventually(lambda: words(path) == ["start"])
        own_server.stop(kill=True)
        eventually(lambda: any(not m.connected for m in hub.of(Linked)))
        own_server.start()
        jobs.ended(job_id, "completed")
        jobs.forget_scripts()
        after = jobs.put(give=1)
        jobs.ended(after, "completed")
    assert words(path)[:2] == ["start", "end"]
    assert (jobs.result(job_id), jobs.field(job_id, "atm")) == ("kept", "1")


def test_after_an_outage_longer_than_the_lock_the_lease_is_taken_again(
    own_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """law 4: past the deadline the job is told so and runs on; the same take is re-acquired, and settled once."""
    jobs = Jobs(own_server, queue_name)
    path = tmp_path / "notes"
    job_id = jobs.put(ms=5_000, notes=str(path))
    config = config_for(own_server, (queue_name,), "processors:watchful", lock_duration_ms=1_000)
    with Hub(config):
        eventually(lambda: words(path) == ["start"])
        own_server.stop(kill=True)
        eventually(lambda: "lost" in words(path), within=3)
        own_server.start()
        eventually(lambda: "regained" in words(path), within=4)
        assert jobs.client.exists(jobs.key(f"{job_id}:lock"))
        jobs.ended(job_id, "completed")
    assert jobs.result(job_id) == [False, True, False]
    assert (jobs.field(job_id, "atm"), jobs.field(job_id, "ats")) == ("1", "1")


def test_a_flushed_server_costs_the_running_job_only(own_server: Server, queue_name: str) -> None:
    """case C014: the lost one is reported once, by id; the slot is free and new jobs are done."""
    jobs = Jobs(own_server, queue_name)
    config = config_for(own_server, (queue_name,), "processors:work", concurrency=1, drain_delay_ms=1_000)
    lost = jobs.put(ms=800, job_id="lost-one")
    with Hub(config) as hub:
        eventually(lambda: jobs.count("active") == 1)
        jobs.client.flushall()
        ids = [jobs.put(give=n) for n in range(3)]
        for job_id in ids:
            jobs.ended(job_id, "completed")
        lines = [line for line in hub.log().splitlines() if lost in line]
    assert len(lines) == 1
    assert "WARNING" in lines[0]
    assert jobs.get(lost) is None


async def test_one_timer_serves_all_leases(valkey_server: Server, queue_name: str) -> None:
    """promise 0.21, law 10: with one job and with a hundred the loop holds one timer for leases and limits."""
    jobs = Jobs(valkey_server, queue_name)
    config = config_for(valkey_server, (queue_name,), "processors:work", concurrency=100, timeout_ms=60_000)

    def timers() -> int:
        loop: Any = asyncio.get_running_loop()
        return sum("Watch.look" in repr(handle) for handle in loop._scheduled if not handle.cancelled())

    async with InProcess(Worker, config, args={"group": "main"}, slot=SLOT) as child:
        jobs.put(ms=600_000)
        await eventually_async(lambda: len(child.child.ledger) == 1)
        assert timers() == 1
        for _ in range(99):
            jobs.put(ms=600_000)
        await eventually_async(lambda: len(child.child.ledger) == 100)
        assert timers() == 1
        child.send(Stop(0, fast=True))
        assert await asyncio.wait_for(child.task, 10) == 0
    assert jobs.count("wait") == 100
