# SPDX-License-Identifier: MIT
"""A child run inside the test's own loop: the same life as in its process, with the test at the other end."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Any, TypeVar

from echomq_pool.children.base import Child, _Life
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import PoolConfig
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Message, Stop
from tests.support.waiting import eventually_async

M = TypeVar("M")


class InProcess:
    """`async with InProcess(QueueEvents, config) as child:` – then `child.heard`, `child.send`, `child.stop`."""

    def __init__(
        self,
        child_class: type[Child],
        config: PoolConfig,
        *,
        board: Board | None = None,
        args: dict[str, Any] | None = None,
        slot: int = 1,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        ours, theirs = pair()
        self.hub = Channel(ours)
        self.board = board or Board.create(8, max(1, len(config.queues())))
        self.context = ChildContext(
            "under-test", 1, slot, os.getppid(), config, args or {}, Channel(theirs), self.board, clock
        )
        self.life = _Life(child_class, self.context, asyncio.get_running_loop())
        self.heard: list[Message] = []

    async def __aenter__(self) -> InProcess:
        self.task = asyncio.create_task(self.life.main())
        asyncio.get_running_loop().add_reader(self.hub.fileno(), self._readable)
        await eventually_async(lambda: self.heard or self.task.done())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if not self.task.done():
            await self.stop()
        asyncio.get_running_loop().remove_reader(self.hub.fileno())
        self.hub.close()
        self.context.channel.close()

    @property
    def child(self) -> Any:
        assert self.life.child is not None
        return self.life.child

    def send(self, message: Message) -> None:
        self.hub.send(message)
        self.hub.flush()

    def of(self, kind: type[M]) -> list[M]:
        """Messages of one type, in the order in which they came."""
        return [message for message in self.heard if isinstance(message, kind)]

    async def stop(self) -> int:
        """Asks it to leave and returns its exit code."""
        self.send(Stop(SYSTEM_CLOCK.mono_ms() + 10_000))
        return await asyncio.wait_for(self.task, 20)

    def _readable(self) -> None:
        self.heard += [frame.message() for frame in self.hub.receive()]
        if self.hub.closed:
            asyncio.get_running_loop().remove_reader(self.hub.fileno())
