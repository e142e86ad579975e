# SPDX-License-Identifier: MIT
"""Users' leases in the lock manager: how often they are renewed, what the board says, who hears of a loss."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.ipc.messages import Guards, GuardsLost
from echomq_pool.plane.guard import Guard, GuardKeys
from tests.children.stage import Stage, Worker, group, now_ms, stage_on
from tests.support.servers import Server
from tests.support.waiting import eventually_async

KEYS = GuardKeys("emq")
TTL = 1_200
TICK = TTL // 4


@pytest.fixture
async def stage(valkey_server: Server, queue_name: str) -> AsyncIterator[Stage]:
    async with stage_on(valkey_server, group(queue_name)) as stage:
        yield stage


async def taken(stage: Stage, *, ttl_ms: int = TTL) -> Guard:
    """A lease that nobody has told of yet."""
    guard = Guard(f"{stage.queues[0]}:{uuid.uuid4().hex[:8]}", ttl_ms, KEYS, SYSTEM_CLOCK)
    sent_ms = now_ms()
    assert guard.acquired(await stage.child.guards._link.ask(guard.acquiring()), sent_ms)
    return guard


def tell(stage: Stage, worker: Worker, number: int, *guards: Guard, freed: tuple[Guard, ...] = ()) -> None:
    rows = [[guard.name, guard.token, guard.ttl_ms, guard.stamp_ms] for guard in guards]
    stage.tell(Guards(worker.id, number, rows, [guard.token for guard in freed]))


def value(stage: Stage, guard: Guard) -> Any:
    return stage.client.get(KEYS.base + guard.name)


async def test_all_leases_of_all_workers_are_one_call_per_tick(stage: Stage) -> None:
    """law 10, law 1"""
    guards = []
    for number in range(4):
        worker = stage.worker()
        mine = [await taken(stage) for _ in range(25)]
        tell(stage, worker, number + 1, *mine)
        guards += mine
    await eventually_async(lambda: all(stage.board.guards(slot)[0] for slot in range(2, 6)))
    stage.count_scripts()
    started = now_ms()
    while now_ms() < started + 3 * TTL:
        assert all(stage.client.mget([KEYS.base + guard.name for guard in guards]))
        await asyncio.sleep(0.02)
    ticks = (now_ms() - started) / TICK
    assert ticks / 2 <= stage.scripts_run("lease/guardRenew") <= ticks + 1
    assert stage.scripts_run("lease/guardExtend") == 0


async def test_without_leases_the_server_is_not_asked(stage: Stage) -> None:
    """law 11"""
    worker = stage.worker()
    guard = await taken(stage)
    tell(stage, worker, 1, guard)
    await eventually_async(lambda: stage.board.guards(worker.slot)[0] == 1)
    tell(stage, worker, 2, freed=(guard,))
    await asyncio.sleep(TICK / 1000)
    stage.count_scripts()
    await asyncio.sleep(3 * TICK / 1000)
    assert stage.scripts_run("lease/guardRenew") == 0


async def test_the_board_speaks_of_what_was_told_only(stage: Stage) -> None:
    """law 4: with the number of the last word that the renewal knew, and the time before it was sent"""
    worker = stage.worker()
    guard = await taken(stage)
    tell(stage, worker, 7, guard)
    assert stage.board.guards(worker.slot) == (0, 0)
    number, renewed_ms = await eventually_async(
        lambda: found if (found := stage.board.guards(worker.slot))[0] else None
    )
    assert number == 7
    assert guard.stamp_ms < renewed_ms <= now_ms()
    later = await taken(stage)
    tell(stage, worker, 0, later)  # the first part of a re-telling: more follows
    await eventually_async(lambda: stage.board.guards(worker.slot)[1] > later.stamp_ms)
    assert stage.board.guards(worker.slot)[0] == 7


async def test_a_new_lock_manager_says_nothing_before_it_knows_all(stage: Stage) -> None:
    """law 4, law 9"""
    worker = stage.worker()
    old, late = await taken(stage), await taken(stage, ttl_ms=60_000)
    tell(stage, worker, 0, old)
    for _ in range(30):
        await asyncio.sleep(0.1)
        assert value(stage, old), "renewed all the same"
    assert stage.board.guards(worker.slot) == (0, 0)
    tell(stage, worker, 3, late)
    await eventually_async(lambda: stage.board.guards(worker.slot)[0] == 3)


async def test_a_refused_lease_is_told_to_its_worker_and_the_board_waits_for_the_answer(stage: Stage) -> None:
    """law 4, law 5"""
    worker, other = stage.worker(), stage.worker()
    lost, kept, theirs = [await taken(stage) for _ in range(3)]
    stage.client.set(KEYS.base + lost.name, "thief:1")
    tell(stage, worker, 1, lost, kept)
    tell(stage, other, 1, theirs)
    assert (await stage.hears(GuardsLost)) == GuardsLost(worker.id, [lost.token])
    assert [slot for slot, message in stage.got if isinstance(message, GuardsLost)] == [worker.slot]
    said = (await eventually_async(lambda: stage.board.guards(other.slot)[1] or None)) or 0
    await eventually_async(lambda: stage.board.guards(other.slot)[1] > said)
    assert stage.board.guards(worker.slot) == (0, 0)
    tell(stage, worker, 2, freed=(lost,))
    await eventually_async(lambda: stage.board.guards(worker.slot)[0] == 2)
    assert value(stage, kept)
    assert value(stage, lost) == b"thief:1"
    assert len(stage.heard(GuardsLost)) == 1


async def test_what_a_dead_worker_held_is_given_back_and_nothing_else(stage: Stage) -> None:
    """law 1, law 5"""
    worker, other = stage.worker(), stage.worker()
    mine, stolen, theirs = [await taken(stage, ttl_ms=60_000) for _ in range(3)]
    tell(stage, worker, 1, mine, stolen)
    tell(stage, other, 1, theirs)
    stage.client.set(KEYS.base + stolen.name, "heir:9")
    worker.down()
    await eventually_async(lambda: value(stage, mine) is None)
    tell(stage, worker, 2, mine)  # what it seems to say after its death counts for nothing
    assert value(stage, stolen) == b"heir:9"
    assert value(stage, theirs)
    assert worker.id not in stage.child.guards._holders


async def test_nothing_is_renewed_while_the_supervisor_is_not_heard(
    valkey_server: Server, queue_name: str
) -> None:
    """law 1, law 3: its word that a worker has died would not reach us; the worker renews by itself meanwhile"""
    async with stage_on(valkey_server, group(queue_name), hang_ms=500) as stage:
        worker = stage.worker()
        guard = await taken(stage)
        stage.board.beat(0, now_ms() - 600)
        tell(stage, worker, 1, guard)
        await eventually_async(lambda: value(stage, guard) is None)
        assert stage.board.guards(worker.slot) == (0, 0)
        again = await taken(stage)
        stage.board.beat(0, now_ms() + 60_000)
        tell(stage, worker, 2, again, freed=(guard,))
        await eventually_async(lambda: stage.board.guards(worker.slot)[0] == 2)
