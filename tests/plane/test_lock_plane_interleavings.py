# SPDX-License-Identifier: MIT
"""Why recovery is one script: a checker in two steps doubles jobs, the script does not, whatever comes between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from echomq_pool.errors import LeaseLost
from echomq_pool.plane.base import HeldRow, Recovery, Taken
from tests.support.planes import Bench
from tests.support.wire import Wire


class NaiveChecker:
    """The checker that the script replaces: it looks, decides on the client, then writes. For comparison only."""

    def __init__(self, bench: Bench) -> None:
        self.client, self.keys = bench.client, bench.keys

    def steps(self) -> Iterator[list[str]]:
        """Yields between its round trips, so that two of them can be made to overlap."""
        active = [i.decode() for i in self.client.lrange(self.keys.key("active"), 0, -1)]
        stalled = [i for i in active if not self.client.exists(self.keys.lock(i))]
        yield stalled
        for job_id in stalled:
            count = int(self.client.hget(self.keys.job(job_id), "stc") or 0)
            self.client.hset(self.keys.job(job_id), "stc", count + 1)
            self.client.lrem(self.keys.key("active"), 1, job_id)
            self.client.rpush(self.keys.key("wait"), job_id)
        yield stalled


async def test_two_overlapping_checkers_in_two_steps_double_a_job(bench: Bench, wire: Wire) -> None:
    """promise 2.19, 2.23"""
    wire.add("dead")
    bench.lose_lock((await bench.taken()).job.id)
    first, second = NaiveChecker(bench).steps(), NaiveChecker(bench).steps()
    next(first), next(second)
    next(first), next(second)
    assert bench.get("wait") == ["dead", "dead"], "one job would run twice"
    assert bench.get("dead")["stc"] == "2", "and one stall counts as two"


async def test_the_script_recovers_it_once_in_the_same_schedule(bench: Bench, wire: Wire) -> None:
    """promise 2.20"""
    wire.add("dead")
    bench.lose_lock((await bench.taken()).job.id)
    await bench.plane.sweep(5, 1)
    for _ in range(2):
        bench.client.delete(bench.keys.key("stalled-check"))
        await bench.plane.sweep(5, 1)
    assert bench.get("wait") == ["dead"]
    assert bench.get("dead")["stc"] == "1"


class Storm:
    """Random steps of workers that live, lapse and die, with sweeps and recoveries in between."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.held: list[Taken] = []
        self.ids = [f"j{n}" for n in range(6)]
        self.recoveries: Counter[str] = Counter()
        self.done: set[str] = set()

    async def step(self) -> None:
        await self.random.choice(
            (self.take, self.lapse, self.sweep, self.renew, self.settle, self.die, self.back)
        )()

    async def take(self) -> None:
        found = await self.bench.plane.take(self.bench.token())
        if isinstance(found, Taken):
            self.held.append(found)

    async def lapse(self) -> None:
        if self.held:
            self.bench.client.delete(self.bench.keys.lock(self.random.choice(self.held).job.id))

    async def sweep(self) -> None:
        self.bench.client.delete(self.bench.keys.key("stalled-check"))
        self.recoveries.update(await self.bench.plane.sweep(1_000, 1))

    async def renew(self) -> None:
        await self.bench.plane.extend([(taken.job.id, taken.token) for taken in self.held])

    async def back(self) -> None:
        await self.bench.plane.reacquire([HeldRow(t.job.id, t.token, t.job.ats) for t in self.held])

    async def settle(self) -> None:
        """Completes or retries one; whoever holds a stale token is refused."""
        if not self.held:
            return
        taken = self.held.pop(self.random.randrange(len(self.held)))
        try:
            if self.random.random() < 0.3:
                await self.bench.plane.complete(taken.job, taken.token, b"1")
                assert taken.job.id not in self.done, "settled twice"
                self.done.add(taken.job.id)
            else:
                await self.bench.plane.retry(taken.job, taken.token, "no", [])
        except LeaseLost:
            pass

    async def die(self) -> None:
        rows = [HeldRow(taken.job.id, taken.token, taken.job.ats) for taken in self.held]
        found: list[Recovery] = await self.bench.plane.recover(self.bench.owner, rows, planned=False)
        self.recoveries.update(recovery.id for recovery in found)
        self.held.clear()

    def check(self) -> None:
        """No job lost, none in two places, no stall counted twice."""
        dump = self.bench.dump()
        places = Counter([*dump.get("wait", []), *dump.get("active", []), *dump.get("completed", {})])
        assert places == Counter(self.ids)
        assert {i: int(dump[i].get("stc", 0)) for i in self.ids} == {i: self.recoveries[i] for i in self.ids}


@pytest.mark.parametrize("seed", range(8))
async def test_no_interleaving_loses_doubles_or_miscounts_a_job(bench: Bench, wire: Wire, seed: int) -> None:
    """promise 2.1, 2.20, 2.21, law 5, law 9"""
    storm = Storm(bench, seed)
    for job_id in storm.ids:
        wire.add(job_id, attempts=1_000_000)
    for _ in range(200):
        await storm.step()
        storm.check()
