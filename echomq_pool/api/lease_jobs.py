# SPDX-License-Identifier: MIT
"""What a lease-plane producer checks before it adds a job, and how it hears of a job's end."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from echomq_pool.api.options import check_options
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, JobFailed, JobMissing, WaitTimeout, WrongPlane
from echomq_pool.plane import branded, codec
from echomq_pool.plane.events import Event
from echomq_pool.plane.lease_events import Subscriber
from echomq_pool.plane.lease_keys import LeaseKeys

# Options that have no meaning here, by the reason.
LACKING = {
    "priority": "jobs run in the order of their ids; use a lane with a weight",
    "lifo": "jobs run in the order of their ids",
    "removeOnComplete": "completed jobs are always removed",
    "removeOnFail": "dead jobs stay until they are reprocessed or removed",
    "parent": "children are added with their parent, by `flows`",
    "failParentOnFailure": "a flow's child says so itself",
    "continueParentOnFailure": "it has no such policy",
    "ignoreDependencyOnFailure": "a flow's child says so itself",
    "removeDependencyOnFailure": "it has no such policy",
    "timestamp": "the id tells when a job was made",
}
KEPT = ("attempts", "backoff", "keepLogs", "stackTraceLimit", "telemetry")


@dataclass(frozen=True, slots=True)
class NewLeaseJob:
    """A checked job. `opts` holds what its workers must know, by BullMQ's long names."""

    name: str
    data: bytes
    opts: dict[str, Any] = field(default_factory=dict)
    job_id: str = ""
    delay_ms: int = 0
    group: str = ""
    dedup_id: str = ""
    dedup_ms: int = 0


def check_lease_job(name: object, data: Any, options: Mapping[str, Any]) -> NewLeaseJob:
    """Checks one job to be added.

    Raises:
        InputError: in one sentence.
        WrongPlane: an option that only the lock plane has, with the reason.
    """
    if not isinstance(name, str):
        raise InputError(f"name: expected a text, got {type(name).__name__} {name!r}")
    given = dict(options)
    group = given.pop("group", None)
    opts = check_options(given)
    for key, reason in LACKING.items():
        if opts.get(key):
            raise WrongPlane(f"{key}: the lease plane has no such option: {reason}")
    raw = codec.encode({} if data is None else data)
    limit = opts.get("sizeLimit")
    if limit is not None and len(raw) > limit:
        raise InputError(f"data: {len(raw)} bytes of JSON are more than the size limit of {limit}")
    dedup = opts.get("deduplication") or {}
    if set(dedup) - {"id", "ttl"}:
        raise WrongPlane("deduplication: the lease plane has only id and ttl")
    return NewLeaseJob(
        name,
        raw,
        {key: opts[key] for key in KEPT if key in opts},
        branded.check(opts["jobId"], "job_id") if "jobId" in opts else "",
        int(opts.get("delay", 0)),
        branded.check(group, "group") if group is not None else "",
        str(dedup.get("id", "")),
        int(dedup.get("ttl", 0)),
    )


class LeaseNews:
    """The ends of jobs, as they are published.

    Args:
        config: the server.
        keys: the queue.
    """

    def __init__(self, config: RedisConfig, keys: LeaseKeys) -> None:
        self._config = config
        self._keys = keys
        self._subscriber: Subscriber | None = None
        self._waiting: defaultdict[str, list[asyncio.Future[Any]]] = defaultdict(list)

    async def wait(
        self, job_id: str, timeout: float | None, look: Callable[[str], Awaitable[dict[str, str] | None]]
    ) -> Any:
        """The job's result; `look` reads its row once we listen, so that no end falls in between."""
        try:
            async with asyncio.timeout(timeout):
                await self._listening()
                waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._waiting[job_id].append(waiter)
                try:
                    _judge(job_id, await look(job_id), waiter)
                    return await waiter
                finally:
                    self._forget(job_id, waiter)
        except TimeoutError:
            raise WaitTimeout(f"job {job_id} is not finished after {timeout} s") from None

    async def close(self) -> None:
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.cancel()
        if self._subscriber is not None:
            await self._subscriber.close()

    async def _listening(self) -> None:
        if self._subscriber is None:
            self._subscriber = Subscriber(self._config, [self._keys], self._hear, name="echomq:waiting")
            await self._subscriber.start()
        await self._subscriber.ready()

    def _forget(self, job_id: str, waiter: asyncio.Future[Any]) -> None:
        waiters = self._waiting[job_id]
        waiters.remove(waiter)
        if not waiters:
            del self._waiting[job_id]

    def _hear(self, event: Event) -> None:
        if event.name not in ("completed", "failed"):
            return
        for waiter in self._waiting.get(event.job_id, ()):
            if waiter.done():
                continue
            if event.name == "completed":
                waiter.set_result(_result(str(event.data.get("result", "null"))))
            else:
                waiter.set_exception(JobFailed(str(event.data.get("reason", "")), job_id=event.job_id))


def _judge(job_id: str, row: dict[str, str] | None, waiter: asyncio.Future[Any]) -> None:
    """What the row tells by itself; an end that was heard meanwhile goes before."""
    if waiter.done():
        return
    if row is None:
        text = f"job {job_id} does not exist; a completed job of the lease plane leaves nothing"
        waiter.set_exception(JobMissing(text, job_id=job_id, code=-1))
    elif row.get("state") == "dead":
        waiter.set_exception(JobFailed(row.get("last_error", ""), job_id=job_id))


def _result(text: str) -> Any:
    try:
        return codec.decode(text)
    except (ValueError, RecursionError):
        return text
