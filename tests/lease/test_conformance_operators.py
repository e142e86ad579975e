# SPDX-License-Identifier: MIT
"""Conformance scenarios 25 to 32: what an operator does, and the gaps that must not be here."""

from __future__ import annotations

import pytest

from echomq_pool.errors import JobLocked, JobMissing, WrongState
from echomq_pool.plane.lease_flows import FlowNode
from tests.support.lease import GROUPS, LeaseBench

A, B, C = GROUPS


async def test_queue_pause_keeps_pending(bench: LeaseBench) -> None:
    """scenario 25 queue_pause"""
    job_id = await bench.add()
    await bench.add_to(A)
    await bench.queue.pause()
    assert await bench.queue.claim() is None
    assert await bench.queue.claim_batch(5) == []
    assert await bench.lanes.claim() is None
    await bench.nothing()
    assert await bench.queue.pending_size() == 1
    await bench.queue.resume()
    assert (await bench.claimed())[0] == job_id


async def test_queue_pause_is_seen_by_the_script_itself(bench: LeaseBench) -> None:
    """Not a second round trip, between which a claim could slip; the two-key form does not look."""
    await bench.add_many(2)
    await bench.queue.claim()
    assert bench.link.log[-1] == "lease/claim"
    await bench.queue.pause()
    keys = [bench.keys.key("pending"), bench.keys.key("active")]
    found = await bench.plane._desk.ask("claim", keys, (bench.keys.rows, 1_000))
    assert len(found) == 3


async def test_drain_spares_active(bench: LeaseBench) -> None:
    """scenario 26 drain"""
    ids = await bench.add_many(3)
    await bench.claimed()
    await bench.add_to(A)
    await bench.queue.enqueue_in(scheduled := bench.mint.new(), "{}", 60_000)
    assert await bench.queue.drain() == 3, "the two flat ones, and the one in the lane"
    assert await bench.queue.get_job_state(ids[0]) == "active"
    assert await bench.queue.get_job_state(ids[1]) == "absent"
    assert await bench.queue.get_job_state(scheduled) == "scheduled"
    assert await bench.queue.drain(include_schedule=True) == 1


async def test_obliterate_is_refused_unless_paused(bench: LeaseBench) -> None:
    """scenario 27 obliterate"""
    ids = await bench.add_many(4)
    await bench.claimed()
    await bench.claimed()
    await bench.queue.retry(ids[1], 1, 0, 1, "boom")
    await bench.queue.enqueue_in(bench.mint.new(), "{}", 60_000)
    await bench.repeats.register("tick", 1_000, "{}")
    await bench.queue.add_log(ids[2], "line")
    before = bench.dump()
    with pytest.raises(WrongState, match="not paused"):
        await bench.queue.obliterate(force=True)
    assert bench.dump() == before
    await bench.queue.pause()
    with pytest.raises(WrongState, match="active jobs present"):
        await bench.queue.obliterate()
    assert await bench.queue.obliterate(force=True, budget=2) == "more"
    while await bench.queue.obliterate(force=True, budget=2) == "more":
        pass
    assert bench.dump() == {}


async def test_obliterate_takes_dedup_outbox_and_waiting_parents(bench: LeaseBench) -> None:
    """Also what the sources leave behind."""
    await bench.add(dedup_id="d1")
    bench.client.rpush(bench.keys.key("flow:outbox"), "x")
    child, parent, top = (bench.mint.new() for _ in range(3))
    await bench.flows.add(
        FlowNode(top, "{}", children=(FlowNode(parent, "{}", children=(FlowNode(child, "{}"),)),))
    )
    await bench.queue.pause()
    while await bench.queue.obliterate(budget=1) == "more":
        pass
    assert bench.dump() == {}


async def test_update_data(bench: LeaseBench) -> None:
    """scenario 28 update_data"""
    job_id = await bench.add("old")
    await bench.queue.update_data(job_id, "new")
    assert (await bench.queue.claim() or ("", b""))[1] == b"new"
    with pytest.raises(JobMissing):
        await bench.queue.update_data(bench.mint.new(), "x")


async def test_update_progress(bench: LeaseBench) -> None:
    """scenario 29 update_progress"""
    job_id = await bench.add()
    ear = bench.client.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(bench.keys.key("events"))
    ear.get_message(timeout=5)
    await bench.queue.update_progress(job_id, "half")
    message = ear.get_message(timeout=5)
    assert b'"event":"progress"' in message["data"]
    assert job_id.encode() in message["data"]
    ear.close()
    assert bench.row(job_id)["progress"] == "half"
    with pytest.raises(JobMissing):
        await bench.queue.update_progress(bench.mint.new(), "x")


async def test_job_logs(bench: LeaseBench) -> None:
    """scenario 30 job_logs"""
    job_id = await bench.add()
    assert await bench.queue.get_job_logs(job_id) == []
    assert [await bench.queue.add_log(job_id, line) for line in "ab"] == [1, 2]
    assert await bench.queue.add_log(job_id, "c", keep=2) == 2
    assert await bench.queue.get_job_logs(job_id) == ["b", "c"]
    missing = bench.mint.new()
    assert await bench.queue.get_job_logs(missing) is None
    with pytest.raises(JobMissing):
        await bench.queue.add_log(missing, "x")


async def test_remove_job(bench: LeaseBench) -> None:
    """scenario 31 remove_job; promise 3.31"""
    job_id = await bench.add(dedup_id="d1")
    await bench.queue.remove_job(job_id, "d1")
    assert await bench.queue.get_deduplication_job_id("d1") is None
    with pytest.raises(JobMissing):
        await bench.queue.remove_job(job_id)
    held = await bench.add()
    await bench.claimed()
    await bench.queue.mark([(held, 1)])
    bench.lapse(held)
    before = bench.dump()
    with pytest.raises(JobLocked):
        await bench.queue.remove_job(held)
    assert bench.dump() == before
    await bench.queue.unmark([(held, 1)])
    await bench.queue.remove_job(held)
    assert await bench.queue.get_job_state(held) == "absent"


@pytest.mark.parametrize("lapsed", [False, True], ids=["waiting", "in flight"])
async def test_remove_job_of_a_lane_leaves_no_phantom(bench: LeaseBench, lapsed: bool) -> None:
    job_id = await bench.add_to(A)
    if lapsed:
        await bench.lanes.claim()
        bench.lapse(job_id)
    await bench.queue.remove_job(job_id)
    assert await bench.lanes.claim() is None
    assert await bench.lanes.depth(A) == 0
    assert bench.get("gactive") is None
    assert bench.get("ring") is None


async def test_reprocess_job(bench: LeaseBench) -> None:
    """scenario 32 reprocess_job"""
    job_id = await bench.add()
    await bench.claimed()
    with pytest.raises(WrongState, match="not dead"):
        await bench.queue.reprocess_job(job_id)
    await bench.queue.retry(job_id, 1, 0, 1, "boom")
    await bench.queue.reprocess_job(job_id)
    assert "last_error" not in bench.row(job_id)
    assert await bench.queue.get_job_state(job_id) == "pending"
    with pytest.raises(JobMissing):
        await bench.queue.reprocess_job(bench.mint.new())


async def test_reprocess_job_gives_a_fresh_budget_and_keeps_the_token(bench: LeaseBench) -> None:
    """Without it a job that died of its attempts would die again at once."""
    job_id = await bench.add()
    for token in (1, 2):
        await bench.claimed()
        await bench.queue.retry(job_id, token, 0, 2, "boom")
        await bench.queue.promote()
    await bench.queue.reprocess_job(job_id)
    assert await bench.claimed() == (job_id, 3)
    assert await bench.queue.retry(job_id, 3, 0, 2, "boom") == "scheduled"
    await bench.queue.promote()
    assert await bench.claimed() == (job_id, 4)
    assert await bench.queue.retry(job_id, 4, 0, 2, "boom") == "dead"


async def test_reprocess_job_clears_the_stalls_and_goes_to_its_lane(bench: LeaseBench) -> None:
    job_id = await bench.add_to(A)
    for _ in range(2):
        await bench.lanes.claim()
        bench.lapse(job_id)
        await bench.queue.sweep_stalled(1)
    assert await bench.queue.get_job_state(job_id) == "dead"
    await bench.queue.reprocess_job(job_id)
    assert bench.get("pending") is None
    assert (await bench.lanes.claim() or ("",))[0] == job_id
    bench.lapse(job_id)
    assert await bench.queue.sweep_stalled(1) == ([job_id], [])
