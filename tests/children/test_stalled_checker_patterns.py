# SPDX-License-Identifier: MIT
"""The sweep is loud and bounded, the probe only reads; and what is wrong with the patterns they replace."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.ipc.messages import Quiet, Stats
from echomq_pool.plane.base import Taken
from tests.children.stage import Stage, group
from tests.children.sweeping import INTERVAL, abandon, after_sweeps, checker_on, stalled
from tests.support.servers import Server
from tests.support.waiting import eventually_async


@pytest.fixture
async def stage(server: Server, queue_name: str) -> AsyncIterator[Stage]:
    async with checker_on(server, group(queue_name)) as stage:
        yield stage


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


class TimeoutReaper:
    """The rule by time that leases replace: whatever runs longer than the limit goes back. Not used either."""

    def __init__(self, client: Any, base: str, limit_ms: int) -> None:
        self.client, self.base, self.limit_ms = client, base, limit_ms

    def find(self) -> list[str]:
        ids = [i.decode() for i in self.client.lrange(self.base + "active", 0, -1)]
        since = SYSTEM_CLOCK.now_ms() - self.limit_ms
        return [i for i in ids if int(self.client.hget(self.base + i, "processedOn") or 0) <= since]


async def test_a_rule_by_time_is_wrong_both_ways_where_the_lease_is_right(
    server: Server, queue_name: str
) -> None:
    """promise 0.20, 2.24: ten minutes, scaled to 5 s. Slow but alive is reclaimed by time and left by the lease;
    young but dead is left by time and recovered by the lease."""
    async with checker_on(server, group(queue_name)) as stage:
        keys = stage.keys[queue_name]
        reaper = TimeoutReaper(stage.client, keys.base, 5_000)
        (slow,) = abandon(stage, locked=True, processedOn=str(SYSTEM_CLOCK.now_ms() - 60_000))
        (dead,) = abandon(stage, processedOn=str(SYSTEM_CLOCK.now_ms()))
        assert reaper.find() == [slow]
        await eventually_async(lambda: stage.waiting() == [dead], within=4.5)
        await after_sweeps(stage, 2)
        assert stage.active() == [slow]
        assert stage.field(slow, "stc") is None


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
