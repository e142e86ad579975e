# SPDX-License-Identifier: MIT
"""Repeats fire once, on the server's clock; and whoever is parked hears of work."""

from __future__ import annotations

import asyncio
import time

import pytest

from echomq_pool.clock import FakeClock
from echomq_pool.errors import InputError
from echomq_pool.plane.base import Nothing
from echomq_pool.plane.lease_repeat import Repeats
from tests.support.lease import GROUPS, LeaseBench

DAY_MS = 86_400_000


def at(bench: LeaseBench, name: str, ms: float | None = None) -> float:
    """When a repeat fires next; sets it first when `ms` is given."""
    key = bench.keys.key("repeat")
    if ms is not None:
        bench.client.zadd(key, {name: ms})
    return float(bench.client.zscore(key, name))


async def test_two_pumps_at_once_fire_an_occurrence_once(bench: LeaseBench) -> None:
    """In the sources, where the clock is the client's and the steps are two, it fires twice."""
    await bench.repeats.register("tick", 60_000, "{}")
    pumps = [bench.other("").repeats for _ in range(6)]
    fired = await asyncio.gather(*(pump.pump() for pump in pumps))
    assert sum(fired) == 1
    assert await bench.queue.pending_size() == 1


async def test_a_pump_that_read_before_another_fired_does_nothing(bench: LeaseBench) -> None:
    """law 6"""
    await bench.repeats.register("tick", 60_000, "{}")
    (due,) = await bench.repeats.due()
    assert await bench.repeats.fire(due) is not None
    assert await bench.repeats.fire(due) is None
    assert await bench.repeats.due() == []
    assert await bench.queue.pending_size() == 1


async def test_missed_periods_are_skipped_and_the_grid_is_kept(bench: LeaseBench) -> None:
    await bench.repeats.register("tick", 1_000, "{}")
    start = bench.now_ms() - 10_500
    at(bench, "tick", start)
    assert await bench.repeats.pump() == 1
    following = at(bench, "tick")
    assert bench.now_ms() - 1_000 < following <= bench.now_ms() + 1_000
    assert (following - start) % 1_000 == 0
    assert await bench.queue.pending_size() == 1


@pytest.mark.parametrize("skew_ms", [-DAY_MS, DAY_MS])
async def test_the_pumps_own_clock_decides_nothing(bench: LeaseBench, skew_ms: int) -> None:
    """law 7"""
    repeats = Repeats(bench.plane._desk, FakeClock(bench.now_ms() + skew_ms))
    await repeats.register("later", 60_000, "{}", first_in_ms=60_000)
    before = bench.now_ms()
    assert before + 59_000 < at(bench, "later") <= bench.now_ms() + 60_000
    assert await repeats.pump() == 0
    at(bench, "later", 1)
    assert await repeats.pump() == 1


async def test_a_repeat_that_is_cancelled_is_gone(bench: LeaseBench) -> None:
    await bench.repeats.register("tick", 60_000, "{}")
    (due,) = await bench.repeats.due()
    assert await bench.repeats.count() == 1
    assert await bench.repeats.cancel("tick") == "cancelled"
    assert await bench.repeats.cancel("tick") == "absent"
    assert await bench.repeats.fire(due) is None
    assert bench.dump() == {}


async def test_a_member_without_its_record_is_removed(bench: LeaseBench) -> None:
    at_ms = bench.now_ms() - 1
    bench.client.zadd(bench.keys.key("repeat"), {"ghost": at_ms})
    assert await bench.repeats.pump() == 0
    assert bench.dump() == {}


async def test_a_taken_id_does_not_cost_the_occurrence(bench: LeaseBench) -> None:
    await bench.repeats.register("tick", 60_000, "{}")
    (due,) = await bench.repeats.due()
    taken = await bench.add("other")
    assert await bench.repeats.fire(due, taken) is None
    assert bench.row(taken)["payload"] == "other"
    assert await bench.repeats.pump() == 1


async def test_a_pattern_fires_at_its_times(bench: LeaseBench) -> None:
    now_ms = time.time_ns() // 1_000_000
    registered = await bench.repeats.register_cron(
        "hourly", "0 0 * * * *", '{"h":1}', now_ms=now_ms, tz="Europe/Berlin", job_name="report", opts={"attempts": 3}
    )  # fmt: skip
    assert registered == "registered"
    first = at(bench, "hourly")
    assert first % 3_600_000 == 0
    assert 0 < first - now_ms <= 3_600_000
    at(bench, "hourly", 1)
    assert await bench.repeats.pump() == 1
    assert at(bench, "hourly") % 3_600_000 == 0
    assert at(bench, "hourly") > bench.now_ms()
    job = (await bench.taken()).job
    assert (job.name, job.attempts, job.rjk, job.data) == ("report", 3, "hourly", b'{"h":1}')


async def test_what_cannot_repeat_is_refused(bench: LeaseBench) -> None:
    """law 13"""
    for every in (0, -5):
        with pytest.raises(InputError):
            await bench.repeats.register("tick", every, "{}")
    with pytest.raises(InputError):
        await bench.repeats.register("", 1_000, "{}")
    with pytest.raises(InputError):
        await bench.repeats.register_cron("x", "not a pattern", "{}", now_ms=0)
    assert bench.dump() == {}


# --- wakes ------------------------------------------------------------------------------------------------


def tokens(bench: LeaseBench) -> int:
    return int(bench.client.llen(bench.keys.key("wake")))


async def test_a_flat_job_wakes_one_who_is_parked(bench: LeaseBench) -> None:
    """In the sources only lanes do."""
    for _ in range(5):
        await bench.add()
    assert tokens(bench) == 1, "one token, however many jobs"
    bench.client.delete(bench.keys.key("wake"))
    await bench.add()
    assert tokens(bench) == 1, "the last one was taken by somebody who woke: the next job wakes another"


async def test_whoever_leaves_work_behind_passes_the_token_on(bench: LeaseBench) -> None:
    await bench.add_many(3)
    bench.client.delete(bench.keys.key("wake"))
    await bench.taken()
    assert tokens(bench) == 1
    bench.client.delete(bench.keys.key("wake"))
    await bench.plane.take_batch(bench.token(), 5)
    assert tokens(bench) == 0


@pytest.mark.parametrize("how", ["promote", "reap", "sweep", "retry", "release", "recover", "resume"])
async def test_everything_that_makes_work_wakes(bench: LeaseBench, how: str) -> None:
    job_id = await bench.add()
    taken = await bench.taken()
    plane = bench.plane
    if how == "promote":
        await plane.delay(taken.job, taken.token, 0)
    if how in ("reap", "sweep"):
        bench.lapse(job_id)
    bench.client.delete(bench.keys.key("wake"))
    if how == "promote":
        assert await bench.queue.promote() == 1
    elif how == "reap":
        await bench.queue.reap()
    elif how == "sweep":
        await plane.sweep()
    elif how == "retry":
        await plane.retry(taken.job, taken.token, "no", [])
    elif how == "release":
        await plane.release(taken.job, taken.token)
    elif how == "recover":
        await plane.recover(bench.owner, planned=True)
    else:
        await bench.queue.pause()
        await bench.queue.resume()
    assert tokens(bench) == 1


async def test_room_under_the_ceiling_wakes_whoever_waits_for_it(bench: LeaseBench) -> None:
    bench.client.hset(bench.keys.key("meta"), "concurrency", 1)
    await bench.add_many(2)
    taken = await bench.taken()
    assert isinstance(await bench.plane.take(bench.token()), Nothing)
    bench.client.delete(bench.keys.key("wake"))
    await bench.plane.complete(taken.job, taken.token, b"1")
    assert tokens(bench) == 1


async def test_the_tokens_never_pile_up(bench: LeaseBench) -> None:
    groups = [f"PRT0NgWEfAE{n:03d}" for n in range(100)]
    for group in groups:
        await bench.add_to(group)
    assert tokens(bench) == 64
    assert len(bench.get("ring")) == 100


async def test_lanes_at_their_ceiling_do_not_hide_the_flat_jobs(bench: LeaseBench) -> None:
    for _ in range(3):
        await bench.add_to(GROUPS[0])
    await bench.lanes.limit(GROUPS[0], 1)
    flat = await bench.add()
    got = await bench.plane.take_batch(bench.token(), 5)
    assert isinstance(got, list)
    assert [t.job.opts.get("group", "") for t in got] == [GROUPS[0], ""]
    assert got[1].job.id == flat
