# SPDX-License-Identifier: MIT
"""Maintenance and schedules of lease-plane queues: prompt, although nobody looks while nothing is due.

Looks that are due by the beat alone are put off for hours here: what happens, happens because it was heard or known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from echomq_pool.children import lease_series, maintenance
from echomq_pool.children.base import Child
from echomq_pool.children.job_scheduler import JobScheduler
from echomq_pool.children.lease_due import Agenda
from echomq_pool.children.stalled_checker import StalledChecker
from echomq_pool.clock import SYSTEM_CLOCK, FakeClock
from echomq_pool.config.schema import PoolConfig, RedisConfig, WorkersConfig
from echomq_pool.ipc.messages import Quiet, Resume
from echomq_pool.plane.lease_flows import FlowNode
from tests.support.inprocess import InProcess
from tests.support.lease import GROUPS, LeaseBench, lease_on
from tests.support.servers import Server
from tests.support.waiting import eventually_async

HOURS_MS = 10_000_000
SOON_MS = 250


@pytest.fixture
async def bench(server: Server, queue_name: str) -> AsyncIterator[LeaseBench]:
    async with lease_on(server, queue_name) as bench:
        yield bench


@pytest.fixture(autouse=True)
def hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look comes by itself."""
    for module in (maintenance, lease_series):
        monkeypatch.setattr(module, "IDLE_BEAT_MS", HOURS_MS)
        monkeypatch.setattr(module, "BEAT_MS", HOURS_MS)


def config_of(bench: LeaseBench, *more: str, name: str = "pool") -> PoolConfig:
    workers = WorkersConfig(
        "w", (bench.keys.queue, *more), "x:y", plane="lease", lock_duration_ms=4 * HOURS_MS
    )
    return PoolConfig(
        name=name, redis=RedisConfig(url=bench.server.url, port=bench.server.port), workers=(workers,)
    )


@asynccontextmanager
async def child_on(bench: LeaseBench, kind: type[Child], *more: str) -> AsyncIterator[InProcess]:
    """A child that hears, and that has looked at every queue since it does."""
    async with InProcess(kind, config_of(bench, *more)) as child:

        async def keep_passing() -> None:
            while True:
                child.board.set_pass(SYSTEM_CLOCK.mono_ms())
                await asyncio.sleep(0.01)

        passing = asyncio.create_task(keep_passing())
        try:
            await resting(child)
            yield child
        finally:
            passing.cancel()


async def resting(child: InProcess) -> None:
    """Until it hears, and sleeps for hours."""
    scheduler = isinstance(child.child, JobScheduler)
    part = child.child.lease_series if scheduler else child.child.maintenance
    ear = part._ear if scheduler else child.child.ear
    await eventually_async(lambda: ear.hears and sleeps(part._agenda))


def sleeps(agenda: Agenda) -> bool:
    left = min(agenda._next.values()) - SYSTEM_CLOCK.mono_ms()
    return HOURS_MS // 2 < left < 2 * HOURS_MS


def looks(bench: LeaseBench) -> int:
    """Calls of scripts by anybody."""
    stats = bench.client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


async def schedule(bench: LeaseBench, how: str) -> str:
    """A job that is due soon, by each way there is."""
    job_id = bench.mint.new()
    if how == "enqueue_in":
        await bench.queue.enqueue_in(job_id, "{}", SOON_MS)
    elif how == "enqueue_at":
        await bench.queue.enqueue_at(job_id, "{}", bench.now_ms() + SOON_MS)
    elif how == "lane":
        await bench.queue.enqueue_in(job_id, "{}", SOON_MS, group=GROUPS[0])
    elif how == "change_delay":
        await bench.queue.enqueue_in(job_id, "{}", HOURS_MS // 4)
        await bench.queue.change_delay(job_id, SOON_MS)
    else:
        await bench.queue.enqueue(job_id, "{}")
        await _settle(bench, how)
    return job_id


async def _settle(bench: LeaseBench, how: str) -> None:
    if how in ("retry", "delay"):
        claimed, token = await bench.claimed()
        verb = bench.queue.retry(claimed, token, SOON_MS, 9, "no") if how == "retry" else None
        await (verb or bench.queue.delay(claimed, token, SOON_MS))
    else:
        taken = await bench.taken()
        await bench.plane.delay(taken.job, taken.token, SOON_MS, reason="no")


WAYS = ["enqueue_in", "enqueue_at", "lane", "change_delay", "retry", "delay", "a worker's retry"]


@pytest.mark.parametrize("how", WAYS)
async def test_a_job_that_is_scheduled_while_all_is_idle_starts_at_its_time(
    bench: LeaseBench, how: str
) -> None:
    """promise 3.18; law 11"""
    async with child_on(bench, StalledChecker) as child:
        job_id = await schedule(bench, how)
        await eventually_async(lambda: bench.row(job_id)["state"] == "pending")
        await resting(child)


async def test_a_job_due_before_all_that_are_known_is_heard_and_later_ones_cost_nothing(
    bench: LeaseBench,
) -> None:
    """law 11"""
    await bench.queue.enqueue_in(bench.mint.new(), "{}", HOURS_MS // 4)
    async with InProcess(StalledChecker, config_of(bench)) as child:
        agenda = child.child.maintenance._agenda
        await eventually_async(lambda: child.child.ear.hears and _left(agenda) > HOURS_MS // 5)
        before = looks(bench)
        for n in range(20):
            await bench.queue.enqueue_in(bench.mint.new(), "{}", HOURS_MS // 4 + n * 1_000)
        assert looks(bench) - before == 20, "the adding calls themselves"
        first = bench.mint.new()
        await bench.queue.enqueue_in(first, "{}", SOON_MS)
        await eventually_async(lambda: bench.row(first)["state"] == "pending")
        await eventually_async(lambda: _left(agenda) > HOURS_MS // 5)
        # Its adding, a look when it was due and the promotion, and one that finds the next ones; one more where a
        # look came a moment early.
        assert looks(bench) - before <= 20 + 1 + 4


def _left(agenda: Agenda) -> int:
    return min(agenda._next.values()) - SYSTEM_CLOCK.mono_ms()


async def test_the_end_of_a_child_in_another_queue_travels_at_once(bench: LeaseBench) -> None:
    """lease-plane section 15.4"""
    other = bench.other("-child")
    parent, child_id = bench.mint.new(), bench.mint.new()
    await bench.flows.add(
        FlowNode(parent, "{}", children=(FlowNode(child_id, "{}", queue=other.keys.queue),))
    )
    async with child_on(bench, StalledChecker, other.keys.queue) as child:
        claimed, token = await other.claimed()
        await other.queue.complete(claimed, token, "1")
        await eventually_async(lambda: bench.row(parent)["state"] == "pending")
        await resting(child)


async def test_a_lease_that_ends_is_noticed_at_its_end(bench: LeaseBench) -> None:
    """promise 1.22, 1.25; a look tells when the next one is worth while"""
    job_id = await bench.add()
    await bench.claimed(1_000)
    async with child_on(bench, StalledChecker):
        await eventually_async(lambda: bench.row(job_id)["state"] == "pending")
        assert bench.row(job_id)["stalled"] == "1"


async def test_more_lapsed_leases_than_one_call_takes_are_all_recovered(bench: LeaseBench) -> None:
    """promise 1.17; the second hundred does not wait for another beat"""
    ids = await bench.add_many(250)
    await bench.queue.claim_batch(250, 1_000)
    async with child_on(bench, StalledChecker):
        await eventually_async(lambda: bench.client.zcard(bench.keys.key("pending")) == len(ids))


async def test_what_was_said_while_the_ear_was_deaf_is_looked_for_when_it_hears_again(
    bench: LeaseBench,
) -> None:
    """promise 3.33"""
    async with child_on(bench, StalledChecker) as child:
        job_id = bench.mint.new()
        await bench.queue.enqueue_in(job_id, "{}", HOURS_MS // 4)
        bench.client.zadd(bench.keys.key("schedule"), {job_id: 1})  # nobody was told
        await resting_or_known(child)
        assert bench.row(job_id)["state"] == "scheduled"
        name = "echomq-pool:pool:stalled_checker:due"
        (ear,) = [c for c in bench.client.client_list(_type="pubsub") if c["name"] == name and mine(c, child)]
        bench.client.client_kill_filter(_id=ear["id"])
        await eventually_async(lambda: bench.row(job_id)["state"] == "pending")


async def resting_or_known(child: InProcess) -> None:
    agenda = child.child.maintenance._agenda
    await eventually_async(lambda: _left(agenda) > HOURS_MS // 5)


def mine(client: dict[str, Any], child: InProcess) -> bool:
    return bool(int(client["id"]) == child.child.ear._subscriber.client_id)


async def test_who_cannot_hear_looks_by_the_beat(bench: LeaseBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """promise 3.16"""
    monkeypatch.setattr(maintenance, "BEAT_MS", 50)
    monkeypatch.setattr(StalledChecker, "_hears", lambda self: False)
    async with InProcess(StalledChecker, config_of(bench)):
        job_id = bench.mint.new()
        await bench.queue.enqueue_in(job_id, "{}", HOURS_MS)
        bench.client.zadd(bench.keys.key("schedule"), {job_id: 1})
        await eventually_async(lambda: bench.row(job_id)["state"] == "pending")


async def test_a_checker_that_was_silenced_looks_when_it_may_again(bench: LeaseBench) -> None:
    """TSTP and CONT: nothing that became due meanwhile is forgotten"""
    async with child_on(bench, StalledChecker) as child:
        child.send(Quiet())
        await eventually_async(lambda: child.child.quiet)
        job_id = await schedule(bench, "enqueue_in")
        await bench.past(bench.now_ms() + 2 * SOON_MS)
        assert bench.row(job_id)["state"] == "scheduled"
        child.send(Resume())
        await eventually_async(lambda: bench.row(job_id)["state"] == "pending")


# --- repeats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["register", "upsert", "cron"])
async def test_a_repeat_that_is_made_while_all_is_idle_fires_at_its_time(bench: LeaseBench, how: str) -> None:
    """lease-plane section 16; law 11"""
    async with child_on(bench, JobScheduler) as child:
        if how == "register":
            await bench.repeats.register("s", HOURS_MS, "{}", first_in_ms=SOON_MS)
        elif how == "upsert":
            await bench.repeats.upsert("s", b"{}", every_ms=HOURS_MS)
        else:
            now = time.time_ns() // 1_000_000
            await bench.repeats.register_cron("s", "* * * * * *", "{}", now_ms=now)
        await eventually_async(lambda: bench.client.zcard(bench.keys.key("pending")) >= 1)
        if how != "cron":
            await resting(child)
            assert await bench.queue.pending_size() == 1


async def test_a_scheduler_that_was_silenced_fires_when_it_may_again(bench: LeaseBench) -> None:
    """TSTP and CONT: nothing that became due meanwhile is forgotten"""
    async with child_on(bench, JobScheduler) as child:
        child.send(Quiet())
        await eventually_async(lambda: child.child.lease_series.quiet)
        await bench.repeats.upsert("s", b"{}", every_ms=HOURS_MS)
        child.send(Resume())
        await eventually_async(lambda: bench.client.zcard(bench.keys.key("pending")) == 1)


# --- the agenda -----------------------------------------------------------------------------------------------


async def test_an_agenda_keeps_the_earlier_of_two_times() -> None:
    """law 11"""
    clock = FakeClock(mono_ms=0)
    agenda = Agenda(["a", "b"], clock)
    assert agenda.take() == ["a", "b"]
    assert agenda.take() == []
    agenda.put("a", 50)
    agenda.put("a", 90)
    agenda.put("b", 70)
    clock.advance(60)
    assert agenda.take() == ["a"]
    agenda.put("b", 80)
    clock.advance(10)
    assert agenda.take() == ["b"]


@pytest.mark.parametrize("wake", [lambda a: a.put("a", 0), lambda a: a.put_all()])
async def test_a_sleep_ends_when_a_look_is_brought_forward(wake: Callable[[Agenda], None]) -> None:
    """law 11"""
    agenda = Agenda(["a"], SYSTEM_CLOCK)
    agenda.take()
    agenda.put("a", SYSTEM_CLOCK.mono_ms() + HOURS_MS)
    sleeping = asyncio.create_task(agenda.sleep())
    await asyncio.sleep(0)
    wake(agenda)
    await asyncio.wait_for(sleeping, 30)
    assert agenda.take() == ["a"]


async def test_a_sleep_that_is_cancelled_as_it_ends_is_cancelled() -> None:
    """law 9"""
    agenda = Agenda(["a"], SYSTEM_CLOCK)
    agenda.take()
    sleeping = asyncio.create_task(agenda.sleep())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    agenda.put("a", 0)
    sleeping.cancel()
    await asyncio.wait({sleeping}, timeout=30)
    assert sleeping.cancelled()
