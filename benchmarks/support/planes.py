# SPDX-License-Identifier: MIT
"""Runs coroutines against a plane on a link of its own, from synchronous benchmarks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane.base import JobRecord, Taken
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lock import LockPlane
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import load_library
from tests.support.servers import Server

LIBRARY = load_library()
OWNER = "0b7e8c9a-4f1d-4a57-9d0c-2a1f6f1f9b11"
T = TypeVar("T")


class PlaneBench:
    """One queue of one server, and the loop in which it is used."""

    def __init__(self, runner: asyncio.Runner, link: Link, queue: str) -> None:
        self._runner = runner
        self._tokens = itertools.count()
        self.link = link
        self.keys = QueueKeys("emq", queue)
        self.plane = LockPlane(link, self.keys, LIBRARY)

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self._runner.run(wait())

    def token(self) -> str:
        return f"{OWNER}:{next(self._tokens)}"

    async def each(self, count: int, step: Callable[[int], Awaitable[T]], in_flight: int = 16) -> list[T]:
        """`step(0) … step(count - 1)`, at most `in_flight` at a time, results in order of their numbers."""
        numbers = iter(range(count))
        results: dict[int, T] = {}

        async def lane() -> None:
            for number in numbers:
                results[number] = await step(number)

        await asyncio.gather(*(lane() for _ in range(min(in_flight, count))))
        return [results[number] for number in range(count)]

    async def take_all(self, count: int) -> list[tuple[JobRecord, str]]:
        """Takes `count` jobs that must be there."""
        found: list[tuple[JobRecord, str]] = []
        for answer in await self.each(count, lambda _: self.plane.take(self.token())):
            assert isinstance(answer, Taken), answer
            found.append((answer.job, answer.token))
        return found


@contextmanager
def plane_bench(server: Server, queue: str = "bench") -> Iterator[PlaneBench]:
    """A `PlaneBench` whose link is connected."""
    with asyncio.Runner() as runner:
        link = Link(RedisConfig(port=server.port), scripts=LIBRARY, clock=SYSTEM_CLOCK)
        runner.run(_up(link))
        yield PlaneBench(runner, link, queue)
        runner.run(link.close())


async def _up(link: Link) -> None:
    await link.start()
    await link.ready()
