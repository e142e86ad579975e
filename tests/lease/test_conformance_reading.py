# SPDX-License-Identifier: MIT
"""Conformance scenarios 19 to 24 and 33 to 43: reading, renewal, recovery, events, and what closes the holes."""

from __future__ import annotations

import pytest

from echomq_pool.config.schema import LimiterConfig, RedisConfig
from echomq_pool.errors import InputError, JobCancelled, JobLocked, JobMissing, LeaseLost, RateReached
from echomq_pool.plane.base import Nothing
from echomq_pool.plane.events import Event
from echomq_pool.plane.lease_consumer import CancelToken
from echomq_pool.plane.lease_events import Subscriber
from echomq_pool.plane.lease_telemetry import Telemetry
from tests.support.lease import GROUPS, LeaseBench
from tests.support.waiting import eventually_async

A, B, C = GROUPS


async def test_counts_and_an_unknown_name(bench: LeaseBench) -> None:
    """scenario 19 counts"""
    ids = await bench.add_many(5)
    for _ in range(2):
        await bench.claimed()
    await bench.queue.retry(ids[0], 1, 0, 1, "boom")
    await bench.queue.enqueue_in(bench.mint.new(), "{}", 60_000)
    expected = {"pending": 3, "active": 1, "schedule": 1, "dead": 1}
    assert await bench.queue.get_counts() == expected
    assert await bench.queue.get_counts("failed", "completed") == {"failed": 1, "completed": 0}
    with pytest.raises(InputError, match="unknown state 'waiting'"):
        await bench.queue.get_counts("pending", "waiting")


async def test_state_and_row(bench: LeaseBench) -> None:
    """scenario 20 state"""
    job_id = await bench.add("data")
    assert await bench.queue.get_job_state(job_id) == "pending"
    await bench.claimed()
    assert await bench.queue.get_job_state(job_id) == "active"
    await bench.queue.delay(job_id, 1, 60_000)
    assert await bench.queue.get_job_state(job_id) == "scheduled"
    assert (await bench.queue.get_job(job_id) or {})["payload"] == "data"
    missing = bench.mint.new()
    assert await bench.queue.get_job_state(missing) == "absent"
    assert await bench.queue.get_job(missing) is None


async def test_metrics(bench: LeaseBench) -> None:
    """scenario 21 metrics"""
    assert await bench.queue.get_metrics("completed") == (0, 0)
    job_id = await bench.add()
    await bench.claimed()
    await bench.queue.complete(job_id, 1)
    assert await bench.queue.get_metrics("completed") == (1, 0)
    with pytest.raises(InputError):
        await bench.queue.get_metrics("pending")


async def test_dedup_id_is_parked_and_read_back(bench: LeaseBench) -> None:
    """scenario 22 dedup"""
    job_id = await bench.add(dedup_id="order-17")
    assert await bench.queue.enqueue(bench.mint.new(), "{}", dedup_id="order-17") == job_id
    assert await bench.queue.get_deduplication_job_id("order-17") == job_id
    assert await bench.queue.get_deduplication_job_id("other") is None
    await bench.claimed()
    await bench.queue.complete(job_id, 1)
    assert await bench.queue.get_deduplication_job_id("order-17") is None


async def test_dedup_id_may_run_out_and_is_freed_by_death(bench: LeaseBench) -> None:
    await bench.add(dedup_id="short", dedup_ms=60_000)
    assert 0 < bench.client.pttl(bench.keys.dedup("short")) <= 60_000
    job_id, token = await bench.claimed()
    await bench.queue.retry(job_id, token, 0, 1, "boom")
    assert bench.client.exists(bench.keys.dedup("short")) == 0


async def test_rate_is_ok_below_the_ceiling_and_refused_at_it(bench: LeaseBench) -> None:
    """scenario 23 rate"""
    bench.client.hset(bench.keys.key("meta"), "concurrency", 1)
    await bench.add()
    await bench.queue.is_maxed()
    await bench.claimed()
    with pytest.raises(RateReached):
        await bench.queue.is_maxed()


async def test_rate_window_counts_takes_and_reopens(bench: LeaseBench) -> None:
    limited = bench.other("", limiter=LimiterConfig(max=3, duration_ms=60_000))
    await bench.add_many(5)
    got = await limited.plane.take_batch(limited.token(), 5)
    assert isinstance(got, list)
    assert len(got) == 3
    found = await limited.plane.take_batch(limited.token(), 5)
    assert isinstance(found, Nothing)
    assert 0 < found.limited_ms <= 60_000
    assert 0 < await bench.queue.get_rate_limit_ttl(3) <= 60_000
    assert await bench.queue.get_rate_limit_ttl(4) == 0
    bench.client.delete(bench.keys.key("limiter"))
    assert isinstance(await limited.plane.take_batch(limited.token(), 5), list)


async def test_lane_depth(bench: LeaseBench) -> None:
    """scenario 24 lane_depth"""
    for group in (A, A, B):
        await bench.add_to(group)
    assert await bench.lanes.depth(A) == 2
    assert await bench.lanes.depths([A, B, C]) == {A: 2, B: 1, C: 0}


async def test_lock_extend_moves_the_deadline(bench: LeaseBench) -> None:
    """scenario 33 lock_extend; promise 1.13"""
    job_id = await bench.add()
    await bench.claimed(50)
    old = bench.score("active", job_id) or 0
    await bench.queue.extend_lock(job_id, 1, 60_000)
    assert (bench.score("active", job_id) or 0) > old
    await bench.past(old)
    assert await bench.queue.reap() == 0
    assert await bench.queue.get_job_state(job_id) == "active"
    with pytest.raises(LeaseLost):
        await bench.queue.extend_lock(job_id, 2)
    with pytest.raises(JobMissing):
        await bench.queue.extend_lock(bench.mint.new(), 1)


async def test_lock_extend_does_not_bring_a_reaped_job_back(bench: LeaseBench) -> None:
    """The hazard of the protocol: pending and active at once, and a phantom in the end."""
    job_id = await bench.add()
    await bench.claimed()
    bench.lapse(job_id)
    await bench.queue.reap()
    before = bench.dump()
    with pytest.raises(LeaseLost):
        await bench.queue.extend_lock(job_id, 1)
    assert await bench.queue.extend_locks([(job_id, 1)]) == [job_id]
    assert await bench.plane.extend([(job_id, "1")]) == [job_id]
    assert bench.dump() == before


async def test_stalled_twice_is_dead(bench: LeaseBench) -> None:
    """scenario 34 stalled; Limit 1 forgives one lapse; `strict` reads a limit of 2 the same way."""
    job_id, strict = await bench.add_many(2)
    for token in (1, 2):
        await bench.claimed()
        await bench.claimed()
        bench.lapse(job_id)
        found = await bench.queue.sweep_stalled(1)
        bench.lapse(strict)
        found_strict = await bench.queue.sweep_stalled(2, strict=True)
        expected = ([job_id], []) if token == 1 else ([], [job_id])
        assert found == expected
        assert found_strict == tuple([strict] if part else [] for part in expected)
        assert await bench.queue.job_stalled(job_id)
    assert bench.row(job_id)["last_error"] == "stalled"
    assert bench.row(job_id)["state"] == "dead"
    assert bench.get("metrics:failed") == {"count": "2"}


async def test_events_of_a_completion_are_heard(bench: LeaseBench) -> None:
    """scenario 35 events"""
    heard: list[Event] = []
    config = RedisConfig(url=bench.server.url, port=bench.server.port)
    subscriber = Subscriber(config, [bench.keys], heard.append)
    await subscriber.start()
    await subscriber.ready()
    try:
        await bench.add()
        taken = await bench.taken()
        await bench.plane.progress(taken.job.id, b"50")
        await bench.plane.complete(taken.job, taken.token, b'{"ok":1}')
        await eventually_async(lambda: len(heard) == 3)
    finally:
        await subscriber.close()
    assert [(e.name, e.job_id, e.data) for e in heard] == [
        ("active", taken.job.id, {}),
        ("progress", taken.job.id, {"progress": "50"}),
        ("completed", taken.job.id, {"result": '{"ok":1}'}),
    ]


def test_telemetry_is_heard_or_costs_nothing() -> None:
    """scenario 36 telemetry"""
    telemetry = Telemetry()
    telemetry.emit(("emq", "job", "add"), {"count": 1}, {})
    heard: list[tuple[str, ...]] = []

    def broken(*_: object) -> None:
        raise RuntimeError("not our problem")

    telemetry.attach(("emq", "job", "add"), broken)
    telemetry.attach(("emq", "job", "add"), lambda name, *_: heard.append(name))
    telemetry.emit(("emq", "job", "add"), {"count": 1}, {})
    assert heard == [("emq", "job", "add")]


def test_cancel_is_cooperative_and_keeps_its_first_reason() -> None:
    """scenario 37 cancel"""
    token = CancelToken()
    assert token.check() is None
    token.check_or_raise()
    assert token.cancel("too late")
    assert not token.cancel("other")
    assert token.check() == "too late"
    with pytest.raises(JobCancelled, match="too late"):
        token.check_or_raise()


async def test_unknown_state_of_a_row_in_no_set(valkey_bench: LeaseBench) -> None:
    """scenario 38 unknown_state"""
    job_id = await valkey_bench.add()
    valkey_bench.client.zrem(valkey_bench.keys.key("pending"), job_id)
    assert await valkey_bench.queue.get_job_state(job_id) == "unknown"
    valkey_bench.client.delete(valkey_bench.keys.job(job_id))


async def test_rate_consult_a_skipping_claimer_leaves_active_at_the_ceiling(bench: LeaseBench) -> None:
    """scenario 39 rate_consult"""
    bench.client.hset(bench.keys.key("meta"), "concurrency", 2)
    await bench.add_many(4)
    for _ in range(4):
        try:
            await bench.queue.is_maxed()
        except RateReached:
            continue
        await bench.claimed()
    assert (await bench.queue.get_counts("active"))["active"] == 2
    await bench.nothing()  # a worker's take asks by itself


async def test_dedup_release_only_of_its_own_job(bench: LeaseBench) -> None:
    """scenario 40 dedup_release"""
    job_id = await bench.add()
    bench.client.set(bench.keys.dedup("mine"), job_id)
    bench.client.set(bench.keys.dedup("orphan"), "JOB0NgWEfAEJfs")
    await bench.queue.remove_job(job_id, "orphan")
    assert bench.client.exists(bench.keys.dedup("orphan")) == 1
    again = await bench.add(dedup_id="own")
    bench.client.set(bench.keys.dedup("mine"), again)
    await bench.queue.remove_job(again, "mine")
    assert bench.client.exists(bench.keys.dedup("mine"), bench.keys.dedup("own")) == 0


async def test_extend_locks_batch_returns_the_stale_and_the_gone(bench: LeaseBench) -> None:
    """scenario 41 extend_locks_batch"""
    ids = await bench.add_many(3)
    for _ in ids:
        await bench.claimed(1_000)
    gone = bench.mint.new()
    pairs: list[tuple[str, int | str]] = [(ids[0], 1), (ids[1], 7), (gone, 1), (ids[2], 1)]
    assert await bench.queue.extend_locks(pairs, 60_000) == [ids[1], gone]
    scores = bench.get("active")
    assert scores[ids[0]] == scores[ids[2]] > scores[ids[1]]


async def test_extend_locks_batch_of_ten_thousand_is_one_call(valkey_bench: LeaseBench) -> None:
    """law 10"""
    ids = await valkey_bench.add_many(10_000)
    while await valkey_bench.queue.claim_batch(1_000):
        pass
    calls = len(valkey_bench.link.log)
    assert await valkey_bench.plane.extend([(job_id, "1") for job_id in ids]) == []
    assert len(valkey_bench.link.log) == calls + 1


async def test_stalled_group_returns_to_its_lane(bench: LeaseBench) -> None:
    """scenario 42 stalled_group"""
    job_id = await bench.add_to(A)
    await bench.lanes.claim()
    bench.lapse(job_id)
    assert await bench.queue.sweep_stalled() == ([job_id], [])
    assert bench.get(f"g:{A}:pending") == {job_id: 0}
    assert bench.get("gactive") is None
    assert (await bench.lanes.claim() or ("", b"", 0))[2] == 2


async def test_obliterate_grouped_rows_do_not_leak(bench: LeaseBench) -> None:
    """scenario 43 obliterate_grouped"""
    for group in (A, B, B, C):
        await bench.add_to(group)
    await bench.lanes.pause(A)
    await bench.lanes.limit(B, 1)
    await bench.lanes.claim()
    await bench.lanes.claim()
    await bench.lanes.weight(C, 3)
    await bench.queue.pause()
    assert await bench.queue.obliterate(force=True) == "ok"
    assert bench.dump() == {}, "also of a lane at its ceiling, which is neither in the ring nor paused"


async def test_a_held_job_is_refused_by_its_lease_alone(bench: LeaseBench) -> None:
    """promise 3.31"""
    job_id = await bench.add()
    await bench.claimed()
    before = bench.dump()
    with pytest.raises(JobLocked):
        await bench.queue.remove_job(job_id)
    assert bench.dump() == before
    bench.lapse(job_id)
    await bench.queue.remove_job(job_id)
    assert await bench.queue.get_job_state(job_id) == "absent"
