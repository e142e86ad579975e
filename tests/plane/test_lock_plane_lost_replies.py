# SPDX-License-Identifier: MIT
"""Law 6, row by row: what is done when a reply is lost, whether the script ran or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from echomq_pool.errors import LeaseLost, LinkDown
from echomq_pool.plane import upkeep
from echomq_pool.plane.base import HeldRow, Nothing, Taken
from echomq_pool.plane.calls import Call
from echomq_pool.plane.repeat import RULES, Fate, Rule, Verdict, judge
from tests.support.planes import LIBRARY, Bench
from tests.support.wire import Wire

LOSSES = ["before", "after"]


def test_every_script_of_ours_has_its_row() -> None:
    """law 6"""
    assert set(LIBRARY) <= set(RULES), "a script without a rule"
    assert set(RULES) - set(LIBRARY) <= {"addFlow"}, (
        "a rule without a script (a flow is made of the add scripts)"
    )


JUDGEMENTS = [
    # lock, exists, ats, stc, active → of a job taken with ats 1, stc 0
    (Fate(1, True, 1, 0, True), Verdict.REPEAT),
    (Fate(0, True, 1, 0, True), Verdict.REACQUIRE),
    (Fate(2, True, 1, 0, True), Verdict.LOST),
    (Fate(0, False, 0, 0, False), Verdict.DONE),
    (Fate(0, True, 1, 0, False), Verdict.DONE),
    (Fate(0, True, 1, 1, False), Verdict.LOST),
    (Fate(2, True, 2, 0, True), Verdict.DONE),
    (Fate(1, True, 2, 0, True), Verdict.DONE),
    (Fate(2, True, 2, 1, True), Verdict.LOST),
]


@pytest.mark.parametrize(("fate", "verdict"), JUDGEMENTS)
def test_a_doubtful_transition_is_judged_by_takes_and_stalls(fate: Fate, verdict: Verdict) -> None:
    """law 6"""
    assert judge(fate, ats=1, stc=0) is verdict


Move = Callable[[Bench, Taken], Awaitable[Any]]

# script → (how it is asked for, where the job is afterwards, its attempts made)
MOVES: dict[str, tuple[str, Move, str, int]] = {
    "complete": ("moveToFinished", lambda b, t: b.plane.complete(t.job, t.token, b"1"), "completed", 1),
    "fail": ("moveToFinished", lambda b, t: b.plane.fail(t.job, t.token, "no", []), "failed", 1),
    "retry": ("retryJob", lambda b, t: b.plane.retry(t.job, t.token, "no", []), "waiting", 1),
    "delay": ("moveToDelayed", lambda b, t: b.plane.delay(t.job, t.token, 60_000), "delayed", 1),
    "release": ("moveJobFromActiveToWait", lambda b, t: b.plane.release(t.job, t.token), "waiting", 0),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("row", MOVES.values(), ids=MOVES.keys())
async def test_a_transition_whose_reply_is_lost_happens_exactly_once(
    bench: Bench, wire: Wire, row: tuple[str, Move, str, int], loss: str
) -> None:
    """law 6"""
    script, move, state, attempts = row
    wire.add(attempts=5)
    taken = await bench.taken()
    bench.link.lose[script] = [loss]
    await move(bench, taken)
    assert await bench.plane.state(taken.job.id) == state
    job = await bench.plane.load(taken.job.id)
    assert job is not None
    assert job.atm == attempts
    assert bench.link.log.count(script) == (2 if loss == "before" else 1)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_completion_that_removes_its_job_is_done_when_the_job_is_gone(
    bench: Bench, wire: Wire, loss: str
) -> None:
    """law 6"""
    wire.add(removeOnComplete=True)
    taken = await bench.taken()
    bench.link.lose["moveToFinished"] = [loss]
    await bench.plane.complete(taken.job, taken.token, b"1")
    assert await bench.plane.load(taken.job.id) is None
    assert bench.get("events")[-2].startswith(f"completed jobId={taken.job.id}")


@pytest.mark.parametrize("loss", LOSSES)
async def test_the_next_job_of_a_lost_fetch_is_found_and_run(bench: Bench, wire: Wire, loss: str) -> None:
    """law 6"""
    wire.add()
    wire.add()
    taken = await bench.taken()
    bench.link.lose["moveToFinished"] = [loss]
    following = await bench.plane.complete(taken.job, taken.token, b"1", fetch=True)
    assert isinstance(following, Taken)
    assert (following.job.id, following.token) == ("2", taken.token)
    assert following.job.ats == 1
    assert bench.get("active") == ["2"]


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_fetch_that_found_nothing_says_so(bench: Bench, wire: Wire, loss: str) -> None:
    """law 6"""
    wire.add()
    taken = await bench.taken()
    bench.link.lose["moveToFinished"] = [loss]
    assert isinstance(await bench.plane.complete(taken.job, taken.token, b"1", fetch=True), Nothing)


async def test_a_job_delayed_for_no_time_and_fetched_again_is_not_delayed_twice(
    bench: Bench, wire: Wire
) -> None:
    """law 6"""
    wire.add(attempts=5)
    taken = await bench.taken()
    bench.link.lose["moveToDelayed"] = ["after"]
    following = await bench.plane.delay(taken.job, taken.token, 0, fetch=True)
    assert isinstance(following, Taken)
    assert (following.job.id, following.job.ats, following.job.atm) == (taken.job.id, 2, 1)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_claim_whose_reply_is_lost_is_found_by_its_token(bench: Bench, wire: Wire, loss: str) -> None:
    """law 6"""
    wire.add()
    wire.add()
    bench.link.lose["moveToActive"] = [loss]
    taken = await bench.taken()
    assert taken.job.id == "1"
    assert bench.get("active") == ["1"]
    assert taken.job.ats == 1


async def test_a_loss_during_which_the_job_was_recovered_is_a_lost_lease(bench: Bench, wire: Wire) -> None:
    """law 5, law 6"""
    wire.add(attempts=5)
    taken = await bench.taken()

    async def recovered_by_the_sweep() -> None:
        bench.lose_lock(taken.job.id)
        wire.sweep_again()
        assert wire.sweep_again() == [taken.job.id]

    async def never_ran(bench: Bench) -> None:
        await recovered_by_the_sweep()

    lossy = bench.link
    lossy.lose["moveToFinished"] = ["before"]
    original = lossy.ready

    async def ready() -> None:
        if taken.job.id in (bench.get("active") or []):
            await never_ran(bench)
        await original()

    lossy.ready = ready  # type: ignore[method-assign]
    with pytest.raises(LeaseLost):
        await bench.plane.complete(taken.job, taken.token, b"1")
    assert await bench.plane.state(taken.job.id) == "waiting"


async def test_a_first_copy_that_runs_late_is_no_loss(bench: Bench, wire: Wire) -> None:
    """law 6"""
    wire.add()
    taken = await bench.taken()
    plane, lossy = bench.plane, bench.link
    lossy.lose["moveToFinished"] = ["before"]
    seen: list[str] = []
    original = lossy.script

    def script(found: Any, keys: Any, args: Any) -> Any:
        # The second sending finds that the first, believed lost, was carried out just before it.
        if found.name == "moveToFinished" and lossy.log.count("moveToFinished") == 1 and not seen:
            seen.append("late")
            original(found, keys, args)
        return original(found, keys, args)

    await plane.state(taken.job.id)
    lossy.script = script  # type: ignore[method-assign]
    lossy.log.append("moveToFinished")
    await plane.complete(taken.job, taken.token, b"1")
    assert seen == ["late"]
    assert await plane.state(taken.job.id) == "completed"


@pytest.mark.parametrize(
    "script",
    [
        name
        for name, rule in RULES.items()
        if rule is Rule.REPEAT and name in LIBRARY and not name.startswith("lease/")
    ],
)
async def test_what_may_be_repeated_ends_in_the_same_state_as_once(
    bench: Bench, wire: Wire, script: str
) -> None:
    """law 6"""
    wire.add("a")
    wire.add("b")
    wire.add("c")
    wire.upsert_scheduler("s", {"name": "n", "every": 60_000})
    taken = [await bench.taken() for _ in range(3)]
    bench.lose_lock(taken[1].job.id)
    bench.client.sadd(bench.keys.key("stalled"), taken[1].job.id)
    once = REPEATABLE[script]
    await once(bench, wire, taken)
    before = bench.dump()
    await once(bench, wire, taken)
    after = bench.dump()
    if script in SAYS_IT_TWICE:
        before.pop("events"), after.pop("events")
    if script in COUNTS_ADDS:
        before.pop("id"), after.pop("id")
    assert after == before


# An event more, or a gap in the ids, is what these leave behind: nothing that a job depends on.
SAYS_IT_TWICE = {"updateProgress", "pause", "addJobScheduler", "reacquire", "changeDelay", "cleanJobsInSet"}
COUNTS_ADDS = {"addJobScheduler"}

Once = Callable[[Bench, Wire, list[Taken]], Awaitable[Any]]


async def _sync(value: Any) -> Any:
    return value


REPEATABLE: dict[str, Once] = {
    "extendLock": lambda b, w, t: _sync(
        w.on("extendLock", f"{t[0].job.id}:lock stalled", t[0].token, 30_000, "a")
    ),
    "extendLocks": lambda b, w, t: b.plane.extend([(x.job.id, x.token) for x in t]),
    "releaseLock": lambda b, w, t: _sync(w.on("releaseLock", f"{t[0].job.id}:lock", t[0].token, "")),
    "reacquire": lambda b, w, t: b.plane.reacquire([HeldRow(x.job.id, x.token, x.job.ats) for x in t]),
    "moveStalledJobsToWait": lambda b, w, t: b.plane.sweep(),
    "recoverOwner": lambda b, w, t: b.plane.recover(b.owner, planned=False, evidence="killed"),
    "pause": lambda b, w, t: _sync(w.pause()),
    "updateData": lambda b, w, t: b.plane.update_data("a", b'{"x":1}'),
    "updateProgress": lambda b, w, t: b.plane.progress("a", b"5"),
    "saveStacktrace": lambda b, w, t: _sync(w.on("saveStacktrace", "a", '["x"]', "no")),
    "addJobScheduler": lambda b, w, t: _sync(w.upsert_scheduler("s", {"name": "n", "every": 60_000})),
    "updateJobScheduler": lambda b, w, t: _sync(w.advance_scheduler("s", _current(b))),
    "removeJobScheduler": lambda b, w, t: _sync(
        w.on("removeJobScheduler", "repeat delayed events", "s", w.base)
    ),
    "repairScheduler": lambda b, w, t: _repair(b),
    "changeDelay": lambda b, w, t: _later(
        b, lambda job: upkeep.change_delay(b.keys, job, 50, 9_000_000_000_000)
    ),
    "changePriority": lambda b, w, t: _later(b, lambda job: upkeep.change_priority(b.keys, job, 7, True)),
    "removeJob": lambda b, w, t: _later(b, lambda job: upkeep.remove(b.keys, job, True)),
    "removeUnprocessedChildren": lambda b, w, t: _later(
        b, lambda job: upkeep.remove_unprocessed(b.keys, job)
    ),
    "removeOrphanedJobs": lambda b, w, t: _later(b, lambda job: upkeep.remove_orphans(b.keys, ["lost", job])),
    "drain": lambda b, w, t: _later(b, lambda job: upkeep.drain(b.keys, True)),
    "cleanJobsInSet": lambda b, w, t: _later(
        b, lambda job: upkeep.clean(b.keys, "delayed", 9_000_000_000_000, 0)
    ),
    "moveJobsToWait": lambda b, w, t: _later(
        b, lambda job: upkeep.move_to_wait(b.keys, "delayed", 100, upkeep.EVERYTHING)
    ),
}


async def _later(bench: Bench, make: Callable[[str], Call]) -> None:
    """One operator's verb on a queue with a delayed job `later` and a hash `lost` that is nowhere."""
    if bench.client.set(f"prepared {bench.keys.queue}", 1, nx=True):
        Wire(bench.client, bench.keys.queue).add("later", delay=60_000)
        bench.client.hset(bench.keys.job("lost"), "name", "n")
    call = make("later")
    await bench.link.script(LIBRARY[call.script], call.keys, call.args)


_first_slot: dict[int, str] = {}


def _current(bench: Bench) -> str:
    """The producing job: the same at the repetition, as a worker that repeats would name it."""
    score = bench.client.zscore(bench.keys.key("repeat"), "s")
    return _first_slot.setdefault(id(bench), f"repeat:s:{int(score or 0)}")


async def _repair(bench: Bench) -> None:
    from echomq_pool.plane import scheduling
    from echomq_pool.plane.schedule import SchedulerRecord

    call = scheduling.get(bench.keys, "s")
    reply = await bench.link.script(LIBRARY[call.script], call.keys, call.args)
    record = SchedulerRecord.from_reply("s", reply)
    assert record is not None
    repair = scheduling.repair(bench.keys, record, record.next_ms + 1)
    assert repair is not None
    await bench.link.script(LIBRARY[repair.script], repair.keys, repair.args)


async def test_a_log_row_is_not_sent_twice_in_silence(bench: Bench, wire: Wire) -> None:
    """law 6"""
    wire.add("a")
    bench.link.lose["addLog"] = ["after"]
    with pytest.raises(LinkDown) as caught:
        await bench.plane.log("a", "row")
    assert caught.value.sent
    assert bench.get("a:logs") == ["row"]


async def test_claims_that_nobody_knows_are_shown_with_their_tokens(bench: Bench, wire: Wire) -> None:
    """law 6"""
    for _ in range(4):
        wire.add()
    known, forgotten = await bench.taken(), await bench.taken()
    other = await bench.plane.take("other:1")
    assert isinstance(other, Taken)
    lockless = await bench.taken()
    bench.lose_lock(lockless.job.id)
    found = await bench.plane.unknown_claims(bench.owner, [(known.job.id, known.token)])
    assert [(taken.job.id, taken.token) for taken in found] == [(forgotten.job.id, forgotten.token)]
    assert found[0].job.name == forgotten.job.name
