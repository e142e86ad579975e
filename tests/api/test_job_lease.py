# SPDX-License-Identifier: MIT
"""`job.lease` in the embedded worker, which renews by itself; the pool's own is tests/process/test_pool_guards.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from echomq_pool import InputError, JobFailed, Lease, LeaseTaken, Queue, SyncQueue, Worker
from echomq_pool.plane.guard import GuardKeys
from tests.support.servers import Server
from tests.support.waiting import eventually_async

BASE = GuardKeys("emq").base


@pytest.fixture
async def client(valkey_server: Server) -> AsyncIterator[Any]:
    with valkey_server.client() as client:
        yield client


async def ran(server: Server, queue_name: str, processor: Callable[[Any], Any], jobs: int = 1) -> list[Any]:
    """What `processor` returns for so many jobs at once."""
    async with (
        Queue(queue_name, url=server.url) as queue,
        Worker(queue_name, processor, url=server.url, concurrency=4),
    ):
        added = [await queue.add("job") for _ in range(jobs)]
        return [await job.wait_until_finished(timeout=30) for job in added]


async def test_an_async_job_keeps_its_lease_beyond_its_time(
    valkey_server: Server, queue_name: str, client: Any
) -> None:
    """law 1, as far as one process can keep it"""

    async def work(job: Any) -> list[Any]:
        async with job.lease(queue_name, ttl="1500ms") as lease:
            for _ in range(80):
                await asyncio.sleep(0.05)
                lease.check()
                assert client.exists(BASE + queue_name)
            assert await lease.renew()
            return [lease.held, lease.lost, lease.fencing_token > 0, lease.ttl_ms, lease.name]

    assert await ran(valkey_server, queue_name, work) == [[True, False, True, 1_500, queue_name]]
    assert not client.exists(BASE + queue_name)


async def test_a_plain_function_keeps_its_lease_beyond_its_time(
    valkey_server: Server, queue_name: str, client: Any
) -> None:
    """law 1, as far as one process can keep it"""

    def work(job: Any) -> list[Any]:
        with job.lease(queue_name, ttl="1500ms") as lease:
            for _ in range(80):
                time.sleep(0.05)
                lease.check()
                assert client.exists(BASE + queue_name)
            assert lease.renew()
            return [lease.held, lease.lost, lease.fencing_token > 0]

    assert await ran(valkey_server, queue_name, work) == [[True, False, True]]
    assert not client.exists(BASE + queue_name)


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_jobs_exclude_each_other_and_their_numbers_grow(
    valkey_server: Server, queue_name: str, how: str
) -> None:
    """law 2, law 5"""
    inside: list[int] = []
    order: list[int] = []

    def enter(lease: Any) -> None:
        assert not inside
        inside.append(lease.fencing_token)
        order.append(lease.fencing_token)

    async def work(job: Any) -> None:
        async with job.lease(queue_name) as lease:
            enter(lease)
            await asyncio.sleep(0.02)
            inside.clear()

    def work_sync(job: Any) -> None:
        with job.lease(queue_name) as lease:
            enter(lease)
            time.sleep(0.02)
            inside.clear()

    await ran(valkey_server, queue_name, work if how == "async" else work_sync, jobs=8)
    assert order == sorted(set(order))
    assert len(order) == 8


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_a_job_that_ends_gives_back_what_it_forgot(
    valkey_server: Server, queue_name: str, client: Any, how: str
) -> None:
    """law 1: with the job at the latest, also when it fails"""

    async def work(job: Any) -> None:
        assert await job.lease(queue_name, ttl="60s").acquire()
        raise ValueError("on purpose")

    def work_sync(job: Any) -> None:
        assert job.lease(queue_name, ttl="60s").acquire()
        raise ValueError("on purpose")

    with pytest.raises(JobFailed, match="on purpose"):
        await ran(valkey_server, queue_name, work if how == "async" else work_sync)
    assert not client.exists(BASE + queue_name)


async def test_a_lease_that_somebody_has_fails_the_job_or_is_waited_for(
    valkey_server: Server, queue_name: str
) -> None:
    """law 13"""

    async def work(job: Any) -> bool:
        lease = job.lease(queue_name, wait="10ms")
        with pytest.raises(LeaseTaken, match="held by somebody else"):
            async with lease:
                pass
        assert not await lease.acquire(wait=0)
        await other.release()
        async with job.lease(queue_name, wait="20s") as mine:
            return bool(mine.fencing_token > other.fencing_token)

    other = Lease(queue_name, url=valkey_server.url)
    await other.acquire()
    assert await ran(valkey_server, queue_name, work) == [True]


async def test_a_job_whose_lease_was_stolen_sees_it_and_leaves_it_to_the_thief(
    valkey_server: Server, queue_name: str, client: Any
) -> None:
    """law 4, law 5"""

    async def work(job: Any) -> list[bool]:
        async with job.lease(queue_name, ttl="300ms") as lease:
            client.set(BASE + queue_name, "thief:1")
            await eventually_async(lambda: lease.lost)
            return [lease.held, await lease.renew()]

    assert await ran(valkey_server, queue_name, work) == [[False, False]]
    assert client.get(BASE + queue_name) == b"thief:1"


async def test_only_a_running_job_takes_leases(valkey_server: Server, queue_name: str) -> None:
    """law 13"""
    leases: list[Any] = []

    async def work(job: Any) -> None:
        leases.append(job.lease(queue_name))

    await ran(valkey_server, queue_name, work)
    with pytest.raises(InputError, match="is over: it takes no more leases"):
        await leases[0].acquire()
    async with Queue(queue_name, url=valkey_server.url) as queue:
        job = await queue.add("job")
        with pytest.raises(
            InputError, match="not run by this process; outside of jobs use Lease or SyncLease"
        ):
            job.lease("x")
    for plane in ("lock", "lease"):
        with (
            SyncQueue(f"{queue_name}-{plane}", plane=plane, url=valkey_server.url) as sync_queue,
            pytest.raises(InputError, match="by this process"),
        ):
            sync_queue.add("job").lease("x")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"ttl": 30}, "ttl: expected a text with a unit"),
        ({"ttl": "1ms"}, "ttl: expected from"),
        ({"wait": "soon"}, "wait: expected a text with a unit"),
        ({"name": " "}, "lease name: expected a non-empty text"),
    ],
)
async def test_what_makes_no_lease_fails_the_job_with_the_reason(
    valkey_server: Server, queue_name: str, wrong: dict[str, Any], sentence: str
) -> None:
    """law 13"""

    async def work(job: Any) -> None:
        job.lease(**{"name": "x", **wrong})

    with pytest.raises(JobFailed, match=sentence):
        await ran(valkey_server, queue_name, work)
