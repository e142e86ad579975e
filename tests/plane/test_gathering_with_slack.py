# SPDX-License-Identifier: MIT
"""A process with time to spare settles few jobs a call, one call at a time; a busy one as many as a call carries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from echomq_pool.clock import FakeClock
from echomq_pool.errors import LinkDown
from echomq_pool.plane.base import Taken
from echomq_pool.plane.factory import make_plane
from echomq_pool.plane.slack import FEW, NEXT_MS, Pace
from echomq_pool.redisio.scripts import load_library
from tests.support.contract import Contract, contract_on
from tests.support.servers import Server
from tests.support.waiting import eventually_async

SETTLING = {"finishBatch", "lease/settle"}


class Mood(Pace):
    """A pace that is set by hand. `under_way`: calls of which it was told that they left."""

    def __init__(self) -> None:
        self.relaxed = False
        self.under_way = 0

    def sent(self) -> None:
        self.under_way += 1

    def answered(self) -> None:
        self.under_way -= 1


class Counter:
    """A link that keeps the answers of settling calls until they are let go. `calls` counts them."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self.kept: list[tuple[asyncio.Future[Any], asyncio.Future[Any]]] = []
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def script(self, script: Any, keys: Any, args: Any) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._link.script(script, keys, args)
        if script.name not in SETTLING:
            return answer
        self.calls += 1
        shown: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.kept.append((answer, shown))
        return shown

    async def let_go(self, *, lost: bool = False) -> None:
        """The oldest answer reaches its caller, or is lost on its way."""
        await eventually_async(lambda: self.kept)
        answer, shown = self.kept.pop(0)
        reply = await answer
        if lost:
            shown.set_exception(LinkDown("lost", sent=True))
        else:
            shown.set_result(reply)


class Shop:
    """A queue, a plane on it whose pace and answers are in hand, and jobs that were taken through it."""

    def __init__(self, queue: Contract) -> None:
        self.queue = queue
        self.mood = Mood()
        self.clock = FakeClock()
        self.counter = Counter(queue.link)
        self.plane = make_plane(
            self.counter, queue.plane.keys, load_library(), queue.plane.options, self.clock, self.mood
        )

    async def jobs(self, count: int, more: int = 0) -> list[Taken]:
        """`count` jobs in hand, and `more` that wait; the turn before was one with two completions."""
        for _ in range(2):
            await self.queue.add()
        before = self.complete([await self._taken() for _ in range(2)])
        if self.queue.kind == "lease":
            await self.counter.let_go()
        await before
        self.counter.calls = 0
        for _ in range(count + more):
            await self.queue.add()
        return [await self._taken() for _ in range(count)]

    async def _taken(self) -> Taken:
        found = await self.plane.take(self.queue.token())
        assert isinstance(found, Taken)
        return found

    def complete(self, jobs: list[Taken], *, fetch: bool = False) -> asyncio.Future[list[Any]]:
        """Completes them all in this turn; results or errors."""
        moves = (self.plane.complete(t.job, t.token, b"1", fetch=fetch) for t in jobs)
        return asyncio.gather(*moves, return_exceptions=True)

    async def under_way(self, calls: int) -> None:
        """Waits until so many calls have left in all, and sees that no other follows."""
        await eventually_async(lambda: self.counter.calls >= calls)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (self.counter.calls, self.mood.under_way) == (calls, len(self.counter.kept))


@pytest.fixture(params=("lock", "lease"))
async def shop(request: pytest.FixtureRequest, server: Server, queue_name: str) -> AsyncIterator[Shop]:
    async with contract_on(request.param, server, queue_name) as queue:
        yield Shop(queue)


async def test_with_time_to_spare_few_jobs_go_in_a_call_and_one_call_at_a_time(shop: Shop) -> None:
    jobs = await shop.jobs(2 * FEW + 2, more=2 * FEW + 2)
    shop.mood.relaxed = True
    ending = shop.complete(jobs, fetch=True)
    for call in range(1, 4):
        await shop.under_way(call)
        assert len(shop.counter.kept) == 1
        await shop.counter.let_go()
    found = await ending
    assert len({taken.job.id for taken in found}) == len(jobs), "each slot goes on with a job of its own"
    assert shop.counter.calls == 3
    assert shop.mood.under_way == 0


async def test_the_first_of_a_crowd_go_on_while_the_last_still_wait(shop: Shop) -> None:
    jobs = await shop.jobs(2 * FEW)
    shop.mood.relaxed = True
    first, last = shop.complete(jobs[:FEW]), shop.complete(jobs[FEW:])
    await shop.counter.let_go()
    await first
    assert not last.done()
    await shop.counter.let_go()
    await last


async def test_a_server_far_away_is_sent_the_next_call_before_it_has_answered(shop: Shop) -> None:
    jobs = await shop.jobs(2 * FEW + 1)
    shop.mood.relaxed = True
    ending = shop.complete(jobs)
    await shop.under_way(1)
    shop.clock.advance(NEXT_MS - 1)
    await asyncio.sleep(2 * NEXT_MS / 1_000)  # the valve is looked at again, and still closed
    await shop.under_way(1)
    shop.clock.advance(1)
    await shop.under_way(2)
    shop.clock.advance(NEXT_MS)
    await eventually_async(lambda: shop.counter.calls == 3 or shop.queue.kind == "lock")
    while shop.counter.kept:
        await shop.counter.let_go()
    assert not any(isinstance(result, Exception) for result in await ending)


async def test_a_busy_process_puts_a_crowd_into_one_call_and_waits_for_no_answer(shop: Shop) -> None:
    jobs = await shop.jobs(3 * FEW + 2)
    crowd = shop.complete(jobs[2:])
    await shop.under_way(1)
    two = shop.complete(jobs[:2])
    await shop.under_way(2)
    await shop.counter.let_go()
    await shop.counter.let_go()
    await asyncio.gather(crowd, two)


async def test_what_waits_for_an_answer_goes_with_it_when_there_is_no_time_left_to_spare(shop: Shop) -> None:
    jobs = await shop.jobs(4 * FEW)
    shop.mood.relaxed = True
    ending = shop.complete(jobs)
    await shop.under_way(1)
    shop.mood.relaxed = False
    await shop.counter.let_go()
    await shop.under_way(4)
    for _ in range(3):
        await shop.counter.let_go()
    assert not any(isinstance(result, Exception) for result in await ending)


async def test_a_lost_answer_does_not_stop_those_that_wait(shop: Shop) -> None:
    """law 6"""
    jobs = await shop.jobs(2 * FEW)
    shop.mood.relaxed = True
    ending = shop.complete(jobs)
    await shop.counter.let_go(lost=True)
    while not ending.done():
        await eventually_async(lambda: shop.counter.kept or ending.done())
        if shop.counter.kept:
            await shop.counter.let_go()
    assert not any(isinstance(result, Exception) for result in await ending)
    assert (await shop.plane.counts("completed"))["completed"] == 2 + len(jobs)
    assert shop.mood.under_way == 0
