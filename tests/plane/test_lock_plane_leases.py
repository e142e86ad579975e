# SPDX-License-Identifier: MIT
"""Locks: how they are set, renewed, compared, lost and taken back."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from echomq_pool.errors import JobMissing, LeaseLost, WrongState
from echomq_pool.plane.base import HeldRow, Nothing, PlaneOptions, Taken
from tests.support.planes import Bench, bench_on
from tests.support.servers import Server
from tests.support.wire import Wire

LEASE_MS = 30_000


async def test_a_take_sets_the_lock_with_its_token_for_thirty_seconds(bench: Bench, wire: Wire) -> None:
    """promise 0.1, 0.2, 0.4, 0.5, 4.1"""
    wire.add()
    taken = await bench.taken()
    key = f"emq:{{{bench.keys.queue}}}:{taken.job.id}:lock"
    assert bench.client.get(key) == taken.token.encode()
    assert LEASE_MS - 1_000 < bench.client.pttl(key) <= LEASE_MS
    worker, _, number = taken.token.rpartition(":")
    assert uuid.UUID(worker).version == 4
    assert number.isdigit()


async def test_a_renewal_moves_the_expiry_forward(bench: Bench, wire: Wire) -> None:
    """promise 0.6, 4.24, 3.3"""
    wire.add()
    taken = await bench.taken()
    lock = bench.keys.lock(taken.job.id)
    bench.client.pexpire(lock, 5_000)
    assert await bench.plane.extend([(taken.job.id, taken.token)]) == []
    assert bench.client.pttl(lock) > 5_000


async def test_a_stale_renewal_overwrites_nothing(bench: Bench, wire: Wire) -> None:
    """promise 0.26, 3.3, 3.5, 3.6, 4.9, law 5"""
    for _ in range(3):
        wire.add()
    rows = [await bench.taken() for _ in range(3)]
    stolen, missing, kept = rows
    bench.client.set(bench.keys.lock(stolen.job.id), "other:1", px=5_000)
    bench.lose_lock(missing.job.id)
    failed = await bench.plane.extend([(t.job.id, t.token) for t in rows])
    assert failed == [stolen.job.id, missing.job.id]
    assert bench.client.get(bench.keys.lock(stolen.job.id)) == b"other:1"
    assert bench.client.pttl(bench.keys.lock(stolen.job.id)) <= 5_000
    assert not bench.client.exists(bench.keys.lock(missing.job.id)), (
        "a lapsed lock is not brought back to life"
    )
    assert bench.client.pttl(bench.keys.lock(kept.job.id)) > 29_000


@pytest.mark.parametrize("held", [1, 100])
async def test_any_number_of_leases_is_renewed_by_one_call(bench: Bench, wire: Wire, held: int) -> None:
    """law 10"""
    for _ in range(held):
        wire.add()
    pairs = [(taken.job.id, taken.token) for taken in [await bench.taken() for _ in range(held)]]
    bench.link.log.clear()
    assert await bench.plane.extend(pairs) == []
    assert bench.link.log == ["extendLocks"]


async def test_ten_thousand_leases_are_one_call_too(bench: Bench) -> None:
    """law 10"""
    pairs = [(f"j{n}", f"{bench.owner}:{n}") for n in range(10_000)]
    pipe = bench.client.pipeline(transaction=False)
    for job_id, token in pairs[:-1]:
        pipe.set(bench.keys.lock(job_id), token, px=1_000_000)
    pipe.execute()
    assert await bench.plane.extend(pairs) == ["j9999"]


async def test_a_renewal_clears_the_mark_of_the_sweep(bench: Bench, wire: Wire) -> None:
    """promise 4.10, 2.14"""
    wire.add()
    taken = await bench.taken()
    bench.client.sadd(bench.keys.key("stalled"), taken.job.id)
    await bench.plane.extend([(taken.job.id, taken.token)])
    assert bench.get("stalled") is None


# --- law 5: a stale token changes nothing -----------------------------------------------------------

Move = Callable[[Bench, Taken], Awaitable[Any]]

MOVES: dict[str, Move] = {
    "complete": lambda b, t: b.plane.complete(t.job, t.token, b"1"),
    "complete and fetch": lambda b, t: b.plane.complete(t.job, t.token, b"1", fetch=True),
    "fail": lambda b, t: b.plane.fail(t.job, t.token, "no", ["trace"]),
    "retry": lambda b, t: b.plane.retry(t.job, t.token, "no", ["trace"]),
    "delay": lambda b, t: b.plane.delay(t.job, t.token, 1_000, reason="no", stacktrace=[]),
    "release": lambda b, t: b.plane.release(t.job, t.token),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
async def test_a_stale_token_changes_nothing(bench: Bench, wire: Wire, move: Move) -> None:
    """law 5, promise 0.26"""
    wire.add(attempts=5)
    wire.add()
    taken = await bench.taken()
    bench.client.set(bench.keys.lock(taken.job.id), "other:1", px=60_000)
    before = bench.dump()
    with pytest.raises(LeaseLost) as caught:
        await move(bench, taken)
    assert caught.value.job_id == taken.job.id
    assert bench.dump() == before


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
async def test_a_job_that_is_gone_is_told_as_missing(bench: Bench, wire: Wire, move: Move) -> None:
    wire.add()
    taken = await bench.taken()
    bench.client.delete(bench.keys.job(taken.job.id))
    with pytest.raises(JobMissing):
        await move(bench, taken)


async def test_a_job_in_another_state_tells_which(bench: Bench, wire: Wire) -> None:
    """law 13"""
    wire.add()
    taken = await bench.taken()
    bench.client.lrem(bench.keys.key("active"), 1, taken.job.id)
    bench.client.zadd(bench.keys.key("completed"), {taken.job.id: 1})
    with pytest.raises(WrongState, match="expected active, found completed"):
        await bench.plane.fail(taken.job, taken.token, "no", [])


# --- law 4: settled after a lapse only when it can be taken back ----------------------------------------


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
async def test_a_lapsed_lease_is_taken_back_before_the_job_is_settled(
    bench: Bench, wire: Wire, move: Move
) -> None:
    """law 4"""
    wire.add(attempts=5)
    taken = await bench.taken()
    bench.lose_lock(taken.job.id)
    await move(bench, taken)
    assert taken.job.id not in (bench.get("active") or [])
    assert "reacquire" in bench.link.log


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
async def test_a_lapsed_lease_that_somebody_else_has_taken_is_refused(
    bench: Bench, wire: Wire, move: Move
) -> None:
    """law 4, law 5"""
    wire.add(attempts=5)
    taken = await bench.taken()
    bench.lose_lock(taken.job.id)
    bench.client.hincrby(
        bench.keys.job(taken.job.id), "ats", 1
    )  # taken once more, and that lease lapsed, too
    before = bench.dump()
    with pytest.raises(LeaseLost):
        await move(bench, taken)
    assert bench.dump() == before


async def test_reacquire_refuses_whatever_is_not_ours_any_more(bench: Bench, wire: Wire) -> None:
    """law 4, promise 3.5"""
    for _ in range(6):
        wire.add()
    held, lapsed, stolen, retaken, moved, gone = [await bench.taken() for _ in range(6)]
    for taken in (lapsed, retaken, moved, gone):
        bench.lose_lock(taken.job.id)
    bench.client.set(bench.keys.lock(stolen.job.id), "other:1")
    bench.client.hincrby(bench.keys.job(retaken.job.id), "ats", 1)
    bench.client.lrem(bench.keys.key("active"), 1, moved.job.id)
    bench.client.delete(bench.keys.job(gone.job.id))
    bench.client.sadd(bench.keys.key("stalled"), held.job.id, lapsed.job.id, stolen.job.id)
    rows = [HeldRow(t.job.id, t.token, t.job.ats) for t in (held, lapsed, stolen, retaken, moved, gone)]
    assert await bench.plane.reacquire(rows) == [stolen.job.id, retaken.job.id, moved.job.id, gone.job.id]
    for taken in (held, lapsed):
        assert bench.client.get(bench.keys.lock(taken.job.id)) == taken.token.encode()
        assert bench.client.pttl(bench.keys.lock(taken.job.id)) > 29_000
    assert bench.get("stalled") == [stolen.job.id]


async def test_the_fencing_number_grows_with_every_take(bench: Bench, wire: Wire) -> None:
    wire.add(attempts=5)
    seen = []
    for _ in range(3):
        taken = await bench.taken()
        seen.append(taken.job.ats)
        await bench.plane.release(taken.job, taken.token)
    assert seen == [1, 2, 3]


async def test_other_lease_lengths_are_sent_as_configured(server: Server, queue_name: str) -> None:
    options = PlaneOptions(lock_duration_ms=2_000, worker_name="wk")
    async with bench_on(server, queue_name, options) as bench:
        Wire(bench.client, queue_name).add()
        taken = await bench.taken()
        assert 1_000 < bench.client.pttl(bench.keys.lock(taken.job.id)) <= 2_000
        assert taken.job.processed_by == "wk"
        assert isinstance(await bench.plane.complete(taken.job, taken.token, b"1", fetch=True), Nothing)
