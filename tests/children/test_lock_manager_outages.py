# SPDX-License-Identifier: MIT
"""What the board says of renewals, and what follows from outages, misses and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from echomq_pool.errors import LinkDown
from echomq_pool.ipc.messages import Held, Lost
from tests.children.stage import LEASE, TICK, Stage, for_leases, group, now_ms, stage_on
from tests.support.servers import Server
from tests.support.waiting import eventually_async


@pytest.fixture
async def stage(valkey_server: Server, queue_name: str) -> AsyncIterator[Stage]:
    """One queue with a short lock. What depends on the server's scripts is tested on both servers elsewhere."""
    async with stage_on(valkey_server, group(queue_name)) as stage:
        yield stage


# --- the word on the board ------------------------------------------------------------------------------------


async def test_the_board_tells_a_worker_when_its_leases_were_renewed(stage: Stage) -> None:
    """law 4"""
    stage.add(2)
    worker = stage.worker()
    (job,) = await worker.take()
    await eventually_async(lambda: stage.board.renewed_ms(worker.slot, 0))
    word = stage.board.renewed_ms(worker.slot, 0)
    assert job.taken_ms + TICK <= word <= now_ms()
    assert stage.lock_ttl(job.id) >= LEASE - (now_ms() - word) - 50


async def test_the_word_waits_while_a_worker_runs_more_than_it_told(stage: Stage) -> None:
    """law 4: its `held` is stuck somewhere, so nothing may be claimed for it; nor may the sweep go on."""
    stage.add(2)
    worker = stage.worker()
    await worker.take()
    await eventually_async(lambda: stage.board.renewed_ms(worker.slot, 0))
    unheard = await worker.take(tell=False)
    await asyncio.sleep(2 * TICK / 1000)
    word, last_pass = stage.board.renewed_ms(worker.slot, 0), stage.board.pass_ms()
    await for_leases(1)
    assert stage.board.renewed_ms(worker.slot, 0) == word
    assert stage.board.pass_ms() == last_pass
    assert word < unheard[0].taken_ms + TICK
    stage.tell(Held(worker.id, unheard))
    await eventually_async(lambda: stage.board.pass_ms() > last_pass)


async def test_a_supervisor_that_is_stuck_stops_renewal_but_not_before_its_time(
    valkey_server: Server, queue_name: str
) -> None:
    """law 3: what cannot be heard is not kept alive for ever; a beat brings renewal back."""
    async with stage_on(valkey_server, group(queue_name), hang_ms=2 * LEASE) as stage:
        stage.add()
        worker = stage.worker()
        (job,) = await worker.take()
        stage.board.beat(0, now_ms())
        beat = now_ms()
        await eventually_async(lambda: stage.lock_ttl(job.id) < 0)
        assert now_ms() - beat >= 2 * LEASE
        stage.board.beat(0, now_ms() + 60_000)
        await eventually_async(lambda: stage.lock_ttl(job.id) > 0)  # still ours: acquired again
        assert not stage.heard(Lost)


# --- outages, restarts ------------------------------------------------------------------------------------------


async def test_a_restarted_lock_manager_renews_everything_it_is_told_at_once(stage: Stage) -> None:
    """law 9; promise 4.23"""
    stage.add(3)
    worker = stage.worker()
    jobs = await worker.take(3)
    await stage.crash()
    stage.board.set_pass(0)
    await stage.start()
    worker.up()
    await asyncio.sleep(2 * TICK / 1000)
    assert stage.board.pass_ms() == 0  # it knows that it does not know yet
    for job in jobs:
        stage.client.pexpire(stage.keys[job.queue].lock(job.id), LEASE // 2)
    worker.retell()
    await eventually_async(lambda: min(stage.lock_ttl(job.id) for job in jobs) > LEASE - TICK, within=2)
    await eventually_async(stage.board.pass_ms)


async def test_after_an_outage_longer_than_the_lock_the_leases_are_taken_back(
    own_server: Server, queue_name: str
) -> None:
    """design: lock missing, still in active, same ats; no job is lost, no alarm is raised."""
    async with stage_on(own_server, group(queue_name)) as stage:
        stage.add(2)
        worker = stage.worker()
        mine, stolen = await worker.take(2)
        await eventually_async(stage.board.pass_ms)
        own_server.stop(kill=True)
        await for_leases(1.3)
        down = now_ms()
        own_server.start()
        stage.client.delete(stage.keys[queue_name].lock(mine.id), stage.keys[queue_name].lock(stolen.id))
        stage.client.hincrby(stage.keys[queue_name].job(stolen.id), "ats", 1)  # somebody has taken it since
        lost = await stage.hears(Lost)
        assert [row[1] for row in lost.jobs] == [stolen.id]
        await eventually_async(lambda: stage.lock_ttl(mine.id) > 0)
        assert stage.lock_ttl(stolen.id) == -2
        await eventually_async(lambda: stage.board.pass_ms() >= down)
        assert stage.child.metrics.counters["leases_reacquired"] == 1


async def test_no_pass_is_claimed_while_the_server_is_away(own_server: Server, queue_name: str) -> None:
    """law 2: the sweep waits for the first full pass after the outage."""
    async with stage_on(own_server, group(queue_name)) as stage:
        await eventually_async(stage.board.pass_ms)
        own_server.stop(kill=True)
        await eventually_async(lambda: not stage.child.links.links[0].connected)
        away = now_ms()
        await for_leases(1)
        assert stage.board.pass_ms() <= away
        own_server.start()
        await eventually_async(lambda: stage.board.pass_ms() > away)


async def test_one_missed_tick_is_harmless(stage: Stage) -> None:
    """promise 0.11, 2.10"""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    extend = stage.child.planes[job.queue].extend
    missed: list[int] = []

    async def miss_once(pairs: list[tuple[str, str]]) -> list[str]:
        if not missed:
            missed.append(now_ms())
            raise link_down()
        failed: list[str] = await extend(pairs)
        return failed

    stage.child.planes[job.queue].extend = miss_once
    await for_leases(3)
    assert missed
    assert stage.lock_ttl(job.id) > 0
    assert not stage.heard(Lost)


def link_down() -> LinkDown:
    return LinkDown("renewal was blocked by the test", sent=True)


@pytest.mark.parametrize(
    ("misses", "survives", "lease"),
    [
        (2, True, 3_000),
        (3, False, 3_000),
        pytest.param(2, True, 30_000, marks=[pytest.mark.soak, pytest.mark.timeout(300)]),
        pytest.param(3, False, 30_000, marks=[pytest.mark.soak, pytest.mark.timeout(300)]),
    ],
)
async def test_renewal_every_third_of_a_lease_survives_two_misses_and_not_three(
    valkey_server: Server, queue_name: str, misses: int, survives: bool, lease: int
) -> None:
    """promise 0.8, 0.9, 0.10: scaled, and (soak) with the real 10 and 30 s."""
    async with stage_on(valkey_server, group(queue_name, lease=lease, renew_interval_ms=lease // 3)) as stage:
        stage.add()
        worker = stage.worker()
        (job,) = await worker.take()
        renewed = await eventually_async(lambda: stage.board.renewed_ms(worker.slot, 0), within=60)
        extend = stage.child.planes[queue_name].extend
        calls: list[int] = []

        async def blocked(pairs: list[tuple[str, str]]) -> list[str]:
            calls.append(now_ms())
            if len(calls) <= misses:
                raise link_down()
            failed: list[str] = await extend(pairs)
            return failed

        stage.child.planes[queue_name].extend = blocked
        await eventually_async(lambda: len(calls) > misses or now_ms() > renewed + lease + 100, within=60)
        await asyncio.sleep(0.05)
        if survives:
            assert stage.lock_ttl(job.id) > lease // 2
            assert stage.child.metrics.counters.get("leases_reacquired", 0) == 0
        else:
            assert stage.lock_ttl(job.id) == -2
