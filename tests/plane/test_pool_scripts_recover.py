# SPDX-License-Identifier: MIT
"""recoverOwner: every key of the queue before and after."""

from __future__ import annotations

import pytest

from echomq_pool.plane.base import HeldRow, PlaneOptions, Recovery, Taken
from tests.support.planes import Bench, bench_on
from tests.support.servers import Server
from tests.support.wire import Dump, Wire

EVIDENCE = "worker 4711 ended by SIGKILL (from outside), peak 61 MB\nheld for 12 ms"


def changed(before: Dump, after: Dump) -> Dump:
    """What differs: None = gone."""
    return {
        key: after.get(key)
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    }


async def test_a_stall_moves_the_job_to_the_front_and_counts(bench: Bench, wire: Wire) -> None:
    """promise 2.16, law 1"""
    wire.add("dead")
    wire.add("next")
    taken = await bench.taken()
    bench.client.sadd(bench.keys.key("stalled"), "dead")
    bench.client.delete(bench.keys.key("marker"))
    wire.events()
    before = bench.dump()
    assert await bench.plane.recover(bench.owner, planned=False) == [Recovery("dead", "wait", 1)]
    assert changed(before, bench.dump()) == {
        "active": None,
        "dead": {**before["dead"], "stc": "1"},
        "dead:lock": None,
        "events": ["waiting jobId=dead prev=active", "stalled jobId=dead"],
        "marker": {"0": 0},
        "stalled": None,
        "wait": ["next", "dead"],
    }
    assert taken.job.ats == 1


async def test_a_hand_back_counts_nothing(bench: Bench, wire: Wire) -> None:
    """law 2"""
    wire.add("held")
    wire.add("next")
    await bench.taken()
    bench.client.delete(bench.keys.key("marker"))
    wire.events()
    before = bench.dump()
    assert await bench.plane.recover(bench.owner, planned=True, evidence="ignored") == [
        Recovery("held", "wait", 0)
    ]
    assert changed(before, bench.dump()) == {
        "active": None,
        "events": ["waiting jobId=held prev=active"],
        "held:lock": None,
        "marker": {"0": 0},
        "wait": ["next", "held"],
    }


async def test_a_job_with_a_priority_is_handed_back_to_the_front_of_its_priority(
    bench: Bench, wire: Wire
) -> None:
    wire.add("held", priority=3)
    wire.add("next", priority=3)
    await bench.taken()
    assert await bench.plane.recover(bench.owner, planned=True) == [Recovery("held", "prioritized", 0)]
    following = await bench.taken()
    assert following.job.id == "held"


async def test_a_stalled_job_with_a_priority_goes_to_the_front_of_wait_as_the_sweep_does_it(
    bench: Bench, wire: Wire
) -> None:
    wire.add("dead", priority=3)
    await bench.taken()
    assert await bench.plane.recover(bench.owner, planned=False) == [Recovery("dead", "wait", 1)]
    assert bench.get("wait") == ["dead"]


async def test_what_belongs_to_others_is_left_alone(bench: Bench, wire: Wire) -> None:
    """law 5"""
    for name in ("mine", "other", "lockless", "alike"):
        wire.add(name)
    await bench.taken()
    assert isinstance(await bench.plane.take("other:1"), Taken)
    await bench.taken()
    assert isinstance(await bench.plane.take(bench.owner + "0:1"), Taken)
    bench.lose_lock("lockless")
    found = await bench.plane.recover(bench.owner, planned=False)
    assert found == [Recovery("mine", "wait", 1)]
    assert bench.get("active") == ["alike", "lockless", "other"]
    assert bench.get("alike:lock") == bench.owner + "0:1"


async def test_a_lapsed_lease_is_given_back_only_when_nobody_took_the_job_since(
    bench: Bench, wire: Wire
) -> None:
    """law 5"""
    for name in ("lapsed", "retaken", "stolen", "settled"):
        wire.add(name)
    held = [await bench.taken() for _ in range(4)]
    rows = [HeldRow(taken.job.id, taken.token, taken.job.ats) for taken in held]
    for name in ("lapsed", "retaken", "stolen"):
        bench.lose_lock(name)
    bench.client.hincrby(bench.keys.job("retaken"), "ats", 1)
    bench.client.set(bench.keys.lock("stolen"), "other:1")
    await bench.plane.complete(held[3].job, held[3].token, b"1")
    assert await bench.plane.recover(bench.owner, rows, planned=False) == [Recovery("lapsed", "wait", 1)]
    assert bench.get("active") == ["stolen", "retaken"]


async def test_a_claim_that_no_list_knows_is_found_by_its_lock(bench: Bench, wire: Wire) -> None:
    """law 9"""
    wire.add("unheard")
    await bench.taken()
    assert await bench.plane.recover(bench.owner, [], planned=False) == [Recovery("unheard", "wait", 1)]


@pytest.mark.parametrize(("limit", "where", "deferred"), [(0, "failed", True), (1, "wait", False)])
async def test_past_the_limit_the_next_taker_fails_the_job(
    server: Server, queue_name: str, limit: int, where: str, deferred: bool
) -> None:
    """promise 2.17, 4.14"""
    async with bench_on(server, queue_name, PlaneOptions(max_stalled_count=limit)) as bench:
        Wire(bench.client, queue_name).add("poison")
        await bench.taken()
        assert await bench.plane.recover(bench.owner, planned=False) == [Recovery("poison", where, 1)]
        taken = await bench.taken()
        assert taken.job.defa == ("job stalled more than allowable limit" if deferred else None)


async def test_a_live_schedulers_job_is_exempt_from_the_limit(server: Server, queue_name: str) -> None:
    async with bench_on(server, queue_name, PlaneOptions(max_stalled_count=0)) as bench:
        wire = Wire(bench.client, queue_name)
        wire.upsert_scheduler("s", {"name": "n", "every": 60_000})
        taken = await bench.taken()
        assert taken.job.rjk == "s"
        assert await bench.plane.recover(bench.owner, planned=False) == [Recovery(taken.job.id, "wait", 1)]
        await bench.taken()
        wire.on("removeJobScheduler", "repeat delayed events", "s", wire.base)
        assert (await bench.plane.recover(bench.owner, planned=False))[0].where == "failed"


async def test_the_evidence_is_in_the_stacktrace_and_in_the_log(bench: Bench, wire: Wire) -> None:
    wire.add("dead", kl=2)
    traces = []
    for n in range(3):
        await bench.taken()
        await bench.plane.recover(bench.owner, planned=False, evidence=f"{EVIDENCE} {n}")
        traces.append(f"{EVIDENCE} {n}")
    job = await bench.plane.load("dead")
    assert job is not None
    assert job.stacktrace == traces
    assert bench.get("dead:logs") == traces[1:], "keepLogs counts here, too"


@pytest.mark.parametrize("stored", ["[]", " [ ] ", '["\\ud800 \\"odd\\" ]"]', ""])
async def test_a_stacktrace_that_lua_could_not_decode_is_extended_all_the_same(
    bench: Bench, wire: Wire, stored: str
) -> None:
    """case C110"""
    wire.add("dead")
    await bench.taken()
    bench.client.hset(bench.keys.job("dead"), "stacktrace", stored)
    before = await bench.plane.load("dead")
    await bench.plane.recover(bench.owner, planned=False, evidence="killed")
    after = await bench.plane.load("dead")
    assert before is not None
    assert after is not None
    assert after.stacktrace == [*before.stacktrace, "killed"]


async def test_a_job_whose_hash_is_gone_is_taken_out_and_not_put_back(bench: Bench, wire: Wire) -> None:
    wire.add("ghost")
    await bench.taken()
    bench.client.delete(bench.keys.job("ghost"))
    assert await bench.plane.recover(bench.owner, planned=False) == [Recovery("ghost", "missing", 0)]
    assert bench.get("active") is None
    assert bench.get("wait") is None
    assert bench.get("ghost") is None


@pytest.mark.parametrize("why", ["paused", "maxed"])
async def test_a_blocked_queue_gets_its_jobs_back_without_a_marker(
    bench: Bench, wire: Wire, why: str
) -> None:
    wire.add("mine")
    wire.add("other")
    await bench.taken()
    await bench.plane.take("other:1")
    if why == "paused":
        wire.pause()
    else:
        bench.client.hset(bench.keys.key("meta"), "concurrency", 1)
    bench.client.delete(bench.keys.key("marker"))
    await bench.plane.recover(bench.owner, planned=False)
    assert bench.get("marker") is None
    assert bench.get("wait") == ["mine"]


async def test_many_jobs_come_back_in_their_order_and_in_bounded_calls(bench: Bench, wire: Wire) -> None:
    """law 9"""
    number = 2_500
    pipe = bench.client.pipeline(transaction=False)
    for n in range(number):
        pipe.hset(bench.keys.job(f"j{n}"), mapping={"name": "x", "data": "{}", "ats": 1})
        pipe.lpush(bench.keys.key("active"), f"j{n}")
        pipe.set(bench.keys.lock(f"j{n}"), f"{bench.owner}:{n}", px=60_000)
    pipe.execute()
    bench.link.log.clear()
    found = await bench.plane.recover(bench.owner, planned=True)
    assert len(found) == number
    assert bench.link.log == ["recoverOwner"] * 3
    assert bench.get("active") is None
    assert bench.get("wait") == [f"j{n}" for n in reversed(range(number))], "the oldest is the next to run"


async def test_nothing_to_give_back_writes_nothing(bench: Bench, wire: Wire) -> None:
    wire.add()
    before = bench.dump()
    assert await bench.plane.recover(bench.owner, planned=False) == []
    assert bench.dump() == before
