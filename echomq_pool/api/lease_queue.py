# SPDX-License-Identifier: MIT
"""`Queue(name, plane="lease")`: the same verbs on the lease plane, where it has them.

What differs in meaning:

* A completed job leaves nothing behind: afterwards `get_job` answers None and its state is `unknown`. Its result is
  heard by those who wait at that moment (`wait_until_finished`), and by its parent.
* A job's id is branded (`JOB` and eleven characters); ids are minted here unless `job_id` is given.
* A failed job stays (it is dead) until `retry` or `remove`.

Verbs that this plane lacks raise `WrongPlane`; they are listed in `lease_gaps.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from echomq_pool.api.ask import library
from echomq_pool.api.job import Job
from echomq_pool.api.lease_job import LeaseJob
from echomq_pool.api.lease_jobs import LeaseNews, NewLeaseJob, check_lease_job
from echomq_pool.api.lease_verbs import LeaseVerbs
from echomq_pool.api.operations import Operations
from echomq_pool.api.options import check_options
from echomq_pool.api.queue import Queue, server_of
from echomq_pool.api.telemetry import ProducerTelemetry, span_of
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, WrongPlane
from echomq_pool.plane.base import JobRecord, PlaneOptions
from echomq_pool.plane.branded import Mint
from echomq_pool.plane.calls import Calls
from echomq_pool.plane.factory import greet
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.redisio.link import Link

__all__ = ["LeaseQueue", "Queue"]


class LeaseQueue(LeaseVerbs, Queue, plane="lease"):
    """One queue of the lease plane. Besides the verbs: `lanes`, `flows`, `repeats`, and all of it raw as `wire`.

    Args:
        name: 1 to 128 of A-Z a-z 0-9 . _ -
        others: as of `Queue`; there is no prefix but `emq`, and no event stream.
    """

    def __init__(
        self,
        name: str,
        *,
        plane: str = "lease",
        url: str = "",
        prefix: str = "emq",
        hash_tag: bool = True,
        redis: RedisConfig | None = None,
        job_options: Mapping[str, Any] | None = None,
        max_len_events: int | None = None,
        telemetry: ProducerTelemetry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        link: Link | None = None,
    ) -> None:
        if max_len_events is not None:
            raise WrongPlane(
                "max_len_events: the lease plane keeps no events; it publishes them to who listens"
            )
        if prefix != "emq" or not hash_tag:
            raise InputError("the lease plane's keys are emq:{queue}:…; it has no other prefix and form")
        self.name = name
        self._config = redis or server_of(url)
        self._clock = clock
        keys = LeaseKeys(name)
        self._ops = Operations(keys, Calls(keys, PlaneOptions()), clock)
        self._defaults = check_options(job_options or {})
        self._library = library()
        self.keys = keys
        self._lease_keys = keys
        self._own_link = link is None
        self._link = link or Link(
            self._config,
            name=f"{keys.qualified}:producer",
            clock=clock,
            scripts=self._library,
            slot_key=keys.key("meta") if self._config.cluster else None,
            on_connect=lambda link: greet(link, "lease", self._config),
        )
        self._lease = LeasePlane(self._link, keys, self._library, clock=clock)
        self.wire = self._lease.queue
        self.lanes = self._lease.lanes
        self.flows = self._lease.flows
        self.repeats = self._lease.repeats
        self._mint = Mint(clock=clock)
        self._news = LeaseNews(self._config, keys)
        self._telemetry = telemetry
        self._started = not self._own_link
        self._opened = False

    async def start(self) -> None:
        """Begins to connect, and makes sure that the queue is on this plane.

        Raises:
            WrongPlane: it is on the other one.
        """
        if not self._started:
            self._started = True
            await self._link.start()
        if not self._opened:
            await self._lease.open()
            self._opened = True

    async def close(self) -> None:
        await self._news.close()
        if self._started and self._own_link:
            await self._link.close()

    # --- adding ----------------------------------------------------------------------------------------

    async def add(self, name: str, data: Any = None, **options: Any) -> Job:
        """Adds one job. Options: attempts, backoff, delay (ms), job_id, deduplication (`{id, ttl}`), keep_logs,
        stack_trace_limit, size_limit (bytes), and `group`, the lane: a branded id of any namespace.

        A job_id or deduplication id that is taken answers the job that has it, and adds nothing.

        Raises:
            InputError: refused before anything was written; options of the lock plane are named.
        """
        with span_of(self._telemetry, "add", f"{self.name}.{name}", self.name) as span:
            checked = check_lease_job(name, data, {**self._defaults, **span.told(options)})
            await self.start()
            job = await self._add(checked)
            span.note(job_name=name, job_id=job.id)
        return job

    async def add_bulk(self, jobs: Iterable[Any]) -> list[Job]:
        """Adds many: all are checked before the first is sent; they travel together but are added one by one."""
        with span_of(self._telemetry, "addBulk", self.name, self.name) as span:
            parts = [_parts(job, self._defaults) for job in jobs]
            checked = [check_lease_job(name, data, span.told(options)) for name, data, options in parts]
            await self.start()
            added = list(await asyncio.gather(*(self._add(job) for job in checked)))
            span.note(bulk_names=[job.name for job in checked], bulk_count=len(checked))
        return added

    async def _add(self, job: NewLeaseJob) -> Job:
        job_id = job.job_id or self._mint.new()
        more: dict[str, Any] = {
            "name": job.name,
            "opts": job.opts,
            "dedup_id": job.dedup_id,
            "dedup_ms": job.dedup_ms,
        }
        if job.delay_ms:
            word = await self.wire.enqueue_in(job_id, job.data, job.delay_ms, group=job.group, **more)
        elif job.group:
            word = await self.lanes.enqueue(job.group, job_id, job.data, **more)
        else:
            word = await self.wire.enqueue(job_id, job.data, **more)
        holder = job_id if word in ("enqueued", "scheduled", "duplicate") else word
        record = JobRecord.from_flat(holder, {b"name": job.name.encode(), b"data": job.data})
        record.opts = dict(job.opts)
        record.delay, record.timestamp = job.delay_ms, self._clock.now_ms()
        return self._job(record)

    # --- waiting ---------------------------------------------------------------------------------------

    async def wait_until_finished(self, job_id: str, timeout: float | None = None) -> Any:
        """The job's result, if it ends while we listen. `timeout` in seconds.

        Raises:
            JobFailed: it is dead; the message is its reason.
            JobMissing: there is no such job (any more): a completed job leaves nothing.
            WaitTimeout: not in time.
        """
        await self.start()
        return await self._news.wait(job_id, timeout, self.wire.get_job)

    # --- how it is done -----------------------------------------------------------------------------------

    async def _plane_now(self) -> LeasePlane:
        await self.start()
        return self._lease

    def _job(self, record: JobRecord) -> Job:
        return LeaseJob(record, self._lease, queue=self, clock=self._clock)

    def _forgotten(self) -> None:
        self._opened = False


def _parts(job: Any, defaults: Mapping[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    if isinstance(job, Mapping):
        name, data, options = job.get("name"), job.get("data"), job.get("opts") or {}
    else:
        name, data, options = (*job, None, {})[:3] if len(job) < 3 else job
    return name, data, {**defaults, **(options or {})}  # type: ignore[return-value]
