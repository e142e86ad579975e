# SPDX-License-Identifier: MIT
"""What `plane/base.py` promises, on both planes. What only one of them can do is at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from echomq_pool.config.schema import LimiterConfig, RedisConfig
from echomq_pool.errors import JobError, JobMissing, LeaseLost, WrongPlane
from echomq_pool.plane.base import HeldRow, Nothing, Recovery, Taken
from echomq_pool.redisio.link import Link
from tests.support.contract import AFTER, VERBS, Contract, contract_on, held
from tests.support.servers import Server

PLANES = ("lock", "lease")


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
