# SPDX-License-Identifier: MIT
"""`SyncQueue(name, plane="lease")`: the asynchronous queue, driven by a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any

from echomq_pool.api.ask import Op, T
from echomq_pool.api.job import Job
from echomq_pool.api.lease_queue import LeaseQueue
from echomq_pool.api.sync import SyncQueue
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.api.telemetry import ProducerTelemetry
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError

__all__ = ["SyncLeaseQueue", "SyncQueue"]


class SyncLeaseQueue(SyncQueue, plane="lease"):
    """One queue of the lease plane, as a context manager; safe to share between threads, not over a fork.

    `lanes`, `flows`, `repeats` and `wire` are those of `LeaseQueue`, their verbs as calls that block.
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
        client: Any = None,
    ) -> None:
        if client is not None:
            raise InputError("client: the lease plane's queue has a connection of its own")
        self.name = name
        self._queue = LeaseQueue(
            name, url=url, prefix=prefix, hash_tag=hash_tag, redis=redis, job_options=job_options,
            max_len_events=max_len_events, telemetry=telemetry, clock=clock,
        )  # fmt: skip
        self.keys = self._queue.keys
        self._ops = self._queue._ops
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"queue {name}", daemon=True)
        self._thread.start()
        queue = self._queue
        self.lanes, self.flows = _Driven(queue.lanes, self._on_open), _Driven(queue.flows, self._on_open)
        self.repeats, self.wire = _Driven(queue.repeats, self._on_open), _Driven(queue.wire, self._on_open)

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

    def _out(self, found: Any) -> Any:
        """Jobs in what a verb answers, as jobs for plain functions."""
        if isinstance(found, Job):
            return self._shown(found)
        return [self._out(item) for item in found] if isinstance(found, list) else found

    def _shown(self, job: Job) -> SyncJob:
        def run(verb: str, *args: Any, **options: Any) -> Any:
            return self._wait(getattr(job, verb)(*args, **options))

        return SyncJob(job, run)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != self._pid:
            work.close()
            raise InputError("this queue was opened before a fork; open one in each process")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _on_open(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """For what does not open the queue by itself: it may be the first thing that is done with it."""

        async def opened() -> T:
            await self._queue.start()
            return await call()

        return self._wait(opened())

    def _run(self, operation: Op[T]) -> T:
        return self._wait(self._queue._run(operation))


class _Driven:
    """An asynchronous object whose verbs block."""

    def __init__(self, target: object, wait: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]) -> None:
        self._target = target
        self._wait = wait

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._target, verb)
        return lambda *args, **options: self._wait(lambda: found(*args, **options))


def _forward(verb: str) -> Any:
    def call(self: SyncLeaseQueue, *args: Any, **options: Any) -> Any:
        return self._out(self._wait(getattr(self._queue, verb)(*args, **options)))

    call.__name__ = verb
    call.__doc__ = f"See `LeaseQueue.{verb}`."
    return call


def _verbs() -> list[str]:
    """All verbs of the asynchronous queue, those that the plane lacks included."""
    own = ("start", "close", "add", "add_bulk")
    found = inspect.getmembers(LeaseQueue, inspect.iscoroutinefunction)
    return [verb for verb, _ in found if not verb.startswith("_") and verb not in own]


for _verb in _verbs():
    setattr(SyncLeaseQueue, _verb, _forward(_verb))
