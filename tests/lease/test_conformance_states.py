# SPDX-License-Identifier: MIT
"""Conformance scenarios 1 to 18: the state machine. Each test is named for its scenario."""

from __future__ import annotations

import pytest

from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import LeaseLost, LinkRefused, VersionFence, WrongKind
from echomq_pool.plane.branded import parse
from echomq_pool.plane.events import Event
from echomq_pool.plane.lease_consumer import exponential, fixed, jitter
from echomq_pool.plane.lease_desk import WIRE_VERSION, fence
from echomq_pool.plane.lease_events import Subscriber, publish
from echomq_pool.redisio.link import Link
from tests.support.lease import GROUPS, LIBRARY, LeaseBench, lease_on
from tests.support.servers import Server
from tests.support.waiting import eventually_async

A, B, C = GROUPS


async def test_fence_the_version_key_holds_our_version(own_server: Server) -> None:
    """scenario 1 fence; promise 3.26"""
    config = RedisConfig(url=own_server.url, port=own_server.port)
    with own_server.client() as client:
        link = Link(config, scripts=LIBRARY, on_connect=fence)
        await link.start()
        await link.ready()
        assert client.get("{emq}:version") == WIRE_VERSION.encode()
        await fence(link)
        client.set("{emq}:version", "echomq:2.4.2")
        with pytest.raises(VersionFence, match=r"2\.4\.2"):
            await fence(link)
        await link.close()
        refused = Link(config, on_connect=fence)
        await refused.start()
        with pytest.raises(LinkRefused, match=r"2\.4\.2"):
            await refused.ready()
        await refused.close()
        assert client.get("{emq}:version") == b"echomq:2.4.2", "and nothing is overwritten"


async def test_mint_a_fresh_row_is_three_fields(bench: LeaseBench) -> None:
    """scenario 2 mint; promise 3.25"""
    job_id = await bench.add('{"n":1}')
    assert bench.row(job_id) == {"state": "pending", "attempts": "0", "payload": '{"n":1}'}
    assert bench.get("pending") == {job_id: 0}


async def test_duplicate_the_first_payload_stays(bench: LeaseBench) -> None:
    """scenario 3 duplicate"""
    job_id = await bench.add("first")
    before = bench.dump()
    assert await bench.queue.enqueue(job_id, "second") == "duplicate"
    assert bench.dump() == before


async def test_kind_an_order_is_no_job(bench: LeaseBench) -> None:
    """scenario 4 kind"""
    with pytest.raises(WrongKind):
        await bench.queue.enqueue("ORD0NgWEfAEJfs", "{}")
    with pytest.raises(WrongKind):
        await bench.queue.enqueue_in("ORD0NgWEfAEJfs", "{}", 5)
    with pytest.raises(WrongKind):
        await bench.lanes.enqueue(A, "ORD0NgWEfAEJfs", "{}")
    assert await bench.queue.enqueue_many([("ORD0NgWEfAEJfs", "{}")]) == ["kind"]
    assert bench.dump() == {}


async def test_order_is_mint_order(bench: LeaseBench) -> None:
    """scenario 5 order; promise 1.1"""
    ids = [bench.mint.new() for _ in range(5)]
    for job_id in (ids[3], ids[0], ids[4], ids[2], ids[1]):
        await bench.queue.enqueue(job_id, "{}")
    assert await bench.queue.browse(10) == ids[::-1]
    assert [(await bench.claimed())[0] for _ in ids] == ids


async def test_order_of_ids_that_differ_in_one_letter(bench: LeaseBench) -> None:
    """promise 1.1"""
    ids = [f"JOB0NgWEfAEJf{end}" for end in "09ABabc"]
    await bench.queue.enqueue_many([(job_id, "{}") for job_id in reversed(ids)])
    assert [(await bench.claimed())[0] for _ in ids] == ids


async def test_claim_answers_id_payload_and_token(bench: LeaseBench) -> None:
    """scenario 6 claim; promise 1.3, 1.4, 1.9"""
    job_id = await bench.add("data")
    assert await bench.queue.claim() == (job_id, b"data", 1)
    assert bench.row(job_id) == {"state": "active", "attempts": "1", "payload": "data"}
    assert bench.get("pending") is None
    assert await bench.queue.claim() is None


async def test_stale_tokens_are_refused_also_after_a_script_flush(own_server: Server) -> None:
    """scenario 7 stale"""
    async with lease_on(own_server, "flushed") as bench:
        job_id = await bench.add()
        _, token = await bench.claimed()
        bench.flush_scripts()
        before = bench.dump()
        with pytest.raises(LeaseLost):
            await bench.queue.complete(job_id, token + 1)
        with pytest.raises(LeaseLost):
            await bench.queue.retry(job_id, token + 1, 0, 3, "no")
        assert bench.dump() == before
        assert await bench.queue.complete(job_id, token) == "ok"


async def test_complete_leaves_nothing_but_the_count(bench: LeaseBench) -> None:
    """scenario 8 complete; promise 1.12"""
    job_id = await bench.add()
    await bench.queue.add_log(job_id, "line")
    await bench.claimed()
    assert await bench.queue.complete(job_id, 1) == "ok"
    assert await bench.queue.complete(job_id, 1) == "gone"
    bench.client.delete(bench.keys.key("wake"))
    assert bench.dump() == {"metrics:completed": {"count": "1"}}


async def test_retry_schedules_with_its_error(bench: LeaseBench) -> None:
    """scenario 9 retry"""
    job_id = await bench.add()
    await bench.claimed()
    assert await bench.queue.retry(job_id, 1, 0, 3, "boom") == "scheduled"
    row = bench.row(job_id)
    assert (row["state"], row["last_error"]) == ("scheduled", "boom")
    assert await bench.queue.promote(10) == 1
    assert await bench.claimed() == (job_id, 2)


async def test_retry_that_is_repeated_changes_nothing(bench: LeaseBench) -> None:
    """law 5"""
    job_id = await bench.add()
    await bench.claimed()
    await bench.queue.retry(job_id, 1, 0, 3, "boom")
    for _ in range(2):
        before = bench.dump()
        with pytest.raises(LeaseLost):
            await bench.queue.retry(job_id, 1, 60_000, 3, "again")
        with pytest.raises(LeaseLost):
            await bench.queue.complete(job_id, 1)
        assert bench.dump() == before
        await bench.queue.promote(10)  # not even once it is pending again


async def test_dead_at_the_cap(bench: LeaseBench) -> None:
    """scenario 10 dead"""
    job_id = await bench.add()
    await bench.claimed()
    assert await bench.queue.retry(job_id, 1, 0, 1, "boom") == "dead"
    assert bench.get("dead") == {job_id: 0}
    assert bench.row(job_id)["last_error"] == "boom"
    assert bench.row(job_id)["state"] == "dead"
    assert bench.get("metrics:failed") == {"count": "1"}


async def test_reap_returns_a_lapsed_lease(bench: LeaseBench) -> None:
    """scenario 11 reap; promise 1.18, 1.19, 3.20"""
    job_id = await bench.add()
    await bench.claimed(30)
    await bench.past(bench.score("active", job_id) or 0)
    assert await bench.queue.reap() == 1
    assert bench.score("pending", job_id) == 0
    assert bench.get("active") is None
    assert bench.row(job_id)["state"] == "pending"
    assert await bench.claimed() == (job_id, 2)


async def test_rotate_serves_two_lanes_in_turn(bench: LeaseBench) -> None:
    """scenario 12 rotate"""
    for group in (A, A, B, B):
        await bench.add_to(group)
    served = [(await bench.lanes.claim() or ("", b"", 0, ""))[3] for _ in range(4)]
    assert served == [A, B, A, B]


async def test_pause_parks_a_lane(bench: LeaseBench) -> None:
    """scenario 13 pause"""
    await bench.add_to(A)
    job_id = await bench.add_to(B)
    await bench.lanes.pause(A)
    assert (await bench.lanes.claim() or ("",))[0] == job_id
    assert await bench.lanes.claim() is None
    assert await bench.lanes.depth(A) == 1
    await bench.lanes.resume(A)
    assert (await bench.lanes.claim() or ("", b"", 0, ""))[3] == A


async def test_limit_holds_a_lane_at_its_ceiling(bench: LeaseBench) -> None:
    """scenario 14 limit"""
    first, second = await bench.add_to(A), await bench.add_to(A)
    await bench.lanes.limit(A, 1)
    assert (await bench.lanes.claim() or ("",))[0] == first
    assert await bench.lanes.claim() is None
    await bench.queue.complete(first, 1)
    assert (await bench.lanes.claim() or ("",))[0] == second


async def test_schedule_is_invisible_until_promoted(bench: LeaseBench) -> None:
    """scenario 15 schedule"""
    job_id = bench.mint.new()
    assert await bench.queue.enqueue_in(job_id, "{}", 20) == "scheduled"
    assert await bench.queue.enqueue_in(job_id, "{}", 20) == "duplicate"
    assert await bench.queue.claim() is None
    assert await bench.queue.get_job_state(job_id) == "scheduled"
    await bench.past(bench.score("schedule", job_id) or 0)
    assert await bench.queue.promote(10) == 1
    assert await bench.claimed() == (job_id, 1)


async def test_schedule_at_a_moment_of_the_caller(bench: LeaseBench) -> None:
    late, soon = bench.mint.new(), bench.mint.new()
    await bench.queue.enqueue_at(late, "{}", 2_000)
    await bench.queue.enqueue_at(soon, "{}", 1_000)
    assert bench.get("schedule") == {late: 2_000, soon: 1_000}
    assert await bench.queue.promote(1) == 1
    assert bench.get("pending") == {soon: 0}, "the oldest due goes first"
    await bench.queue.promote(1)
    assert [(await bench.claimed())[0] for _ in range(2)] == [late, soon], "then they sort by their making"


async def test_repeat_makes_a_new_job_each_time(bench: LeaseBench) -> None:
    """scenario 16 repeat"""
    assert await bench.repeats.register("tick", 60_000, '{"t":1}') == "registered"
    assert await bench.repeats.register("tick", 5, "other") == "exists"
    ids = []
    for _ in range(2):
        assert await bench.repeats.pump() == 1
        ids.append((await bench.claimed())[0])
        bench.client.zadd(bench.keys.key("repeat"), {"tick": 1})
    assert ids == sorted(ids)
    assert len(set(ids)) == 2
    assert {parse(i).namespace for i in ids} == {"JOB"}
    assert bench.row(ids[0])["payload"] == '{"t":1}'


async def test_backoff_a_poison_job_is_dead_at_exactly_the_third_attempt(bench: LeaseBench) -> None:
    """scenario 17 backoff"""
    job_id = await bench.add()
    outcomes = []
    for attempt in (1, 2, 3):
        assert await bench.claimed() == (job_id, attempt)
        outcomes.append(await bench.queue.retry(job_id, attempt, 0, 3, f"boom {attempt}"))
        await bench.queue.promote(10)
    assert outcomes == ["scheduled", "scheduled", "dead"]
    assert bench.row(job_id)["last_error"] == "boom 3"


def test_backoff_curves() -> None:
    curve = exponential(100, 10_000)
    assert [curve(n) for n in (1, 3, 20, 2000)] == [100, 400, 10_000, 10_000]
    assert fixed(7)(5) == 7
    assert jitter(curve, lambda low, high: high - low)(3) == 400


async def test_resubscribe_a_killed_subscriber_hears_again(bench: LeaseBench) -> None:
    """scenario 18 resubscribe"""
    heard: list[Event] = []
    config = RedisConfig(url=bench.server.url, port=bench.server.port)
    subscriber = Subscriber(config, [bench.keys], heard.append)
    await subscriber.start()
    await subscriber.ready()
    try:
        await publish(bench.link, bench.keys, "completed", "JOB1")
        await eventually_async(lambda: len(heard) == 1)
        first = subscriber.client_id
        assert first is not None
        bench.client.client_kill_filter(_id=first)
        await eventually_async(lambda: subscriber.client_id not in (None, first))
        await subscriber.ready()
        assert await publish(bench.link, bench.keys, "progress", "JOB2", progress="50") == 1
        await eventually_async(lambda: len(heard) == 2)
    finally:
        await subscriber.close()
    assert [(e.name, e.job_id, e.data) for e in heard] == [
        ("completed", "JOB1", {}),
        ("progress", "JOB2", {"progress": "50"}),
    ]
