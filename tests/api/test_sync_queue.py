# SPDX-License-Identifier: MIT
"""The synchronous twin."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis

from echomq_pool import InputError, JobFailed, SyncQueue, WaitTimeout
from echomq_pool.errors import JobMissing, LinkDown
from tests.support.planes import Bench
from tests.support.servers import Server, free_port


async def in_thread(function: object, *args: object, **options: object) -> object:
    return await asyncio.to_thread(function, *args, **options)  # type: ignore[arg-type]


def test_a_job_is_added_and_seen(sync_queue: SyncQueue) -> None:
    job = sync_queue.add("pay", {"x": 1}, attempts=3)
    assert (job.id, job.name, job.data, job.state()) == ("1", "pay", {"x": 1}, "waiting")
    found = sync_queue.get_job("1")
    assert found is not None
    assert found.opts == {"attempts": 3}
    assert sync_queue.get_job("2") is None
    assert sync_queue.counts("waiting") == {"waiting": 1}


def test_many_are_added_in_their_order_even_after_the_scripts_were_flushed(
    sync_queue: SyncQueue, client: redis.Redis
) -> None:
    added = sync_queue.add_bulk([("n", n) for n in range(1_500)])
    assert [job.id for job in added] == [str(n) for n in range(1, 1_501)]
    client.script_flush()
    assert len(sync_queue.add_bulk([("n", n) for n in range(10)])) == 10
    client.script_flush()
    assert sync_queue.add("n").id == "1511"
    assert sync_queue.counts("waiting") == {"waiting": 1_511}


async def test_a_wait_returns_raises_and_times_out(sync_queue: SyncQueue, bench: Bench) -> None:
    """case C120, C122"""
    for job_id in ("good", "bad", "slow"):
        await in_thread(sync_queue.add, "n", job_id=job_id)
    good = asyncio.create_task(in_thread(sync_queue.wait_until_finished, "good", 10))
    bad = asyncio.create_task(in_thread(sync_queue.wait_until_finished, "bad", 10))
    taken = await bench.taken()
    await bench.plane.complete(taken.job, taken.token, b'"ok"')
    taken = await bench.taken()
    await bench.plane.fail(taken.job, taken.token, "boom", [])
    assert await good == "ok"
    with pytest.raises(JobFailed, match="boom"):
        await bad
    with pytest.raises(WaitTimeout):
        await in_thread(sync_queue.wait_until_finished, "slow", 0.05)
    with pytest.raises(JobMissing):
        await in_thread(sync_queue.wait_until_finished, "unknown", 5)


def test_a_jobs_verbs_work_for_its_producer(sync_queue: SyncQueue) -> None:
    job = sync_queue.add("n", {"x": 1})
    job.update_progress(50)
    assert job.log("row") == 1
    job.update_data({"x": 2})
    assert job.data == {"x": 2}
    assert job.refresh()
    assert job.progress == 50
    assert sync_queue.get_job_logs(job.id) == ["row"]
    with pytest.raises(InputError, match="not held"):
        job.move_to_wait()


def test_the_queue_as_a_whole(sync_queue: SyncQueue) -> None:
    sync_queue.pause()
    assert sync_queue.is_paused()
    sync_queue.resume()
    assert not sync_queue.is_paused()
    sync_queue.set_global_concurrency(2)
    sync_queue.set_global_rate_limit(5, 1_000)
    job = sync_queue.upsert_job_scheduler("s", every=60_000)
    assert job is not None
    assert sync_queue.get_job_scheduler_ids() == ["s"]
    assert sync_queue.repair_job_scheduler("s")[0] == "alive"
    assert sync_queue.remove_job_scheduler("s")
    sync_queue.cancel(job.id)


def test_threads_may_share_it(sync_queue: SyncQueue) -> None:
    threads = [threading.Thread(target=lambda: [sync_queue.add("n") for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sync_queue.counts("waiting") == {"waiting": 400}


def test_no_server_is_told_as_such() -> None:
    with SyncQueue("q", url=f"redis://127.0.0.1:{free_port()}/0") as queue, pytest.raises(LinkDown) as caught:
        queue.add("n")
    assert not caught.value.sent


def test_redis_py_repeats_nothing_by_itself(own_server: Server) -> None:
    """law 6"""
    with SyncQueue("q", url=own_server.url) as queue:
        queue.add("n")
        own_server.stop(kill=True)
        with pytest.raises(LinkDown):
            queue.add("n")
        own_server.start()
        assert queue.add("n", job_id="own").id == "own"
        assert queue.counts("waiting") == {"waiting": 2}
