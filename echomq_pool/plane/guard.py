# SPDX-License-Identifier: MIT
"""A lock for users' own critical sections: taken for a while, renewed while it is held, given back by its holder.

    async with Lease(link, library, "invoice-17") as lease:
        write(row, fence=lease.fencing_token)      # what must not be done by two compares this number
        lease.check()                              # raises once the lock may be another's

It frees itself when its holder dies. No lock that ends by itself excludes a holder who sleeps longer than his lease,
so whatever is protected should refuse a fencing number below one that it has seen.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from types import TracebackType

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import InputError, LinkError, PoolError
from echomq_pool.plane.keys import check_prefix
from echomq_pool.plane.lease_desk import Asking
from echomq_pool.redisio.scripts import ScriptLibrary

log = logging.getLogger("echomq.guard")

POLL_S = 0.05


class GuardLost(PoolError):
    """The lock is not ours (any more)."""


class Lease:
    """One lock, held by one task at a time.

    Args:
        link: a connection of the caller.
        library: the scripts, with the folder `lease`.
        name: what is locked.
        ttl_ms: how long the lock outlives its holder.
        renew_ms: time between renewals; None = half of `ttl_ms`.
        wait_ms: how long to wait for a lock that somebody has; 0 = not at all.
        on_lost: called once when the lock could not be renewed.

    Raises:
        InputError: a name or time that makes no lock.
    """

    def __init__(
        self,
        link: Asking,
        library: ScriptLibrary,
        name: str,
        *,
        ttl_ms: int = 30_000,
        renew_ms: int | None = None,
        wait_ms: int = 0,
        on_lost: Callable[[], None] | None = None,
        prefix: str = "emq",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        check_prefix(prefix)
        if not name or "{" in name or "}" in name:
            raise InputError(f"lock: expected a name without braces, got {name!r}")
        beat = ttl_ms // 2 if renew_ms is None else renew_ms
        if ttl_ms < 2 or not 0 < beat < ttl_ms:
            raise InputError(
                f"lock {name!r}: renew_ms must be within 1 and ttl_ms - 1, got {beat} of {ttl_ms}"
            )
        self.key = f"{prefix}:guard:{{{name}}}"
        self.name = name
        self.token = str(uuid.uuid4())
        self.fencing_token = 0
        self.lost = asyncio.Event()
        self._link, self._library, self._clock = link, library, clock
        self._ttl, self._beat, self._wait = ttl_ms, beat, wait_ms
        self._on_lost = on_lost
        self._deadline_ms = 0  # monotonic; counts from before the call that last proved the lock
        self._task: asyncio.Task[None] | None = None

    async def acquire(self) -> bool:
        """Tries once. True: it is ours, and `fencing_token` is the number of this holding."""
        before = self._clock.mono_ms()
        keys = (self.key, f"{self.key}:fence")
        found = await self._link.script(self._library["lease/guardAcquire"], keys, (self.token, self._ttl))
        if not found:
            return False
        self.fencing_token = int(found)
        self._deadline_ms = before + self._ttl
        self.lost.clear()
        return True

    async def extend(self) -> bool:
        """Renews. False: it is gone or another's, and is not taken again."""
        before = self._clock.mono_ms()
        args = (self.token, self._ttl)
        if await self._link.script(self._library["lease/guardExtend"], (self.key,), args):
            self._deadline_ms = before + self._ttl
            return True
        self._lose()
        return False

    async def release(self) -> bool:
        """Gives it back. False: it was not ours any more, and whoever has it keeps it."""
        self._deadline_ms = 0
        return bool(await self._link.script(self._library["lease/guardRelease"], (self.key,), (self.token,)))

    def held(self) -> bool:
        """Whether it is surely ours at this moment."""
        return not self.lost.is_set() and self._clock.mono_ms() < self._deadline_ms

    def check(self) -> None:
        """Raises:
        GuardLost: the lock may be another's.
        """
        if not self.held():
            raise GuardLost(f"lock {self.name!r} is not ours any more")

    async def __aenter__(self) -> Lease:
        """Raises:
        GuardLost: somebody has it, and still had it after `wait_ms`.
        """
        give_up = self._clock.mono_ms() + self._wait
        while not await self.acquire():
            if self._clock.mono_ms() >= give_up:
                raise GuardLost(f"lock {self.name!r} is held by somebody else")
            await asyncio.sleep(POLL_S)
        self._task = asyncio.get_running_loop().create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not self.lost.is_set():
            await self.release()

    async def _renew(self) -> None:
        """Renews until the lock is lost: by the server's word, or because no renewal came through in time."""
        pause_ms: float = self._beat
        while True:
            await asyncio.sleep(pause_ms / 1000)
            left_ms = self._deadline_ms - self._clock.mono_ms()
            try:
                async with asyncio.timeout(max(0, left_ms) / 1000):
                    if not await self.extend():
                        return
                pause_ms = self._beat
            except (LinkError, TimeoutError) as failure:
                log.warning(
                    "lock %s could not be renewed: %s", self.name, str(failure) or "no answer in time"
                )
                if self._clock.mono_ms() >= self._deadline_ms:
                    self._lose()
                    return
                pause_ms = self._beat / 4

    def _lose(self) -> None:
        if not self.lost.is_set():
            self.lost.set()
            if self._on_lost is not None:
                self._on_lost()
