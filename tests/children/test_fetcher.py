# SPDX-License-Identifier: MIT
"""Who listens for a marker becomes the slot that takes, and closing ends the listening, never a job."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from echomq_pool.children.fetcher import Fetcher
from echomq_pool.children.run import Source
from echomq_pool.clock import FakeClock
from echomq_pool.plane.base import Nothing
from tests.support.waiting import eventually_async


class Scene:
    """A fetcher of one queue; the test plays the server, and what the slots do."""

    def __init__(self, concurrency: int = 2) -> None:
        self.markers: asyncio.Queue[int | None] = asyncio.Queue()
        self.listening = 0
        self.woken = 0  # markers that were put back
        self.unblocked = asyncio.Event()
        self.working: dict[str, asyncio.Task[Any] | None] = {}  # what each take brought, and its task
        self.ended = asyncio.Event()  # lets all jobs end
        self.cancelled: list[str] = []
        self.jobs: list[str] = []  # in the queue
        link = SimpleNamespace(connected=True, call=self._call)
        blocking = SimpleNamespace(server=SimpleNamespace(min_block_ms=1), client_id=7, connected=True)
        plane: Any = SimpleNamespace(wait=self._wait, wake=self._wake, promotes=True)
        self.source = Source("q", 0, plane, link, blocking, ready=False, opened=True)  # type: ignore[arg-type]
        self.fetcher = Fetcher([self.source], concurrency, 5_000, FakeClock(), self._work)

    async def open(self) -> None:
        """Opens, and looks once in vain: the fetcher listens."""
        self.fetcher.start()
        await eventually_async(lambda: self.listening == 1 and not self.fetcher.slots)

    async def _wait(self, blocking: Any, block_ms: float) -> int | None:
        self.listening += 1
        try:
            return await self.markers.get()
        finally:
            self.listening -= 1

    def _wake(self) -> asyncio.Future[Any]:
        self.woken += 1
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(1)
        return done

    async def _call(self, *args: Any) -> None:
        assert args == ("CLIENT", "UNBLOCK", 7)
        self.unblocked.set()
        await asyncio.sleep(0)

    async def _work(self, source: Source) -> None:
        await asyncio.sleep(0)
        if not self.jobs:
            self.fetcher.took_nothing(source, Nothing())
            return
        job = self.jobs.pop()
        self.working[job] = asyncio.current_task()
        self.fetcher.took(source, None if self.jobs else Nothing())
        try:
            await self.ended.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job)
            raise

    def add(self, job: str) -> None:
        self.jobs.append(job)
        self.markers.put_nowait(0)


async def test_what_listened_takes_the_job_and_another_listens_for_the_next() -> None:
    scene = Scene()
    await scene.open()
    listener = scene.source.waiter
    scene.add("a")
    await eventually_async(lambda: "a" in scene.working and scene.listening)
    assert scene.working["a"] is listener
    assert scene.source.waiter is not listener
    scene.add("b")
    await eventually_async(lambda: "b" in scene.working)
    assert len(scene.fetcher.slots) == 2
    scene.ended.set()
    await eventually_async(lambda: not scene.fetcher.slots)
    await scene.fetcher.close()


async def test_with_every_slot_busy_nobody_listens_and_one_listens_when_one_is_free() -> None:
    scene = Scene(concurrency=1)
    await scene.open()
    scene.add("a")
    await eventually_async(lambda: "a" in scene.working)
    for _ in range(10):
        await asyncio.sleep(0)
    assert scene.listening == 0
    scene.ended.set()
    await eventually_async(lambda: scene.listening)
    await scene.fetcher.close()


async def test_a_marker_that_comes_while_takes_are_held_back_wakes_somebody_else() -> None:
    """A consumed marker without a take would let the job wait until somebody's block runs out."""
    scene = Scene()
    await scene.open()
    scene.fetcher.hold_back()
    scene.add("a")
    await eventually_async(lambda: scene.woken)
    assert not scene.working
    scene.fetcher.let_go()
    await eventually_async(lambda: "a" in scene.working)
    await scene.fetcher.close()


async def test_closing_ends_the_listening() -> None:
    scene = Scene()
    await scene.open()
    closing = asyncio.ensure_future(scene.fetcher.close())
    await scene.unblocked.wait()
    scene.markers.put_nowait(None)
    await closing
    assert scene.listening == 0
    assert scene.source.waiter is None


async def test_a_marker_that_comes_at_the_very_closing_wakes_somebody_else() -> None:
    """Whoever starts, or another process, finds it there."""
    scene = Scene()
    await scene.open()
    closing = asyncio.ensure_future(scene.fetcher.close())
    await scene.unblocked.wait()
    scene.add("a")
    await closing
    assert (scene.woken, scene.working, scene.fetcher.slots) == (1, {}, {})


async def test_closing_leaves_alone_what_listened_and_works_now() -> None:
    scene = Scene(concurrency=1)
    await scene.open()
    scene.add("a")
    await eventually_async(lambda: "a" in scene.working)
    await scene.fetcher.close()
    assert not scene.unblocked.is_set()
    assert scene.cancelled == []
    scene.ended.set()
    await eventually_async(lambda: not scene.fetcher.slots)
