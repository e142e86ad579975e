# SPDX-License-Identifier: MIT
"""An id whose key is no hash: it leaves the lists, and no other job is lost with it.

Such a key comes from a foreign program or from a custom id that a client did not check. A script that breaks over it
half way has already taken its neighbours from where they were.
"""

from __future__ import annotations

import redis

from echomq_pool.plane.base import HeldRow
from tests.plane.test_pool_scripts_batch import filled, together
from tests.support.planes import Bench
from tests.support.wire import NOW, Wire


def spoil(wire: Wire, job_id: str) -> None:
    wire.client.delete(wire.key(job_id))
    wire.client.set(wire.key(job_id), "no hash")


def test_a_take_passes_it_over_and_lets_the_taker_look_again(wire: Wire) -> None:
    """law 13, law 6"""
    for name in ("bad", "good"):
        wire.add(name)
    spoil(wire, "bad")
    wire.client.delete(wire.key("marker"))
    assert wire.take() == [0, 0, 0, 0]
    assert wire.get("active") is None
    assert wire.get("marker") == {"0": 0}
    assert wire.take()[1] == "good"


def test_what_a_batch_takes_behind_it_is_locked_and_answered(client: redis.Redis, queue_name: str) -> None:
    """law 13, law 6: a break here left every job behind it in active, with no lock and no worker."""
    wire = Wire(client, queue_name)
    rows = filled(wire, 6, 3)
    waiting = wire.get("wait")[::-1]
    spoil(wire, waiting[1])
    due, *answers = together(wire, rows)
    assert due == 0
    assert [answer and answer[1] for answer in answers] == [waiting[0], 0, waiting[2]]
    assert sorted(wire.get("active")) == sorted([waiting[0], waiting[2]])
    assert all(wire.get(f"{job}:lock") for job in (waiting[0], waiting[2]))
    assert len(wire.get("completed")) == 3


def test_a_sweep_recovers_the_others(wire: Wire) -> None:
    """law 13, law 6"""
    for name in ("first", "bad", "last"):
        wire.add(name)
        wire.take()
        wire.lose_lock(name)
    wire.sweep()
    spoil(wire, "bad")
    assert sorted(wire.sweep_again()) == ["first", "last"]
    assert sorted(wire.get("wait")) == ["first", "last"]
    assert wire.get("active") is None


def test_due_jobs_beside_it_are_promoted(wire: Wire) -> None:
    """law 13, law 6"""
    for name in ("bad", "good"):
        wire.add(name, delay=10)
    spoil(wire, "bad")
    wire.now = NOW + 20
    assert wire.take()[1] == "good"
    assert wire.get("delayed") is None


async def test_a_dead_workers_other_jobs_are_given_back(bench: Bench, wire: Wire) -> None:
    """law 13, law 6, law 1"""
    for name in ("first", "bad", "last"):
        wire.add(name)
        await bench.taken()
    spoil(wire, "bad")
    found = await bench.plane.recover(bench.owner, planned=False)
    assert sorted((row.id, row.where) for row in found) == [
        ("bad", "missing"),
        ("first", "wait"),
        ("last", "wait"),
    ]
    assert sorted(bench.get("wait")) == ["first", "last"]


async def test_leases_beside_it_are_taken_back_and_claims_beside_it_are_found(
    bench: Bench, wire: Wire
) -> None:
    """law 13, law 4"""
    taken = []
    for name in ("bad", "good"):
        wire.add(name)
        taken.append(await bench.taken())
    spoil(wire, "bad")
    assert [claim.job.id for claim in await bench.plane.unknown_claims(bench.owner, [])] == ["good"]
    for name in ("bad", "good"):
        bench.lose_lock(name)
    rows = [HeldRow(claim.job.id, claim.token, claim.job.ats) for claim in taken]
    assert await bench.plane.reacquire(rows) == ["bad"]
    assert bench.get("good:lock")


def test_counts_and_takes_that_are_no_numbers_are_counted_from_nought(wire: Wire) -> None:
    """law 13: to break over them after the job has left active would lose it."""
    wire.add("odd")
    wire.client.hset(wire.key("odd"), mapping={"ats": "x", "atm": "y"})
    assert wire.take()[1] == "odd"
    assert wire.finish("odd", "null") is not None
    assert list(wire.get("completed")) == ["odd"]
    assert wire.get("odd")["atm"] == "1"
