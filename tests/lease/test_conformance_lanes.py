# SPDX-License-Identifier: MIT
"""Conformance scenarios 44 to 46, 60, 61 and 68 to 70: lanes."""

from __future__ import annotations

from collections import Counter

import pytest

from echomq_pool.errors import JobMissing
from tests.support.lease import GROUPS, LeaseBench

A, B, C = GROUPS


async def test_reassign_moves_a_waiting_job(bench: LeaseBench) -> None:
    """scenario 44 reassign"""
    first = await bench.add_to(A)
    await bench.lanes.limit(B, 1)
    assert await bench.lanes.reassign(first, B) == "moved"
    assert bench.get(f"g:{B}:pending") == {first: 0}
    assert bench.row(first)["group"] == B
    assert bench.get("ring") == [B], "the emptied lane has left the ring"
    assert await bench.lanes.reassign(first, B) == "noop"
    await bench.lanes.claim()
    assert bench.get("gactive") == {B: "1"}
    assert await bench.lanes.reassign(first, C) == "not_pending"
    try:
        await bench.lanes.reassign(bench.mint.new(), A)
    except JobMissing:
        return
    raise AssertionError("a missing job was moved")


async def test_lane_drain_empties_one_lane_only(bench: LeaseBench) -> None:
    """scenario 45 lane_drain"""
    ids = [await bench.add_to(A) for _ in range(3)]
    await bench.add_to(B)
    await bench.repeats.register("tick", 1_000, "{}")
    await bench.lanes.claim()
    assert await bench.lanes.drain(A) == 2
    assert await bench.lanes.depth(A) == 0
    assert await bench.lanes.depth(B) == 1
    assert await bench.queue.get_job_state(ids[0]) == "active"
    assert bench.get("gactive") == {A: "1"}
    assert bench.get("ring") == [B]
    assert await bench.repeats.count() == 1


async def test_reap_group_takes_only_its_own(bench: LeaseBench) -> None:
    """scenario 46 reap_group"""
    ids = [await bench.add_to(group) for group in (A, B)]
    ids.append(await bench.add())
    for _ in range(2):
        await bench.lanes.claim()
    await bench.claimed()
    bench.lapse(*ids)
    assert await bench.lanes.reap(A) == 1
    assert set(bench.get("active")) == set(ids[1:])
    assert (await bench.lanes.claim() or ("",))[0] == ids[0]


async def test_weighted_proportion(bench: LeaseBench) -> None:
    """scenario 60 weighted_proportion"""
    for _ in range(40):
        await bench.add_to(A)
        await bench.add_to(B)
    await bench.lanes.weight(A, 3)
    served: Counter[str] = Counter()
    for _ in range(10):
        jobs = await bench.lanes.claim_weighted()
        assert len({group for *_, group in jobs}) == 1
        served.update(group for *_, group in jobs)
    assert served == {A: 15, B: 5}


async def test_weighted_proportion_of_a_workers_takes(bench: LeaseBench) -> None:
    for _ in range(40):
        await bench.add_to(A)
        await bench.add_to(B)
    await bench.lanes.weight(A, 3)
    got = await bench.plane.take_batch(bench.token(), 20)
    assert isinstance(got, list)
    assert Counter(t.job.opts["group"] for t in got) == {A: 15, B: 5}


@pytest.mark.parametrize("slots", [1, 2, 4, 7])
async def test_weights_hold_however_few_slots_a_take_has(bench: LeaseBench, slots: int) -> None:
    """A turn that a take could not finish is gone on with by the next one."""
    for _ in range(60):
        await bench.add_to(A)
        await bench.add_to(B)
    await bench.lanes.weight(A, 3)
    groups: list[str] = []
    while len(groups) < 56:
        got = await bench.plane.take_batch(bench.token(), slots)
        assert isinstance(got, list)
        groups += [t.job.opts["group"] for t in got]
    assert groups[:56] == [A, A, A, B] * 14


async def test_a_turn_ends_with_its_lane(bench: LeaseBench) -> None:
    await bench.lanes.weight(A, 3)
    await bench.add_to(A)
    await bench.add_to(A)
    for _ in range(2):
        await bench.add_to(B)
        assert isinstance(await bench.plane.take_batch(bench.token(), 1), list)
    assert bench.get("gturn") is None, "it is empty"
    assert [row["group"] for row in bench.dump().values() if row_is_active(row)] == [A, A]


def row_is_active(value: object) -> bool:
    return isinstance(value, dict) and value.get("state") == "active"


async def test_starvation_drill_every_lane_drains_under_skew(bench: LeaseBench) -> None:
    """scenario 61 starvation_drill"""
    for group, count in ((A, 60), (B, 3), (C, 1)):
        for _ in range(count):
            await bench.add_to(group)
    served = []
    while (found := await bench.lanes.claim()) is not None:
        served.append(found[3])
        await bench.queue.complete(found[0], found[2])
    assert Counter(served) == {A: 60, B: 3, C: 1}
    assert max(i for i, group in enumerate(served) if group != A) < 12


async def test_grouped_batch_affinity(bench: LeaseBench) -> None:
    """scenario 68 grouped_batch_affinity"""
    for group in (A, A, B):
        await bench.add_to(group)
    jobs = await bench.lanes.claim_batch()
    assert [group for *_, group in jobs] == [A, A]
    assert len(set(bench.get("active").values())) == 1


async def test_grouped_batch_ceiling(bench: LeaseBench) -> None:
    """scenario 69 grouped_batch_ceiling"""
    for _ in range(5):
        await bench.add_to(A)
    await bench.lanes.limit(A, 3)
    assert len(await bench.lanes.claim_batch()) == 3
    assert await bench.lanes.claim_batch() == []
    assert bench.get("gactive") == {A: "3"}


async def test_grouped_batch_fairness(bench: LeaseBench) -> None:
    """scenario 70 grouped_batch_fairness"""
    for group, count in ((A, 50), (B, 1), (C, 2)):
        for _ in range(count):
            await bench.add_to(group)
    served = [await bench.lanes.claim_batch() for _ in range(3)]
    assert [len(jobs) for jobs in served] == [50, 1, 2]


async def test_an_empty_lane_in_the_ring_does_not_hide_the_others(bench: LeaseBench) -> None:
    """The sources answer `empty` here although the other lane has work."""
    await bench.add_to(B)
    bench.client.lpush(bench.keys.key("ring"), A)
    assert (await bench.lanes.claim() or ("", b"", 0, ""))[3] == B
    assert bench.get("ring") is None


async def test_a_wake_is_pushed_only_when_a_lane_enters_the_ring(bench: LeaseBench) -> None:
    for _ in range(5):
        await bench.add_to(A)
    assert bench.get("wake") == ["1"]
    await bench.add_to(B)
    assert bench.get("wake") == ["1", "1"]


async def test_a_delay_frees_its_place_in_the_lane(bench: LeaseBench) -> None:
    """In the sources each delay of a grouped job leaks one slot of the ceiling."""
    for _ in range(2):
        await bench.add_to(A)
    await bench.lanes.limit(A, 1)
    first = await bench.lanes.claim()
    assert first is not None
    await bench.queue.delay(first[0], first[2], 60_000)
    assert await bench.lanes.claim() is not None


async def test_a_paused_lane_stays_out_of_the_ring_whatever_comes(bench: LeaseBench) -> None:
    job_id = await bench.add_to(A)
    await bench.lanes.claim()
    await bench.lanes.pause(A)
    await bench.add_to(A)
    bench.lapse(job_id)
    await bench.queue.reap()
    await bench.lanes.limit(A, 5)
    assert bench.get("ring") is None
    await bench.lanes.resume(A)
    assert bench.get("ring") == [A]
