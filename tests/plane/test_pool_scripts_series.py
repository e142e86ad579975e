# SPDX-License-Identifier: MIT
"""Series of jobs: advancing as a worker does, and repairing what was lost."""

from __future__ import annotations

from typing import Any

import pytest

from echomq_pool.api.repeats import check_repeat
from echomq_pool.plane import scheduling
from echomq_pool.plane.base import Taken
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.schedule import SchedulerRecord, every_next, next_occurrence, pattern_next
from tests.support.planes import LIBRARY, Bench
from tests.support.wire import Wire

HOUR = 3_600_000
NOW = 1_800_000_000_000  # a Friday, 08:00 UTC


async def upsert(bench: Bench, scheduler_id: str, now: int, *, opts: Any = None, **rule: Any) -> Any:
    repeat = check_repeat(**rule)
    due, next_ms = repeat.first(now)
    assert due
    call = scheduling.upsert(
        bench.keys, scheduler_id, "n", b'{"t":1}', opts or {}, repeat.wire(), next_ms, now
    )
    return await bench.link.script(LIBRARY[call.script], call.keys, call.args)


async def record(bench: Bench, scheduler_id: str) -> SchedulerRecord | None:
    call = scheduling.get(bench.keys, scheduler_id)
    reply = await bench.link.script(LIBRARY[call.script], call.keys, call.args)
    return SchedulerRecord.from_reply(scheduler_id, reply)


async def repair(bench: Bench, scheduler_id: str, now: int) -> tuple[str, str]:
    found = await record(bench, scheduler_id)
    if found is None:
        return "gone", ""
    call = scheduling.repair(bench.keys, found, now)
    if call is None:
        return "ended", ""
    what, job_id = await bench.link.script(LIBRARY[call.script], call.keys, call.args)
    return what.decode(), job_id.decode()


def forget(bench: Bench, job_id: str) -> None:
    """The job is nowhere any more, as after a careless clean-up."""
    for key in ("wait", "active", "paused"):
        bench.client.lrem(bench.keys.key(key), 0, job_id)
    for key in ("delayed", "prioritized", "completed", "failed"):
        bench.client.zrem(bench.keys.key(key), job_id)
    bench.client.delete(bench.keys.job(job_id), bench.keys.lock(job_id))


# --- when (promise 4.16, 4.17) ------------------------------------------------------------------------

EVERY = [
    # prev, every, now, offset, start → next, offset
    ((None, 10_000, 1_424_818, 0, 0), (1_424_818, 4_818)),
    ((None, 10_000, 1_424_866, 2_500, 0), (1_432_500, 2_500)),
    ((None, 10_000, 1_421_000, 2_500, 0), (1_422_500, 2_500)),
    ((None, 10_000, 1_000, 0, 5_000), (5_000, 5_000)),
    ((None, 10_000, 9_000, 0, 5_000), (9_000, 9_000)),
    ((100_000, 10_000, 105_000, 0, 0), (110_000, 0)),
    ((100_000, 10_000, 155_000, 0, 0), (160_000, 0)),
    ((104_818, 10_000, 155_000, 4_818, 0), (164_818, 4_818)),
]


@pytest.mark.parametrize(("args", "expected"), EVERY)
def test_every_runs_on_a_grid_and_skips_what_was_missed(
    args: tuple[Any, ...], expected: tuple[int, int]
) -> None:
    """promise 4.16"""
    assert every_next(*args) == expected


def test_a_pattern_runs_in_its_zone_over_a_change_of_the_clock() -> None:
    """promise 4.17"""
    spring = 1_806_188_400_000  # 2027-03-28 00:00 in Berlin; 02:00 to 03:00 does not exist
    assert pattern_next("0 12 * * *", "Europe/Berlin", spring) == spring + 11 * HOUR
    assert pattern_next("0 12 * * *", "UTC", spring) == spring + 13 * HOUR


def test_limit_and_end_stop_a_series() -> None:
    """promise 4.16"""
    keys = QueueKeys("emq", "q")
    opts = {"repeat": {"every": 1_000, "count": 2, "limit": 3}}
    following = next_occurrence(keys, "s", opts, NOW)
    assert following is not None
    assert following.opts["repeat"]["count"] == 3
    assert next_occurrence(keys, "s", following.opts, NOW) is None
    assert next_occurrence(keys, "s", {"repeat": {"every": 1, "endDate": NOW - 1}}, NOW) is None
    assert next_occurrence(keys, "s", {"repeat": {"pattern": "0 0 1 1 *", "endDate": NOW + 1}}, NOW) is None


# --- advancing, as the taker does it -----------------------------------------------------------------------


async def test_the_taker_makes_the_next_job_before_it_runs_this_one(bench: Bench) -> None:
    """promise 4.16"""
    await upsert(bench, "s", NOW, every=HOUR, opts={"attempts": 3, "removeOnComplete": True})
    taken = await bench.taken()
    made = await bench.plane.produce_next(taken.job)
    assert made is not None
    following = await bench.plane.load(made)
    assert following is not None
    assert (following.name, following.data, following.rjk) == ("n", b'{"t":1}', "s")
    assert following.opts["attempts"] == 3, "the template's options travel from job to job"
    assert following.opts["repeat"] == {"every": HOUR, "count": 2}
    assert await bench.plane.state(made) == "delayed"


async def test_a_retried_job_does_not_advance_its_series_again(bench: Bench) -> None:
    """promise 4.16"""
    await upsert(bench, "s", NOW, every=HOUR, opts={"attempts": 3})
    taken = await bench.taken()
    assert await bench.plane.produce_next(taken.job) is not None
    await bench.plane.retry(taken.job, taken.token, "no", [])
    again = await bench.taken()
    assert again.job.id == taken.job.id
    assert await bench.plane.produce_next(again.job) is None


async def test_an_ordinary_job_has_no_successor(bench: Bench, wire: Wire) -> None:
    wire.add()
    assert await bench.plane.produce_next((await bench.taken()).job) is None


async def test_a_pattern_advances_from_its_own_slot(bench: Bench) -> None:
    """promise 4.17"""
    await upsert(bench, "s", NOW, pattern="0 3 * * *", tz="Europe/Berlin", immediately=True)
    taken = await bench.taken()
    made = await bench.plane.produce_next(taken.job)
    found = await record(bench, "s")
    assert found is not None
    assert made == f"repeat:s:{found.next_ms}"
    assert found.iterations == 2


# --- repair ------------------------------------------------------------------------------------------------


async def test_a_healthy_series_is_left_alone(bench: Bench) -> None:
    job_id, _ = await upsert(bench, "s", NOW, every=HOUR)
    for place in ("wait", "active"):
        before = bench.dump()
        assert await repair(bench, "s", NOW) == ("alive", job_id.decode()), place
        assert bench.dump() == before
        if place == "wait":
            assert isinstance(await bench.plane.take(bench.token()), Taken)


async def test_a_missing_job_that_is_still_to_come_is_made_again_in_its_slot(bench: Bench) -> None:
    await upsert(bench, "s", NOW, every=HOUR)
    taken = await bench.taken()
    made = await bench.plane.produce_next(taken.job)
    assert made is not None
    before = await bench.plane.load(made)
    slot = int(made.rpartition(":")[2])
    forget(bench, made)
    assert await repair(bench, "s", slot - HOUR) == ("made", made)
    assert await bench.plane.state(made) == "delayed"
    after = await bench.plane.load(made)
    assert before is not None
    assert after is not None
    assert (after.name, after.data, after.rjk) == (before.name, before.data, before.rjk)
    assert after.opts["repeat"] == before.opts["repeat"]
    assert await repair(bench, "s", slot - HOUR) == ("alive", made)


async def test_a_missing_job_whose_time_is_past_is_followed_by_the_next_of_the_grid(bench: Bench) -> None:
    job_id, _ = await upsert(bench, "s", NOW, every=HOUR)
    forget(bench, job_id.decode())
    slot = NOW + 3 * HOUR
    assert await repair(bench, "s", NOW + 2 * HOUR + 1) == ("made", f"repeat:s:{slot}")
    found = await record(bench, "s")
    assert found is not None
    assert (found.next_ms, found.iterations) == (slot, 2)


async def test_a_pattern_is_repaired_too(bench: Bench) -> None:
    job_id, _ = await upsert(bench, "s", NOW, pattern="0 * * * *", tz="UTC")
    forget(bench, job_id.decode())
    what, made = await repair(bench, "s", NOW + 90 * 60_000)
    assert (what, made) == ("made", f"repeat:s:{NOW + 2 * HOUR}")
    assert bench.get(made)["rjk"] == "s"


async def test_a_series_that_moved_on_meanwhile_is_left_alone(bench: Bench) -> None:
    job_id, _ = await upsert(bench, "s", NOW, every=HOUR)
    old = await record(bench, "s")
    assert old is not None
    forget(bench, job_id.decode())
    assert (await repair(bench, "s", NOW + 1))[0] == "made"
    call = scheduling.repair(bench.keys, old, NOW + 1)
    assert call is not None
    before = bench.dump()
    what, _ = await bench.link.script(LIBRARY[call.script], call.keys, call.args)
    assert what == b"moved"
    assert bench.dump() == before


async def test_a_series_past_its_limit_is_over_and_not_damaged(bench: Bench) -> None:
    job_id, _ = await upsert(bench, "s", NOW, every=HOUR, limit=1)
    forget(bench, job_id.decode())
    assert await repair(bench, "s", NOW + 1) == ("ended", "")
    assert await repair(bench, "unknown", NOW) == ("gone", "")


async def test_a_finished_job_that_did_not_advance_its_series_is_followed(bench: Bench) -> None:
    """A worker of another kind died between the take and the next occurrence, and the job was settled."""
    await upsert(bench, "s", NOW, every=HOUR)
    taken = await bench.taken()
    await bench.plane.complete(taken.job, taken.token, b"1")
    what, made = await repair(bench, "s", NOW + 1)
    assert (what, made) == ("made", f"repeat:s:{NOW + HOUR}")
