# SPDX-License-Identifier: MIT
"""QueueEvents: what happens to the jobs of a queue, read from its event stream."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any

from echomq_pool.api.event_types import NAMES, Gap, QueueEvent, typed
from echomq_pool.api.gaps import GapFinder, StreamInfo
from echomq_pool.api.queue import server_of
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, LinkDown, LinkRefused, ReplyError, ServerUnready
from echomq_pool.plane.events import decode, parse_id
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.redisio.link import Link

log = logging.getLogger("echomq.events")

BLOCK_MS = 10_000
BATCH = 500  # entries per read
PAUSE_S = 0.05
EMPTY = "0-0"

Handler = Callable[[Any], Awaitable[None] | None]


class QueueEvents:
    """Reads a queue's events, as an asynchronous context manager. BullMQ: `QueueEvents`.

    Iterate over it, or give it handlers; not both:

        async with QueueEvents("orders", url=url) as events:
            async for event in events:
                if isinstance(event, Completed): ...

    Inside the `async with` nothing is missed: it is entered when the position is fixed. A lost connection is waited
    out and reading goes on where it was. Reading keeps step with who iterates: what the server trims meanwhile is told
    as a `Gap`, never passed over.

    Args:
        name, url, prefix, hash_tag, redis: as for `Queue`.
        last_event_id: go on after this entry (`position` of an earlier reader); default: what comes from now on.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str = "",
        prefix: str = "emq",
        hash_tag: bool = True,
        redis: RedisConfig | None = None,
        last_event_id: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.keys = QueueKeys(prefix, name, hash_tag)
        self.name = name
        self._key = self.keys.key("events")
        config = redis or server_of(url)
        self._link = Link(
            config,
            name=self.keys.events_client_name(),
            clock=clock,
            blocking=True,
            slot_key=self._key if config.cluster else None,
        )
        self._from = _checked(last_event_id)
        self._gaps: GapFinder | None = None
        self._unread: deque[QueueEvent] = deque()
        self._delivered = self._from
        self._handlers: dict[str, list[tuple[str, Handler]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> QueueEvents:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def position(self) -> str:
        """Id of the last event that came out here: give it to a later reader as `last_event_id`."""
        return self._delivered

    async def start(self) -> None:
        """Connects and fixes the position; what happens from then on is read."""
        if self._gaps is not None:
            return
        await self._link.start()
        await self._link.ready()
        if self._from:
            self._gaps = GapFinder(self._from)
        else:
            info = await self._info()
            self._gaps = GapFinder(EMPTY if info is None else info.last)
            self._gaps.fix(info)
        self._delivered = self._gaps.position
        if self._handlers:
            self._task = asyncio.create_task(self._dispatch(), name=f"events of {self.name}")

    async def close(self) -> None:
        """Ends reading; iteration stops."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._link.close()

    def on(self, event: str | type[QueueEvent], handler: Handler, *, job_id: str = "") -> None:
        """Calls `handler(event)`, a plain function or `async def`, for each event of this name or type.

        Handlers run one after the other in the order of the stream. One that raises is logged, and the others go on.

        Args:
            event: BullMQ's name, a type of `event_types`, "gap", "other" (users' own), or "*" for all.
            job_id: of this job only (BullMQ: `completed:<id>`).
        """
        name = event if isinstance(event, str) else event.name or "*"
        if name not in NAMES and name != "*":
            raise InputError(f"event: there is no {name!r}; known are *, {', '.join(sorted(NAMES))}")
        self._handlers.setdefault(name, []).append((job_id, handler))
        if self._gaps is not None and self._task is None:
            self._task = asyncio.create_task(self._dispatch(), name=f"events of {self.name}")

    def off(self, event: str | type[QueueEvent], handler: Handler) -> None:
        """Takes a handler away again."""
        name = event if isinstance(event, str) else event.name or "*"
        self._handlers[name] = [item for item in self._handlers.get(name, []) if item[1] is not handler]

    async def __aiter__(self) -> AsyncIterator[QueueEvent]:
        if self._task is not None:
            raise InputError("events: either iterate or use handlers, not both")
        await self.start()
        async for event in self._events():
            yield event

    # --- reading ----------------------------------------------------------------------------------------

    async def _events(self) -> AsyncIterator[QueueEvent]:
        """What is left of the last read first: iteration may end in the middle of it, and go on later."""
        while True:
            while self._unread:
                event = self._unread.popleft()
                self._delivered = event.id
                yield event
            if self._closed:
                return
            try:
                self._unread.extend(await self._read())
            except ServerUnready:
                await asyncio.sleep(PAUSE_S)
            except LinkDown:
                await self._linked()

    async def _linked(self) -> None:
        if not self._closed:
            await self._link.ready()

    async def _read(self) -> list[QueueEvent]:
        assert self._gaps is not None
        after = self._gaps.position
        reply = await self._link.blocking_call(
            "XREAD", "COUNT", BATCH, "STREAMS", self._key, after, block_ms=BLOCK_MS
        )
        entries = [entry for _, found in _streams(reply) for entry in found]
        info = await self._info()
        missing = self._gaps.read([entry_id.decode() for entry_id, _ in entries], info)
        events = [typed(decode(self.name, entry_id, flat)) for entry_id, flat in entries]
        if missing:
            before = events[0].id if events else (info.first if info else "")
            events.insert(0, Gap(after, self.name, lost=missing, after=after, before=before))
        return events

    async def _info(self) -> StreamInfo | None:
        try:
            return StreamInfo.from_reply(await self._link.call("XINFO", "STREAM", self._key))
        except ReplyError as error:
            if "no such key" in str(error):
                return None
            raise

    # --- handlers ---------------------------------------------------------------------------------------

    async def _dispatch(self) -> None:
        try:
            async for event in self._events():
                for handler in self._wanting(event):
                    await self._tell(handler, event)
        except LinkRefused as error:
            log.error("events of %s are read no more: %s", self.name, error)

    def _wanting(self, event: QueueEvent) -> list[Handler]:
        registered = [*self._handlers.get(event.name, ()), *self._handlers.get("*", ())]
        return [handler for job_id, handler in registered if not job_id or job_id == event.job_id]

    async def _tell(self, handler: Handler, event: QueueEvent) -> None:
        try:
            result = handler(event)
            if inspect.isawaitable(result):
                await result
        except Exception:  # user code
            log.exception("a handler of %s of queue %s raised", event.name, self.name)


def _streams(reply: Any) -> Any:
    if reply is None:
        return ()
    return reply.items() if hasattr(reply, "items") else reply


def _checked(last_event_id: str) -> str:
    if not isinstance(last_event_id, str):
        raise InputError(f"last_event_id: expected a text such as '1795981509107-0', got {last_event_id!r}")
    if last_event_id:
        try:
            parse_id(last_event_id)
        except ValueError:
            raise InputError(f"last_event_id: expected '<ms>-<number>', got {last_event_id!r}") from None
    return last_event_id
