# SPDX-License-Identifier: MIT
"""Completions of one loop turn travel together, and each of them ends as if it had travelled alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from echomq_pool.config.schema import KeepConfig, LimiterConfig
from echomq_pool.errors import DependenciesPending, JobError, LeaseLost, ReplyError, ServerUnready
from echomq_pool.plane import lock_gather
from echomq_pool.plane.base import Nothing, PlaneOptions, Taken
from echomq_pool.plane.calls import keep_map
from tests.support.planes import Bench, bench_on
from tests.support.servers import Server
from tests.support.wire import Wire

LOSSES = ["before", "after"]


async def several_taken(bench: Bench, wire: Wire, count: int, more: int = 0, **opts: Any) -> list[Taken]:
    """`count` jobs in hand and `more` that wait, after a turn with two completions: the next turn is a batch."""
    for _ in range(2):
        wire.add()
    warm = [await bench.taken() for _ in range(2)]
    await together(bench, warm)
    for _ in range(count + more):
        wire.add(**opts)
    found = [await bench.taken() for _ in range(count)]
    bench.link.log.clear()
    return found


async def together(bench: Bench, jobs: Sequence[Taken], *, fetch: bool = False) -> list[Any]:
    """Completes them all in one turn; results or errors."""
    moves = (bench.plane.complete(t.job, t.token, t.job.id.encode(), fetch=fetch) for t in jobs)
    return await asyncio.gather(*moves, return_exceptions=True)


def calls(bench: Bench) -> dict[str, int]:
    return {name: bench.link.log.count(name) for name in ("finishBatch", "moveToFinished")}


async def test_completions_of_one_turn_are_one_call_and_each_slot_gets_a_job_of_its_own(
    bench: Bench, wire: Wire
) -> None:
    jobs = await several_taken(bench, wire, 5, more=5)
    following = await together(bench, jobs, fetch=True)
    assert calls(bench) == {"finishBatch": 1, "moveToFinished": 0}
    assert [taken.token for taken in following] == [taken.token for taken in jobs]
    assert len({taken.job.id for taken in following}) == 5
    assert {taken.job.ats for taken in following} == {1}
    for taken in jobs:
        job = await bench.plane.load(taken.job.id)
        assert job is not None
        assert (job.returnvalue, job.atm) == (taken.job.id.encode(), 1)


async def test_whoever_did_not_ask_for_a_job_gets_none(bench: Bench, wire: Wire) -> None:
    jobs = await several_taken(bench, wire, 3, more=1)
    found = await asyncio.gather(
        *(bench.plane.complete(t.job, t.token, b"1", fetch=n > 0) for n, t in enumerate(jobs))
    )
    assert calls(bench) == {"finishBatch": 1, "moveToFinished": 0}
    assert found[0] is None
    assert isinstance(found[1], Taken)
    assert found[2] == Nothing()


async def test_a_batch_that_finds_nothing_tells_when_the_next_delayed_job_is_due(
    bench: Bench, wire: Wire
) -> None:
    jobs = await several_taken(bench, wire, 2)
    wire.add("later", delay=1_000)
    bench.client.zadd(bench.keys.key("delayed"), {"later": 9e15})
    assert await together(bench, jobs, fetch=True) == [Nothing(next_due_ms=int(9e15 / 4096))] * 2


async def test_a_lone_completion_goes_as_it_always_did(bench: Bench, wire: Wire) -> None:
    jobs = await several_taken(bench, wire, 2)
    for taken in jobs:
        assert await together(bench, [taken]) == [None]
    assert calls(bench) == {"finishBatch": 0, "moveToFinished": 2}


async def test_after_a_lone_turn_nobody_waits_for_the_end_of_one(bench: Bench, wire: Wire) -> None:
    jobs = await several_taken(bench, wire, 2)
    await together(bench, jobs[:1])
    bench.link.log.clear()
    move = asyncio.ensure_future(bench.plane.complete(jobs[1].job, jobs[1].token, b"1"))
    await asyncio.sleep(0)
    assert calls(bench)["moveToFinished"] == 1, "sent in the turn in which it was asked for"
    await move


async def test_a_long_result_goes_alone(bench: Bench, wire: Wire) -> None:
    """law 6: 32 results of 20 MB in one text are more than a server takes; it drops the connection"""
    jobs = await several_taken(bench, wire, 3)
    sizes = (lock_gather.LONGEST, lock_gather.LONGEST - 1, lock_gather.LONGEST + 1)
    values = [b"7" * size for size in sizes]
    await asyncio.gather(
        *(bench.plane.complete(t.job, t.token, value) for t, value in zip(jobs, values, strict=True))
    )
    assert calls(bench) == {"finishBatch": 1, "moveToFinished": 1}
    for taken, value in zip(jobs, values, strict=True):
        job = await bench.plane.load(taken.job.id)
        assert job is not None
        assert job.returnvalue == value


async def test_a_call_carries_so_many_and_no_more(bench: Bench, wire: Wire) -> None:
    most = lock_gather.MOST_JOBS
    jobs = await several_taken(bench, wire, 2 * most + 1, more=2 * most + 1)
    found = await together(bench, jobs, fetch=True)
    assert calls(bench) == {"finishBatch": 2, "moveToFinished": 1}
    assert len({taken.job.id for taken in found}) == len(jobs)


# --- what goes alone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opts",
    [
        {"removeOnComplete": 5},
        {"removeOnComplete": {"age": 60}},
        {"de": {"id": "x", "keepLastIfActive": True}},
        {"parent": True},
    ],
    ids=["count", "age", "deduplication", "parent"],
)
async def test_a_job_that_concerns_others_goes_alone(bench: Bench, wire: Wire, opts: dict[str, Any]) -> None:
    jobs = await several_taken(bench, wire, 2)
    if opts.pop("parent", False):
        wire.add("P", children=True)
        opts["parent"] = wire.child_of("P")
    wire.add("odd", **opts)
    odd = await bench.taken()
    bench.link.log.clear()
    assert await together(bench, [*jobs, odd]) == [None] * 3
    assert calls(bench) == {"finishBatch": 1, "moveToFinished": 1}
    assert await bench.plane.state("odd") == "completed"


@pytest.mark.parametrize(
    ("keep", "kind"),
    [
        (True, lock_gather.GONE),
        (0, lock_gather.GONE),
        (False, lock_gather.KEPT),
        (None, lock_gather.KEPT),
        ({}, lock_gather.KEPT),
        ({"count": -1, "limit": 5}, lock_gather.KEPT),
        (3, None),
        ({"count": 1000, "age": 86_400}, lock_gather.LIMITED),
        ({"age": 0}, None),
        ({"count": "3"}, None),
        ({"count": "all", "age": None, "limit": []}, lock_gather.KEPT),
    ],
)
def test_plain_is_what_looks_at_no_other_finished_job_or_as_the_group_does(
    keep: Any, kind: int | None
) -> None:
    group = keep_map(None, KeepConfig(count=1000, age_s=86_400))
    assert lock_gather.kind_within(keep_map(keep, KeepConfig()), group) == kind


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        ({"count": "3", "age": "0.5", "limit": 7.9}, {"count": 3, "age": 0.5, "limit": 7}),
        ({"count": "all", "age": {}, "limit": float("inf")}, {}),
        (float("inf"), {"count": 0}),
        ("yes", {"count": -1}),
    ],
)
def test_the_script_gets_numbers_whatever_a_producer_wrote(option: Any, kept: dict[str, float]) -> None:
    """law 13: it compares them when the job has left active already, and a text would lose the job there."""
    assert keep_map(option, KeepConfig()) == kept


async def test_a_group_with_a_limiter_sends_no_batches(server: Server, queue_name: str) -> None:
    options = PlaneOptions(limiter=LimiterConfig(max=1_000, duration_ms=1_000))
    async with bench_on(server, queue_name, options) as bench:
        jobs = await several_taken(bench, Wire(bench.client, queue_name), 3)
        assert await together(bench, jobs) == [None] * 3
        assert calls(bench) == {"finishBatch": 0, "moveToFinished": 3}


async def test_a_queue_with_a_limit_is_asked_for_a_batch_only_now_and_then(bench: Bench, wire: Wire) -> None:
    jobs = await several_taken(bench, wire, 6, more=6)
    bench.client.hset(bench.keys.key("meta"), "concurrency", 6)
    for number in range(0, 6, 2):
        following = await together(bench, jobs[number : number + 2], fetch=True)
        assert all(isinstance(taken, Taken) for taken in following)
    assert calls(bench) == {"finishBatch": 1, "moveToFinished": 6}


async def test_the_same_job_twice_in_one_turn_is_completed_once(bench: Bench, wire: Wire) -> None:
    """law 5"""
    jobs = await several_taken(bench, wire, 2)
    done = await together(bench, [jobs[0], jobs[0], jobs[1]])
    assert sum(answer is None for answer in done) == 2
    assert sum(isinstance(answer, JobError) for answer in done) == 1
    assert sum(e.startswith(f"completed jobId={jobs[0].job.id} ") for e in bench.get("events")) == 1


# --- refusals -----------------------------------------------------------------------------------------------------


async def test_a_stale_token_is_refused_and_the_others_are_done(bench: Bench, wire: Wire) -> None:
    """law 5"""
    jobs = await several_taken(bench, wire, 3, more=3)
    bench.client.set(bench.keys.lock(jobs[1].job.id), "other:1", px=60_000)
    before = bench.get(jobs[1].job.id)
    answers = await together(bench, jobs, fetch=True)
    assert isinstance(answers[1], LeaseLost)
    assert bench.get(jobs[1].job.id) == before
    assert isinstance(answers[0], Taken)
    assert isinstance(answers[2], Taken)


async def test_a_lapsed_lock_is_got_back_and_the_job_completed(bench: Bench, wire: Wire) -> None:
    """law 4"""
    jobs = await several_taken(bench, wire, 3)
    bench.lose_lock(jobs[2].job.id)
    assert await together(bench, jobs) == [None] * 3
    assert await bench.plane.state(jobs[2].job.id) == "completed"


async def test_children_that_are_pending_hold_up_only_their_parent(bench: Bench, wire: Wire) -> None:
    jobs = await several_taken(bench, wire, 3)
    bench.client.sadd(bench.keys.job(jobs[0].job.id) + ":dependencies", "emq:{x}:1")
    answers = await together(bench, jobs)
    assert isinstance(answers[0], DependenciesPending)
    assert answers[1:] == [None, None]


async def test_a_job_that_the_server_cannot_read_fails_alone(bench: Bench, wire: Wire) -> None:
    jobs = await several_taken(bench, wire, 3, more=3)
    bench.client.delete(bench.keys.job(jobs[1].job.id))
    bench.client.set(bench.keys.job(jobs[1].job.id), "no hash")
    answers = await together(bench, jobs, fetch=True)
    assert isinstance(answers[1], ReplyError)
    assert isinstance(answers[0], Taken)
    assert isinstance(answers[2], Taken)


# --- lost replies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_batch_whose_reply_is_lost_happens_exactly_once(
    bench: Bench, wire: Wire, loss: str, keep: bool
) -> None:
    """law 6: and each slot gets the job that was taken for it."""
    jobs = await several_taken(bench, wire, 4, more=4, removeOnComplete=not keep)
    bench.link.lose["finishBatch"] = [loss]
    following = await together(bench, jobs, fetch=True)
    assert [taken.token for taken in following] == [taken.token for taken in jobs]
    assert len({taken.job.id for taken in following}) == 4
    assert {taken.job.ats for taken in following} == {1}
    assert sorted(bench.get("active")) == sorted(taken.job.id for taken in following)
    events = [event for event in bench.get("events") if event.startswith("completed")]
    assert len(events) == len(set(events)) == 6
    assert calls(bench) == {"finishBatch": 1, "moveToFinished": 4 if loss == "before" else 0}


async def test_a_server_that_is_not_ready_gets_them_one_by_one(bench: Bench, wire: Wire) -> None:
    """law 6"""
    jobs = await several_taken(bench, wire, 2)
    script = bench.link.script

    def refused(found: Any, keys: Any, args: Any) -> Any:
        if found.name != "finishBatch":
            return script(found, keys, args)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_exception(ServerUnready("LOADING", "it loads its data"))
        return answer

    bench.link.script = refused  # type: ignore
    assert await together(bench, jobs) == [None, None]
    assert calls(bench)["moveToFinished"] == 2


async def test_what_was_taken_for_a_caller_who_gave_up_is_found_by_its_token(
    bench: Bench, wire: Wire
) -> None:
    """law 6"""
    jobs = await several_taken(bench, wire, 2, more=2)
    moves = [asyncio.ensure_future(bench.plane.complete(t.job, t.token, b"1", fetch=True)) for t in jobs]
    while not bench.link.log:
        await asyncio.sleep(0)
    moves[0].cancel()
    heard = await moves[1]
    assert isinstance(heard, Taken)
    found = await bench.plane.unknown_claims(bench.owner, [(heard.job.id, heard.token)])
    assert [taken.token for taken in found] == [jobs[0].token]
