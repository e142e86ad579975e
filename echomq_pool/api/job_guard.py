# SPDX-License-Identifier: MIT
"""The lease of a job's critical section: kept by the pool while the worker process lives, until it is given back.

    async with job.lease("customer:42", ttl="30s") as lease:      # `with` in a plain function
        charge(fence=lease.fencing_token)

Whatever the job does to its loop or the GIL: another process renews. It ends with the `with`, with the job at the
latest, and within moments of the death of the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from echomq_pool.api.async_guard import AsyncLease
from echomq_pool.api.guard_view import LeaseView, ttl_of
from echomq_pool.api.job_view import JobView
from echomq_pool.clock import Clock
from echomq_pool.errors import InputError
from echomq_pool.plane.base import Plane
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import Guard, GuardKeys

T = TypeVar("T")


class Keeper(Protocol):
    """The part of a worker that looks after its jobs' leases."""

    keys: GuardKeys
    clock: Clock
    loop: asyncio.AbstractEventLoop

    async def ask(self, call: Call) -> int:
        """The answer to one call."""

    def runs(self, job: JobView) -> bool:
        """Whether this very job is being processed here."""

    def word(self, guard: Guard) -> int:
        """Since when a lease is surely good by the word of who renews it, monotonic ms; 0 = no word."""

    def keep(self, guard: Guard, job: JobView) -> None:
        """Renews it from now on, and gives it back when the job ends."""

    def drop(self, token: str) -> None:
        """It is given back."""


# By the plane of a worker's queue. Most jobs never need it, so no job carries it.
_KEEPERS: WeakKeyDictionary[Plane, Keeper] = WeakKeyDictionary()


def kept_by(plane: Plane, keeper: Keeper) -> None:
    """From now on jobs taken over `plane` have their leases kept by `keeper`."""
    _KEEPERS[plane] = keeper


def lease_in(plane: Plane, job: JobView, name: str, ttl: str, wait: object) -> JobLease:
    """A lease for a job that runs here.

    Raises:
        InputError: it does not, or an argument makes no lease.
    """
    keeper = _KEEPERS.get(plane)
    if keeper is None or not keeper.runs(job):
        raise InputError(f"job {job.id} is not run by this process; outside of jobs use Lease or SyncLease")
    return JobLease(keeper, job, Guard(name, ttl_of(ttl), keeper.keys, keeper.clock, keeper.word), wait)


class JobLease(AsyncLease):
    """The lease of an asynchronous job. Methods and properties are those of `Lease`; `renew` is hardly ever needed."""

    def __init__(self, keeper: Keeper, job: JobView, guard: Guard, wait: object) -> None:
        super().__init__(guard, keeper.clock, wait)
        self._keeper = keeper
        self._job = job

    async def _ask(self, call: Call) -> int:
        return await self._keeper.ask(call)

    async def _try(self) -> bool:
        if not self._keeper.runs(self._job):
            raise InputError(f"job {self._job.id} is over: it takes no more leases")
        return await super()._try()

    def _won(self) -> None:
        self._keeper.keep(self._guard, self._job)

    def _let_go(self, token: str) -> None:
        self._keeper.drop(token)

    def threaded(self) -> ThreadedLease:
        """The same for a plain function in a thread."""
        return ThreadedLease(self, self._guard, self._keeper.loop)


class ThreadedLease(LeaseView):
    """The lease of a job that is a plain function. Methods and properties are those of `SyncLease`."""

    def __init__(self, lease: JobLease, guard: Guard, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(guard)
        self._lease = lease
        self._loop = loop

    def acquire(self, wait: object = ...) -> bool:
        return self._on_loop(self._lease.acquire(wait))

    def renew(self) -> bool:
        return self._on_loop(self._lease.renew())

    def release(self) -> bool:
        return self._on_loop(self._lease.release())

    def __enter__(self) -> ThreadedLease:
        """Raises:
        LeaseTaken: somebody has it, and still had it after the wait.
        """
        self._on_loop(self._lease.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._on_loop(self._lease.__aexit__(kind, error, trace))

    def _on_loop(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()
