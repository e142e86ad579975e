# SPDX-License-Identifier: MIT
"""`Worker(plane="lease")`: the loop of a program without a pool: control, reap, promote, drain, park."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from echomq_pool import InputError, Job, JobFailed, Queue, SyncJob, Worker
from echomq_pool.api.lease_queue import LeaseQueue
from echomq_pool.errors import WrongPlane
from echomq_pool.plane import branded
from tests.support.servers import Server
from tests.support.waiting import eventually_async


@pytest.fixture
async def queue(server: Server, queue_name: str) -> AsyncIterator[LeaseQueue]:
    queue = LeaseQueue(queue_name, url=server.url)
    async with queue:
        yield queue


def worker_on(server: Server, queue: Queue, processor: Any, **options: Any) -> Worker:
    return Worker(queue.name, processor, url=server.url, plane="lease", **options)


async def done(queue: LeaseQueue, count: int) -> None:
    async def is_done() -> bool:
        return (await queue.get_metrics("completed")).count >= count

    await eventually_async(is_done)


async def test_it_does_flat_jobs_and_those_in_lanes(server: Server, queue: LeaseQueue) -> None:
    """lease-plane section 17.1: both, and whoever is parked is woken"""
    seen: list[Any] = []

    async def handle(job: Job) -> None:
        seen.append(job.data)

    group = branded.Mint().new("PRT")
    async with worker_on(server, queue, handle, concurrency=4):
        await queue.add_bulk([("n", n, {"group": group} if n % 2 else {}) for n in range(20)])
        await done(queue, 20)
        assert await queue.get_workers_count() == 1
    assert sorted(seen) == list(range(20))


async def test_a_plain_function_retries_delays_and_results(server: Server, queue: LeaseQueue) -> None:
    """promise 3.22 for the token; a wait hears the result"""

    def handle(job: SyncJob) -> Any:
        if job.fencing_token == 1:
            raise ValueError("at first")
        return {"token": job.fencing_token}

    async with worker_on(server, queue, handle):
        good = await queue.add("n", attempts=2, backoff=20)
        assert await good.wait_until_finished(30) == {"token": 2}
        bad = await queue.add("n")
        with pytest.raises(JobFailed, match="at first"):
            await bad.wait_until_finished(30)
        later = await queue.add("n", attempts=2, delay=50)
        assert await later.wait_until_finished(30) == {"token": 2}


@pytest.mark.parametrize("recovery", ["sweep", "reap"])
async def test_a_queue_that_is_never_empty_starves_nobody(
    server: Server, queue: LeaseQueue, recovery: str
) -> None:
    """lease-plane section 17.1, OPEN 22: lapsed and due jobs run beside a backlog that does not end"""
    lost, due = await queue.add("lost"), await queue.add("due", delay=400)
    await queue.wire.claim(300)  # by somebody who is never heard of again
    seen: list[str] = []

    async def handle(job: Job) -> None:
        seen.append(job.id)
        await queue.add("more")

    await queue.add("more")
    async with worker_on(server, queue, handle, recovery=recovery):
        await eventually_async(lambda: lost.id in seen and due.id in seen)
        assert await queue.count() + (await queue.get_job_counts("active"))["active"] >= 1
    row = await queue.wire.get_job(lost.id)
    assert row is None, "it was completed"


async def test_a_job_longer_than_its_lease_runs_once(server: Server, queue: LeaseQueue) -> None:
    """promise 3.2"""
    runs: list[str] = []

    async def handle(job: Job) -> None:
        runs.append(job.id)
        await asyncio.sleep(2.5)

    options: dict[str, Any] = {"lock_duration_ms": 1_000, "stalled_interval_ms": 1_000}
    async with worker_on(server, queue, handle, **options), worker_on(server, queue, handle, **options):
        await queue.add("long")
        await done(queue, 1)
    assert len(runs) == 1


async def test_repeats_fire_without_a_pool(server: Server, queue: LeaseQueue) -> None:
    """lease-plane section 16"""
    names: list[tuple[str, Any]] = []

    async def handle(job: Job) -> None:
        names.append((job.name, job.repeat_job_key))

    async with worker_on(server, queue, handle):
        await queue.upsert_job_scheduler("often", every=100, name="tick")
        await eventually_async(lambda: len(names) >= 3)
        await queue.remove_job_scheduler("often")
    assert set(names) == {("tick", "often")}


async def test_it_hears_requests_to_cancel(server: Server, queue: LeaseQueue) -> None:
    """lease-plane section 19"""
    started = asyncio.Event()

    async def handle(job: Job) -> None:
        started.set()
        await asyncio.sleep(60)

    async with worker_on(server, queue, handle, listen=True) as worker:
        await eventually_async(lambda: worker._upkeep is not None and worker._upkeep._ear.hears)
        job = await queue.add("n", attempts=3)
        await started.wait()
        await queue.cancel(job.id, "too late")

        async def is_failed() -> bool:
            return await job.is_failed()

        await eventually_async(is_failed)
    await job.refresh()
    assert job.failed_reason == "too late"


async def test_jobs_are_taken_by_hand_and_a_close_hands_back(server: Server, queue: LeaseQueue) -> None:
    """law 5; the token is the number of the delivery"""
    async with worker_on(server, queue, None) as worker:
        added = await queue.add("a")
        job = await worker.get_next_job()
        assert job is not None
        assert (job.id, job.token) == (added.id, "1")
        await job.extend_lock()
        await job.move_to_delayed(delay_ms=50)
        again = await worker.get_next_job()
        assert again is not None
        assert (again.id, again.token) == (added.id, "2")
        await again.move_to_completed({"n": 1})
        assert await worker.get_next_job(block=False) is None
    started = asyncio.Event()

    async def handle(job: Job) -> None:
        started.set()
        await asyncio.sleep(60)

    worker = worker_on(server, queue, handle)
    await worker.start()
    kept = await queue.add("b")
    await started.wait()
    await worker.close(force=True)
    assert await kept.is_waiting()
    await kept.refresh()
    assert (kept.attempts_made, kept.stalled_counter) == (0, 0)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"plane": "fast"}, InputError),
        ({"recovery": "hope"}, InputError),
        ({"plane": "lease", "prefix": "bull"}, WrongPlane),
        ({"plane": "lease", "hash_tag": False}, WrongPlane),
        ({"plane": "lease", "remove_on_complete": True}, WrongPlane),
        ({"plane": "lease", "remove_on_fail": 5}, WrongPlane),
        ({"plane": "lease", "metrics_points": 5}, WrongPlane),
    ],
)
def test_what_such_a_worker_cannot_have_is_refused(options: dict[str, Any], kind: type[Exception]) -> None:
    """law 13"""
    with pytest.raises(kind):
        Worker("q", print, url="redis://127.0.0.1:1", **options)


async def test_a_queue_of_the_other_plane_is_left_alone(server: Server, queue_name: str) -> None:
    """law 12"""
    async with Queue(queue_name, url=server.url) as lock:
        job = await lock.add("a")
        async with Worker(queue_name, print, url=server.url, plane="lease") as worker:
            await eventually_async(lambda: worker._upkeep and worker._upkeep._maintenance._troubled)
            assert not worker._source().opened
            assert await job.is_waiting()
