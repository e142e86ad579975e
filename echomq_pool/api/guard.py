# SPDX-License-Identifier: MIT
"""Lease: a lock for your own critical section, held by one program at a time and freed by itself when that dies.

    async with Lease("nightly-report", url=url, ttl="30s") as lease:
        write(row, fence=lease.fencing_token)      # what must not be done by two compares this number
        lease.check()                              # raises once the lock may be another's

In a job there is `job.lease(…)` (`job_guard.py`), which the pool renews. No lock that ends by itself excludes a
holder who sleeps longer than his time, so whatever is protected should refuse a fencing token below one it has seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Self

from echomq_pool.api.ask import AsyncDriver, library, over_link
from echomq_pool.api.async_guard import AsyncLease
from echomq_pool.api.guard_view import RENEWALS, RETRY, TTL, asked, call_on_lost, ttl_of
from echomq_pool.api.queue import server_of
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import LinkError
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import SCRIPTS, Guard, GuardKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import ScriptLibrary

log = logging.getLogger("echomq.lease")


class Lease(AsyncLease):
    """A lease outside of jobs. In `async with` a task of its own renews it; after a bare `acquire` call `renew`.

    User code that blocks the loop for longer than `ttl` can lose it; `lost` then says so. Its connection is opened by
    `acquire` and closed by `release`. One object is one holder: give every task its own.

    Args:
        name: what is locked, up to 200 bytes.
        url: redis://, rediss:// or unix:// address of the server; or `redis`, a whole configuration.
        ttl: how long it outlives its holder, from "100ms"; it is renewed after every third of that.
        wait: of `async with` and `acquire`; None = as long as it takes.
        prefix: first part of its keys, as of `Queue` and pool.toml; those of different prefixes are strangers.
        on_lost: called once per holding when it may be another's.

    Raises:
        InputError: an argument that makes no lease.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str = "",
        ttl: str = TTL,
        wait: str | int | None = None,
        prefix: str = "emq",
        redis: RedisConfig | None = None,
        on_lost: Callable[[], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        keys = GuardKeys(prefix)
        super().__init__(Guard(name, ttl_of(ttl), keys, clock), clock, wait)
        self._config = redis or server_of(url)
        self._on_lost = on_lost
        self._link: Link | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def acquire(self, wait: object = ...) -> bool:
        taken = False
        try:
            taken = await super().acquire(wait)
        finally:
            if not taken and not self._guard.taken:
                await self._close()
        return taken

    async def release(self) -> bool:
        try:
            return await super().release()
        finally:
            await self._close()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._keeping = asyncio.create_task(self._keep(), name=f"lease {self.name}")
        return self

    async def _ask(self, call: Call) -> int:
        return int(await (await self._driver()).run(asked(call)))

    async def _driver(self) -> AsyncDriver:
        scripts = guard_scripts()
        if self._link is None:
            self._link = Link(
                self._config,
                name="echomq:lease",
                clock=self._clock,
                scripts=scripts,
                slot_key=self._guard.keys.fence,
            )
            await self._link.start()
        return over_link(self._link, scripts)

    async def _close(self) -> None:
        task, self._keeping = self._keeping, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _keep(self) -> None:
        """Renews until it is gone for good."""
        told = False
        pause_ms = self.ttl_ms / RENEWALS
        while True:
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = self.ttl_ms / (RENEWALS if await self._renewed() else RETRY)
            if self.lost and not told:
                told = True
                log.warning("lease %s may be another's now", self.name)
                call_on_lost(self._on_lost, self.name)
            if self._guard.gone:
                return

    async def _renewed(self) -> bool:
        """One try, which ends when the lease does: then its holder must hear of it."""
        try:
            async with asyncio.timeout((self._guard.left_ms or self.ttl_ms) / 1000):
                return await self.renew()
        except (LinkError, TimeoutError) as failure:
            log.info("lease %s was not renewed: %s", self.name, str(failure) or "no answer in time")
            return False


def guard_scripts() -> ScriptLibrary:
    """The few scripts that a connection for leases alone must load."""
    return ScriptLibrary({name: library()[name] for name in SCRIPTS})
