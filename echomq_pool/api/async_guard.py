# SPDX-License-Identifier: MIT
"""What the leases of coroutines have in common, inside a job and outside: the wait, and the context manager."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from echomq_pool.api.guard_view import LeaseView, pace_s, wait_of
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkError
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import Guard

log = logging.getLogger("echomq.lease")

LAST_S = 1.0  # what has lapsed need not be given back for longer than this


class AsyncLease(LeaseView, ABC):
    """A lease whose verbs are awaited. Subclasses say how a call is made, and what follows from holding it."""

    def __init__(self, guard: Guard, clock: Clock, wait: object) -> None:
        super().__init__(guard)
        self._clock = clock
        self._wait: object = wait
        wait_of(wait)

    @abstractmethod
    async def _ask(self, call: Call) -> int:
        """The answer to one call."""

    def _won(self) -> None:
        """It is ours from now on."""

    def _let_go(self, token: str) -> None:
        """The holding under `token` is over, by our own doing."""

    async def acquire(self, wait: object = ...) -> bool:
        """True: it is ours, and `fencing_token` is the number of this holding. False: somebody still has it.

        Args:
            wait: how long to wait for it: None for as long as it takes, 0 for not at all, or "10s"; default is that
                of the constructor. Whoever asks at the right moment gets it next: there is no queue.

        Raises:
            InputError: it is held already, or a wait that is none.
            LinkError: the server could not be asked.
        """
        patience = wait_of(self._wait if wait is ... else wait)
        with self._one_at_a_time():
            return await self._tried(patience)

    async def _tried(self, patience: int | None) -> bool:
        give_up = None if patience is None else self._clock.mono_ms() + patience
        tries = 0
        while not await self._try():
            left = None if give_up is None else give_up - self._clock.mono_ms()
            if left is not None and left <= 0:
                self._guard.forget()
                return False
            await asyncio.sleep(pace_s(tries, left))
            tries += 1
        self._won()
        return True

    async def renew(self) -> bool:
        """Makes it last its whole time from now. False: it is gone or another's, and is not taken again."""
        if not self._guard.taken:
            return False
        sent_ms = self._clock.mono_ms()
        return self._guard.extended(bool(await self._ask(self._guard.extending())), sent_ms)

    async def release(self) -> bool:
        """Gives it back. False: it was not ours any more, and whoever has it keeps it."""
        if not self._guard.token:
            return False
        call, token = self._guard.releasing(), self._guard.token
        self._guard.forget()
        try:
            return bool(await self._ask(call))
        finally:
            self._let_go(token)

    async def __aenter__(self) -> Self:
        """Raises:
        LeaseTaken: somebody has it, and still had it after the wait.
        """
        if not await self.acquire():
            raise self._taken()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(max(self._guard.left_ms / 1000, LAST_S)):
                await self.release()
        except (LinkError, TimeoutError) as failure:
            text = str(failure) or "no answer in time"
            log.warning("lease %s was not given back and ends by itself: %s", self.name, text)

    async def _try(self) -> bool:
        sent_ms = self._clock.mono_ms()
        try:
            return self._guard.acquired(await self._ask(self._guard.acquiring()), sent_ms)
        except asyncio.CancelledError:
            # The call may be on its way: what it takes must not be held by nobody for the whole time to live.
            with contextlib.suppress(LinkError):
                await self.release()
            raise
