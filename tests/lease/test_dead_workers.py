# SPDX-License-Identifier: MIT
"""Targeted recovery on the lease plane: what a worker held when it died, or was stopped."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from echomq_pool.errors import LeaseLost
from echomq_pool.ipc.messages import HeldJob
from echomq_pool.plane.base import HeldRow, PlaneOptions, Recovery, Taken
from tests.support.lease import GROUPS, LeaseBench

EVIDENCE = "worker 4711 ended by SIGKILL (from outside), peak 61 MB"


def held(taken: Taken, **more: Any) -> HeldJob:
    job = taken.job
    base: dict[str, Any] = {
        "queue": "q", "id": job.id, "token": taken.token, "ats": job.ats, "atm": job.atm,
        "attempts": job.attempts, "backoff": job.backoff, "lifo": False, "taken_ms": 0, "deadline_ms": 0,
        "name": "",
    }  # fmt: skip
    return HeldJob(**(base | more))


async def test_a_dead_worker_loses_exactly_its_own_jobs(bench: LeaseBench) -> None:
    """promise 1.25, law 1"""
    ids = await bench.add_many(4)
    await bench.plane.take_batch(bench.token(), 2)
    neighbour = f"{uuid.uuid4()}:0"
    await bench.plane.take_batch(neighbour, 1)
    await bench.claimed()  # nobody's
    found = await bench.plane.recover(bench.owner, planned=False, evidence=EVIDENCE)
    assert found == [Recovery(ids[0], "wait", 1), Recovery(ids[1], "wait", 1)]
    assert set(bench.get("active")) == set(ids[2:])
    assert await bench.plane.recover(bench.owner, planned=False) == []
    row = bench.row(ids[0])
    assert (row["state"], row["stalled"]) == ("pending", "1")
    assert EVIDENCE in row["stacktrace"]
    assert await bench.queue.get_job_logs(ids[0]) == [EVIDENCE]


async def test_a_stall_too_many_is_death_with_the_reason(bench: LeaseBench) -> None:
    job_id = await bench.add()
    for expected in ("wait", "failed"):
        await bench.taken()
        found = await bench.plane.recover(bench.owner, planned=False, evidence=EVIDENCE)
        assert [(r.id, r.where) for r in found] == [(job_id, expected)]
    row = bench.row(job_id)
    assert (row["state"], row["last_error"]) == ("dead", "stalled")
    job = await bench.plane.load(job_id)
    assert job is not None
    assert job.stacktrace == [EVIDENCE, EVIDENCE]
    assert job.failed_reason == "stalled"


async def test_a_hand_back_costs_nothing_however_often(bench: LeaseBench) -> None:
    """law 2"""
    job_id = await bench.add(opts={"attempts": 2})
    for number in range(1, 6):
        taken = await bench.taken()
        assert (taken.job.ats, taken.job.atm, taken.job.stc) == (number, 0, 0)
        found = await bench.plane.recover(bench.owner, planned=True)
        assert found == [Recovery(job_id, "wait", 0)]
    taken = await bench.taken()
    assert await bench.queue.retry(job_id, taken.token, 0, 2, "boom") == "scheduled"
    await bench.queue.promote()
    last = await bench.taken()
    assert last.job.atm == 1
    assert await bench.queue.retry(job_id, last.token, 0, 2, "boom") == "dead"


async def test_nothing_that_a_dead_worker_sent_changes_its_jobs_any_more(bench: LeaseBench) -> None:
    """law 2, 5"""
    await bench.add_many(2)
    first, second = await bench.taken(), await bench.taken()
    await bench.plane.recover(bench.owner, planned=True)
    before = bench.dump()
    for taken in (first, second):
        with pytest.raises(LeaseLost):
            await bench.plane.complete(taken.job, taken.token, b"1")
        assert await bench.plane.extend([(taken.job.id, taken.token)]) == [taken.job.id]
    assert bench.dump() == before


async def test_a_job_of_a_lane_goes_back_to_its_lane(bench: LeaseBench) -> None:
    job_id = await bench.add_to(GROUPS[0])
    await bench.lanes.limit(GROUPS[0], 1)
    await bench.taken()
    await bench.plane.recover(bench.owner, planned=True)
    assert bench.get(f"g:{GROUPS[0]}:pending") == {job_id: 0}
    assert bench.get("gactive") is None
    assert bench.get("ring") == [GROUPS[0]]


async def test_a_claim_without_an_owner_is_nobodys(bench: LeaseBench) -> None:
    """Else the recovery of its former owner would take it from a worker that lives."""
    job_id = await bench.add()
    await bench.taken()
    bench.lapse(job_id)
    await bench.queue.reap()
    await bench.claimed()
    assert "owner" not in bench.row(job_id)
    assert await bench.plane.recover(bench.owner, planned=False) == []


async def test_two_thousand_jobs_are_given_back_in_slices(valkey_bench: LeaseBench) -> None:
    ids = await valkey_bench.add_many(2_500)
    while isinstance(await valkey_bench.plane.take_batch(valkey_bench.token(), 900), list):
        pass
    found = await valkey_bench.plane.recover(valkey_bench.owner, planned=True)
    assert sorted(r.id for r in found) == ids
    assert valkey_bench.link.log.count("lease/recover") == 3


async def test_claims_that_a_worker_does_not_know_of_are_shown(bench: LeaseBench) -> None:
    """law 6"""
    await bench.add_many(3)
    known = await bench.taken()
    lost = await bench.taken()
    await bench.plane.take(f"{uuid.uuid4()}:0")
    found = await bench.plane.unknown_claims(bench.owner, [(known.job.id, known.token)])
    assert [(t.job.id, t.token, t.job.ats) for t in found] == [(lost.job.id, "1", 1)]
    stale = await bench.plane.unknown_claims(bench.owner, [(known.job.id, "7"), (lost.job.id, "1")])
    assert [t.job.id for t in stale] == [known.job.id]


async def test_a_lapsed_lease_is_taken_back_while_nobody_has_reaped_it(bench: LeaseBench) -> None:
    """law 4"""
    await bench.add_many(2)
    first, second = await bench.taken(), await bench.taken()
    bench.lapse(first.job.id, second.job.id)
    rows = [HeldRow(t.job.id, t.token, t.job.ats) for t in (first, second)]
    assert await bench.plane.reacquire(rows[:1]) == []
    assert await bench.queue.reap() == 1
    assert await bench.plane.reacquire(rows) == [second.job.id]


@pytest.mark.parametrize(
    ("opts", "how", "expected"),
    [
        ({"attempts": 3}, "timeout", ("wait", "pending")),
        ({"attempts": 3, "backoff": {"type": "fixed", "delay": 60_000}}, "timeout", ("delayed", "scheduled")),
        ({"attempts": 1}, "timeout", ("failed", "dead")),
        ({"attempts": 3}, "cancel", ("failed", "dead")),
    ],
)
async def test_an_expired_job_is_settled_by_its_retry_policy(
    bench: LeaseBench, opts: dict[str, Any], how: str, expected: tuple[str, str]
) -> None:
    job_id = await bench.add(opts=opts)
    taken = await bench.taken()
    assert await bench.plane.settle_for(held(taken), how, "too slow") == expected[0]
    assert await bench.queue.get_job_state(job_id) == expected[1]
    assert bench.row(job_id)["last_error"] == "too slow"
    assert await bench.plane.settle_for(held(taken), how, "too slow") == "gone"


async def test_the_sweep_follows_the_recovery_setting(bench: LeaseBench) -> None:
    job_id = await bench.add()
    reaping = bench.other("", recovery="reap")
    for _ in range(5):
        await bench.taken()
        bench.lapse(job_id)
        assert await reaping.plane.sweep() == []
        assert await bench.queue.get_job_state(job_id) == "pending"
    assert "stalled" not in bench.row(job_id)
    await bench.taken()
    bench.lapse(job_id)
    assert await bench.plane.sweep() == [job_id]
    assert bench.row(job_id)["stalled"] == "1"


def test_a_recovery_that_does_not_exist_is_refused() -> None:
    """law 13"""
    with pytest.raises(ValueError, match="recovery"):
        PlaneOptions(recovery="both")


async def test_one_beat_of_maintenance_does_it_all(bench: LeaseBench) -> None:
    lapsed = await bench.add()
    await bench.taken()
    bench.lapse(lapsed)
    await bench.queue.enqueue_at(bench.mint.new(), "{}", 1)
    await bench.repeats.register("tick", 60_000, "{}")
    done = await bench.plane.maintain()
    assert (done.recovered, done.dead, done.promoted, done.fired) == ([lapsed], [], 1, 1)
    assert await bench.queue.pending_size() == 3
    again = await bench.plane.maintain()
    assert (again.recovered, again.promoted, again.fired) == ([], 0, 0)
