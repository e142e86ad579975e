# SPDX-License-Identifier: MIT
"""Law 6 on the lease plane: what is done when a reply is lost, whether the script ran or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from echomq_pool.errors import LeaseLost, LinkDown
from echomq_pool.plane.base import Nothing, Taken
from echomq_pool.plane.lease_gather import Settlement, judge
from echomq_pool.plane.repeat import RULES, Rule, Verdict
from tests.support.lease import LIBRARY, LeaseBench

LOSSES = ["before", "after"]


def test_every_script_has_its_rule() -> None:
    """law 6"""
    assert set(LIBRARY) <= set(RULES)


JUDGEMENTS = [
    # attempts, state, spent → of a job held under token 2
    (("2", "active", ""), Verdict.REPEAT),
    (("2", "active", "1"), Verdict.REPEAT),
    (("2", "pending", "1"), Verdict.REPEAT),  # reaped, and still ours to settle
    (("", "", ""), Verdict.DONE),
    (("2", "scheduled", "2"), Verdict.DONE),
    (("2", "dead", "2"), Verdict.DONE),
    (("3", "active", "2"), Verdict.DONE),
    (("12", "active", "11"), Verdict.DONE),
    (("2", "dead", "1"), Verdict.LOST),  # the sweep has buried it
    (("3", "active", "1"), Verdict.LOST),
    (("3", "active", ""), Verdict.LOST),
]


@pytest.mark.parametrize(("row", "verdict"), JUDGEMENTS)
def test_a_doubtful_operation_is_judged_by_what_its_holder_let_go(
    row: tuple[str, str, str], verdict: Verdict
) -> None:
    """law 6"""
    assert judge("2", *row) is verdict


Move = Callable[[LeaseBench, Taken], Awaitable[Any]]
MOVES: dict[str, tuple[Move, str]] = {
    "complete": (lambda b, t: b.plane.complete(t.job, t.token, b"1"), "absent"),
    "fail": (lambda b, t: b.plane.fail(t.job, t.token, "no", ["trace"]), "dead"),
    "retry": (lambda b, t: b.plane.retry(t.job, t.token, "no", []), "pending"),
    "delay": (lambda b, t: b.plane.delay(t.job, t.token, 60_000), "scheduled"),
    "release": (lambda b, t: b.plane.release(t.job, t.token), "pending"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MOVES)
async def test_a_transition_whose_reply_is_lost_happens_once(bench: LeaseBench, name: str, loss: str) -> None:
    """law 6"""
    move, state = MOVES[name]
    await bench.add()
    taken = await bench.taken()
    bench.link.lose["lease/settle"] = [loss]
    await move(bench, taken)
    assert await bench.queue.get_job_state(taken.job.id) == state
    assert bench.link.log.count("lease/settle") == (2 if loss == "before" else 1)
    if name in ("complete", "fail"):
        assert bench.get(f"metrics:{'completed' if name == 'complete' else 'failed'}") == {"count": "1"}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_claim_whose_reply_is_lost_is_found_by_its_owner(bench: LeaseBench, loss: str) -> None:
    """law 6"""
    ids = await bench.add_many(5)
    bench.link.lose["lease/take"] = [loss]
    got = await bench.plane.take_batch(bench.token(), 3)
    assert isinstance(got, list)
    assert sorted(t.job.id for t in got) == ids[:3]
    assert {t.token for t in got} == {"1"}
    assert len(bench.get("active")) == 3


@pytest.mark.parametrize("loss", LOSSES)
async def test_the_next_job_of_a_lost_fetch_is_found(bench: LeaseBench, loss: str) -> None:
    """law 6"""
    ids = await bench.add_many(2)
    taken = await bench.taken()
    bench.link.lose["lease/settle"] = [loss]
    following = await bench.plane.complete(taken.job, taken.token, b"1", fetch=True)
    assert isinstance(following, Taken)
    assert following.job.id == ids[1]
    assert list(bench.get("active")) == [ids[1]]


async def test_the_same_job_fetched_again_is_not_taken_for_the_old_one(bench: LeaseBench) -> None:
    """law 6"""
    await bench.add()
    taken = await bench.taken()
    bench.link.lose["lease/settle"] = ["after"]
    bench.link.lose["lease/take"] = ["after"]
    await bench.plane.retry(taken.job, taken.token, "no", [])
    again = await bench.taken()
    assert (again.job.id, again.token) == (taken.job.id, "2")


async def test_a_transition_is_lost_when_somebody_else_took_the_job_meanwhile(bench: LeaseBench) -> None:
    """law 5, 6"""
    job_id = await bench.add()
    taken = await bench.taken()

    async def stolen() -> None:
        bench.lapse(job_id)
        await bench.queue.reap()
        await bench.claimed()

    async def nothing_ran() -> None:
        bench.link.lose.clear()
        await stolen()

    class Before:
        """Loses the call before it ran, then lets another worker take the job."""

        def __call__(self) -> Awaitable[None]:
            return nothing_ran()

        def __eq__(self, other: object) -> bool:
            return other == "before"

        def __hash__(self) -> int:
            return 0

    bench.link.lose["lease/settle"] = [Before()]
    with pytest.raises(LeaseLost):
        await bench.plane.complete(taken.job, taken.token, b"1")
    assert await bench.queue.get_job_state(job_id) == "active"


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_batch_whose_reply_is_lost_is_known_one_by_one(bench: LeaseBench, loss: str) -> None:
    """law 6"""
    ids = await bench.add_many(4)
    got = await bench.plane.take_batch(bench.token(), 4)
    assert isinstance(got, list)
    bench.link.lose["lease/settle"] = [loss]
    words = await bench.plane.settle_batch(
        [
            Settlement("complete", ids[0], "1", (b"1",)),
            Settlement("retry", ids[1], "1", (0, 1, b"boom", [])),
            Settlement("retry", ids[2], "1", (0, 5, b"boom", [])),
            Settlement("release", ids[3], "1"),
        ]
    )
    assert words == ["completed", "dead", "scheduled", "pending"]
    assert await bench.plane.counts() == {
        "waiting": 1, "active": 0, "delayed": 1, "failed": 1, "completed": 1,
    }  # fmt: skip


async def test_what_is_settled_in_one_turn_travels_in_one_call(bench: LeaseBench) -> None:
    """law 10"""
    await bench.add_many(30)
    got = await bench.plane.take_batch(bench.token(), 20)
    assert isinstance(got, list)
    bench.link.log.clear()
    settled = [bench.plane.complete(t.job, t.token, b"1", fetch=True) for t in got[:10]]
    settled += [bench.plane.fail(t.job, t.token, "no", []) for t in got[10:]]
    answers = await asyncio.gather(*settled)
    assert bench.link.log == ["lease/settle"]
    assert sum(isinstance(answer, Taken) for answer in answers) == 10
    assert len(bench.get("active")) == 10


async def test_one_refused_operation_stops_no_other(bench: LeaseBench) -> None:
    await bench.add_many(3)
    got = await bench.plane.take_batch(bench.token(), 3)
    assert isinstance(got, list)
    answers = await asyncio.gather(
        bench.plane.complete(got[0].job, got[0].token, b"1"),
        bench.plane.complete(got[1].job, "9", b"1"),
        bench.plane.complete(got[2].job, got[2].token, b"1", fetch=True),
        return_exceptions=True,
    )
    assert answers[0] is None
    assert isinstance(answers[1], LeaseLost)
    assert isinstance(answers[2], Nothing)


async def test_a_job_that_nobody_waits_for_any_more_goes_back_at_no_cost(bench: LeaseBench) -> None:
    job_id = await bench.add()
    call = asyncio.ensure_future(bench.plane.take(bench.token()))
    while "lease/take" not in bench.link.log:
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while "lease/settle" not in bench.link.log:
        await asyncio.sleep(0.001)
    again = await bench.taken()
    assert (again.job.id, again.job.ats, again.job.atm) == (job_id, 2, 0)


async def test_a_closed_link_ends_the_waiting(bench: LeaseBench) -> None:
    await bench.add()
    taken = await bench.taken()
    await bench.link.link.close()
    with pytest.raises(LinkDown):
        await bench.plane.complete(taken.job, taken.token, b"1")


def test_the_rules_of_reading_scripts_write_nothing() -> None:
    """law 6"""
    for name, rule in RULES.items():
        if rule is Rule.READ and name in LIBRARY:
            body = LIBRARY[name].text.split(b"local", 1)[1]
            writes = (b"'HSET'", b"'ZADD'", b"'DEL'", b"'ZREM'", b"'SET'", b"'HDEL'")
            assert [w for w in writes if w in body] == [], name
