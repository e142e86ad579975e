# SPDX-License-Identifier: MIT
"""A job as its processor sees it."""

from __future__ import annotations

import asyncio

import pytest

from echomq_pool import InputError
from echomq_pool.api.job import Job, SyncJob
from echomq_pool.errors import LeaseLost
from tests.support.planes import Bench
from tests.support.wire import Wire


@pytest.fixture
async def job(bench: Bench) -> Job:
    """A job that this process holds."""
    Wire(bench.client, bench.keys.queue).add("j", data='{"x":1}', attempts=5, kl=2)
    taken = await bench.taken()
    return Job(taken.job, bench.plane, taken.token)


async def test_its_fields(job: Job) -> None:
    assert (job.id, job.name, job.data, job.token.count(":")) == ("j", "job", {"x": 1}, 1)
    assert (job.attempts_made, job.attempts_started, job.fencing_token) == (0, 1, 1)
    assert (job.lease_lost, job.cancelled, job.returnvalue, job.failed_reason) == (False, False, None, None)


async def test_progress_data_and_log_are_written_and_read_back(job: Job, bench: Bench) -> None:
    await job.update_progress({"done": 5})
    await job.update_data([1, 2])
    for n in range(3):
        await job.log(f"row {n}")
    assert job.data == [1, 2]
    stored = bench.get("j")
    assert (stored["progress"], stored["data"]) == ('{"done":5}', "[1,2]")
    assert bench.get("j:logs") == ["row 1", "row 2"]
    assert 'progress jobId=j data={"done":5}' in bench.get("events")


@pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}])
async def test_progress_that_is_no_json_is_refused(job: Job, bench: Bench, value: object) -> None:
    """case C105"""
    with pytest.raises(InputError, match="NaN or Infinity"):
        await job.update_progress(value)
    assert "progress" not in bench.get("j")


async def test_it_can_delay_itself_without_an_attempt(job: Job, bench: Bench) -> None:
    await job.move_to_delayed(delay_ms=60_000)
    assert (job.moved, await job.state()) == ("delayed", "delayed")
    assert "atm" not in bench.get("j")


async def test_it_can_put_itself_back(job: Job) -> None:
    await job.move_to_wait()
    assert (job.moved, await job.state()) == ("wait", "waiting")


async def test_it_can_limit_its_queue(job: Job, bench: Bench) -> None:
    await job.rate_limit(60_000)
    assert 50_000 < bench.client.pttl(bench.keys.key("limiter")) <= 60_000


async def test_a_stale_job_moves_nothing(job: Job, bench: Bench) -> None:
    """law 5"""
    bench.client.set(bench.keys.lock("j"), "other:1")
    with pytest.raises(LeaseLost):
        await job.move_to_delayed(delay_ms=1)
    with pytest.raises(LeaseLost):
        await job.move_to_wait()
    assert (job.moved, await job.state()) == ("", "active")


async def test_data_that_is_no_json_is_told_with_the_job(bench: Bench) -> None:
    """law 13"""
    Wire(bench.client, bench.keys.queue).add("j", data="{broken")
    taken = await bench.taken()
    with pytest.raises(InputError, match="data of job j is no JSON"):
        _ = Job(taken.job, bench.plane, taken.token).data


async def test_a_plain_function_in_a_thread_uses_the_same_job(job: Job, bench: Bench) -> None:
    def processor(job: SyncJob) -> list[object]:
        job.update_progress(1)
        rows = job.log("row")
        return [job.data, job.fencing_token, rows, job.state(), job.cancelled]

    threaded = job.threaded(asyncio.get_running_loop())
    assert await asyncio.to_thread(processor, threaded) == [{"x": 1}, 1, 1, "active", False]
    job.mark_cancelled("enough")
    job.mark_lease_lost()
    assert (threaded.cancelled, threaded.cancel_reason, threaded.lease_lost) == (True, "enough", True)


async def test_a_plain_function_settles_its_job_and_goes_on_with_the_next(job: Job, bench: Bench) -> None:
    """BullMQ's `moveToCompleted` and `moveToFailed`, in a thread"""
    Wire(bench.client, bench.keys.queue).add("k", data='{"x":2}')

    def processor(job: SyncJob) -> list[object]:
        following = job.move_to_completed({"done": 1}, fetch_next=True)
        assert following is not None
        assert following.move_to_failed(ValueError("no"), fetch_next=True) is None
        return [job.moved, following.id, following.data, following.moved]

    threaded = job.threaded(asyncio.get_running_loop())
    assert await asyncio.to_thread(processor, threaded) == ["completed", "k", {"x": 2}, "failed"]
    assert (await job.state(), bench.client.hget(bench.keys.job("k"), "failedReason")) == ("completed", b"no")
