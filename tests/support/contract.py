# SPDX-License-Identifier: MIT
"""One face over both planes for the contract tests: what only a layout can do is hidden here."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar

from echomq_pool import Queue, SyncQueue
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.config.schema import LimiterConfig
from echomq_pool.ipc.messages import HeldJob
from echomq_pool.plane.base import Nothing, Plane, PlaneOptions, Taken
from tests.support.lease import lease_on
from tests.support.planes import LossyLink, bench_on
from tests.support.servers import Server
from tests.support.wire import Dump, Wire, dump


class Contract:
    """A queue on one plane. `moved` names the script that settles with a given verb."""

    kind = ""
    moved: ClassVar[dict[str, str]]

    def __init__(self, plane: Plane, link: LossyLink, client: Any, base: str) -> None:
        self.plane = plane
        self.link = link
        self.client = client
        self.base = base
        self.owner = str(uuid.uuid4())
        self._numbers = itertools.count()

    def token(self) -> str:
        return f"{self.owner}:{next(self._numbers)}"

    async def add(self, **opts: Any) -> str:
        raise NotImplementedError

    async def make_due(self) -> None:
        """Lets delayed jobs become due and ready."""
        raise NotImplementedError

    def lapse(self, job_id: str) -> None:
        """Ends the lease of a held job, as time does."""
        raise NotImplementedError

    async def sweep(self) -> list[str]:
        """As many passes as recover a lapsed job."""
        raise NotImplementedError

    async def taken(self, token: str = "") -> Taken:
        found = await self.plane.take(token or self.token())
        assert isinstance(found, Taken), found
        return found

    async def nothing(self) -> Nothing:
        found = await self.plane.take(self.token())
        assert isinstance(found, Nothing), found
        return found

    def dump(self) -> Dump:
        return dump(self.client, self.base)


class LockContract(Contract):
    kind = "lock"
    moved: ClassVar[dict[str, str]] = {
        "complete": "moveToFinished",
        "fail": "moveToFinished",
        "retry": "retryJob",
        "delay": "moveToDelayed",
        "release": "moveJobFromActiveToWait",
        "take": "moveToActive",
    }

    async def add(self, **opts: Any) -> str:
        queue = self.base.partition("{")[2].partition("}")[0]
        wire = Wire(self.client, queue)
        wire.now = time.time_ns() // 1_000_000
        job_id = wire.add(**opts)
        return str(job_id.decode() if isinstance(job_id, bytes) else job_id)

    async def make_due(self) -> None:
        key = self.base + "delayed"
        for job_id in self.client.zrange(key, 0, -1):
            self.client.zadd(key, {job_id: 1})

    def lapse(self, job_id: str) -> None:
        assert self.client.delete(f"{self.base}{job_id}:lock") == 1

    async def sweep(self) -> list[str]:
        found: list[str] = []
        for _ in range(2):
            self.client.delete(self.base + "stalled-check")
            found += await self.plane.sweep()
        return found


class LeaseContract(Contract):
    kind = "lease"
    moved: ClassVar[dict[str, str]] = dict.fromkeys(
        ("complete", "fail", "retry", "delay", "release"), "lease/settle"
    ) | {"take": "lease/take"}
    bench: Any

    async def add(self, **opts: Any) -> str:
        delay = opts.pop("delay", 0)
        job_id: str = self.bench.mint.new()
        if delay:
            await self.bench.queue.enqueue_in(job_id, "{}", delay, name="job", opts=opts)
        else:
            await self.bench.queue.enqueue(job_id, "{}", name="job", opts=opts)
        return job_id

    async def make_due(self) -> None:
        key = self.base + "schedule"
        for job_id in self.client.zrange(key, 0, -1):
            self.client.zadd(key, {job_id: 1})
        await self.bench.plane.maintain()

    def lapse(self, job_id: str) -> None:
        self.bench.lapse(job_id)

    async def sweep(self) -> list[str]:
        return await self.plane.sweep()


@asynccontextmanager
async def contract_on(
    kind: str, server: Server, queue: str, limiter: LimiterConfig | None = None
) -> AsyncIterator[Contract]:
    """A queue on the plane `kind`, with 30 s leases."""
    options = PlaneOptions(limiter=limiter)
    async with AsyncExitStack() as stack:
        if kind == "lock":
            lock = await stack.enter_async_context(bench_on(server, queue, options))
            yield LockContract(lock.plane, lock.link, lock.client, lock.keys.base)
        else:
            lease = await stack.enter_async_context(lease_on(server, queue, options))
            contract = LeaseContract(lease.plane, lease.link, lease.client, lease.keys.base)
            contract.bench = lease
            yield contract


Verb = Callable[[Contract, Taken, str], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "complete": lambda q, t, token: q.plane.complete(t.job, token, b'"ok"'),
    "fail": lambda q, t, token: q.plane.fail(t.job, token, "boom", ["trace"]),
    "retry": lambda q, t, token: q.plane.retry(t.job, token, "boom", ["trace"]),
    "delay": lambda q, t, token: q.plane.delay(t.job, token, 60_000, reason="boom", stacktrace=["trace"]),
    "release": lambda q, t, token: q.plane.release(t.job, token),
}
AFTER = {"fail": "failed", "retry": "waiting", "delay": "delayed", "release": "waiting"}


def held(taken: Taken) -> HeldJob:
    job = taken.job
    return HeldJob(
        "q", job.id, taken.token, job.ats, job.atm, job.attempts, job.backoff, job.lifo, 0, 0, job.name
    )


class Threaded:
    """A blocking object (a `SyncQueue`, a `SyncJob`) seen as its asynchronous twin."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            return _threaded(await asyncio.to_thread(found, *args, **options))

        return call


def _threaded(found: Any) -> Any:
    if isinstance(found, SyncJob):
        return Threaded(found)
    return [_threaded(item) for item in found] if isinstance(found, list) else found


@asynccontextmanager
async def face_on(kind: str, twin: str, server: Server, queue: str) -> AsyncIterator[Any]:
    """The producer of a queue on the plane `kind`: `Queue`, or `SyncQueue` behind the same awaitable verbs."""
    if twin == "async":
        async with Queue(queue, plane=kind, url=server.url) as face:
            yield face
    else:
        with SyncQueue(queue, plane=kind, url=server.url) as blocking:
            yield Threaded(blocking)
