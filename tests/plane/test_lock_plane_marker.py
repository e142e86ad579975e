# SPDX-License-Identifier: MIT
"""Blocking on the marker, and what a take says when there is nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane.base import Nothing, PlaneOptions, Taken
from echomq_pool.redisio.link import Link
from tests.support.planes import Bench, bench_on
from tests.support.servers import Server
from tests.support.wire import Wire


@pytest.fixture
async def blocking(server: Server) -> AsyncIterator[Link]:
    """A link that may wait in the server."""
    link = Link(RedisConfig(url=server.url, port=server.port), blocking=True)
    await link.start()
    await link.ready()
    yield link
    await link.close()


async def test_a_job_that_is_added_wakes_the_sleeper(bench: Bench, wire: Wire, blocking: Link) -> None:
    """law 11"""
    waiting = asyncio.create_task(bench.plane.wait(blocking, 10_000))
    await asyncio.sleep(0)
    wire.add()
    assert await waiting == 0
    assert isinstance(await bench.plane.take(bench.token()), Taken)


async def test_a_delayed_job_tells_when_it_is_due(bench: Bench, blocking: Link) -> None:
    due = int(time.time() * 1000) + 60_000
    wire = Wire(bench.client, bench.keys.queue)
    wire.now = due - 60_000
    wire.add(delay=60_000)
    assert await bench.plane.wait(blocking, 10_000) == due
    nothing = await bench.nothing()
    assert nothing == Nothing(limited_ms=0, next_due_ms=due)


async def test_a_wait_without_work_ends_by_itself(bench: Bench, blocking: Link) -> None:
    assert await bench.plane.wait(blocking, 5) is None


async def test_a_limited_queue_says_for_how_long(server: Server, queue_name: str) -> None:
    async with bench_on(server, queue_name, PlaneOptions()) as bench:
        wire = Wire(bench.client, queue_name)
        wire.add()
        wire.add()
        bench.client.hset(bench.keys.key("meta"), mapping={"max": 1, "duration": 60_000})
        await bench.taken()
        nothing = await bench.nothing()
        assert 50_000 < nothing.limited_ms <= 60_000


async def test_the_last_job_says_that_it_is_and_wakes_nobody(bench: Bench, wire: Wire) -> None:
    """law 11: the wire's marker after every take would wake another worker in vain for each job."""
    wire.add()
    taken = await bench.plane.take(bench.token(), quiet=True)
    assert isinstance(taken, Taken)
    assert taken.then == Nothing()
    assert "marker" not in bench.dump()


@pytest.mark.parametrize("options", [{}, {"priority": 3}])
async def test_a_job_that_is_not_the_last_leaves_the_marker_for_the_next(
    bench: Bench, wire: Wire, options: dict[str, int]
) -> None:
    wire.add()
    wire.add(**options)
    taken = await bench.plane.take(bench.token(), quiet=True)
    assert isinstance(taken, Taken)
    assert taken.then is None
    assert bench.dump()["marker"] == {"0": 0}


async def test_the_last_job_tells_when_the_next_delayed_one_is_due(bench: Bench) -> None:
    due = int(time.time() * 1000) + 60_000
    wire = Wire(bench.client, bench.keys.queue)
    wire.now = due - 60_000
    wire.add(delay=60_000)
    wire.add()
    taken = await bench.plane.take(bench.token(), quiet=True)
    assert isinstance(taken, Taken)
    assert taken.then == Nothing(next_due_ms=due)
    assert list(bench.dump()["marker"]) == ["1"]
