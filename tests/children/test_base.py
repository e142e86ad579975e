# SPDX-License-Identifier: MIT
"""The life that all children share, with the smallest possible children in it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from echomq_pool.children import entry
from echomq_pool.children.base import Child
from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.config.schema import PoolConfig, SupervisorConfig
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Failed, Ignore, Message, Quiet, Ready, Stop
from tests.support.hub import Hub, config_for
from tests.support.inprocess import InProcess
from tests.support.servers import Server
from tests.support.waiting import eventually, eventually_async

CONFIG = PoolConfig(supervisor=SupervisorConfig(hang_timeout_ms=200))


class Good(Child):
    """Works until it is stopped."""

    def __init__(self, context: ChildContext) -> None:
        super().__init__(context)
        self.messages: list[Message] = []
        self.over = asyncio.Event()

    async def setup(self) -> Ready | Ignore:
        return Ready(info="good")

    async def run(self) -> None:
        await self.over.wait()

    def on_message(self, message: Message) -> None:
        self.messages.append(message)

    async def stop(self, stop: Stop) -> Bye:
        self.over.set()
        return Bye(stop.reason, handed_back=2)


class Ignored(Good):
    async def setup(self) -> Ready | Ignore:
        return Ignore("nothing to do")


class Failing(Good):
    async def setup(self) -> Ready | Ignore:
        raise SystemExit("no way")


class Breaking(Good):
    async def run(self) -> None:
        raise ValueError("broke")


class Ending(Good):
    async def run(self) -> None:
        return


class Slow(Good):
    """Stops slowly; a second, fast Stop overtakes the first."""

    async def stop(self, stop: Stop) -> Bye:
        if not stop.fast:
            await asyncio.sleep(3600)
        return Bye("shutdown")


class Heir(Good):
    async def on_orphaned(self) -> int:
        await asyncio.sleep(0)
        return 42


async def end(child_class: type[Child], *, heard: int = 2) -> tuple[int, list[Any]]:
    """The exit code and all frames of a child that ends by itself."""
    async with InProcess(child_class, CONFIG) as child:
        code = await asyncio.wait_for(child.task, 10)
        await eventually_async(lambda: len(child.heard) >= heard)
        return code, child.heard


async def test_a_child_is_ready_beats_listens_and_says_goodbye() -> None:
    """law 2: beats come from the loop itself; the first frame is the answer to the start, the last the bye."""
    async with InProcess(Good, CONFIG) as child:
        assert child.of(Ready)[0].info == "good"
        beats = set()
        await eventually_async(lambda: beats.add(child.board.beat_ms(1)) or len(beats) >= 4)
        child.send(Quiet())
        await eventually_async(lambda: child.child.messages == [Quiet()])
        child.send(Stop(SYSTEM_CLOCK.mono_ms() + 1000))
        assert await asyncio.wait_for(child.task, 10) == 0
        await eventually_async(lambda: child.of(Bye) == [Bye("shutdown", 2)])


async def test_exit_codes_tell_how_a_child_ended() -> None:
    """case C151: 0 stopped or nothing to do, 11 recycled, 13 not booted, 1 broken; each with its frame."""
    assert await end(Ignored, heard=1) == (0, [Ignore("nothing to do")])
    code, heard = await end(Failing, heard=1)
    assert (code, heard[0].error) == (13, "SystemExit: no way")
    assert "raise SystemExit" in heard[0].trace
    code, heard = await end(Breaking)
    assert (code, heard[1]) == (1, Bye("crash: ValueError: broke"))
    code, heard = await end(Ending)
    assert (code, heard[1]) == (0, Bye("normal"))
    async with InProcess(Good, CONFIG) as child:
        child.send(Stop(SYSTEM_CLOCK.mono_ms() + 1000, reason="recycle"))
        assert await asyncio.wait_for(child.task, 10) == 11


async def test_a_second_stop_overtakes_the_first() -> None:
    """case C064: what waits is cancelled and asked again, fast this time."""
    async with InProcess(Slow, CONFIG) as child:
        child.send(Stop(SYSTEM_CLOCK.mono_ms() + 60_000))
        await eventually_async(lambda: child.life.stopping is not None)
        child.send(Stop(SYSTEM_CLOCK.mono_ms() + 60_000, fast=True))
        assert await asyncio.wait_for(child.task, 10) == 0


@pytest.mark.parametrize(("child_class", "code"), [(Good, 12), (Heir, 42)])
async def test_a_child_does_not_outlive_its_supervisor(child_class: type[Child], code: int) -> None:
    """law 9: end of file on the channel ends it, after what it still has to do."""
    async with InProcess(child_class, CONFIG) as child:
        child.hub.sock.shutdown(2)
        assert await asyncio.wait_for(child.task, 10) == code


def test_a_child_whose_module_cannot_be_imported_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """case C114: the error travels to the supervisor as a frame, and the exit code says boot failed."""
    ours, theirs = pair()
    board = Board.create(2, 1)
    context = ChildContext("x", 1, 1, 0, CONFIG, {}, Channel(theirs), board, SYSTEM_CLOCK)
    assert entry._run("no_such_child", "Nobody", context) == 13
    (frame,) = Channel(ours).receive()
    message = frame.message()
    assert isinstance(message, Failed)
    assert "no_such_child" in message.error
    assert "Traceback" in message.trace
    board.close()
    for sock in (ours, theirs):
        sock.close()


def test_a_worker_with_a_bad_processor_says_so_and_exits_13(valkey_server: Server, queue_name: str) -> None:
    """case C114, law 13: path, problem and traceback, before a single job is taken."""
    hub = Hub(config_for(valkey_server, (queue_name,), "processors:wrok"))
    try:
        hub.start(ready=False)
        failed = eventually(lambda: hub.of(Failed))[0]
        assert 'has no attribute "wrok"; did you mean "work"?' in failed.error
        assert "Traceback" in failed.trace
        assert hub.exit_code() == 13
    finally:
        hub.end()


def test_what_a_zygote_preloads_leaves_nothing_to_load_for_a_worker() -> None:
    """Eight workers of a 60 MB application then take 1.6 times the memory of one; each had 2 MB more of its own."""
    pytest.importorskip("uvloop")
    code = "import sys, echomq_pool.children.preload; from echomq_pool.api.ask import library\n"
    code += "wanted = {'uvloop', 'echomq_pool.children.worker'}\n"
    code += "print(wanted <= sys.modules.keys(), library.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1"]
