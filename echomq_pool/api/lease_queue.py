# SPDX-License-Identifier: MIT
"""`Queue(name, plane="lease")`: the same verbs on the lease plane, where it has them.

What differs in meaning:

* A completed job leaves nothing behind: afterwards `get_job` answers None and its state is `unknown`. Its result is
  heard by those who wait at that moment (`wait_until_finished`), and by its parent.
* A job's id is branded (`JOB` and eleven characters); ids are minted here unless `job_id` is given.
* A failed job stays (it is dead) until `retry` or `remove`.

Verbs that this plane lacks raise `WrongPlane`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from echomq_pool.api.ask import Op, T
from echomq_pool.api.job import Job
from echomq_pool.api.lease_job import LeaseJob
from echomq_pool.api.lease_jobs import LeaseNews, NewLeaseJob, check_lease_job
from echomq_pool.api.operations import Operations
from echomq_pool.api.options import check_options
from echomq_pool.api.queue import Queue, server_of
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, WrongPlane
from echomq_pool.plane import codec
from echomq_pool.plane.base import JobRecord, PlaneOptions
from echomq_pool.plane.branded import Mint
from echomq_pool.plane.calls import Calls
from echomq_pool.plane.factory import greet
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.plane.lease_events import request_cancel
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import load_library

__all__ = ["LeaseQueue", "Queue"]


class LeaseQueue(Queue, plane="lease"):
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
        clock: Clock = SYSTEM_CLOCK,
        link: Link | None = None,
    ) -> None:
        if prefix != "emq" or not hash_tag:
            raise InputError("the lease plane's keys are emq:{queue}:…; it has no other prefix and form")
        self.name = name
        self._config = redis or server_of(url)
        self._clock = clock
        self._ops = Operations(
            LeaseKeys(name), Calls(LeaseKeys(name), PlaneOptions()), clock
        )  # to be refused
        self._defaults = check_options(job_options or {})
        self._library = load_library()
        keys = LeaseKeys(name)
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
        job = check_lease_job(name, data, {**self._defaults, **options})
        await self.start()
        return await self._add(job)

    async def add_bulk(self, jobs: Iterable[Any]) -> list[Job]:
        """Adds many: all are checked before the first is sent; they travel together but are added one by one."""
        checked = [check_lease_job(*_parts(job, self._defaults)) for job in jobs]
        await self.start()
        return list(await asyncio.gather(*(self._add(job) for job in checked)))

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

    # --- looking ---------------------------------------------------------------------------------------

    async def get_job(self, job_id: str) -> Job | None:
        """None when there is no such job, as after its completion."""
        record = await (await self._plane_now()).load(job_id)
        return None if record is None else self._job(record)

    async def get_state(self, job_id: str) -> str:
        """failed | delayed | active | waiting | waiting-children | unknown; a completed job is unknown."""
        return await (await self._plane_now()).state(job_id)

    async def get_job_logs(self, job_id: str, start: int = 0, end: int = -1, asc: bool = True) -> list[str]:
        rows = await (await self._plane_now()).queue.get_job_logs(job_id) or []
        rows = rows if asc else rows[::-1]
        return rows[start:] if end == -1 else rows[start : end + 1]

    async def add_job_log(self, job_id: str, row: str, keep: int | None = None) -> int:
        return await (await self._plane_now()).log(job_id, row, keep)

    async def update_job_progress(self, job_id: str, progress: Any) -> None:
        await (await self._plane_now()).progress(job_id, codec.encode(progress))

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """waiting (lanes included), active, delayed, failed; completed is the number ever completed."""
        return await (await self._plane_now()).counts(*states)

    async def count(self) -> int:
        """Waiting and delayed jobs."""
        return sum((await self.get_job_counts("waiting", "delayed")).values())

    async def is_paused(self) -> bool:
        plane = await self._plane_now()
        return bool(await plane.command("HEXISTS", plane.keys.key("meta"), "paused"))

    async def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        return await (await self._plane_now()).queue.get_deduplication_job_id(deduplication_id)

    # --- operating ---------------------------------------------------------------------------------------

    async def pause(self) -> None:
        await (await self._plane_now()).queue.pause()

    async def resume(self) -> None:
        await (await self._plane_now()).queue.resume()

    async def drain(self, delayed: bool = False) -> None:
        await (await self._plane_now()).queue.drain(include_schedule=delayed)

    async def obliterate(self, *, force: bool = False, count: int = 1_000) -> None:
        """Deletes the queue, paused first."""
        plane = await self._plane_now()
        await plane.queue.pause()
        while await plane.queue.obliterate(force=force, budget=count) == "more":
            pass
        self._opened = False

    async def remove(self, job_id: str, *, remove_children: bool = True) -> None:
        """Raises:
        JobMissing, JobLocked: there is no such job, or a worker holds it.
        """
        await (await self._plane_now()).queue.remove_job(job_id)

    async def cancel(self, job_id: str, reason: str = "cancelled") -> None:
        """Asks whoever runs the job to stop it; heard only while its pool listens."""
        if not isinstance(reason, str):
            raise InputError(f"reason: expected a text, got {type(reason).__name__} {reason!r}")
        await self.start()
        await request_cancel(self._link, self._lease_keys, job_id, reason)

    async def set_global_concurrency(self, limit: int | None) -> None:
        plane = await self._plane_now()
        meta = plane.keys.key("meta")
        if limit is None:
            await plane.command("HDEL", meta, "concurrency")
        elif isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InputError(f"limit: expected a whole number from 1, got {limit!r}")
        else:
            await plane.command("HSET", meta, "concurrency", limit)
        await plane.wake()

    async def get_global_concurrency(self) -> int | None:
        plane = await self._plane_now()
        found = await plane.command("HGET", plane.keys.key("meta"), "concurrency")
        return None if found is None else int(found)

    async def remove_global_concurrency(self) -> None:
        await self.set_global_concurrency(None)

    async def retry_job(self, job_id: str) -> None:
        """Gives a dead job a fresh budget and puts it back."""
        await (await self._plane_now()).queue.reprocess_job(job_id)

    # --- repeats -------------------------------------------------------------------------------------------

    async def remove_job_scheduler(self, scheduler_id: str) -> bool:
        return await (await self._plane_now()).repeats.cancel(scheduler_id) == "cancelled"

    async def get_job_schedulers_count(self) -> int:
        return await (await self._plane_now()).repeats.count()

    # --- how it is done -----------------------------------------------------------------------------------

    async def _plane_now(self) -> LeasePlane:
        await self.start()
        return self._lease

    def _job(self, record: JobRecord) -> Job:
        return LeaseJob(record, self._lease, queue=self, clock=self._clock)

    async def _run(self, operation: Op[T]) -> T:
        """Every verb that is not above ends here."""
        name = getattr(operation, "__name__", "this verb")
        operation.close()
        raise WrongPlane(f"{name}: queue {self.name} is on the lease plane, which has no such verb")


def _parts(job: Any, defaults: Mapping[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    if isinstance(job, Mapping):
        name, data, options = job.get("name"), job.get("data"), job.get("opts") or {}
    else:
        name, data, options = (*job, None, {})[:3] if len(job) < 3 else job
    return name, data, {**defaults, **(options or {})}  # type: ignore[return-value]
