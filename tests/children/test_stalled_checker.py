# SPDX-License-Identifier: MIT
"""The sweep: two phases, bounded, loud, and never in the way of this pool's own leases."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from echomq_pool.children.lock_manager import LockManager
from echomq_pool.children.queue_links import queue_options
from echomq_pool.children.stalled_checker import StalledChecker
from echomq_pool.config.schema import WorkersConfig
from echomq_pool.ipc.messages import Quiet, Resume, Stats, Stop
from echomq_pool.plane.base import Taken
from tests.children.stage import LEASE, Stage, config_for, group, now_ms
from tests.support.planes import LIBRARY
from tests.support.servers import Server
from tests.support.waiting import eventually_async

INTERVAL = 100  # ms, stalled_interval of `group`


@asynccontextmanager
async def checker_on(server: Server, *groups: WorkersConfig, passing: bool = True) -> AsyncIterator[Stage]:
    """A running StalledChecker. With `passing` the board says all the time that the LockManager is on time."""
    stage = Stage(server, config_for(server, *groups))

    async def keep_passing() -> None:
        while True:
            stage.board.set_pass(now_ms())
            await asyncio.sleep(0.01)

    await stage.start(StalledChecker)
    task = asyncio.create_task(keep_passing()) if passing else None
    try:
        yield stage
    finally:
        if task is not None:
            task.cancel()
        await stage.crash()
        stage.client.config_set("slowlog-log-slower-than", 10_000)
        stage.client.close()


@pytest.fixture
async def stage(server: Server, queue_name: str) -> AsyncIterator[Stage]:
    async with checker_on(server, group(queue_name)) as stage:
        yield stage


def sweeps(stage: Stage) -> float:
    return float(stage.child.metrics.counters.get("sweeps", 0))


async def after_sweeps(stage: Stage, n: int) -> None:
    """Waits for `n` more sweeps."""
    target = sweeps(stage) + n
    await eventually_async(lambda: sweeps(stage) >= target)


def passed(stage: Stage) -> bool:
    stage.board.set_pass(now_ms())
    return True


def abandon(stage: Stage, n: int = 1, queue: str = "", *, locked: bool = False, **fields: str) -> list[str]:
    """Jobs in active whose worker is gone: without a lock, unless `locked`."""
    ids = stage.add(n, queue=queue, **fields)
    keys = stage.keys[queue or stage.queues[0]]
    pipe = stage.client.pipeline()
    for job_id in ids:
        pipe.lmove(keys.key("wait"), keys.key("active"), "RIGHT", "LEFT")
        pipe.hset(keys.job(job_id), "ats", "1")
        if locked:
            pipe.set(keys.lock(job_id), "another:1", px=60_000)
    pipe.execute()
    return ids


def stalled(stage: Stage) -> set[str]:
    found = stage.client.smembers(stage.keys[stage.queues[0]].key("stalled"))
    return {member.decode() for member in found}


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


# --- loud, bounded ----------------------------------------------------------------------------------------------


async def test_a_sweep_that_fails_is_logged_counted_and_repeated(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """case C031"""
    key = stage.keys[stage.queues[0]].key("stalled")
    stage.client.delete(key)
    stage.client.set(key, "of a wrong type")
    (job_id,) = abandon(stage)
    await eventually_async(lambda: any(s.counters.get("sweep_errors") for s in stage.heard(Stats)))
    assert any(r.levelname == "ERROR" and stage.queues[0] in r.getMessage() for r in caplog.records)
    assert "WRONGTYPE" in caplog.text
    stage.client.delete(key)
    await eventually_async(lambda: stage.waiting() == [job_id])


async def test_twenty_thousand_orphans_are_swept_while_fetching_goes_on(
    server: Server, queue_name: str
) -> None:
    """case C035"""
    async with checker_on(server, group(queue_name, stalled_interval_ms=300)) as stage:
        abandon(stage, 20_000)
        keys = stage.keys[queue_name]
        stage.client.hset(
            keys.job("urgent"), mapping={"name": "n", "data": "{}", "opts": "{}", "priority": "1"}
        )
        stage.client.zadd(keys.key("prioritized"), {"urgent": 2**32})
        started = time.monotonic()
        taken = await stage.planes[queue_name].take(f"{uuid.uuid4()}:1")
        assert isinstance(taken, Taken)
        assert time.monotonic() - started < 5
        await eventually_async(lambda: stage.client.llen(keys.key("wait")) >= 19_999, within=30)
        assert stage.child.metrics.counters.get("sweep_errors", 0) == 0


async def test_probe_reports_candidates_and_touches_nothing(stage: Stage) -> None:
    """promise 4.11, 0.15, 2.4"""
    stage.tell(Quiet())
    await asyncio.sleep(2 * INTERVAL / 1000)
    kept = abandon(stage, 3, locked=True)
    assert await stage.child.probe(stage.queues[0]) == []
    (gone,) = abandon(stage)
    stage.count_scripts()
    before = stage.client.dump(stage.keys[stage.queues[0]].key("active"))
    assert await stage.child.probe(stage.queues[0]) == [gone]
    assert stage.client.dump(stage.keys[stage.queues[0]].key("active")) == before
    assert set(stage.active()) == {gone, *kept}
    log = [entry["command"].split()[0] for entry in stage.client.slowlog_get(-1)]
    assert log.count(b"LRANGE") == 1 + 1  # the probe's, and that of this test's own look
    assert log.count(b"EXISTS") == 1 + 4  # one for the slice, and one for each id since it was not whole


async def test_probe_asks_once_when_all_are_alive(stage: Stage) -> None:
    """promise 4.11"""
    stage.tell(Quiet())
    await asyncio.sleep(2 * INTERVAL / 1000)
    abandon(stage, 300, locked=True)
    stage.count_scripts()
    assert await stage.child.probe(stage.queues[0]) == []
    log = [entry["command"].split()[0] for entry in stage.client.slowlog_get(-1)]
    assert (log.count(b"LRANGE"), log.count(b"EXISTS")) == (1, 1)


# --- the patterns that this one replaces ----------------------------------------------------------------------------


class TwoTripChecker:
    """The non-atomic checker of other ports: reads, decides here, then writes. Shown to be wrong, not used."""

    def __init__(self, client: Any, base: str) -> None:
        self.client, self.base = client, base

    def find(self) -> list[str]:
        ids = [i.decode() for i in self.client.lrange(self.base + "active", 0, -1)]
        return [i for i in ids if not self.client.exists(f"{self.base}{i}:lock")]

    def put_back(self, ids: list[str]) -> None:
        for job_id in ids:
            count = int(self.client.hget(self.base + job_id, "stc") or 0)
            self.client.lrem(self.base + "active", 1, job_id)
            self.client.rpush(self.base + "wait", job_id)
            self.client.hset(self.base + job_id, "stc", count + 1)


async def test_two_round_trips_can_recover_a_job_twice_and_the_script_cannot(
    server: Server, queue_name: str
) -> None:
    """promise 2.19, 2.20, 2.23"""
    async with checker_on(server, group(queue_name), passing=False) as stage:
        (job_id,) = abandon(stage)
        one, two = (TwoTripChecker(stage.client, stage.keys[queue_name].base) for _ in range(2))
        first, second = one.find(), two.find()
        one.put_back(first)
        two.put_back(second)
        assert stage.waiting() == [job_id, job_id]
        keys = stage.keys[queue_name]
        stage.client.delete(keys.key("wait"), keys.job(job_id))

        (job_id,) = abandon(stage)
        plane = stage.planes[queue_name]
        assert await plane.sweep(1, 1) == []
        await asyncio.sleep(0.01)  # past the guard of 1 ms
        found = await asyncio.gather(*(plane.sweep(1, 1) for _ in range(20)))
        assert [job for ids in found for job in ids] == [job_id]
        assert stage.waiting() == [job_id]
        assert stage.field(job_id, "stc") == "1"


async def test_a_rule_by_time_is_wrong_both_ways_where_the_lease_is_right(
    server: Server, queue_name: str
) -> None:
    """promise 0.20, 2.24: ten minutes, scaled to 300 ms: slow but alive is reclaimed, young but dead is not."""
    async with checker_on(server, group(queue_name)) as stage:
        stage.add(1)
        slow = await stage.planes[queue_name].take(f"{uuid.uuid4()}:1")
        assert isinstance(slow, Taken)
        stage.client.pexpire(stage.keys[queue_name].lock(slow.job.id), 60_000)
        limit_ms, started = 300, now_ms()
        (dead,) = abandon(stage)
        died = now_ms()
        await eventually_async(lambda: dead in stage.waiting())
        by_time_dead = now_ms() - died >= limit_ms  # what the rule would say of the dead one by then
        await asyncio.sleep(max(0, limit_ms - (now_ms() - started)) / 1000)
        by_time_slow = now_ms() - started >= limit_ms
        assert by_time_slow  # the rule by time would have run it a second time
        assert stage.active() == [slow.job.id]  # the lease rule leaves it
        assert not by_time_dead or now_ms() - died < LEASE


async def test_random_sweeps_renewals_and_ends_never_double_a_job(
    valkey_server: Server, queue_name: str
) -> None:
    """promise 2.1, 2.20, 2.21: a small dose of interleavings."""
    rng = random.Random(7)
    async with checker_on(valkey_server, group(queue_name), passing=False) as stage:
        plane = stage.planes[queue_name]
        ids = stage.add(30)
        held: dict[str, Taken] = {}

        async def step() -> None:
            what = rng.choice(["take", "take", "sweep", "sweep", "die", "finish", "extend"])
            if what == "take":
                found = await plane.take(f"{uuid.uuid4()}:1")
                if isinstance(found, Taken):
                    held[found.job.id] = found
            elif what == "sweep":
                await plane.sweep(10_000, 1)
                await asyncio.sleep(0.002)
            elif held:
                job_id = rng.choice(sorted(held))
                taken = held[job_id]
                if what == "die":
                    stage.client.delete(stage.keys[queue_name].lock(job_id))
                    del held[job_id]
                elif what == "finish":
                    await plane.complete(taken.job, taken.token, b"1")
                    del held[job_id]
                else:
                    assert await plane.extend([(job_id, taken.token)]) == []

        for _ in range(600):
            await step()
            places = stage.waiting() + stage.active()
            assert len(places) == len(set(places))
        done = stage.client.zrange(stage.keys[queue_name].key("completed"), 0, -1)
        assert sorted([*stage.waiting(), *stage.active(), *(i.decode() for i in done)]) == sorted(ids)


async def test_a_settled_frame_lost_with_a_worker_is_no_stall(server: Server, queue_name: str) -> None:
    """case C036: a job in completed never becomes stalled, whatever was marked before."""
    async with checker_on(server, group(queue_name)) as stage:
        stage.add()
        token = f"{uuid.uuid4()}:1"
        taken = await stage.planes[queue_name].take(token)
        assert isinstance(taken, Taken)
        await eventually_async(lambda: stalled(stage) == {taken.job.id})
        await stage.planes[queue_name].complete(taken.job, token, b"1")
        await after_sweeps(stage, 3)
        assert stage.waiting() == []
        assert stage.client.zcard(stage.keys[queue_name].key("completed")) == 1
