# SPDX-License-Identifier: MIT
"""Conformance scenarios 56 to 59 and 62 to 67, 71 to 73: the client's floor, markers, and batches."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from echomq_pool.clock import FakeClock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, JobLocked, JobMissing, LeaseLost
from echomq_pool.plane.base import PlaneOptions
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.plane.lease_batch import (
    BatchConsumer,
    BatchOptions,
    Broken,
    Done,
    Later,
    Partition,
    Verdict,
    flush_size,
)
from echomq_pool.plane.lease_links import RoundRobin
from echomq_pool.plane.lease_queue import Claimed
from echomq_pool.redisio.link import Link
from tests.support.lease import LIBRARY, LeaseBench
from tests.support.waiting import eventually_async


async def pooled(bench: LeaseBench, size: int = 4) -> tuple[LeasePlane, list[Link]]:
    config = RedisConfig(url=bench.server.url, port=bench.server.port)
    links = [Link(config, scripts=LIBRARY) for _ in range(size)]
    for link in links:
        await link.start()
    pool = RoundRobin(links)
    await pool.ready()
    return LeasePlane(pool, bench.keys, LIBRARY, PlaneOptions()), links


async def test_pool_enqueue_and_pool_order(bench: LeaseBench) -> None:
    """scenario 56 pool_enqueue, scenario 57 pool_order"""
    plane, links = await pooled(bench)
    try:
        ids = [bench.mint.new() for _ in range(40)]
        for job_id in ids:
            assert await plane.queue.enqueue(job_id, "{}") == "enqueued"
        assert await plane.queue.enqueue(ids[0], "again") == "duplicate"
        assert [job[0] for job in await plane.queue.claim_batch(40)] == ids
    finally:
        for link in links:
            await link.close()


async def test_native_lock_field_clears_itself_and_the_row_survives(valkey_bench: LeaseBench) -> None:
    """scenario 58 native_lock_field"""
    bench = valkey_bench
    job_id = await bench.add()
    await bench.claimed()
    assert await bench.queue.mark([(job_id, 1)], 40, native=True) == []
    assert bench.row(job_id)["lock"] == "1"
    await eventually_async(lambda: "lock" not in bench.row(job_id))
    assert bench.row(job_id)["state"] == "active"


async def test_native_lock_refuses_a_removal_and_heals(valkey_bench: LeaseBench) -> None:
    """scenario 59 native_lock_refuses"""
    bench = valkey_bench
    job_id = await bench.add()
    await bench.claimed()
    await bench.queue.mark([(job_id, 1)], 300, native=True)
    bench.client.delete(bench.keys.lock(job_id))
    bench.lapse(job_id)
    with pytest.raises(JobLocked):
        await bench.queue.remove_job(job_id)
    await eventually_async(lambda: "lock" not in bench.row(job_id))
    await bench.queue.remove_job(job_id)


async def test_native_lock_is_not_written_after_a_completion(valkey_bench: LeaseBench) -> None:
    """In the sources this makes a phantom row."""
    bench = valkey_bench
    job_id = await bench.add()
    await bench.claimed()
    await bench.queue.complete(job_id, 1)
    assert await bench.queue.mark([(job_id, 1)], 60_000, native=True) == [job_id]
    assert bench.client.keys(bench.keys.job(job_id) + "*") == []


async def test_a_marker_is_deleted_only_by_its_own_token(bench: LeaseBench) -> None:
    """promise 3.11"""
    job_id = await bench.add()
    await bench.claimed()
    await bench.queue.mark([(job_id, 1)])
    bench.lapse(job_id)
    await bench.queue.reap()
    await bench.claimed()
    await bench.queue.mark([(job_id, 2)])
    await bench.queue.unmark([(job_id, 1)])
    assert bench.get(f"job:{job_id}:lock") == "2"
    assert await bench.queue.mark([(job_id, 1)]) == [job_id]
    assert bench.get(f"job:{job_id}:lock") == "2"


async def test_batch_claim_takes_the_oldest_under_one_deadline(bench: LeaseBench) -> None:
    """scenario 62 batch_claim"""
    ids = await bench.add_many(5)
    jobs = await bench.queue.claim_batch(3)
    assert jobs == [(job_id, b"{}", 1) for job_id in ids[:3]]
    assert len(set(bench.get("active").values())) == 1


async def test_batch_claim_short_clamped_empty_and_paused(bench: LeaseBench) -> None:
    """scenario 63 batch_claim_short"""
    await bench.add_many(2)
    assert len(await bench.queue.claim_batch(5)) == 2
    assert await bench.queue.claim_batch(5) == []
    await bench.add_many(2)
    await bench.queue.pause()
    assert await bench.queue.claim_batch(5) == []
    with pytest.raises(InputError):
        await bench.queue.claim_batch(0)


async def test_batch_partial_failure(bench: LeaseBench) -> None:
    """scenario 64 batch_partial_failure"""
    ids = await bench.add_many(3)
    await bench.queue.claim_batch(3)
    await bench.queue.retry(ids[1], 1, 0, 3, "poison")
    for job_id in (ids[0], ids[2]):
        await bench.queue.complete(job_id, 1)
    await bench.queue.promote()
    assert await bench.queue.claim_batch(3) == [(ids[1], b"{}", 2)]


@pytest.mark.parametrize(("depth", "elapsed", "size"), [(10, 50, 10), (3, 50, 0), (3, 200, 3), (0, 200, 0)])
def test_batch_shaping_vectors(depth: int, elapsed: int, size: int) -> None:
    assert flush_size(depth, elapsed, 10, 200) == size


class Shaped:
    """A batch consumer on a clock of its own, with what its handler was given."""

    def __init__(self, bench: LeaseBench, verdicts: Mapping[str, Verdict] | None = None) -> None:
        self.clock = FakeClock()
        self.seen: list[list[str]] = []
        self.verdicts = verdicts
        options = BatchOptions(min_size=3, timeout_ms=1_000, retry_delay_ms=0, max_attempts=2)
        self.consumer = BatchConsumer(bench.queue, bench.plane.settle_batch, self.handle, options, self.clock)

    async def handle(self, jobs: list[Claimed]) -> Mapping[str, Verdict]:
        self.seen.append([job[0] for job in jobs])
        return {job[0]: Done() for job in jobs} if self.verdicts is None else self.verdicts


async def test_batch_shaping_floor(bench: LeaseBench) -> None:
    """scenario 65 batch_shaping_floor"""
    shaped = Shaped(bench)
    ids = await bench.add_many(2)
    assert await shaped.consumer.look() is None
    ids += await bench.add_many(2)
    assert await shaped.consumer.look() == Partition(completed=ids)
    assert shaped.seen == [ids]


async def test_batch_shaping_timeout(bench: LeaseBench) -> None:
    """scenario 66 batch_shaping_timeout"""
    shaped = Shaped(bench)
    shaped.clock.advance(5_000)
    assert await shaped.consumer.look() is None, "never an empty batch"
    ids = await bench.add_many(1)
    assert await shaped.consumer.look() == Partition(completed=ids)
    await bench.add_many(1)
    assert await shaped.consumer.look() is None, "the time counts from the last batch"


async def test_batch_shaping_partial_failure_and_an_event_per_member(bench: LeaseBench) -> None:
    """scenario 67 batch_shaping_partial_failure"""
    ids = await bench.add_many(4)
    shaped = Shaped(bench, {ids[0]: Done(), ids[1]: Broken("poison"), ids[2]: Later(60_000)})
    ear = bench.client.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(bench.keys.key("events"))
    ear.get_message(timeout=5)
    found = await shaped.consumer.look()
    assert found == Partition(completed=[ids[0]], retried=[ids[1], ids[3]], delayed=[ids[2]])
    heard = [ear.get_message(timeout=5)["data"].decode() for _ in range(4)]
    ear.close()
    for job_id, event in zip(ids, ("completed", "scheduled", "scheduled", "scheduled"), strict=True):
        assert any(job_id in text and f'"{event}"' in text for text in heard)
    assert bench.row(ids[3])["last_error"] == "missing verdict"


async def test_batch_partition_is_exhaustive_and_dead_comes_from_the_outcome(bench: LeaseBench) -> None:
    """scenario 71 batch_partition"""
    ids = await bench.add_many(3)
    await bench.queue.claim_batch(1)
    await bench.queue.retry(ids[0], 1, 0, 5, "first")
    await bench.queue.promote()
    shaped = Shaped(bench, {ids[0]: Broken("again"), ids[1]: Broken("first"), ids[2]: Done()})
    found = await shaped.consumer.look()
    assert found == Partition(completed=[ids[2]], retried=[ids[1]], dead=[ids[0]])


async def test_batch_partition_when_the_handler_raises(bench: LeaseBench) -> None:
    ids = await bench.add_many(3)
    shaped = Shaped(bench)

    async def broken(jobs: list[Claimed]) -> Mapping[str, Verdict]:
        raise RuntimeError("no")

    shaped.consumer._handler = broken
    assert await shaped.consumer.look() == Partition(retried=ids)


async def test_batch_delay_keeps_the_attempts(bench: LeaseBench) -> None:
    """scenario 72 batch_delay"""
    ids = await bench.add_many(2)
    await bench.queue.claim_batch(2)
    await bench.queue.delay(ids[0], 1, 0)
    assert bench.row(ids[0])["state"] == "scheduled"
    assert bench.row(ids[0])["attempts"] == "1"
    assert "last_error" not in bench.row(ids[0])
    await bench.queue.promote()
    assert await bench.claimed() == (ids[0], 2)


async def test_batch_delay_stale_leaves_the_new_holder_alone(bench: LeaseBench) -> None:
    """scenario 73 batch_delay_stale"""
    job_id = await bench.add()
    await bench.claimed()
    bench.lapse(job_id)
    await bench.queue.reap()
    await bench.claimed()
    before = bench.dump()
    with pytest.raises(LeaseLost):
        await bench.queue.delay(job_id, 1, 0)
    assert bench.dump() == before
    await bench.queue.complete(job_id, 2)
    with pytest.raises(JobMissing):
        await bench.queue.delay(job_id, 2, 0)


async def test_a_delay_after_a_reap_is_in_one_set_only(bench: LeaseBench) -> None:
    """In the sources the id ends up in pending and schedule."""
    job_id = await bench.add()
    await bench.claimed()
    bench.lapse(job_id)
    await bench.queue.reap()
    await bench.queue.delay(job_id, 1, 60_000)
    assert bench.get("pending") is None
    assert list(bench.get("schedule")) == [job_id]


async def test_an_id_without_a_row_is_no_phantom(bench: LeaseBench) -> None:
    """In the sources the claim makes a row of it."""
    bench.client.zadd(bench.keys.key("pending"), {"JOB00000000000": 0})
    job_id = await bench.add()
    assert (await bench.claimed())[0] == job_id
    bench.client.zadd(bench.keys.key("pending"), {"JOB00000000000": 0})
    await bench.nothing()
    assert await bench.queue.claim() is None
    assert set(bench.dump()) == {"active", "wake", f"job:{job_id}"}
    bench.client.delete(bench.keys.key("wake"))
