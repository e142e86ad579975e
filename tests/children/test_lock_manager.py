# SPDX-License-Identifier: MIT
"""Renewal against real servers: who keeps a lease, how many calls it takes, who hears of a loss."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from echomq_pool.children.leases import NEVER
from echomq_pool.children.queue_links import QueueLinks
from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.config.schema import PoolConfig, RedisConfig
from echomq_pool.ipc.messages import Cancel, Expired, Held, Lost, Quiet, Stats, Stop
from echomq_pool.plane.base import HeldRow
from tests.children.stage import LEASE, TICK, Stage, for_leases, group, now_ms, stage_on
from tests.support.planes import LIBRARY
from tests.support.servers import Server
from tests.support.waiting import eventually_async


@pytest.fixture
async def stage(valkey_server: Server, queue_name: str) -> AsyncIterator[Stage]:
    """One queue with a short lock. What depends on the server's scripts is tested on both servers elsewhere."""
    async with stage_on(valkey_server, group(queue_name)) as stage:
        yield stage


# --- leases live -------------------------------------------------------------------------------------------


async def test_a_job_of_many_leases_is_never_without_its_lock(stage: Stage) -> None:
    """law 1; promise 0.13, 0.16, 0.17, 3.8; case C025"""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    seen: list[int] = []
    until = now_ms() + 5 * LEASE
    while now_ms() < until:
        seen.append(stage.lock_ttl(job.id))
        await asyncio.sleep(0.02)
    assert min(seen) > 0
    assert stage.client.get(stage.keys[job.queue].lock(job.id)) == job.token.encode()


async def test_a_renewal_moves_the_expiry_forward_and_clears_the_stalled_mark(stage: Stage) -> None:
    """promise 0.6, 4.10, 4.24, 2.14"""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    stalled = stage.keys[job.queue].key("stalled")
    stage.client.sadd(stalled, job.id)
    before = stage.lock_ttl(job.id)
    await eventually_async(lambda: not stage.client.sismember(stalled, job.id))
    assert stage.lock_ttl(job.id) > before - 2 * TICK - 50
    assert stage.lock_ttl(job.id) > LEASE - TICK


@pytest.mark.parametrize("jobs", [1, 100])
async def test_one_call_per_tick_renews_all_leases_of_a_queue(stage: Stage, jobs: int) -> None:
    """law 10; promise 0.12, 0.22, 0.23, 2.7, 3.14, 4.3, 4.5, 4.8: four workers, one call."""
    stage.add(4 * jobs)
    for worker in [stage.worker() for _ in range(4)]:
        await worker.take(jobs)
    await eventually_async(lambda: stage.child.metrics.counters.get("renewal_calls", 0) >= 2)
    started = now_ms()
    stage.count_scripts()
    await asyncio.sleep(6 * TICK / 1000)
    ticks = (now_ms() - started) / TICK
    assert ticks - 2 <= stage.scripts_run("extendLocks") <= ticks + 1
    assert stage.scripts_run("extendLock") == 0


async def test_ten_thousand_leases_are_one_call_and_one_more_needs_a_second(stage: Stage) -> None:
    """law 10; promise 3.14"""
    worker = stage.worker()
    stage.add()
    (job,) = await worker.take()
    many = [job._replace(id=f"x{i}") for i in range(9_999)]
    calls: list[int] = []
    extend = stage.child.planes[job.queue].extend

    async def counted(pairs: list[tuple[str, str]]) -> list[str]:
        calls.append(len(pairs))
        await extend(pairs)
        return []  # these leases exist only here

    stage.child.planes[job.queue].extend = counted
    stage.tell(Held(worker.id, [job, *many], full=True, end=True))
    await eventually_async(lambda: calls)
    assert calls == [10_000]
    stage.tell(Held(worker.id, [job, *many, job._replace(id="y")], full=True, end=True))
    await eventually_async(lambda: len(calls) >= 3)
    assert sorted(calls[1:3]) == [1, 10_000]


async def test_a_call_per_lease_is_what_the_batch_replaces(stage: Stage) -> None:
    """promise 3.13, 3.14, 4.4: the naive renewer needs N calls per tick, this one needs 1 (printed as a table)."""
    worker = stage.worker()
    plane = stage.planes[stage.queues[0]]
    for n in (1, 6, 100):
        stage.add(n)
        jobs = await worker.take(n, tell=False)
        pairs = [(job.id, job.token) for job in jobs]
        stage.count_scripts()
        began = time.perf_counter()
        for pair in pairs:
            assert await plane.extend([pair]) == []
        naive, naive_s = stage.scripts_run("extendLocks"), time.perf_counter() - began
        stage.count_scripts()
        began = time.perf_counter()
        assert await plane.extend(pairs) == []
        batch, batch_s = stage.scripts_run("extendLocks"), time.perf_counter() - began
        print(
            f"N {n:4}  naive {naive:4} calls {naive_s * 1e3:7.2f} ms   batch {batch} call {batch_s * 1e3:6.2f} ms"
        )
        assert (naive, batch) == (n, 1)


async def test_the_number_of_timers_does_not_grow_with_the_jobs(stage: Stage) -> None:
    """law 10; promise 0.21, 2.7, 4.3, 4.5"""
    stage.add(101)
    worker = stage.worker()
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *args: object, **kwargs: object) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *args, **kwargs)  # type: ignore[arg-type]

    async def timers_in_ticks(n: int) -> int:
        timers.clear()
        await asyncio.sleep(n * TICK / 1000)
        return len(timers)

    await worker.take(1)
    loop.call_at = counted  # type: ignore[method-assign]
    try:
        few = await timers_in_ticks(4)
        await worker.take(100)
        many = await timers_in_ticks(4)
    finally:
        loop.call_at = call_at  # type: ignore[method-assign]
    assert abs(many - few) <= 4


async def test_an_idle_lock_manager_asks_nothing(stage: Stage) -> None:
    """law 11; promise 3.15"""
    await eventually_async(stage.board.pass_ms)
    stage.count_scripts()
    await asyncio.sleep(4 * TICK / 1000)
    assert stage.scripts_run("extendLocks") == 0


async def test_leases_taken_under_a_wrong_token_stay_with_their_owner(stage: Stage) -> None:
    """law 5; promise 0.26, 3.3, 3.5, 3.6, 3.7: a stale heartbeat does not overwrite the new owner's lock."""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    lock = stage.keys[job.queue].lock(job.id)
    stage.client.set(lock, "another:1", px=60_000)
    lost = await stage.hears(Lost)
    assert (lost.worker_id, lost.jobs) == (worker.id, [[job.queue, job.id, job.token]])
    assert [slot for slot, message in stage.got if message is lost] == [worker.slot]
    stage.count_scripts()
    await for_leases(1)
    assert stage.client.get(lock) == b"another:1"
    assert stage.lock_ttl(job.id) < 60_000
    assert stage.scripts_run("extendLocks") == 0  # no further renewals
    assert len(stage.heard(Lost)) == 1


async def test_one_stolen_lock_of_three_is_reported_alone(stage: Stage) -> None:
    """promise 4.9, 3.6"""
    stage.add(3)
    worker = stage.worker()
    first, second, third = await worker.take(3)
    stage.client.set(stage.keys[second.queue].lock(second.id), "another:1", px=60_000)
    lost = await stage.hears(Lost)
    assert lost.jobs == [[second.queue, second.id, second.token]]
    await for_leases(1)
    assert stage.lock_ttl(first.id) > 0
    assert stage.lock_ttl(third.id) > 0
    await eventually_async(lambda: stage.child.metrics.counters.get("leases_lost") == 1)


async def test_jobs_that_finish_between_two_renewals_raise_no_alarm(
    valkey_server: Server, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """case C022: a tick of 5 ms and jobs that end at any moment of it."""
    async with stage_on(valkey_server, group(queue_name, lock_renew_time_ms=10)) as stage:
        stage.add(400)
        worker = stage.worker()
        plane = stage.planes[queue_name]
        for _ in range(100):
            jobs = await worker.take(4)
            for job in jobs:
                await asyncio.sleep(random.uniform(0, 0.004))  # the job runs
                record = await plane.load(job.id)
                assert record is not None
                await plane.complete(record, job.token, b"null")
                worker.settle(job)
        await asyncio.sleep(1.2)  # longer than an alarm is held back
        assert stage.child.metrics.counters.get("leases_lost", 0) == 0
        assert stage.child.metrics.counters["renewal_calls"] > 10
        assert not [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
        assert stage.client.zcard(stage.keys[queue_name].key("completed")) == 400


async def test_groups_of_different_cadence_are_served_by_their_own_ticks(
    valkey_server: Server, queue_name: str
) -> None:
    """promise 0.21: the slow queue is not renewed at the pace of the fast one."""
    fast, slow = queue_name + "f", queue_name + "s"
    async with stage_on(valkey_server, group(fast, lease=600), group(slow, lease=20_000)) as stage:
        stage.add(queue=fast)
        stage.add(queue=slow)
        worker = stage.worker()
        await worker.take(queue=fast)
        await worker.take(queue=slow)
        await eventually_async(lambda: stage.board.renewed_ms(worker.slot, 0))
        word = stage.board.renewed_ms(worker.slot, 0)
        await eventually_async(lambda: stage.board.renewed_ms(worker.slot, 0) > word)
        assert stage.board.renewed_ms(worker.slot, 1) == 0


async def test_what_is_held_on_a_queue_that_a_reload_removed_harms_nobody(stage: Stage) -> None:
    """law 9: its worker renews it itself while it drains."""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    stage.tell(Held(worker.id, [job, job._replace(queue="removed", id="x")], full=True, end=True))
    await eventually_async(lambda: stage.board.renewed_ms(worker.slot, 0))
    assert len(stage.child.book) == 2
    assert stage.lock_ttl(job.id) > 0


def test_in_a_cluster_every_queue_has_a_link_of_its_own() -> None:
    """design section 7: a queue lives in one slot, its link stays at that slot's node."""
    config = PoolConfig(redis=RedisConfig(cluster=True), workers=(group("a", "b"),))
    for cluster, links in ((True, 2), (False, 1)):
        config = replace(config, redis=replace(config.redis, cluster=cluster))
        made = QueueLinks(config, "part", SYSTEM_CLOCK, LIBRARY, lambda queues, state: None)
        assert len(made.links) == links
        assert (made.of("a") is made.of("b")) == (not cluster)
        assert not made.linked().connected
        assert not made.connected("a")


# --- cancel, drain, numbers ----------------------------------------------------------------------------------------


async def test_a_cancelled_job_that_is_still_held_after_a_second_ends_its_process(stage: Stage) -> None:
    """design section 4: within 1 s it is its worker's affair; one that ended meanwhile is left alone."""
    stage.add(2)
    worker = stage.worker()
    stuck, obeys = await worker.take(2)
    asked = now_ms()
    stage.tell(Cancel(stuck.queue, stuck.id, "no longer wanted"))
    stage.tell(Cancel(obeys.queue, obeys.id, "no longer wanted"))
    worker.settle(obeys)
    expired = await stage.hears(Expired)
    assert now_ms() - asked >= 1_000
    assert expired == Expired(worker.id, stuck.queue, stuck.id, "cancel", "no longer wanted")
    assert len(stage.heard(Expired)) == 1


async def test_renewal_goes_on_through_quiet_until_the_very_end(stage: Stage) -> None:
    """case C019: a drain that takes several leases loses none."""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    stage.tell(Quiet())
    await for_leases(2.5)
    assert stage.lock_ttl(job.id) > 0
    record = await stage.planes[job.queue].load(job.id)
    assert record is not None
    await stage.planes[job.queue].complete(record, job.token, b"1")
    worker.settle(job)
    bye = await stage.child.stop(Stop(now_ms() + 5_000))
    assert bye.reason == "shutdown"
    assert stage.field(job.id, "returnvalue") == "1"


async def test_the_numbers_tell_of_leases_and_renewals(stage: Stage) -> None:
    """issue: leases held, renewal latency and losses"""
    stage.add(2)
    worker = stage.worker()
    await worker.take(2)

    def told() -> bool:
        return any(
            stats.gauges.get("leases_held") == 2
            and stats.counters.get("leases_renewed", 0) >= 2
            and sum(stats.histograms["renewal"][:-1]) >= 1
            for stats in stage.heard(Stats)
        )

    await eventually_async(told)


async def test_the_beat_is_faster_than_a_sixteenth_of_the_shortest_lock(stage: Stage) -> None:
    """law 3: the supervisor must notice a stuck LockManager while every lease still lives."""
    assert stage.child.beat_ms() <= LEASE // 16


async def test_leases_of_a_re_telling_start_without_a_proven_stamp(stage: Stage) -> None:
    """law 9"""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take(tell=False)
    stage.tell(Held(worker.id, [job], full=True, end=True))
    (lease,) = stage.child.book.find(job.queue, job.id)
    assert lease.stamp_ms == NEVER
    await eventually_async(lambda: lease.stamp_ms > 0)
    assert await stage.planes[job.queue].reacquire([HeldRow(job.id, job.token, job.ats)]) == []
