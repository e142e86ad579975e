# SPDX-License-Identifier: MIT
"""A lock plane on a real server, and a link that loses replies on demand."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import LinkDown
from echomq_pool.plane.base import Nothing, PlaneOptions, Taken
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lock import LockPlane
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import Script, ScriptLibrary, load_library
from tests.support.servers import Server
from tests.support.wire import Dump, dump

LIBRARY: ScriptLibrary = load_library()


class LossyLink:
    """A link whose replies can be lost: before the command ran, or after.

    `lose[name]` holds what happens to the next calls of a script: "before" (it never runs), "after" (it runs, the
    reply is lost) or a coroutine function that runs before the loss is told. `log` keeps the names of all calls.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.lose: dict[str, list[Any]] = {}
        self.log: list[str] = []

    @property
    def connected(self) -> bool:
        return self.link.connected

    async def ready(self) -> None:
        await self.link.ready()

    def call(self, *args: Any, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        self.log.append(str(args[0]))
        return self.link.call(*args, timeout_ms=timeout_ms)

    def script(self, script: Script, keys: Any, args: Any) -> asyncio.Future[Any]:
        self.log.append(script.name)
        plan = self.lose.get(script.name)
        if not plan:
            return self.link.script(script, keys, args)
        how = plan.pop(0)
        return asyncio.ensure_future(self._lost(how, script, keys, args))

    async def _lost(self, how: Any, script: Script, keys: Any, args: Any) -> Any:
        if how != "before":
            await self.link.script(script, keys, args)
        if callable(how):
            await how()
        raise LinkDown("the reply was lost", sent=True)


class Bench:
    """One queue of one server: the plane under test, and a second client to look and to meddle with."""

    def __init__(
        self, link: Link, client: redis.Redis, queue: str, options: PlaneOptions, clock: Clock
    ) -> None:
        self.keys = QueueKeys("emq", queue)
        self.link = LossyLink(link)
        self.client = client
        self.options = options
        self.plane = LockPlane(self.link, self.keys, LIBRARY, options, clock)
        self.owner = str(uuid.uuid4())
        self._numbers = itertools.count()

    def token(self) -> str:
        return f"{self.owner}:{next(self._numbers)}"

    async def taken(self, token: str = "") -> Taken:
        """Takes a job that must be there."""
        found = await self.plane.take(token or self.token())
        assert isinstance(found, Taken), found
        return found

    async def nothing(self) -> Nothing:
        found = await self.plane.take(self.token())
        assert isinstance(found, Nothing), found
        return found

    def dump(self) -> Dump:
        return dump(self.client, self.keys.base)

    def get(self, suffix: str) -> Any:
        return self.dump().get(suffix)

    def lose_lock(self, job_id: str) -> None:
        assert self.client.delete(self.keys.lock(job_id)) == 1


@asynccontextmanager
async def bench_on(
    server: Server, queue: str, options: PlaneOptions | None = None, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[Bench]:
    """A `Bench` whose link is connected; closed at the end."""
    link = Link(RedisConfig(url=server.url, port=server.port), scripts=LIBRARY)
    await link.start()
    await link.ready()
    with server.client() as client:
        try:
            yield Bench(link, client, queue, options or PlaneOptions(), clock)
        finally:
            await link.close()


MakeBench = Callable[..., Any]
