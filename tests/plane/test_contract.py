# SPDX-License-Identifier: MIT
"""What both planes promise: `plane/base.py` to the pool, `Queue`, `SyncQueue` and `Job` to their users.

What only one of them can do is at the end.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from echomq_pool import Queue
from echomq_pool.api.job import Job
from echomq_pool.api.lease_gaps import JOB_GAPS, QUEUE_GAPS, SCHEDULE_GAPS
from echomq_pool.api.lease_job import LeaseJob
from echomq_pool.api.lease_jobs import LACKING
from echomq_pool.api.lease_queue import LeaseQueue
from echomq_pool.config.schema import LimiterConfig, RedisConfig
from echomq_pool.errors import (
    InputError,
    JobError,
    JobFailed,
    JobLocked,
    JobMissing,
    LeaseLost,
    QueueInUse,
    WrongPlane,
    WrongState,
)
from echomq_pool.plane.base import HeldRow, Nothing, Recovery, Taken
from echomq_pool.redisio.link import Link
from tests.support.contract import AFTER, VERBS, Contract, contract_on, face_on, held
from tests.support.servers import Server
from tests.support.waiting import eventually_async

PLANES = ("lock", "lease")

# Verbs that are the same on both planes since they need no script: what they touch has the same name and kind.
PLAIN = {
    "get_waiting", "get_active", "get_delayed", "get_failed", "get_job_logs", "count_job_logs", "get_workers",
    "get_workers_count", "get_meta", "is_paused", "get_global_concurrency", "set_global_rate_limit",
    "get_global_rate_limit", "remove_global_rate_limit", "rate_limit", "remove_rate_limit_key",
    "get_job_scheduler_ids", "get_job_schedulers_count",
    # of a job: by its state, through its plane, or through its queue
    "is_completed", "is_failed", "is_delayed", "is_active", "is_waiting", "is_prioritized", "is_waiting_children",
    "move_to_delayed", "move_to_wait", "move_to_completed", "move_to_failed", "wait_until_finished", "cancel",
}  # fmt: skip
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "clean": (0,), "trim_events": (1,), "get_counts_per_priority": ([1],), "repair_job_scheduler": ("s",),
}  # fmt: skip


@pytest.fixture(params=PLANES)
async def queue(request: pytest.FixtureRequest, server: Server, queue_name: str) -> AsyncIterator[Contract]:
    """A fresh queue on each plane, on each server."""
    async with contract_on(request.param, server, queue_name) as contract:
        yield contract


# --- claiming ---------------------------------------------------------------------------------------------


async def test_jobs_are_taken_in_their_order_and_then_there_is_nothing(queue: Contract) -> None:
    ids = [await queue.add() for _ in range(3)]
    assert [(await queue.taken()).job.id for _ in ids] == ids
    assert await queue.nothing() == Nothing()


async def test_a_taken_job_is_whole_and_active(queue: Contract) -> None:
    job_id = await queue.add(attempts=4)
    job = (await queue.taken()).job
    assert (job.id, job.name, job.data, job.attempts) == (job_id, "job", b"{}", 4)
    assert (job.ats, job.atm, job.stc) == (1, 0, 0)
    assert job.timestamp > 1_700_000_000_000
    assert await queue.plane.state(job_id) == "active"
    assert (await queue.plane.load(job_id) or job).id == job_id


async def test_takes_of_one_turn_bring_different_jobs(queue: Contract) -> None:
    ids = [await queue.add() for _ in range(12)]
    found = await asyncio.gather(*(queue.plane.take(queue.token()) for _ in range(20)))
    jobs = [t.job.id for t in found if isinstance(t, Taken)]
    assert sorted(jobs) == sorted(ids)


@pytest.mark.parametrize("loss", ["before", "after"])
async def test_a_claim_whose_reply_is_lost_is_not_lost(queue: Contract, loss: str) -> None:
    """law 6"""
    job_id = await queue.add()
    queue.link.lose[queue.moved["take"]] = [loss]
    assert (await queue.taken()).job.id == job_id
    await queue.nothing()


# --- settling ---------------------------------------------------------------------------------------------


async def test_a_completed_job_is_counted_and_the_next_one_comes_with_it(queue: Contract) -> None:
    _, following = await queue.add(), await queue.add()
    taken = await queue.taken()
    fetched = await queue.plane.complete(taken.job, taken.token, b'"ok"', fetch=True)
    assert isinstance(fetched, Taken)
    assert fetched.job.id == following
    assert await queue.plane.complete(fetched.job, fetched.token, b"1", fetch=True) == Nothing()
    assert await queue.plane.counts("completed", "active") == {"completed": 2, "active": 0}


@pytest.mark.parametrize("verb", AFTER)
async def test_each_transition_leads_to_its_state(queue: Contract, verb: str) -> None:
    job_id = await queue.add(attempts=3)
    taken = await queue.taken()
    await VERBS[verb](queue, taken, taken.token)
    assert await queue.plane.state(job_id) == AFTER[verb]
    job = await queue.plane.load(job_id)
    assert job is not None
    if verb != "release":
        assert (job.failed_reason, job.stacktrace) == ("boom", ["trace"])
    assert job.atm == (0 if verb == "release" else 1)


@pytest.mark.parametrize(("verb", "atm"), [("retry", 1), ("delay", 1), ("release", 0)])
async def test_the_next_run_knows_how_many_there_were(queue: Contract, verb: str, atm: int) -> None:
    await queue.add(attempts=5)
    taken = await queue.taken()
    await VERBS[verb](queue, taken, taken.token)
    await queue.make_due()
    again = (await queue.taken()).job
    assert (again.ats, again.atm) == (2, atm)


async def test_a_delay_may_cost_no_attempt(queue: Contract) -> None:
    await queue.add(attempts=5)
    taken = await queue.taken()
    await queue.plane.delay(taken.job, taken.token, 60_000, skip_attempt=True)
    await queue.make_due()
    assert (await queue.taken()).job.atm == 0


async def test_a_released_job_is_the_next_to_run(queue: Contract) -> None:
    first, _ = await queue.add(), await queue.add()
    taken = await queue.taken()
    await queue.plane.release(taken.job, taken.token)
    assert (await queue.taken()).job.id == first


async def test_a_job_that_is_due_later_is_taken_when_it_is_due(queue: Contract) -> None:
    job_id = await queue.add(delay=60_000)
    found = await queue.nothing()
    assert found.next_due_ms > 0
    assert await queue.plane.state(job_id) == "delayed"
    await queue.make_due()
    assert (await queue.taken()).job.id == job_id


@pytest.mark.parametrize("loss", ["before", "after"])
@pytest.mark.parametrize("verb", VERBS)
async def test_a_transition_whose_reply_is_lost_happens_once(queue: Contract, verb: str, loss: str) -> None:
    """law 6"""
    job_id = await queue.add(attempts=3)
    taken = await queue.taken()
    queue.link.lose[queue.moved[verb]] = [loss]
    await VERBS[verb](queue, taken, taken.token)
    counts = await queue.plane.counts("completed", "failed", "active", "waiting", "delayed")
    assert sum(counts.values()) == 1
    if verb in AFTER:
        assert await queue.plane.state(job_id) == AFTER[verb]


# --- tokens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
async def test_a_stale_token_changes_nothing(queue: Contract, verb: str) -> None:
    """law 5"""
    job_id = await queue.add(attempts=9)
    old = await queue.taken()
    queue.lapse(job_id)
    assert await queue.sweep() == [job_id]
    await queue.taken(queue.token())
    before = queue.dump()
    with pytest.raises(LeaseLost):
        await VERBS[verb](queue, old, old.token)
    assert await queue.plane.extend([(job_id, old.token)]) == [job_id]
    assert await queue.plane.reacquire([HeldRow(job_id, old.token, old.job.ats)]) == [job_id]
    assert queue.dump() == before


@pytest.mark.parametrize("verb", VERBS)
async def test_a_transition_is_made_once_only(queue: Contract, verb: str) -> None:
    """law 5"""
    await queue.add(attempts=9)
    taken = await queue.taken()
    await VERBS[verb](queue, taken, taken.token)
    before = queue.dump()
    for again in VERBS.values():
        with pytest.raises(JobError):
            await again(queue, taken, taken.token)
    assert queue.dump() == before


async def test_the_number_of_takes_only_grows(queue: Contract) -> None:
    await queue.add(attempts=99)
    numbers = []
    for verb in ("release", "retry", "delay", "release"):
        taken = await queue.taken()
        numbers.append(taken.job.ats)
        await VERBS[verb](queue, taken, taken.token)
        await queue.make_due()
    assert numbers == [1, 2, 3, 4]


# --- leases -----------------------------------------------------------------------------------------------


async def test_extending_names_what_could_not_be_extended(queue: Contract) -> None:
    for _ in range(2):
        await queue.add()
    first, second = await queue.taken(), await queue.taken()
    pairs = [(first.job.id, first.token), (second.job.id, "no:9"), ("JOB0NgWEfAEJfs", first.token)]
    assert await queue.plane.extend(pairs) == [second.job.id, "JOB0NgWEfAEJfs"]
    assert await queue.plane.extend([]) == []


async def test_a_lapsed_lease_is_taken_back_while_nobody_has_the_job(queue: Contract) -> None:
    """law 4"""
    job_id = await queue.add()
    taken = await queue.taken()
    queue.lapse(job_id)
    assert await queue.plane.probe() == [job_id]
    assert await queue.plane.reacquire([HeldRow(job_id, taken.token, taken.job.ats)]) == []
    assert await queue.plane.probe() == []
    await queue.plane.complete(taken.job, taken.token, b"1")


async def test_a_lapsed_lease_does_not_stop_the_settling(queue: Contract) -> None:
    """law 4"""
    job_id = await queue.add()
    taken = await queue.taken()
    queue.lapse(job_id)
    await queue.plane.complete(taken.job, taken.token, b"1")
    assert (await queue.plane.counts("completed"))["completed"] == 1


async def test_the_sweep_counts_and_gives_up_in_the_end(queue: Contract) -> None:
    job_id = await queue.add(attempts=9)
    await queue.taken()
    queue.lapse(job_id)
    assert await queue.sweep() == [job_id]
    assert await queue.plane.state(job_id) == "waiting"
    again = await queue.taken()
    assert again.job.stc == 1
    queue.lapse(job_id)
    await queue.sweep()
    found = await queue.plane.take(queue.token())
    if isinstance(found, Taken):  # the lock plane leaves the failing to the next taker
        assert found.job.defa
    else:
        assert await queue.plane.state(job_id) == "failed"


# --- dead workers -----------------------------------------------------------------------------------------


async def test_a_dead_workers_jobs_come_back_at_once_and_count(queue: Contract) -> None:
    """law 1"""
    ids = [await queue.add() for _ in range(3)]
    for _ in range(2):
        await queue.taken()
    other = await queue.taken("11111111-1111-1111-1111-111111111111:0")
    found = await queue.plane.recover(queue.owner, planned=False, evidence="SIGKILL")
    assert sorted(found, key=lambda r: r.id) == [Recovery(i, "wait", 1) for i in sorted(ids[:2])]
    assert await queue.plane.state(other.job.id) == "active"
    again = await queue.taken()
    assert (again.job.id, again.job.stc, again.job.stacktrace) == (ids[0], 1, ["SIGKILL"])
    assert await queue.plane.recover(queue.owner, planned=False) != []


async def test_a_hand_back_counts_nothing(queue: Contract) -> None:
    """law 2"""
    job_id = await queue.add()
    for number in range(1, 4):
        taken = await queue.taken()
        assert (taken.job.ats, taken.job.atm, taken.job.stc) == (number, 0, 0)
        assert await queue.plane.recover(queue.owner, planned=True) == [Recovery(job_id, "wait", 0)]
        with pytest.raises(JobError):
            await queue.plane.complete(taken.job, taken.token, b"1")


async def test_a_job_is_dead_after_one_death_too_many(queue: Contract) -> None:
    await queue.add(attempts=9)
    wheres = []
    for _ in range(2):
        await queue.taken()
        wheres += [r.where for r in await queue.plane.recover(queue.owner, planned=False)]
    assert wheres == ["wait", "failed"]


@pytest.mark.parametrize(
    ("opts", "how", "where", "state"),
    [
        ({"attempts": 3}, "timeout", "wait", "waiting"),
        ({"attempts": 3, "backoff": {"type": "fixed", "delay": 60_000}}, "timeout", "delayed", "delayed"),
        ({"attempts": 1}, "timeout", "failed", "failed"),
        ({"attempts": 3}, "cancel", "failed", "failed"),
    ],
)
async def test_an_expired_job_is_settled_by_its_policy(
    queue: Contract, opts: dict[str, Any], how: str, where: str, state: str
) -> None:
    job_id = await queue.add(**opts)
    taken = await queue.taken()
    assert await queue.plane.settle_for(held(taken), how, "too slow") == where
    assert await queue.plane.state(job_id) == state
    assert await queue.plane.settle_for(held(taken), how, "too slow") == "gone"


async def test_claims_that_nobody_knows_of_are_shown(queue: Contract) -> None:
    """law 6"""
    for _ in range(3):
        await queue.add()
    known, unknown = await queue.taken(), await queue.taken()
    await queue.taken("11111111-1111-1111-1111-111111111111:0")
    found = await queue.plane.unknown_claims(queue.owner, [(known.job.id, known.token)])
    assert [(t.job.id, t.token) for t in found] == [(unknown.job.id, unknown.token)]


# --- what a processor does, and waiting -----------------------------------------------------------------------


async def test_progress_log_and_data(queue: Contract) -> None:
    job_id = await queue.add()
    await queue.taken()
    await queue.plane.progress(job_id, b"50")
    await queue.plane.update_data(job_id, b'{"n":2}')
    assert [await queue.plane.log(job_id, line) for line in "ab"] == [1, 2]
    assert await queue.plane.log(job_id, "c", 2) == 2
    job = await queue.plane.load(job_id)
    assert job is not None
    assert (job.progress, job.data) == (50, b'{"n":2}')


async def test_a_job_that_is_not_there_says_so(queue: Contract) -> None:
    missing = "JOB0NgWEfAEJfs"
    plane = queue.plane
    for verb in (plane.progress(missing, b"1"), plane.update_data(missing, b"{}"), plane.log(missing, "x")):
        with pytest.raises(JobMissing):
            await verb
    assert await queue.plane.load(missing) is None
    assert await queue.plane.state(missing) == "unknown"
    assert queue.dump() == {}


async def test_waiting_ends_when_a_job_comes(queue: Contract, server: Server) -> None:
    """law 11"""
    blocking = Link(RedisConfig(url=server.url, port=server.port), blocking=True)
    await blocking.start()
    await blocking.ready()
    try:
        assert await queue.plane.wait(blocking, 5) is None
        waiting = asyncio.ensure_future(queue.plane.wait(blocking, 20_000))
        await queue.add()
        assert await asyncio.wait_for(waiting, 10) == 0
    finally:
        await blocking.close()


@pytest.mark.parametrize("kind", PLANES)
async def test_the_rate_of_takes_is_held(kind: str, server: Server, queue_name: str) -> None:
    async with contract_on(kind, server, queue_name, LimiterConfig(max=2, duration_ms=60_000)) as queue:
        for _ in range(3):
            await queue.add()
        for _ in range(2):
            await queue.taken()
        assert 0 < (await queue.nothing()).limited_ms <= 60_000


@pytest.mark.parametrize("kind", PLANES)
async def test_a_processor_may_stop_all_takes(kind: str, server: Server, queue_name: str) -> None:
    async with contract_on(kind, server, queue_name, LimiterConfig(max=100, duration_ms=1_000)) as queue:
        await queue.add()
        await queue.add()
        taken = await queue.taken()
        await queue.plane.rate_limit(30_000)
        assert await queue.plane.release(taken.job, taken.token) > 1_000
        assert (await queue.nothing()).limited_ms > 1_000


async def test_a_paused_queue_gives_nothing(queue: Contract) -> None:
    await queue.add()
    queue.client.hset(queue.base + "meta", "paused", 1)
    await queue.nothing()


async def test_a_queue_may_have_a_ceiling(queue: Contract) -> None:
    queue.client.hset(queue.base + "meta", "concurrency", 1)
    await queue.add()
    await queue.add()
    taken = await queue.taken()
    await queue.nothing()
    await queue.plane.complete(taken.job, taken.token, b"1")
    await queue.taken()


# --- the face: producers and operators ----------------------------------------------------------------------


@pytest.fixture(params=["async", "sync"])
async def face(
    request: pytest.FixtureRequest, queue: Contract, server: Server, queue_name: str
) -> AsyncIterator[Any]:
    """The same queue as its users see it, by either kind of producer."""
    async with face_on(queue.kind, request.param, server, queue_name) as face:
        yield face


async def ids(jobs: Any) -> list[str]:
    return [job.id for job in await jobs]


async def test_jobs_are_listed_by_state_in_pages_from_either_end(face: Any, queue: Contract) -> None:
    added = [(await face.add(f"n{n}")).id for n in range(7)]
    later = [(await face.add("later", delay=delay)).id for delay in (60_000, 30_000)]
    dead, busy = await queue.taken(), await queue.taken()
    await queue.plane.fail(dead.job, dead.token, "boom", ["trace"])
    assert await ids(face.get_waiting()) == added[2:]
    assert await ids(face.get_waiting(1, 2)) == added[3:5]
    assert await ids(face.get_waiting(-2, -1)) == added[-2:]
    assert await ids(face.get_waiting(9, 12)) == []
    assert await ids(face.get_jobs("waiting", 0, 1)) == added[:-3:-1], "the newest first"
    assert await ids(face.get_jobs(["wait", "active"], asc=True)) == [*added[2:], busy.job.id]
    assert await ids(face.get_active()) == [busy.job.id]
    assert await ids(face.get_delayed()) == later[::-1], "the next due first"
    (failed,) = await face.get_failed()
    assert (failed.id, failed.name, failed.failed_reason) == (dead.job.id, "n0", "boom")
    everything = await ids(face.get_jobs())
    assert sorted(everything) == sorted([*added, *later])
    with pytest.raises(InputError, match="no state 'lost'"):
        await face.get_jobs("lost")


async def test_counts_under_either_name_and_as_text(face: Any, queue: Contract) -> None:
    await face.add_bulk([("a", {}, {}), ("b", {}, {"delay": 60_000})])
    await queue.taken()
    assert await face.counts("active", "delayed", "waiting") == {"active": 1, "delayed": 1, "waiting": 0}
    assert await face.get_job_counts("wait") == {"waiting": 0}
    assert await face.count() == 1
    text = await face.export_prometheus_metrics({"shop": 'a"b'})
    name = face.keys.wire_name
    assert f'bullmq_job_count{{queue="{name}", state="active", shop="a\\"b"}} 1' in text.splitlines()
    with pytest.raises(InputError):
        await face.get_metrics("cancelled")


async def test_logs_and_progress_of_a_job_known_by_its_id(face: Any) -> None:
    job = await face.add("a")
    assert [await face.add_job_log(job.id, row) for row in "abcd"] == [1, 2, 3, 4]
    assert await face.add_job_log(job.id, "e", 4) == 4
    assert await face.count_job_logs(job.id) == 4
    assert await face.get_job_logs(job.id, 1, -2) == ["c", "d"]
    assert await face.get_job_logs(job.id, 0, 1, asc=False) == ["e", "d"]
    await job.clear_logs(1)
    assert await face.get_job_logs(job.id) == ["e"]
    await face.update_job_progress(job.id, {"half": True})
    assert await job.refresh()
    assert job.progress == {"half": True}
    with pytest.raises(JobMissing):
        await face.update_job_progress("JOB0NgWEfAEJfs", 1)


async def test_a_delayed_job_is_promoted_or_moved_in_time(face: Any, queue: Contract) -> None:
    first, second = [await face.add("a", delay=60_000) for _ in range(2)]
    await second.change_delay(10_000)
    assert await ids(face.get_delayed()) == [second.id, first.id]
    await first.promote()
    assert await first.state() == "waiting"
    assert (await queue.taken()).job.id == first.id
    for verb in (first.promote(), first.change_delay(1)):
        with pytest.raises(WrongState):
            await verb
    await second.remove()
    for gone in (second.promote(), second.change_delay(1)):
        with pytest.raises(JobError):
            await gone
    with pytest.raises(InputError):
        await second.change_delay(-1)


async def test_all_delayed_jobs_are_promoted_and_all_failed_ones_retried(face: Any, queue: Contract) -> None:
    added = [(await face.add("a", delay=60_000)).id for _ in range(5)]
    await face.promote_jobs(count=2)
    assert sorted(await ids(face.get_waiting())) == sorted(added)
    for _ in added:
        taken = await queue.taken()
        await queue.plane.fail(taken.job, taken.token, "boom", [])
    await face.retry_jobs(count=2)
    assert await face.get_job_counts("failed", "waiting") == {"failed": 0, "waiting": 5}
    again = await queue.taken()
    assert (again.job.ats, again.job.failed_reason) == (2, None)


async def test_a_failed_job_is_retried_by_itself(face: Any, queue: Contract) -> None:
    job = await face.add("a")
    with pytest.raises(WrongState):
        await job.retry()
    taken = await queue.taken()
    await queue.plane.fail(taken.job, taken.token, "boom", [])
    await job.retry()
    assert await job.state() == "waiting"


async def test_limits_of_the_whole_queue(face: Any, queue: Contract) -> None:
    assert await face.get_global_concurrency() is None
    assert not await face.is_maxed()
    await face.set_global_concurrency(1)
    assert await face.get_global_concurrency() == 1
    await face.add("a")
    taken = await queue.taken()
    assert await face.is_maxed()
    await queue.plane.complete(taken.job, taken.token, b"1")
    assert not await face.is_maxed()
    await face.remove_global_concurrency()
    assert await face.get_global_concurrency() is None
    for bad in (0, True, 1.5):
        with pytest.raises(InputError):
            await face.set_global_concurrency(bad)


async def test_the_rate_of_the_whole_queue(face: Any, queue: Contract) -> None:
    assert await face.get_global_rate_limit() is None
    await face.set_global_rate_limit(1, 60_000)
    assert await face.get_global_rate_limit() == (1, 60_000)
    await face.add_bulk([("a", {}), ("b", {})])
    assert await face.get_rate_limit_ttl() <= 0
    await queue.taken()
    assert 0 < await face.get_rate_limit_ttl() <= 60_000
    assert (await queue.nothing()).limited_ms > 0
    assert await face.remove_rate_limit_key()
    assert not await face.remove_rate_limit_key()
    await queue.taken()
    await face.rate_limit(90_000)
    assert 60_000 < await face.get_rate_limit_ttl() <= 90_000
    await face.remove_global_rate_limit()
    assert await face.get_global_rate_limit() is None
    with pytest.raises(InputError):
        await face.set_global_rate_limit(1, None)


async def test_a_queue_is_paused_drained_and_thrown_away(face: Any, queue: Contract) -> None:
    await face.add_bulk([("a", {}), ("b", {}), ("c", {}, {"delay": 60_000})])
    await face.pause()
    assert await face.is_paused()
    assert (await face.get_meta())["paused"] == "1"
    await queue.nothing()
    await face.resume()
    assert not await face.is_paused()
    taken = await queue.taken()
    with pytest.raises(JobLocked):
        await face.remove(taken.job.id)
    await face.drain()
    assert await face.get_job_counts("waiting", "active", "delayed") == {
        "waiting": 0, "active": 1, "delayed": 1,
    }  # fmt: skip
    with pytest.raises(QueueInUse, match="active"):
        await face.obliterate()
    await face.obliterate(force=True)
    assert queue.dump() == {}


async def test_a_deduplication_id_has_an_owner_and_can_be_freed(face: Any) -> None:
    job = await face.add("a", deduplication={"id": "once"})
    assert await face.get_deduplication_job_id("once") == job.id
    assert await face.remove_deduplication_key("once")
    assert not await face.remove_deduplication_key("once")
    owner = await face.add("b", deduplication={"id": "once"})
    assert owner.id != job.id
    job = await face.get_job(job.id)
    assert not await job.remove_deduplication_key(), "it is another's by now"
    owner = await face.get_job(owner.id)
    assert await owner.remove_deduplication_key()
    assert await face.get_deduplication_job_id("once") is None


async def test_a_schedule_is_made_seen_replaced_and_removed(face: Any) -> None:
    await face.upsert_job_scheduler("often", every=60_000, name="tick", data={"n": 1}, opts={"attempts": 3})
    await face.upsert_job_scheduler("rarely", pattern="0 0 0 1 1 *", tz="Europe/Berlin")
    often = await face.get_job_scheduler("often")
    assert (often.id, often.name, often.every_ms, often.data) == ("often", "tick", 60_000, b'{"n":1}')
    assert often.opts["attempts"] == 3
    assert await face.get_job_scheduler_ids() == ["often", "rarely"]
    assert await face.get_job_schedulers_count() == 2
    last = await face.get_job_schedulers(0, 0)
    assert [(s.id, s.pattern, s.tz) for s in last] == [("rarely", "0 0 0 1 1 *", "Europe/Berlin")]
    assert [s.id for s in await face.get_job_schedulers(asc=True)] == ["often", "rarely"]
    await face.upsert_job_scheduler("often", every=120_000, name="tock")
    replaced = await face.get_job_scheduler("often")
    assert (replaced.every_ms, replaced.name, replaced.data) == (120_000, "tock", b"{}")
    assert await face.remove_job_scheduler("often")
    assert not await face.remove_job_scheduler("often")
    assert await face.get_job_scheduler("often") is None
    assert await face.get_job_scheduler_ids() == ["rarely"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"every": 1, "pattern": "* * * * * *"},
        {"every": 0},
        {"pattern": "x"},
        {"every": 5, "tz": "No/Where"},
    ],
)
async def test_a_schedule_that_cannot_be_is_refused(
    face: Any, queue: Contract, options: dict[str, Any]
) -> None:
    """law 13"""
    with pytest.raises(InputError):
        await face.upsert_job_scheduler("s", **options)
    with pytest.raises(InputError):
        await face.upsert_job_scheduler(" ", every=1_000)
    assert set(queue.dump()) <= {"meta"}


async def test_workers_are_seen_by_the_names_of_their_connections(face: Any, server: Server) -> None:
    names = [face.keys.worker_client_name(), face.keys.worker_client_name("web-1")]
    links = [Link(RedisConfig(url=server.url, port=server.port), name=name) for name in names]
    for link in links:
        await link.start()
        await link.ready()
    assert sorted(worker["rawname"] for worker in await face.get_workers()) == sorted(names)
    assert await face.get_workers_count() == 2
    for link in links:
        await link.close()


async def test_jobs_in_no_state_are_found_and_removed(face: Any, queue: Contract) -> None:
    kept = [await face.add("a"), await face.add("b", delay=60_000)]
    before = queue.dump()
    place = queue.base + ("job:" if queue.kind == "lease" else "")
    for n in range(10, 20):
        queue.client.hset(f"{place}JOB0NgWEfAEJ{n}", mapping={"name": "n", "attempts": 0, "state": "active"})
        queue.client.rpush(f"{place}JOB0NgWEfAEJ{n}:logs", "row")
    assert await face.remove_orphaned_jobs(count=3) == 10
    assert queue.dump() == before
    assert len(kept) == await face.count()


async def test_a_wait_ends_with_the_job(face: Any, queue: Contract) -> None:
    good, bad = await face.add("a"), await face.add("b")
    waits = [asyncio.create_task(face.wait_until_finished(job.id, 30)) for job in (good, bad)]
    first, second = await queue.taken(), await queue.taken()
    if queue.kind == "lease":  # its ends are heard by those who listen already
        channel = f"{queue.base}events"
        await eventually_async(lambda: dict(queue.client.pubsub_numsub(channel))[channel.encode()] > 0)
    await queue.plane.complete(first.job, first.token, b'{"n":1}')
    await queue.plane.fail(second.job, second.token, "boom", [])
    assert await waits[0] == {"n": 1}
    with pytest.raises(JobFailed, match="boom"):
        await waits[1]


# --- what only one has ----------------------------------------------------------------------------------------


def verbs_of(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction) if name[0] != "_"}


@pytest.mark.parametrize(
    ("lock", "lease", "gaps"),
    [(Queue, LeaseQueue, QUEUE_GAPS), (Job, LeaseJob, JOB_GAPS)],
    ids=["queue", "job"],
)
def test_every_verb_is_there_on_both_planes_or_refused_by_name(
    lock: type, lease: type, gaps: dict[str, str]
) -> None:
    """law 13; a verb that is inherited must need no script of the lock plane"""
    inherited = {verb for verb in verbs_of(lock) if getattr(lock, verb) is getattr(lease, verb)}
    assert set(gaps) <= verbs_of(lock)
    assert inherited.isdisjoint(gaps)
    assert inherited <= PLAIN, f"written with the lock plane in mind: {inherited - PLAIN}"


@pytest.mark.parametrize("twin", ["async", "sync"])
async def test_what_the_lease_plane_lacks_is_refused_naming_verb_and_plane(
    twin: str, server: Server, queue_name: str
) -> None:
    """law 13; nothing is written"""
    async with face_on("lease", twin, server, queue_name) as face:
        job = await face.add("a", delay=60_000)
        for target, gaps in ((face, QUEUE_GAPS), (job, JOB_GAPS)):
            for verb, reason in gaps.items():
                with pytest.raises(WrongPlane) as refused:
                    await getattr(target, verb)(*ARGUMENTS.get(verb, ()))
                assert str(refused.value) == (
                    f"{verb}: queue {queue_name} is on the lease plane, which has no such verb: {reason}"
                )
        for refused_by_value in (
            face.get_jobs("completed"),
            face.get_jobs(["waiting", "prioritized"]),
            face.get_dependencies(job.id, "pending"),
            job.get_dependencies_page("unprocessed"),
            job.retry("completed"),
            face.retry_jobs("completed"),
            face.retry_jobs(timestamp=1),
            face.upsert_job_scheduler("s", every=1_000, limit=3),
            face.upsert_job_scheduler("s", every=1_000, start=1),
            face.upsert_job_scheduler("s", every=1_000, opts={"priority": 1}),
            face.upsert_job_scheduler("s", every=1_000, opts={"delay": 1}),
        ):
            with pytest.raises(WrongPlane, match=r"lease plane|a repeat's jobs"):
                await refused_by_value
        assert await face.get_job_schedulers_count() == 0


def test_the_table_of_the_planes_names_every_gap() -> None:
    """law 13"""
    page = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = page.partition("### What only one plane can do")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)", table))
    assert set(QUEUE_GAPS) | set(JOB_GAPS) | set(SCHEDULE_GAPS) <= named
    kin = {"continueParentOnFailure", "ignoreDependencyOnFailure", "removeDependencyOnFailure"}
    options = {re.sub("[A-Z]", lambda m: "_" + m.group().lower(), name) for name in set(LACKING) - kin}
    assert options <= named


# --- one queue, one plane -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PLANES)
async def test_a_queue_belongs_to_one_plane(kind: str, server: Server, queue_name: str) -> None:
    other = PLANES[1 - PLANES.index(kind)]
    async with contract_on(kind, server, queue_name) as mine, contract_on(other, server, queue_name) as yours:
        await mine.plane.open()
        await mine.add()
        await mine.plane.open()
        before = mine.dump()
        with pytest.raises(WrongPlane, match=kind):
            await yours.plane.open()
        assert mine.dump() == before
        await mine.taken()
        with pytest.raises(WrongPlane):
            await yours.plane.open()


async def test_parents_wait_in_the_middle_of_a_run_on_the_lock_plane_only(queue: Contract) -> None:
    await queue.add()
    taken = await queue.taken()
    if queue.kind == "lock":
        assert await queue.plane.wait_children(taken.job, taken.token) is False
    else:
        with pytest.raises(WrongPlane):
            await queue.plane.wait_children(taken.job, taken.token)
