# SPDX-License-Identifier: MIT
"""Worker: the pool's worker inside a program of your own – a test, a script, a web application.

    async with Worker("orders", handle, url=url, concurrency=10):
        ...

It is the same fetcher, executor, settler and lease watch as in a pool's worker process; what is missing is the process.
Nobody else renews its leases (it does so itself), nobody can kill it: a plain function past its time limit runs on in
its thread, and its job fails only when it has ended. User code that blocks the loop or the GIL costs leases. A pool has
none of these limits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from echomq_pool.api.event_types import Other
from echomq_pool.api.events import QueueEvents
from echomq_pool.api.job import Job
from echomq_pool.api.lease_job import job_of
from echomq_pool.api.queue import server_of
from echomq_pool.api.tasks import Task
from echomq_pool.children.routing import with_middleware
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import PoolConfig, RedisConfig, WorkersConfig
from echomq_pool.errors import InputError, LinkError, ReplyError
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Cancel, Stop
from echomq_pool.plane.base import Nothing, Taken, block_ms
from echomq_pool.plane.events import CANCEL_EVENT
from echomq_pool.plane.factory import make_keys
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.worker.arguments import (
    check_lease,
    keep_of,
    limiter_of,
    processor_of,
    recovery_of,
    whole,
)
from echomq_pool.worker.inside import Inside
from echomq_pool.worker.lease_upkeep import Upkeep

log = logging.getLogger("echomq.worker")

SLOT = 1
FOR_EVER_MS = 365 * 86_400_000
AFTER_ERROR_S = 1.0
GIVE_UP_S = 2.0  # after the timeout of a close, for handing back


class Worker:
    """Works one queue. BullMQ: `Worker`.

    Args:
        queue: its name.
        processor: `async def` or plain function of one argument, the job; or "package.module:function". None: jobs are
            taken by hand (`get_next_job`) and settled by their own verbs.
        tasks: instead of a processor: `@task` functions, or names of modules that hold some.
        url, prefix, hash_tag, redis: as for `Queue`.
        plane: `lock`, or `lease`; there it also promotes due jobs and fires repeats.
        recovery: of the lease plane: lapsed leases are counted (`sweep`), or not (`reap`).
        name: of this worker, shown to dashboards and stored with the jobs it takes.
        concurrency: jobs at once.
        lock_duration_ms: how long a lease lasts without renewal.
        timeout_ms: time limit of a run; 0 = none. A task's own limit goes before it.
        stalled_interval_ms, max_stalled_count: of the search for jobs whose workers are lost; 0 as interval = none. On
            the lease plane lapsed leases are found at their end, whatever the interval.
        drain_delay_ms: one blocking wait on an empty queue.
        limiter: (max, duration_ms): at most so many starts over all workers of the queue.
        remove_on_complete, remove_on_fail: True, False, how many to keep, or {count, age (s), limit}.
        metrics_points: minutes of finished jobs per minute kept for `Queue.get_metrics`; 0 = none.
        middleware: callables around every job, see `echomq_pool.api.middleware`.
        listen: read the queue's events for `Queue.cancel`; costs a connection.

    Raises:
        InputError: an argument that cannot be used.
        WrongPlane: one that only the lock plane has, on the other.
        ProcessorError: a processor or tasks that cannot be.
    """

    def __init__(
        self,
        queue: str,
        processor: Callable[[Any], Any] | str | None = None,
        *,
        tasks: Sequence[Task[..., Any] | str] = (),
        url: str = "",
        prefix: str = "emq",
        hash_tag: bool = True,
        redis: RedisConfig | None = None,
        plane: str = "lock",
        recovery: str = "sweep",
        name: str = "",
        concurrency: int = 1,
        lock_duration_ms: int = 30_000,
        timeout_ms: int = 0,
        stalled_interval_ms: int = 30_000,
        max_stalled_count: int = 1,
        drain_delay_ms: int = 5_000,
        limiter: tuple[int, int] | None = None,
        remove_on_complete: Any = False,
        remove_on_fail: Any = False,
        metrics_points: int = 0,
        middleware: Sequence[Any] = (),
        listen: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.keys = make_keys(plane, queue, prefix, hash_tag)
        if plane == "lease":
            check_lease(
                prefix=prefix != "emq", hash_tag=not hash_tag, remove_on_complete=remove_on_complete,
                remove_on_fail=remove_on_fail, metrics_points=metrics_points,
            )  # fmt: skip
        self.queue = queue
        self._manual = processor is None and not tasks
        self._sweep_ms = whole("stalled_interval_ms", stalled_interval_ms, 0)
        lease = whole("lock_duration_ms", lock_duration_ms, 100)
        group = WorkersConfig(
            name=name or "worker",
            queues=(queue,),
            concurrency=whole("concurrency", concurrency, 1),
            lock_duration_ms=lease,
            lock_renew_time_ms=lease // 2,
            stalled_interval_ms=self._sweep_ms or 30_000,
            max_stalled_count=whole("max_stalled_count", max_stalled_count, 0),
            timeout_ms=whole("timeout_ms", timeout_ms, 0),
            drain_delay_ms=whole("drain_delay_ms", drain_delay_ms, 1),
            limiter=None if limiter is None else limiter_of(limiter),
            remove_on_complete=keep_of("remove_on_complete", remove_on_complete),
            remove_on_fail=keep_of("remove_on_fail", remove_on_fail),
            metrics_points=whole("metrics_points", metrics_points, 0),
            plane=plane,
            recovery=recovery_of(recovery),
        )
        if self._manual and plane == "lease":
            self._sweep_ms = 0  # as on the other plane: until `start_stalled_check`
        config = PoolConfig(
            name=name or "worker",
            prefix=prefix,
            hash_tag=hash_tag,
            redis=redis or server_of(url),
            workers=(group,),
        )
        chosen = processor_of(processor, tasks, group.concurrency)
        self._args = (config, with_middleware(chosen, list(middleware)), clock)
        self._group = group
        self._clock = clock
        self._child: Inside | None = None
        self._channels: tuple[Channel, Channel] | None = None
        self._running: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._paused = False
        self._listen = listen
        self._upkeep: Upkeep | None = None  # of the lease plane
        self._events: QueueEvents | None = None
        if listen and plane == "lock":
            self._events = QueueEvents(
                queue, redis=config.redis, prefix=prefix, hash_tag=hash_tag, clock=clock
            )
            self._events.on(Other, self._heard)

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connects and begins to work; returns when connected."""
        if self._child is not None:
            return
        config, processor, clock = self._args
        ours, theirs = pair()
        self._channels = (Channel(ours), Channel(theirs))
        context = ChildContext(
            id=str(os.getpid()), incarnation=1, slot=SLOT, parent_pid=os.getppid(), config=config,
            args={"group": self._group.name}, channel=self._channels[1], board=Board.create(SLOT + 1, 1), clock=clock,
        )  # fmt: skip
        child = self._child = Inside(context, processor)
        await child.setup()
        if self._manual:
            for link in child.links:
                await link.start()
        else:
            self._running = asyncio.create_task(child.run(), name=f"worker of {self.queue}")
            if self._sweep_ms:
                self.start_stalled_check()
        await self.wait_until_ready()
        await self._start_upkeep()
        if self._events is not None:
            await self._events.start()

    async def _start_upkeep(self) -> None:
        source = self._source()
        if isinstance(source.plane, LeasePlane):
            cancelled = self._cancelled if self._listen else None
            self._upkeep = Upkeep(
                self._args[0], source.plane, source.link, self._clock, self._may_sweep, cancelled
            )
            await self._upkeep.start()

    async def wait_until_ready(self) -> None:
        """BullMQ: `waitUntilReady`."""
        for link in self._inside().links:
            await link.ready()

    async def close(self, *, force: bool = False, timeout: float | None = None) -> None:
        """Takes nothing more, lets jobs finish, and closes the connections. BullMQ: `close`.

        Args:
            force: cancel what runs and hand it back at once. Plain functions cannot be cancelled: they are waited for.
            timeout: seconds after which what still runs is cancelled and handed back, or left to others' stalled
                checks when the server does not answer either; None = wait.
        """
        child, self._child = self._child, None
        if child is None:
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._events is not None:
            await self._events.close()
        if self._upkeep is not None:
            await self._upkeep.close()
        patience = FOR_EVER_MS if timeout is None else int(timeout * 1000)
        stop = Stop(self._clock.mono_ms() + patience, fast=force)
        try:
            async with asyncio.timeout(None if timeout is None else timeout + GIVE_UP_S):
                await child.stop(stop)
        except TimeoutError:
            log.warning("worker of %s closed with jobs that could not be handed back", self.queue)
            await child.leave(stop)
        if self._running is not None:
            await self._running
        child.board.close()
        for channel in self._channels or ():
            channel.close()

    async def run(self) -> None:
        """Works until somebody closes it. BullMQ: `run`."""
        await self.start()
        if self._running is not None:
            await asyncio.shield(self._running)

    @property
    def is_running(self) -> bool:
        """BullMQ: `isRunning`."""
        return self._child is not None

    @property
    def is_paused(self) -> bool:
        """BullMQ: `isPaused`."""
        return self._paused

    async def pause(self) -> None:
        """This worker alone takes nothing more; what runs goes on. BullMQ: `worker.pause(true)`."""
        self._paused = True
        await self._inside().fetcher.close()

    def resume(self) -> None:
        """BullMQ: `worker.resume`."""
        self._paused = False
        self._inside().fetcher.start()

    def cancel(self, job_id: str, reason: str = "cancelled") -> None:
        """Stops a job that runs here; it fails with `reason` and is not retried. BullMQ: `cancelJob`."""
        self._inside().on_message(Cancel(self.queue, job_id, reason))

    def _heard(self, event: Other) -> None:
        if event.event == CANCEL_EVENT:
            self._cancelled(event.job_id, str(event.fields.get("reason") or "cancelled"))

    def _cancelled(self, job_id: str, reason: str) -> None:
        if self._child is not None:
            self.cancel(job_id, reason)

    def cancel_all(self, reason: str = "cancelled") -> None:
        """Stops every job that runs here. BullMQ: `cancelAllJobs`."""
        for run in list(self._inside().ledger):
            self.cancel(run.record.id, reason)

    async def rate_limit(self, duration_ms: int) -> None:
        """Stops the queue's takes for `duration_ms`, where a maximum is set. BullMQ: `rateLimit`."""
        await self._source().plane.rate_limit(duration_ms)

    # --- by hand --------------------------------------------------------------------------------------

    async def get_next_job(self, token: str = "", *, block: bool = True) -> Job | None:
        """Takes one job; its lock lasts `lock_duration_ms` and is renewed by `Job.extend_lock` alone.

        Settle it with `move_to_completed`, `move_to_failed`, `move_to_delayed` or `move_to_wait`. A job whose
        `deferred_failure` is set must be failed with that text. BullMQ: `getNextJob`.

        Args:
            token: of the lock; default is a new one. It must be unique among workers.
            block: wait up to `drain_delay_ms` for a job.
        """
        if not self._manual:
            raise InputError("worker: jobs are taken by hand only without a processor")
        await self.start()
        source, held = self._source(), token or f"{self._inside().worker_id}:{uuid.uuid4().hex[:8]}"
        answer = await source.plane.take(held)
        until = self._clock.mono_ms() + self._group.drain_delay_ms
        while block and isinstance(answer, Nothing) and (left := until - self._clock.mono_ms()) > 0:
            await self._wait(answer, left)
            answer = await source.plane.take(held)
        if not isinstance(answer, Taken):
            return None
        if answer.job.rjk is not None:
            await source.plane.produce_next(answer.job)
        return job_of(answer.job, source.plane, answer.token, clock=self._clock)

    async def _wait(self, answer: Nothing, left_ms: int) -> None:
        source = self._source()
        if answer.limited_ms:
            await asyncio.sleep(min(answer.limited_ms, left_ms) / 1000)
            return
        shortest = source.blocking.server.min_block_ms
        wait = block_ms(self._clock.now_ms(), answer.next_due_ms, left_ms, shortest)
        if wait > 0:
            await source.plane.wait(source.blocking, min(wait, left_ms))

    # --- jobs of lost workers -------------------------------------------------------------------------

    def start_stalled_check(self) -> None:
        """Looks for jobs of lost workers every `stalled_interval_ms`; with a processor it is on already.

        BullMQ: `startStalledCheckTimer`.
        """
        self._sweep_ms = self._group.stalled_interval_ms
        if self._group.plane == "lock" and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.create_task(self._sweep(), name=f"stalled check of {self.queue}")

    async def _sweep(self) -> None:
        interval_s = self._group.stalled_interval_ms / 1000
        while True:
            try:
                if self._may_sweep():
                    for job_id in await self._source().plane.sweep():
                        log.warning("job %s of %s had stalled and was put back", job_id, self.queue)
                await asyncio.sleep(interval_s)
            except LinkError as error:
                if isinstance(error, ReplyError):
                    log.error("stalled check of %s: %s", self.queue, error)
                await asyncio.sleep(AFTER_ERROR_S)

    def _may_sweep(self) -> bool:
        return bool(self._sweep_ms) and not self._paused and not self._inside().late()

    # --- parts ----------------------------------------------------------------------------------------

    def _inside(self) -> Inside:
        if self._child is None:
            raise InputError("worker: it is not started, or closed already")
        return self._child

    def _source(self) -> Any:
        return self._inside().sources[0]
