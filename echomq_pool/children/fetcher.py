# SPDX-License-Identifier: MIT
"""Keeps the free slots of a worker filled, fairly over its queues, and sleeps on the markers when there is nothing.

A take costs a round trip, so one is started only for a free slot and only where there may be work: after a job, a
marker, a due time, the end of a rate limit, or a whole `drain_delay` of silence. While takes bring jobs their number
per turn grows, so that an empty process with a hundred slots fills in a few round trips.

The blocking call consumes the marker it returns. Whoever consumed one and cannot take puts one back, so that another
process wakes for the job (a lost marker would let it wait until somebody's block runs out).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from echomq_pool.children.run import Source
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkDown, LinkError, LinkRefused, ReplyError
from echomq_pool.plane.base import Nothing, block_ms
from echomq_pool.redisio.link import Link

log = logging.getLogger("echomq.worker")

MAX_LIMITED_MS = 30_000  # the longest sleep while rate limited: due jobs are still promoted
AFTER_ERROR_S = 1.0
AFTER_LOSS_S = 0.02
UNBLOCK_S = 0.3


class Fetcher:
    """Starts `work(source)` once per slot that may get a job; the slot lasts as long as that coroutine."""

    def __init__(
        self,
        sources: list[Source],
        concurrency: int,
        drain_delay_ms: int,
        clock: Clock,
        work: Callable[[Source], Awaitable[None]],
    ) -> None:
        self.sources = sources
        self.slots: dict[asyncio.Task[None], Source] = {}
        self.doubted: Callable[[Source], None] = lambda source: None  # its keys look like the other plane's
        self.turns = 0  # how often there was anything to decide: the sign of life of this loop
        self._concurrency = concurrency
        self._drain_delay_ms = drain_delay_ms
        self._clock = clock
        self._work = work
        self._open = False
        self._held_back = 0  # reasons to start nothing although open (jobs that run alone)
        self._turn = 0

    @property
    def open(self) -> bool:
        """Whether takes may be started."""
        return self._open and not self._held_back

    def start(self) -> None:
        """Opens, after the start or a Resume. Everything may have happened meanwhile."""
        self._open = True
        for source in self.sources:
            source.ready = source.limited is None
        self.pump()

    async def close(self) -> None:
        """Starts nothing more, and interrupts the blocking calls without losing what they may have popped."""
        self._open = False
        await asyncio.gather(*(self._interrupt(source) for source in self.sources))

    def hold_back(self) -> None:
        """Starts no take until `let_go`; blocking goes on."""
        self._held_back += 1

    def let_go(self) -> None:
        self._held_back -= 1
        self.pump()

    def wants_next(self, source: Source) -> bool:
        """Whether a settling run of `source` is to fetch the next job with it: no other queue is owed its turn."""
        if not self.open or source.limited is not None:
            return False
        return len(self.sources) == 1 or not any(
            other.opened and other.ready and not other.taking for other in self.sources if other is not source
        )

    def pump(self) -> None:
        """Starts takes for free slots, and blocks on the markers of queues with nothing to take."""
        self.turns += 1
        while self.open and (free := self._concurrency - len(self.slots)) > 0:
            source = self._next_source()
            if source is None:
                break
            for _ in range(min(free, source.burst)):
                self._start(source)
        # With every slot busy one queue has nothing to ask for. Of several, a silent one must be listened to all
        # the same: its neighbours may keep the slots busy for ever by fetching as they settle.
        if self._open and (len(self.slots) < self._concurrency or len(self.sources) > 1):
            for source in self.sources:
                if not source.ready and source.opened and source.waiter is None and source.limited is None:
                    source.waiter = asyncio.get_running_loop().create_task(self._wait(source))

    def took(self, source: Source, then: Nothing | None = None) -> None:
        """A take brought a job; `then` says that there was no other."""
        source.taking -= 1
        if then is not None:
            self.nothing(source, then)
        else:
            source.ready = source.limited is None
            source.burst = min(source.burst * 2, source.batch)
        if not source.taking:
            # Two turns later: in the next one this job is told and started, and nothing is to delay that.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self.pump)

    def took_nothing(self, source: Source, answer: Nothing) -> None:
        """A take brought nothing, and `answer` says until when."""
        source.taking -= 1
        self.nothing(source, answer)

    def nothing(self, source: Source, answer: Nothing) -> None:
        """A fetch has shown that there is nothing to take."""
        source.burst = 1
        source.ready = False
        source.due_ms = answer.next_due_ms if source.plane.promotes else 0
        if answer.limited_ms > 0:
            self._sleep(source, min(answer.limited_ms, MAX_LIMITED_MS) / 1000)

    def failed(self, source: Source, error: Exception) -> None:
        """A take ended in an error that is not the link's: rest, then look again."""
        source.taking -= 1
        source.burst = 1
        source.ready = False
        log.error("taking from %s: %s: %s", source.name, type(error).__name__, error)
        if isinstance(error, ReplyError) and error.code == "WRONGTYPE":
            self.doubted(source)
        self._sleep(source, AFTER_ERROR_S)

    def _next_source(self) -> Source | None:
        """The next queue in turn that may have work and has no take under way."""
        count = len(self.sources)
        for step in range(count):
            index = (self._turn + step) % count
            source = self.sources[index]
            if source.opened and source.ready and not source.taking:
                self._turn = index + 1
                return source
        return None

    def _start(self, source: Source) -> None:
        source.taking += 1
        slot = asyncio.get_running_loop().create_task(self._slot(source))
        self.slots[slot] = source

    async def _slot(self, source: Source) -> None:
        try:
            await self._work(source)
        except Exception:  # an edge: whatever broke one slot, the others and the queue go on
            log.exception("a slot of %s broke", source.name)
        finally:
            task = asyncio.current_task()
            if task is not None:
                self.slots.pop(task, None)
            self.pump()

    def _sleep(self, source: Source, seconds: float) -> None:
        if source.limited is not None:
            source.limited.cancel()
        source.limited = asyncio.get_running_loop().call_later(seconds, self._wake, source)

    def _wake(self, source: Source) -> None:
        source.limited = None
        source.ready = True
        self.pump()

    async def _wait(self, source: Source) -> None:
        """Blocks until there may be work in `source`, and then is the slot that looks for it, if one is free."""
        consumed = await self._marked(source)
        source.waiter = None
        source.due_ms = 0
        source.ready = source.limited is None
        free = self.open and len(self.slots) < self._concurrency
        if consumed and not free:
            self._put_back(source)
        slot = asyncio.current_task()
        if slot is None or not free or self._next_source() is not source:
            self.pump()
            return
        # What has listened takes: a task more would let the job start later by a turn of the loop.
        source.taking += 1
        self.slots[slot] = source
        await self._slot(source)

    async def _marked(self, source: Source) -> bool:
        """Blocks until it is worth while to look. Whether a marker was consumed."""
        consumed = False
        while self._open:
            self.turns += 1
            server = source.blocking.server
            now = self._clock.now_ms()
            wait = block_ms(now, source.due_ms, self._drain_delay_ms, server.min_block_ms)
            if wait <= 0:
                break
            try:
                marker = await source.plane.wait(source.blocking, wait)
            except LinkError as exc:
                log.debug("blocking on %s: %s", source.name, exc)
                await asyncio.sleep(AFTER_ERROR_S if isinstance(exc, ReplyError) else AFTER_LOSS_S)
                await _linked(source.blocking)
                break  # whatever was marked meanwhile may be gone: look
            if marker is None:
                break
            consumed = True
            if not marker:
                break
            source.due_ms = min(source.due_ms or marker, marker)
        return consumed

    def _put_back(self, source: Source) -> None:
        """Wakes another process for the job that this one cannot take now."""
        if source.link.connected:
            restored = source.plane.wake()
            restored.add_done_callback(lambda f: f.cancelled() or f.exception())

    async def _interrupt(self, source: Source) -> None:
        """Ends a blocking call: asks the server to answer it, and drops the connection if that does not help."""
        waiter = source.waiter
        if waiter is None:
            return
        client_id = source.blocking.client_id
        try:
            async with asyncio.timeout(UNBLOCK_S):
                while source.link.connected and client_id is not None and source.waiter is waiter:
                    await source.link.call("CLIENT", "UNBLOCK", client_id)
                    await asyncio.wait({waiter}, timeout=0.02)  # the call may not have reached the server yet
        except (LinkError, TimeoutError) as exc:
            log.debug("unblocking %s: %s", source.name, exc)
        if source.waiter is waiter:
            waiter.cancel()
            source.waiter = None
            self._put_back(source)  # the reply that was on its way may have held the marker


async def _linked(link: Link) -> None:
    """Waits until `link` is connected, also while the server turns us away; returns when it was closed."""
    while True:
        try:
            await link.ready()
            return
        except LinkRefused:
            await asyncio.sleep(AFTER_ERROR_S)
        except LinkDown:
            return
