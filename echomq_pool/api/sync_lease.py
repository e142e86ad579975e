# SPDX-License-Identifier: MIT
"""`SyncQueue(name, plane="lease")`: the asynchronous queue, driven by a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any

from echomq_pool.api.ask import Op, T
from echomq_pool.api.job import Job
from echomq_pool.api.lease_queue import LeaseQueue
from echomq_pool.api.sync import SyncQueue
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, WrongPlane

__all__ = ["SyncLeaseQueue", "SyncQueue"]

VERBS = (
    "get_state", "get_job_logs", "add_job_log", "update_job_progress", "get_job_counts", "count", "is_paused",
    "get_deduplication_job_id", "pause", "resume", "drain", "obliterate", "remove", "cancel",
    "set_global_concurrency", "get_global_concurrency", "remove_global_concurrency", "retry_job",
    "remove_job_scheduler", "get_job_schedulers_count", "wait_until_finished",
)  # fmt: skip


class SyncLeaseQueue(SyncQueue, plane="lease"):
    """One queue of the lease plane, as a context manager; safe to share between threads, not over a fork."""

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
        client: Any = None,
    ) -> None:
        if client is not None:
            raise InputError("client: the lease plane's queue has a connection of its own")
        self.name = name
        self._queue = LeaseQueue(
            name, url=url, prefix=prefix, hash_tag=hash_tag, redis=redis, job_options=job_options, clock=clock
        )
        self.keys = self._queue.keys
        self._ops = self._queue._ops
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"queue {name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> SyncLeaseQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections and ends the thread."""
        if self._loop.is_closed() or os.getpid() != self._pid:
            return
        self._wait(self._queue.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, name: str, data: Any = None, **options: Any) -> SyncJob:
        """See `LeaseQueue.add`."""
        return self._shown(self._wait(self._queue.add(name, data, **options)))

    def add_bulk(self, jobs: Any) -> list[SyncJob]:
        """See `LeaseQueue.add_bulk`."""
        return [self._shown(job) for job in self._wait(self._queue.add_bulk(jobs))]

    def get_job(self, job_id: str) -> SyncJob | None:
        """See `LeaseQueue.get_job`."""
        job = self._wait(self._queue.get_job(job_id))
        return None if job is None else self._shown(job)

    def _shown(self, job: Job) -> SyncJob:
        def run(verb: str, *args: Any, **options: Any) -> Any:
            return self._wait(getattr(job, verb)(*args, **options))

        return SyncJob(job, run)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != self._pid:
            work.close()
            raise InputError("this queue was opened before a fork; open one in each process")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run(self, operation: Op[T]) -> T:
        """Every verb that is not forwarded ends here."""
        name = getattr(operation, "__name__", "this verb")
        operation.close()
        raise WrongPlane(f"{name}: queue {self.name} is on the lease plane, which has no such verb")


def _forward(verb: str) -> Any:
    def call(self: SyncLeaseQueue, *args: Any, **options: Any) -> Any:
        return self._wait(getattr(self._queue, verb)(*args, **options))

    call.__name__ = verb
    call.__doc__ = f"See `LeaseQueue.{verb}`."
    return call


for _verb in VERBS:
    setattr(SyncLeaseQueue, _verb, _forward(_verb))
