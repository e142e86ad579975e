# SPDX-License-Identifier: MIT
"""The two-phase sweep and the probe, through the plane."""

from __future__ import annotations

import asyncio

import pytest

from echomq_pool.plane.base import Taken
from tests.support.planes import Bench, bench_on
from tests.support.servers import Server
from tests.support.wire import Wire

STANDARD = "job stalled more than allowable limit"


def again(bench: Bench) -> None:
    """The guard key holds a second sweep back for an interval; this ends the interval."""
    bench.client.delete(bench.keys.key("stalled-check"))


async def test_only_the_second_sweep_recovers(bench: Bench, wire: Wire) -> None:
    """promise 2.11, 2.12, 2.13, 2.16, 4.12"""
    wire.add("dead")
    wire.add("next")
    taken = await bench.taken()
    bench.lose_lock(taken.job.id)
    assert await bench.plane.sweep() == []
    assert bench.get("active") == ["dead"]
    assert bench.get("stalled") == ["dead"]
    again(bench)
    assert await bench.plane.sweep() == ["dead"]
    assert bench.get("wait") == ["next", "dead"], "the front of the line is the right end"
    assert bench.get("events")[-2:] == ["waiting jobId=dead prev=active", "stalled jobId=dead"]


async def test_of_many_in_flight_only_the_lockless_come_back(bench: Bench, wire: Wire) -> None:
    """promise 2.4, 2.5, 2.6, 0.14, 0.15, 0.24"""
    for n in range(10):
        wire.add(f"j{n}")
    for _ in range(10):
        await bench.taken()
    dead = ["j2", "j5", "j9"]
    for job_id in dead:
        bench.lose_lock(job_id)
    assert sorted(await bench.plane.probe()) == dead
    await bench.plane.sweep()
    again(bench)
    assert sorted(await bench.plane.sweep()) == dead
    assert sorted(bench.get("active")) == sorted(f"j{n}" for n in range(10) if f"j{n}" not in dead)


async def test_a_mark_is_gone_with_a_renewal(bench: Bench, wire: Wire) -> None:
    """promise 2.14, 4.10"""
    wire.add()
    taken = await bench.taken()
    await bench.plane.sweep()
    await bench.plane.extend([(taken.job.id, taken.token)])
    assert bench.get("stalled") is None
    bench.lose_lock(taken.job.id)
    again(bench)
    assert await bench.plane.sweep() == [], "the mark of the sweep before was taken back"


async def test_the_guard_stops_a_second_sweep_inside_the_interval(bench: Bench, wire: Wire) -> None:
    """promise 4.13"""
    wire.add()
    taken = await bench.taken()
    await bench.plane.sweep(1, 60_000)
    assert 59_000 < bench.client.pttl(bench.keys.key("stalled-check")) <= 60_000
    bench.lose_lock(taken.job.id)
    assert await bench.plane.sweep(1, 60_000) == []
    assert await bench.plane.sweep(1, 60_000) == []
    assert bench.get("active") == [taken.job.id]


@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_past_the_limit_a_job_fails_with_the_standard_reason(
    server: Server, queue_name: str, limit: int
) -> None:
    """promise 2.15, 2.17, 2.18, 4.14"""
    async with bench_on(server, queue_name) as bench:
        Wire(bench.client, queue_name).add("poison", attempts=5)
        stalls = 0
        while True:
            taken = await bench.taken()
            if taken.job.defa:
                break
            bench.lose_lock("poison")
            again(bench)
            await bench.plane.sweep(limit)
            again(bench)
            await bench.plane.sweep(limit)
            stalls += 1
        assert stalls == limit + 1
        assert (taken.job.defa, taken.job.stc, taken.job.atm) == (STANDARD, limit + 1, 0)
        await bench.plane.fail(taken.job, taken.token, taken.job.defa, [])
        assert await bench.plane.state("poison") == "failed"
        assert bench.get("poison")["failedReason"] == STANDARD
        assert "defa" not in bench.get("poison")


async def test_sweeps_at_the_same_time_recover_each_job_once(bench: Bench, wire: Wire) -> None:
    """promise 2.20, 2.21, 2.22"""
    for n in range(30):
        wire.add(f"j{n}")
    for _ in range(30):
        bench.lose_lock((await bench.taken()).job.id)
    await bench.plane.sweep(5, 1)
    again(bench)
    bench.link.log.clear()
    found = await asyncio.gather(*(bench.plane.sweep(5, 1) for _ in range(20)))
    recovered = [job_id for ids in found for job_id in ids]
    assert sorted(recovered) == sorted(f"j{n}" for n in range(30))
    assert sorted(bench.get("wait")) == sorted(recovered)
    assert set(bench.link.log) == {"moveStalledJobsToWait"}, "nothing is read and written back by the client"
    assert {bench.get(job_id)["stc"] for job_id in recovered} == {"1"}


async def test_the_probe_reads_the_list_once_and_asks_one_question_when_all_are_alive(
    bench: Bench, wire: Wire
) -> None:
    """promise 4.11, 0.14"""
    for _ in range(5):
        wire.add()
    taken: list[Taken] = [await bench.taken() for _ in range(5)]
    bench.link.log.clear()
    assert await bench.plane.probe() == []
    assert bench.link.log == ["LRANGE", "EXISTS"]
    bench.lose_lock(taken[1].job.id)
    before = bench.dump()
    bench.link.log.clear()
    assert await bench.plane.probe() == [taken[1].job.id]
    assert bench.link.log == ["LRANGE", "EXISTS"] + ["EXISTS"] * 5
    assert bench.dump() == before, "a probe touches nothing"


async def test_a_probe_of_an_empty_queue_asks_for_nothing_more(bench: Bench) -> None:
    bench.link.log.clear()
    assert await bench.plane.probe() == []
    assert bench.link.log == ["LRANGE"]
