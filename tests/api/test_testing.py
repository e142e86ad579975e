# SPDX-License-Identifier: MIT
"""`echomq_pool.testing`: what users test their jobs with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomq_pool import (
    DelayedError,
    InputError,
    Job,
    JobFailed,
    RateLimitError,
    SyncJob,
    UnrecoverableError,
    WaitingChildrenError,
    task,
)
from echomq_pool.api.middleware import Middleware
from echomq_pool.errors import PoolError
from echomq_pool.testing import FrozenClock, RunningPool, embedded_server, pool, run_job, run_job_async
from tests.support.waiting import eventually


async def handle(job: Job) -> Any:
    await job.update_progress(50)
    await job.log("half way")
    await job.update_data({"seen": True})
    if job.name == "bad":
        raise ValueError("no luck")
    return {"id": job.id, "attempt": job.attempts_started, "at": job.timestamp}


def test_a_processor_runs_without_a_server() -> None:
    clock = FrozenClock(wall_ms=1_000)
    result = run_job(handle, {"x": 1}, job_id="7", attempts_made=1, clock=clock)
    assert (result.state, result.value) == ("completed", {"id": "7", "attempt": 2, "at": 1_000})
    assert (result.progress, result.logs, result.data) == ([50], ["half way"], {"seen": True})
    assert result.unwrap()["id"] == "7"


def test_a_failure_is_told_with_whether_it_is_final() -> None:
    result = run_job(handle, name="bad", opts={"attempts": 2})
    assert (result.state, result.reason, result.final) == ("failed", "no luck", False)
    with pytest.raises(ValueError, match="no luck"):
        result.unwrap()
    assert run_job(handle, name="bad", opts={"attempts": 2}, attempts_made=1).final

    def hopeless(job: SyncJob) -> None:
        raise UnrecoverableError("no use")

    assert run_job(hopeless, opts={"attempts": 9}).final
    assert run_job(lambda job: object()).reason.startswith("result is not JSON")


def test_a_job_gets_every_lease_that_it_asks_for() -> None:
    async def careful(job: Job) -> list[Any]:
        async with job.lease("a", ttl="10s") as one, job.lease("b") as two:
            await one.renew()
            return [one.held, one.lost, one.fencing_token, two.fencing_token]

    def careful_sync(job: SyncJob) -> list[Any]:
        with job.lease("a", wait=0) as one:
            return [one.held, one.lost, one.fencing_token]

    assert run_job(careful).unwrap() == [True, False, 1, 2]
    assert run_job(careful_sync).unwrap() == [True, False, 1]


async def test_moves_are_told_inside_a_loop() -> None:
    async def move(job: Job) -> Any:
        if job.data == "later":
            await job.move_to_delayed(job.timestamp + 5_000)
            raise DelayedError
        if job.data == "limited":
            await job.rate_limit(300)
            raise RateLimitError
        if await job.move_to_waiting_children():
            raise WaitingChildrenError
        return await job.get_children_values()

    later = await run_job_async(move, "later")
    assert (later.state, later.delay_ms) == ("delayed", 5_000)
    limited = await run_job_async(move, "limited")
    assert (limited.state, limited.rate_limit_ms) == ("rate-limited", 300)
    assert (await run_job_async(move, "split", has_children=True)).state == "waiting-children"
    joined = await run_job_async(move, "join", children_values={"emq:{q}:1": 5})
    assert joined.value == {"emq:{q}:1": 5}
    with pytest.raises(PoolError, match="needs a server"):
        (await run_job_async(lambda job: job.remove())).unwrap()


def test_a_task_and_its_middleware_run_too() -> None:
    told: list[Any] = []

    @task("double", queue="q")
    def double(n: int, job: SyncJob) -> int:
        job.log(f"doubling {n}")
        return 2 * n

    result = run_job(
        double, {"n": 4}, middleware=[Middleware(on_success=lambda job, value: told.append(value))]
    )
    assert (result.value, result.logs, told) == (8, ["doubling 4"], [8])
    assert "expected int" in run_job(double, {"n": "4"}).reason
    with pytest.raises(InputError):
        run_job(double, {"n": float("nan")})


APP = """
import os
from echomq_pool import task

@task("double", queue="numbers", attempts=2, backoff=10)
async def double(n: int) -> int:
    return 2 * n

@task("pid", queue="numbers")
def pid() -> int:
    return os.getpid()

@task("slow", queue="numbers", timeout="200ms")
def slow() -> None:
    import time
    time.sleep(60)

@task("chain", queue="numbers")
async def chain(n: int) -> str:
    return (await double.enqueue(n)).id
"""

MIDDLEWARE = """
from pathlib import Path

def on_success(job, result):
    with Path("told.txt").open("a") as file:
        file.write(f"{job.name} {result}\\n")
"""

TOML = """
[[workers]]
name = "numbers"
queues = ["numbers"]
tasks = ["numbers_tasks"]
middleware = ["numbers_middleware"]
processes = 2
concurrency = 4
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPool]:
    folder = tmp_path_factory.mktemp("app")
    (folder / "numbers_tasks.py").write_text(APP)
    (folder / "numbers_middleware.py").write_text(MIDDLEWARE)
    with pool(TOML, folder=folder) as running:
        yield running
    assert running.process.returncode == 0


def test_a_pool_runs_tasks_on_a_server_of_its_own(running: RunningPool) -> None:
    """case C114"""
    with running.queue("numbers") as queue:
        assert queue.add("double", {"n": 4}).wait_until_finished(20) == 8
        assert queue.add("pid").wait_until_finished(20) != running.process.pid
        with pytest.raises(JobFailed, match="no task of this worker"):
            queue.add("lost").wait_until_finished(20)
        chained = queue.add("chain", {"n": 5}).wait_until_finished(20)
        assert queue.wait_until_finished(chained, 20) == 10
    told = running.folder / "told.txt"
    eventually(lambda: told.exists() and {"double 8", "double 10"} <= set(told.read_text().splitlines()))


def test_a_plain_task_over_its_time_ends_its_process_and_the_pool_is_whole_again(
    running: RunningPool,
) -> None:
    """promise 6.4"""
    with running.queue("numbers") as queue:
        job = queue.add("slow")
        with pytest.raises(JobFailed, match="time limit of 200 ms"):
            job.wait_until_finished(30)
        assert queue.add("double", {"n": 1}).wait_until_finished(20) == 2
    eventually(lambda: len([c for c in running.status()["children"] if c["state"] == "running"]) >= 6)


def test_a_pool_that_cannot_boot_says_why(tmp_path: Path) -> None:
    refused = pytest.raises(PoolError, match="no module named")
    with embedded_server() as url, refused, pool(TOML, url=url, folder=tmp_path):
        pass
