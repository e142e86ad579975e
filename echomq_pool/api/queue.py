# SPDX-License-Identifier: MIT
"""The asynchronous producer: adds jobs to a queue, looks at them, waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeVar

from echomq_pool.api.job import Job
from echomq_pool.api.operations import Ask, Op, Operations, record_of
from echomq_pool.api.repeats import Moment, check_repeat
from echomq_pool.api.watch import Watch
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.config.url import parse_url
from echomq_pool.errors import InputError, LinkDown
from echomq_pool.plane.base import PlaneOptions
from echomq_pool.plane.calls import Call, Calls
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lock import LockPlane
from echomq_pool.plane.schedule import SchedulerRecord
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import load_library

T = TypeVar("T")

TRIES = 3  # of a request that may be repeated after a lost reply


class Queue:
    """One queue, as an asynchronous context manager.

    Args:
        name: the queue's name.
        url: redis://, rediss:// or unix:// address of the server; or `redis`, a whole configuration.
        prefix: first part of every key; `bull` for an existing BullMQ queue.
        hash_tag: write the name in braces (a cluster needs it); False for an existing BullMQ queue.

    Raises:
        InputError: a name, prefix or address that cannot be used.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str = "",
        prefix: str = "emq",
        hash_tag: bool = True,
        redis: RedisConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.keys = QueueKeys(prefix, name, hash_tag)
        self.name = name
        self._config = redis or server_of(url)
        self._library = load_library()
        options = PlaneOptions()
        self._ops = Operations(self.keys, Calls(self.keys, options), clock)
        self._link = Link(
            self._config, name=f"{self.keys.qualified}:producer", clock=clock, scripts=self._library
        )
        self._plane = LockPlane(self._link, self.keys, self._library, options, clock)
        self._clock = clock
        self._blocking: Link | None = None
        events = self.keys.key("events")
        self._watch = Watch(events, self._open_blocking, self._position, self._since, self._look)
        self._started = False

    async def __aenter__(self) -> Queue:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begins to connect; calls made before the connection stands wait for it."""
        if not self._started:
            self._started = True
            await self._link.start()

    async def close(self) -> None:
        """Ends every wait and both connections."""
        await self._watch.close()
        if self._blocking is not None:
            await self._blocking.close()
        if self._started:
            await self._link.close()

    # --- adding ----------------------------------------------------------------------------------------

    async def add(self, name: str, data: Any = None, **options: Any) -> Job:
        """Adds one job. Options: attempts, backoff, delay (ms), priority, lifo, job_id, remove_on_complete,
        remove_on_fail, keep_logs, timestamp, deduplication, size_limit, stack_trace_limit.

        Raises:
            InputError: refused before anything was written.
            LinkDown: `sent=True`: it may have been added; a job_id of your own makes adding it again safe.
        """
        job_id, job = await self._run(self._ops.add(name, data, options))
        return self._job(record_of(job_id, job))

    async def add_bulk(self, jobs: Iterable[Any]) -> list[Job]:
        """Adds many: `{"name": …, "data": …, "opts": {…}}` or (name, data, options) each.

        All are checked before the first is sent; they travel together but are added one by one.
        """
        added = await self._run(self._ops.add_bulk(jobs))
        return [self._job(record_of(job_id, job)) for job_id, job in added]

    # --- looking ---------------------------------------------------------------------------------------

    async def get_job(self, job_id: str) -> Job | None:
        """The job as stored; None when there is none."""
        record = await self._run(self._ops.load(job_id))
        return None if record is None else self._job(record)

    async def get_state(self, job_id: str) -> str:
        return await self._run(self._ops.state(job_id))

    async def get_job_logs(self, job_id: str, start: int = 0, end: int = -1) -> list[str]:
        return await self._run(self._ops.logs(job_id, start, end))

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """Sizes by state; of all states when none is named."""
        return await self._run(self._ops.counts(states))

    counts = get_job_counts

    async def wait_until_finished(self, job_id: str, timeout: float | None = None) -> Any:
        """The job's return value, once it is there. `timeout` in seconds.

        Raises:
            JobFailed: it failed; the message is its reason.
            JobMissing: it does not exist, or was removed meanwhile.
            WaitTimeout: not in time.
        """
        return await self._watch.wait(job_id, timeout)

    # --- the queue as a whole ------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Nobody takes jobs of this queue any more; what runs goes on."""
        await self._run(self._ops.pause())

    async def resume(self) -> None:
        await self._run(self._ops.resume())

    async def is_paused(self) -> bool:
        return await self._run(self._ops.is_paused())

    async def set_global_concurrency(self, limit: int | None) -> None:
        """At most so many active jobs over all workers; None = no limit."""
        await self._run(self._ops.set_concurrency(limit))

    async def set_global_rate_limit(self, max: int | None, duration_ms: int | None = None) -> None:
        """At most `max` starts per `duration_ms` over all workers; None = no limit."""
        await self._run(self._ops.set_rate_limit(max, duration_ms))

    async def cancel(self, job_id: str, reason: str = "cancelled") -> None:
        """Asks the pool that runs the job to stop it; it fails with `reason` and is not retried."""
        await self._run(self._ops.cancel(job_id, reason))

    # --- schedulers -------------------------------------------------------------------------------------

    async def upsert_job_scheduler(
        self,
        scheduler_id: str,
        *,
        every: int | None = None,
        pattern: str | None = None,
        tz: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        immediately: bool = False,
        name: str | None = None,
        data: Any = None,
        opts: dict[str, Any] | None = None,
    ) -> Job | None:
        """Makes or replaces a series: `every` ms, or a cron `pattern` in `tz`. Returns its next job.

        Raises:
            InputError: refused before anything was written.
            SlotTaken: finished jobs occupy its next slots.
        """
        repeat = check_repeat(
            every=every,
            pattern=pattern,
            tz=tz,
            limit=limit,
            offset=offset,
            start=start,
            end=end,
            immediately=immediately,
        )
        operation = self._ops.upsert_scheduler(scheduler_id, repeat, name, data, opts or {})
        record = await self._run(operation)
        return None if record is None else self._job(record)

    async def get_job_scheduler(self, scheduler_id: str) -> SchedulerRecord | None:
        return await self._run(self._ops.get_scheduler(scheduler_id))

    async def get_job_scheduler_ids(self) -> list[str]:
        """Ids of all series, the next to run first."""
        return await self._run(self._ops.scheduler_ids())

    async def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Ends a series with its waiting next job; False when there is none."""
        return await self._run(self._ops.remove_scheduler(scheduler_id))

    async def repair_job_scheduler(self, scheduler_id: str) -> tuple[str, str]:
        """Makes the series' next job again if it is nowhere: (gone | moved | alive | taken | made | ended, id)."""
        return await self._run(self._ops.repair_scheduler(scheduler_id))

    # --- how it is done -----------------------------------------------------------------------------------

    def _job(self, record: Any) -> Job:
        return Job(record, self._plane, queue=self, clock=self._clock)

    async def _run(self, operation: Op[T]) -> T:
        await self.start()
        try:
            batch = next(operation)
            while True:
                replies = await self._send(batch)
                batch = operation.send(replies)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _send(self, batch: list[Ask]) -> list[Any]:
        if len(batch) == 1:
            return [await self._ask(batch[0])]
        # All in one write; every reply is awaited before the first error is raised.
        replies = await asyncio.gather(*(self._ask(ask) for ask in batch), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return replies

    async def _ask(self, ask: Ask) -> Any:
        tries = TRIES if ask.repeat else 1
        while True:
            tries -= 1
            try:
                if isinstance(ask.what, Call):
                    script = self._library[ask.what.script]
                    return await self._link.script(script, ask.what.keys, ask.what.args)
                return await self._link.call(*ask.what)
            except LinkDown as error:
                if not error.sent or tries <= 0:
                    raise

    async def _position(self) -> str:
        return await self._run(self._ops.position())

    async def _since(self, position: str) -> list[Any]:
        return await self._run(self._ops.since(position))

    async def _look(self, job_id: str) -> tuple[bool, Any]:
        return await self._run(self._ops.finished(job_id))

    async def _open_blocking(self) -> Link:
        if self._blocking is None:
            name = self.keys.events_client_name()
            self._blocking = Link(self._config, name=name, clock=self._clock, blocking=True)
            await self._blocking.start()
        return self._blocking


def server_of(url: str) -> RedisConfig:
    """The server of a producer's url.

    Raises:
        InputError: none was given, or it names a pool's own embedded server.
    """
    if not url:
        raise InputError("url: expected the server's address, such as redis://127.0.0.1:6379/0")
    config = parse_url(url)
    if config.embedded is not None:
        raise InputError(
            "url: a producer needs the address of a running server; 'embedded' is the pool's own"
        )
    return config
