# SPDX-License-Identifier: MIT
"""Waiting for jobs to end: one reader of the event stream for all waits of a queue.

The order is what makes it safe: the reader's position is fixed first, then the job's state is looked at, then
events are read from that position. Nothing can fall between. After a lost connection reading goes on from the
last entry seen; once all of it is read, every job is looked at again, in case the stream was trimmed or thrown
away meanwhile. A job that is not there any more may have left its value in the stream: it is searched there first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from echomq_pool.api.ops_look import outcome_of
from echomq_pool.errors import JobMissing, LinkDown, LinkError, PoolError, ServerUnready, WaitTimeout
from echomq_pool.plane.events import decode, parse_id
from echomq_pool.redisio.link import Link

BLOCK_MS = 10_000
PAUSE_S = 0.05

Look = Callable[[str], Awaitable[tuple[bool, Any]]]


class Watch:
    """All waits of one queue.

    Args:
        blocking: a link for this alone, made at the first wait.
        position: asks for the stream's last entry.
        since: reads all entries after a position.
        look: asks for a job's state, as `Operations.finished`.
    """

    def __init__(
        self,
        events_key: str,
        blocking: Callable[[], Awaitable[Link]],
        position: Callable[[], Awaitable[str]],
        since: Callable[[str], Awaitable[list[Any]]],
        look: Look,
    ) -> None:
        self._key = events_key
        self._blocking = blocking
        self._fix = position
        self._since = since
        self._look = look
        self._waits: dict[str, set[asyncio.Future[Any]]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._position = ""

    async def wait(self, job_id: str, timeout_s: float | None) -> Any:
        """The job's return value.

        Raises:
            JobFailed, JobMissing: it failed; it does not exist (any more).
            WaitTimeout: not within `timeout_s` seconds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait(job_id)
        except TimeoutError as error:
            if isinstance(error, PoolError):
                raise
            raise WaitTimeout(f"job {job_id} is not finished after {timeout_s} s") from None

    async def _wait(self, job_id: str) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waits.setdefault(job_id, set()).add(future)
        try:
            async with self._lock:
                if self._reader is None or self._reader.done():
                    self._position = await self._fix()
                    self._reader = asyncio.create_task(self._read(), name=f"waits of {self._key}")
            try:
                over, value = await self._look(job_id)
            except JobMissing:
                self._take([(b"", await self._since(self._position))])
                if not future.done():
                    raise
                over = False
            return value if over else await future
        finally:
            self._forget(job_id, future)

    def _forget(self, job_id: str, future: asyncio.Future[Any]) -> None:
        waits = self._waits.get(job_id, set())
        waits.discard(future)
        if not waits:
            self._waits.pop(job_id, None)

    async def _read(self) -> None:
        """Runs while somebody waits. What ends it ends the waits, which would otherwise hang."""
        try:
            await self._read_on(await self._blocking())
        except Exception as error:
            for job_id in list(self._waits):
                self._end(job_id, error, None)

    async def _read_on(self, link: Link) -> None:
        block_ms = BLOCK_MS
        while self._waits:
            try:
                reply = await link.blocking_call(
                    "XREAD", "COUNT", 1_000, "STREAMS", self._key, self._position, block_ms=block_ms
                )
                if reply is None:
                    block_ms = BLOCK_MS
                    await self._look_again()
                else:
                    self._take(reply)
            except ServerUnready:
                await asyncio.sleep(PAUSE_S)
            except LinkDown:
                await link.ready()
                block_ms = 1  # what was missed is read first, then the jobs are looked at

    def _take(self, reply: Any) -> None:
        streams = reply.items() if isinstance(reply, Mapping) else reply
        for _, entries in streams:
            for entry_id, flat in entries:
                self._position = max(self._position, entry_id.decode(), key=parse_id)
                event = decode("", entry_id, flat)
                if event.job_id in self._waits:
                    self._tell(event.job_id, event.name, event.data)

    def _tell(self, job_id: str, name: str, fields: Mapping[str, Any]) -> None:
        try:
            over, value = outcome_of(name, job_id, fields)
        except PoolError as error:
            self._end(job_id, error, None)
        else:
            if over:
                self._end(job_id, None, value)

    async def _look_again(self) -> None:
        for job_id in list(self._waits):
            try:
                over, value = await self._look(job_id)
            except LinkError:
                return
            except JobMissing as error:
                if not await self._catch_up():
                    return
                self._end(job_id, error, None)
            except PoolError as error:
                self._end(job_id, error, None)
            else:
                if over:
                    self._end(job_id, None, value)

    async def _catch_up(self) -> bool:
        """A job that is gone may have ended since the last read: then its event tells the value."""
        try:
            self._take([(b"", await self._since(self._position))])
        except LinkError:
            return False
        return True

    def _end(self, job_id: str, error: Exception | None, value: Any) -> None:
        for future in self._waits.get(job_id, set()):
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

    async def close(self) -> None:
        """Ends the reader; waits that are left end with it."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        for waits in list(self._waits.values()):
            for future in waits:
                future.cancel()
