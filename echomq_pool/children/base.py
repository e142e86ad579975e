# SPDX-License-Identifier: MIT
"""What every child of the pool shares: set up, work, listen, stop; beats from its own loop.

The silhouette is the same for all of them, in this order: `setup`, `run`, `on_message`, `stop`. A child
talks to the supervisor through one channel. End of file there means that the supervisor is gone, and then
so is the child: nobody would renew its leases, and going on would mean running jobs twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from echomq_pool.ipc.channel import NO_SLOT, ProtocolError
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Failed, Ignore, Message, Ready, Stop

log = logging.getLogger("echomq.child")

EXIT_STOPPED = 0
EXIT_RECYCLE = 11
EXIT_ORPHANED = 12
EXIT_BOOT_FAILED = 13
EXIT_BROKEN = 1  # the child's own code raised after it was ready

FLUSH_AFTER_S = 0.005


class Child(ABC):
    """One process of the tree. Subclasses fill in the four methods; `run_child` does the rest."""

    wants_uvloop: ClassVar[bool] = True

    def __init__(self, context: ChildContext) -> None:
        self.context = context
        self.config = context.config
        self.board = context.board
        self.clock = context.clock
        self._flush_timer: asyncio.TimerHandle | None = None
        self._writing = False

    @abstractmethod
    async def setup(self) -> Ready | Ignore:
        """Gets ready to work. Must not wait for the server. Raising means: this child cannot boot."""

    @abstractmethod
    async def run(self) -> None:
        """The work. Returns once `stop` has asked for it, or raises."""

    @abstractmethod
    def on_message(self, message: Message) -> None:
        """A message from the supervisor other than Stop. Must not block."""

    @abstractmethod
    async def stop(self, stop: Stop) -> Bye:
        """Ends the work before `stop.deadline_ms` (monotonic) and says what became of it.

        Called again when a second, more urgent Stop arrives; the first call is then cancelled.
        """

    async def on_orphaned(self) -> int:
        """The supervisor is gone. Returns the exit code; whatever else must be done, is done here."""
        return EXIT_ORPHANED

    def beat_ms(self) -> int:
        """How often the loop shows that it turns."""
        return max(50, self.config.supervisor.hang_timeout_ms // 4)

    def send(self, message: Message, *, slot: int = NO_SLOT) -> None:
        """Sends to the supervisor: telemetry travels within 5 ms, everything else at once."""
        channel = self.context.channel
        if channel.closed:
            return
        channel.send(message, slot=slot)
        if channel.pending and self._flush_timer is None and not self._writing:
            self._flush_timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self.flush)

    def flush(self) -> None:
        """Writes what is queued; what the socket does not take goes out when it can be written again."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        channel = self.context.channel
        if channel.closed:
            return
        empty = channel.flush()
        if empty == self._writing:  # the writer is watched exactly while something is left
            loop = asyncio.get_running_loop()
            if empty:
                loop.remove_writer(channel.fileno())
            else:
                loop.add_writer(channel.fileno(), self.flush)
            self._writing = not empty


def run_child(child_class: type[Child], context: ChildContext) -> int:
    """Runs one child from start to end and returns the exit code of its process.

    0 stopped as asked, 11 recycled, 12 the supervisor is gone, 13 could not boot, 1 broke while working.
    """
    loop = _new_loop(child_class.wants_uvloop)
    asyncio.set_event_loop(loop)
    life = loop.create_task(_Life(child_class, context, loop).main(), name=f"child {context.id}")
    try:
        while True:
            try:
                return loop.run_until_complete(life)
            except (SystemExit, KeyboardInterrupt) as exc:
                # A task started by user code may raise these, and asyncio lets them out of the loop. A child
                # ends only when its supervisor says so (C115, C116), so the loop goes on where it was.
                if life.done():
                    return EXIT_BROKEN
                log.warning("%s raised outside of a job in %s; ignored", type(exc).__name__, context.id)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _new_loop(wants_uvloop: bool) -> asyncio.AbstractEventLoop:
    faster = fast_loop() if wants_uvloop else None
    return asyncio.new_event_loop() if faster is None else faster()


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes loops of uvloop, where that is installed and not switched off by `ECHOMQ_POOL_UVLOOP=0`."""
    if os.environ.get("ECHOMQ_POOL_UVLOOP", "1") == "0":
        return None
    try:
        import uvloop  # an extra: absent is normal
    except ImportError:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


class _Life:
    """The way of one child through boot, work and end."""

    def __init__(
        self, child_class: type[Child], context: ChildContext, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.child_class = child_class
        self.context = context
        self.child: Child | None = None
        self.code: asyncio.Future[int] = loop.create_future()
        self.stopping: asyncio.Task[None] | None = None
        self.stop: Stop | None = None
        self.beat_timer: asyncio.TimerHandle | None = None

    async def main(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_reader(self.context.channel.fileno(), self._readable)
        work: asyncio.Task[None] | None = None
        try:
            child = await self._boot()
            if child is None:
                return await self.code
            work = loop.create_task(self._work(child), name=f"run {self.context.id}")
            return await self.code
        finally:
            self._end(work)

    async def _boot(self) -> Child | None:
        """Sets the child up and reports it. None = it does not work, and `code` tells why."""
        try:
            child = self.child_class(self.context)
            self._beat(child)
            answer = await child.setup()
        except BaseException as exc:  # an import in the child may raise anything, SystemExit included
            self._tell(Failed(error=f"{type(exc).__name__}: {exc}", trace=traceback.format_exc()))
            self._done(EXIT_BOOT_FAILED)
            return None
        self._tell(answer)
        if isinstance(answer, Ignore):
            self._done(EXIT_STOPPED)
            return None
        self.child = child
        if self.stop is not None:  # asked to leave while still booting
            self._start_stop()
        return child

    async def _work(self, child: Child) -> None:
        try:
            await child.run()
        except Exception as exc:
            log.exception("%s broke", self.context.id)
            self._tell(Bye(reason=f"crash: {type(exc).__name__}: {exc}"))
            self._done(EXIT_BROKEN)
            return
        if self.stopping is None and self.stop is None:
            self._tell(Bye(reason="normal"))
            self._done(EXIT_STOPPED)

    def _readable(self) -> None:
        channel = self.context.channel
        for frame in channel.receive():
            try:
                self._handle(frame.message())
            except ProtocolError as exc:
                log.error("%s got a frame that it cannot read: %s", self.context.id, exc)
        if channel.closed:
            loop = asyncio.get_running_loop()
            loop.remove_reader(channel.fileno())
            loop.remove_writer(channel.fileno())
            self.stopping = loop.create_task(self._orphaned())

    def _handle(self, message: Message) -> None:
        if isinstance(message, Stop):
            self.stop = message
            if self.child is not None:
                self._start_stop()
        elif self.child is not None:
            self.child.on_message(message)

    def _start_stop(self) -> None:
        if self.stopping is not None:
            self.stopping.cancel()
        self.stopping = asyncio.get_running_loop().create_task(self._stop(), name="stop")

    async def _stop(self) -> None:
        assert self.child is not None
        assert self.stop is not None
        try:
            bye = await self.child.stop(self.stop)
        except Exception as exc:
            log.exception("%s could not stop in order", self.context.id)
            self._tell(Bye(reason=f"crash: {type(exc).__name__}: {exc}"))
            self._done(EXIT_BROKEN)
            return
        self._tell(bye)
        self._done(EXIT_RECYCLE if bye.reason == "recycle" else EXIT_STOPPED)

    async def _orphaned(self) -> None:
        code = EXIT_ORPHANED
        try:
            if self.child is not None:
                code = await self.child.on_orphaned()
        finally:
            self._done(code)

    def _beat(self, child: Child) -> None:
        """One beat on the board, written by the loop itself: a loop that is stuck falls silent."""
        self.context.board.beat(self.context.slot, self.context.clock.mono_ms())
        loop = asyncio.get_running_loop()
        self.beat_timer = loop.call_later(child.beat_ms() / 1000, self._beat, child)

    def _tell(self, message: Message) -> None:
        channel = self.context.channel
        if not channel.closed:
            channel.send(message)
            channel.flush()

    def _done(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)

    def _end(self, work: asyncio.Task[None] | None) -> None:
        """Leaves nothing of ours in the loop. Threads are not waited for: the process ends around them."""
        if self.beat_timer is not None:
            self.beat_timer.cancel()
        for task in (work, self.stopping):
            if task is not None:
                task.cancel()
        channel = self.context.channel
        if not channel.closed:
            loop = asyncio.get_running_loop()
            loop.remove_reader(channel.fileno())
            loop.remove_writer(channel.fileno())
