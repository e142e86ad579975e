# SPDX-License-Identifier: MIT
"""The sweep: two phases, and never in the way of this pool's own leases."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator

import pytest

from echomq_pool.children.lock_manager import LockManager
from echomq_pool.children.queue_links import queue_options
from echomq_pool.children.stalled_checker import StalledChecker
from echomq_pool.ipc.messages import Quiet, Resume, Stop
from echomq_pool.plane.base import Taken
from tests.children.stage import LEASE, Stage, config_for, group, now_ms
from tests.children.sweeping import INTERVAL, abandon, after_sweeps, checker_on, passed, stalled, sweeps
from tests.support.planes import LIBRARY
from tests.support.servers import Server
from tests.support.waiting import eventually_async


@pytest.fixture
async def stage(server: Server, queue_name: str) -> AsyncIterator[Stage]:
    async with checker_on(server, group(queue_name)) as stage:
        yield stage


# --- two phases ---------------------------------------------------------------------------------------------


async def test_the_first_sweep_marks_and_the_second_recovers(server: Server, queue_name: str) -> None:
    """promise 2.11, 2.12, 2.13, 2.16, 4.12, 0.14, 0.15, 2.3: and no worker needs to be alive."""
    async with checker_on(server, group(queue_name, stalled_interval_ms=400)) as stage:
        (job_id,) = abandon(stage)
        later = stage.add()
        await after_sweeps(stage, 1)
        assert stage.active() == [job_id]
        assert stalled(stage) == {job_id}
        await after_sweeps(stage, 1)
        assert stage.active() == []
        assert stage.waiting() == [job_id, *later]
        assert stage.field(job_id, "stc") == "1"
        assert stage.field(job_id, "atm") is None
        assert stage.child.metrics.counters["stalled_jobs"] == 1


async def test_a_mixed_set_is_split_exactly(stage: Stage) -> None:
    """promise 0.24, 2.4, 2.5, 2.22: the count is raised in the script, not by reading and writing it."""
    gone = abandon(stage, 5)
    kept = abandon(stage, 5, locked=True)
    with stage.client.monitor() as monitor:
        await eventually_async(lambda: len(stage.waiting()) == 5)
        stage.client.echo("over")
        sent: set[str] = set()
        while "ECHO" not in sent:
            seen = monitor.next_command()
            if seen["client_type"] != "lua":
                sent.add(seen["command"].split()[0].upper())
    assert sorted(stage.waiting()) == sorted(gone)
    assert sorted(stage.active()) == sorted(kept)
    assert [stage.field(job_id, "stc") for job_id in gone + kept] == ["1"] * 5 + [None] * 5
    assert "EVALSHA" in sent
    assert not sent & {"HINCRBY", "HSET", "LREM", "RPUSH", "EXISTS", "SMEMBERS"}


async def test_a_momentary_stall_survives_when_the_renewal_comes_in_between(
    server: Server, queue_name: str
) -> None:
    """promise 2.9, 2.14"""
    async with checker_on(server, group(queue_name, stalled_interval_ms=300)) as stage:
        stage.add()
        token = f"{uuid.uuid4()}:1"
        taken = await stage.planes[queue_name].take(token)
        assert isinstance(taken, Taken)
        stage.client.pexpire(stage.keys[queue_name].lock(taken.job.id), 60_000)
        await eventually_async(lambda: stalled(stage))
        assert await stage.planes[queue_name].extend([(taken.job.id, token)]) == []
        assert stalled(stage) == set()
        stage.client.pexpire(stage.keys[queue_name].lock(taken.job.id), 60_000)
        await after_sweeps(stage, 2)
        assert stage.active() == [taken.job.id]
        assert stage.field(taken.job.id, "stc") is None


async def test_the_second_stall_ends_in_failed_by_whoever_takes_it_next(stage: Stage) -> None:
    """promise 2.17, 2.18, 4.14; case C030, C032"""
    (job_id,) = abandon(stage)
    await eventually_async(lambda: stage.waiting() == [job_id])
    assert stage.field(job_id, "defa") is None
    keys = stage.keys[stage.queues[0]]
    stage.client.lmove(keys.key("wait"), keys.key("active"), "RIGHT", "LEFT")
    await eventually_async(lambda: stage.waiting() == [job_id])
    assert stage.field(job_id, "defa") == "job stalled more than allowable limit"
    assert stage.field(job_id, "stc") == "2"


async def test_a_job_is_exempt_from_the_limit_only_while_its_scheduler_exists(stage: Stage) -> None:
    """case C033"""
    keys = stage.keys[stage.queues[0]]
    stage.client.hset(keys.scheduler("s"), "ic", "1")
    (job_id,) = abandon(stage, rjk="s", stc="7")
    await eventually_async(lambda: stage.waiting() == [job_id])
    assert stage.field(job_id, "defa") is None
    stage.client.delete(keys.scheduler("s"))
    stage.client.lmove(keys.key("wait"), keys.key("active"), "RIGHT", "LEFT")
    await eventually_async(lambda: stage.waiting() == [job_id])
    assert stage.field(job_id, "defa") is not None


async def test_the_guard_key_makes_one_sweep_of_many_pools(server: Server, queue_name: str) -> None:
    """promise 2.21, 4.13: two checkers, one effective pass per interval."""
    async with (
        checker_on(server, group(queue_name, stalled_interval_ms=500)) as first,
        checker_on(server, group(queue_name, stalled_interval_ms=500)) as second,
    ):
        (job_id,) = abandon(first)
        guard = first.keys[queue_name].key("stalled-check")
        assert (
            0
            < int(await eventually_async(lambda: first.client.pttl(guard) > 0 and first.client.pttl(guard)))
            <= 500
        )
        await eventually_async(lambda: sweeps(first) >= 3 and sweeps(second) >= 3)
        assert first.field(job_id, "stc") == "1"
        found = [s.child.metrics.counters.get("stalled_jobs", 0) for s in (first, second)]
        assert sum(found) == 1


def test_the_sweep_is_the_script_with_eight_keys() -> None:
    """promise 0.25, 4.13"""
    assert LIBRARY["moveStalledJobsToWait"].keys == 8


def test_groups_that_share_a_queue_get_the_longest_lock_and_the_most_patient_limit(
    valkey_server: Server,
) -> None:
    """promise 4.14"""
    groups = [group("q", lease=1_000, max_stalled_count=1), group("q", lease=4_000, max_stalled_count=3)]
    options = queue_options(config_for(valkey_server, *groups), "q")
    assert (options.lock_duration_ms, options.max_stalled_count) == (4_000, 3)
    assert queue_options(config_for(valkey_server), "none").lock_duration_ms == 30_000


# --- not in the way of our own ---------------------------------------------------------------------------------


async def test_nothing_is_swept_before_the_lock_managers_first_pass(server: Server, queue_name: str) -> None:
    """law 2"""
    async with checker_on(server, group(queue_name), passing=False) as stage:
        abandon(stage)
        await asyncio.sleep(4 * INTERVAL / 1000)
        assert sweeps(stage) == 0
        assert stalled(stage) == set()
        stage.board.set_pass(stage.child.connected_ms[queue_name])
        await asyncio.sleep(2 * INTERVAL / 1000)
        assert sweeps(stage) == 0  # a pass that began before our link was made says nothing of now
        await eventually_async(lambda: passed(stage) and sweeps(stage) >= 1)


async def test_sweeps_stop_while_the_lock_manager_is_late(server: Server, queue_name: str) -> None:
    """law 2: a stuck LockManager must not cost a living worker its job."""
    async with checker_on(server, group(queue_name), passing=False) as stage:
        await eventually_async(lambda: passed(stage) and sweeps(stage) >= 1)
        await asyncio.sleep(LEASE / 1000)
        (job_id,) = abandon(stage)
        before = sweeps(stage)
        await asyncio.sleep(4 * INTERVAL / 1000)
        assert sweeps(stage) == before
        assert stage.active() == [job_id]


async def test_after_an_outage_renewal_comes_before_the_sweep(own_server: Server, queue_name: str) -> None:
    """law 2; promise 4.15; case C019: locks lapse while the server is away, and no job is taken from its worker."""
    renewing = Stage(own_server, config_for(own_server, group(queue_name)))
    await renewing.start(LockManager)
    checking = Stage(own_server, config_for(own_server, group(queue_name)), board=renewing.board)
    await checking.start(StalledChecker)
    try:
        renewing.add(3)
        worker = renewing.worker()
        jobs = await worker.take(3)
        await eventually_async(lambda: sweeps(checking) >= 2)
        for _ in range(2):
            own_server.stop(kill=True)
            await asyncio.sleep(1.2 * LEASE / 1000)
            own_server.start()
            renewing.client.delete(*(renewing.keys[queue_name].lock(job.id) for job in jobs))
            await after_sweeps(checking, 4)
        assert sorted(renewing.active()) == sorted(job.id for job in jobs)
        assert [renewing.field(job.id, "stc") for job in jobs] == [None] * 3
        assert checking.child.metrics.counters.get("stalled_jobs", 0) == 0
    finally:
        await checking.crash()
        await renewing.crash()


async def test_a_frozen_server_is_not_swept_at_its_thaw(own_server: Server, queue_name: str) -> None:
    """law 2: the sweep is not sent into a silence in which every lock may lapse."""
    async with checker_on(own_server, group(queue_name)) as stage:
        (job_id,) = abandon(stage, locked=True)
        await after_sweeps(stage, 2)
        stage.client.pexpire(stage.keys[queue_name].lock(job_id), 300)
        own_server.freeze()
        frozen_at = sweeps(stage)
        await asyncio.sleep(0.7)
        assert sweeps(stage) <= frozen_at + 1
        assert stage.child.metrics.counters.get("sweep_errors", 0) >= 1
        own_server.thaw()
        await after_sweeps(stage, 1)


async def test_sweeping_every_20_ms_stalls_no_job_that_is_just_being_taken(
    server: Server, queue_name: str
) -> None:
    """case C026, C021; promise 1.23, 0.19: 1 000 short jobs over four workers."""
    config = config_for(server, group(queue_name, lease=5_000, stalled_interval_ms=20))
    renewing = Stage(server, config)
    await renewing.start(LockManager)
    checking = Stage(server, config, board=renewing.board)
    await checking.start(StalledChecker)
    try:
        renewing.add(1_000)
        await eventually_async(lambda: sweeps(checking) >= 1)
        runs: list[str] = []

        async def work() -> None:
            worker = renewing.worker()
            plane = renewing.planes[queue_name]
            for _ in range(250):
                (job,) = await worker.take()
                runs.append(job.id)
                await asyncio.sleep(random.uniform(0, 0.005))
                record = await plane.load(job.id)
                assert record is not None
                await plane.complete(record, job.token, b"null")
                worker.settle(job)

        await asyncio.gather(*(work() for _ in range(4)))
        assert len(runs) == len(set(runs)) == 1_000
        assert checking.child.metrics.counters.get("stalled_jobs", 0) == 0
        assert sweeps(checking) >= 10
        assert renewing.active() == []
    finally:
        await checking.crash()
        await renewing.crash()


async def test_what_a_whole_lost_pool_held_is_recovered_within_a_lease_and_two_sweeps(
    server: Server, queue_name: str
) -> None:
    """promise 0.18, 2.8, 4.15; case C027, C028: the other host is gone with its LockManager."""
    async with checker_on(server, group(queue_name)) as stage:
        stage.add(2)
        for n in range(2):
            assert isinstance(await stage.planes[queue_name].take(f"{uuid.uuid4()}:{n}"), Taken)
        died = now_ms()
        ttls: list[int] = []
        lock = stage.active()[0]
        while (ttl := stage.lock_ttl(lock)) > 0:
            ttls.append(ttl)
            await asyncio.sleep(0.02)
        assert ttls == sorted(ttls, reverse=True)
        assert now_ms() - died <= LEASE + 100
        await eventually_async(lambda: len(stage.waiting()) == 2)
        assert now_ms() - died <= LEASE + 2 * INTERVAL + 1_000


async def test_quiet_stops_sweeps_and_resume_brings_them_back(stage: Stage) -> None:
    """protocol 7.9"""
    await after_sweeps(stage, 1)
    stage.tell(Quiet())
    await asyncio.sleep(2 * INTERVAL / 1000)
    before = sweeps(stage)
    await asyncio.sleep(3 * INTERVAL / 1000)
    assert sweeps(stage) == before
    stage.tell(Resume())
    await after_sweeps(stage, 1)
    assert (await stage.child.stop(Stop(now_ms() + 1_000))).reason == "shutdown"
