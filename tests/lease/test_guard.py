# SPDX-License-Identifier: MIT
"""The lock for users' own critical sections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from echomq_pool.errors import InputError, LinkDown
from echomq_pool.plane.guard import GuardLost, Lease
from tests.support.lease import LIBRARY, LeaseBench
from tests.support.waiting import eventually_async


def lock(bench: LeaseBench, **more: Any) -> Lease:
    return Lease(bench.link, LIBRARY, bench.keys.queue, **more)


def ttl(bench: LeaseBench, lease: Lease) -> int:
    return int(bench.client.pttl(lease.key))


async def test_a_whole_life(bench: LeaseBench) -> None:
    """promise 3.10"""
    mine, other = lock(bench), lock(bench)
    assert await mine.acquire()
    assert not await other.acquire()
    assert mine.held()
    assert 29_000 < ttl(bench, mine) <= 30_000
    assert await mine.release()
    assert not mine.held()
    assert await other.acquire()
    assert other.fencing_token > mine.fencing_token
    await other.release()


async def test_renewed_only_by_its_token(bench: LeaseBench) -> None:
    """promise 3.3, 3.4"""
    mine, other = lock(bench), lock(bench)
    await mine.acquire()
    bench.client.pexpire(mine.key, 5_000)
    assert not await other.extend()
    assert ttl(bench, mine) <= 5_000
    assert await mine.extend()
    assert ttl(bench, mine) > 29_000
    assert LIBRARY["lease/guardExtend"].keys == 1


async def test_a_lapsed_lock_does_not_come_back(bench: LeaseBench) -> None:
    """promise 3.5"""
    mine = lock(bench)
    await mine.acquire()
    bench.client.delete(mine.key)
    assert not await mine.extend()
    assert bench.client.exists(mine.key) == 0


async def test_given_back_only_by_its_token(bench: LeaseBench) -> None:
    """promise 3.11"""
    mine, other = lock(bench), lock(bench)
    await mine.acquire()
    assert not await other.release()
    assert bench.client.exists(mine.key) == 1


async def test_a_crash_frees_it_in_its_time(bench: LeaseBench) -> None:
    """promise 3.12"""
    dead, heir = lock(bench, ttl_ms=100), lock(bench)
    await dead.acquire()
    await eventually_async(heir.acquire, within=5)
    assert heir.fencing_token > dead.fencing_token


async def test_it_is_renewed_as_long_as_it_is_held(bench: LeaseBench) -> None:
    """promise 3.2, 3.8"""
    other = lock(bench)
    async with lock(bench, ttl_ms=400) as mine:
        for _ in range(20):
            await asyncio.sleep(0.05)
            assert not await other.acquire()
            mine.check()
    assert await other.acquire()


async def test_its_holder_hears_that_it_is_lost_and_renews_no_more(bench: LeaseBench) -> None:
    """promise 3.6, 3.7"""
    told: list[str] = []
    async with lock(bench, ttl_ms=200, on_lost=lambda: told.append("lost")) as mine:
        bench.client.set(mine.key, "thief")
        await asyncio.wait_for(mine.lost.wait(), 10)
        calls = len(bench.link.log)
        with pytest.raises(GuardLost):
            mine.check()
        await asyncio.sleep(0.3)
        assert len(bench.link.log) == calls
    assert told == ["lost"]
    assert bench.client.get(mine.key) == b"thief"


async def test_without_a_renewal_in_time_it_counts_as_lost(bench: LeaseBench) -> None:
    """law 4"""
    async with lock(bench, ttl_ms=200) as mine:
        bench.link.lose["lease/guardExtend"] = ["before"] * 50
        await asyncio.wait_for(mine.lost.wait(), 10)
        assert not mine.held()


async def test_a_lost_reply_is_no_lost_lock(bench: LeaseBench) -> None:
    """law 6"""
    mine = lock(bench)
    bench.link.lose["lease/guardAcquire"] = ["after"]
    with pytest.raises(LinkDown):
        await mine.acquire()
    assert await mine.acquire()
    assert mine.fencing_token == 1
    bench.link.lose["lease/guardRelease"] = ["after"]
    with pytest.raises(LinkDown):
        await mine.release()
    assert not await mine.release()


async def test_whoever_waits_gets_it_next(bench: LeaseBench) -> None:
    order: list[int] = []

    async def section(number: int) -> None:
        async with lock(bench, wait_ms=20_000) as held:
            order.append(held.fencing_token)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(section(number) for number in range(5)))
    assert order == sorted(order)
    assert len(set(order)) == 5
    await lock(bench).acquire()
    with pytest.raises(GuardLost, match="somebody else"):
        async with lock(bench):
            pass


@pytest.mark.parametrize("wrong", [{"ttl_ms": 0}, {"ttl_ms": 100, "renew_ms": 100}, {"renew_ms": 0}])
async def test_what_makes_no_lock_is_refused(bench: LeaseBench, wrong: dict[str, int]) -> None:
    """law 13"""
    with pytest.raises(InputError):
        lock(bench, **wrong)
    with pytest.raises(InputError):
        Lease(bench.link, LIBRARY, "")
