# SPDX-License-Identifier: MIT
"""The asynchronous producer: adds jobs to a queue, looks after it, waits for jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, ClassVar

from echomq_pool.api.ask import Op, T, library, over_link
from echomq_pool.api.job import Job
from echomq_pool.api.operations import Operations
from echomq_pool.api.ops_add import record_of
from echomq_pool.api.options import check_options
from echomq_pool.api.queue_verbs import QueueVerbs
from echomq_pool.api.telemetry import ProducerTelemetry, span_of
from echomq_pool.api.watch import Watch
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.config.url import parse_url
from echomq_pool.errors import InputError
from echomq_pool.plane.base import JobRecord, PlaneOptions
from echomq_pool.plane.calls import Calls
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lock import LockPlane
from echomq_pool.redisio.link import Link

LIBRARY_NAME = "echomq-pool"


class Queue(QueueVerbs):
    """One queue, as an asynchronous context manager. BullMQ: `Queue`.

    Args:
        name: the queue's name.
        url: redis://, rediss:// or unix:// address of the server; or `redis`, a whole configuration.
        plane: `lock`, BullMQ's wire, or `lease` (see `lease_queue.py`).
        prefix: first part of every key; `bull` for an existing BullMQ queue.
        hash_tag: write the name in braces (a cluster needs it); False for an existing BullMQ queue.
        job_options: options of every job added here, where the job's own do not say otherwise.
        max_len_events: about how many events the stream keeps; written to the queue when given.
        telemetry: `echomq_pool.api.tracing.Tracing()` puts the trace's context into the jobs added here.
        link: a started connection to share; the queue then closes only what it opened itself.

    Raises:
        InputError: a name, prefix, address or option that cannot be used.
    """

    _planes: ClassVar[dict[str, type[Queue]]] = {}

    def __init_subclass__(cls, plane: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if plane:
            Queue._planes[plane] = cls

    def __new__(cls, *args: Any, plane: str = "lock", **options: Any) -> Queue:
        """The class for the plane; `lock` is this one.

        Raises:
            InputError: there is no such plane.
        """
        chosen = cls if plane == "lock" else cls._planes.get(plane)
        if chosen is None:
            raise InputError(f"plane: expected 'lock' or 'lease', got {plane!r}")
        return super().__new__(chosen)

    def __init__(
        self,
        name: str,
        *,
        plane: str = "lock",
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
        self.keys = QueueKeys(prefix, name, hash_tag)
        self.name = name
        self._config = redis or server_of(url)
        self._library = library()
        self._clock = clock
        self._telemetry = telemetry
        options = PlaneOptions()
        self._ops = Operations(self.keys, Calls(self.keys, options), clock)
        self._ops.defaults = check_options(job_options or {})
        self._max_len_events = _positive("max_len_events", max_len_events)
        self._own_link = link is None
        self._link = link or Link(
            self._config,
            name=f"{self.keys.qualified}:producer",
            clock=clock,
            scripts=self._library,
            slot_key=self._slot_key(),
        )
        self._plane = LockPlane(self._link, self.keys, self._library, options, clock)
        self._blocking: Link | None = None
        events = self.keys.key("events")
        self._watch = Watch(events, self._open_blocking, self._position, self._since, self._look)
        self._started = not self._own_link
        self._opened = False  # whether it was asked that the queue is this plane's

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
        if self._max_len_events is not None:
            most, self._max_len_events = self._max_len_events, None
            await self._run(self._ops.greet(most, LIBRARY_NAME))

    async def close(self) -> None:
        """Ends every wait and both connections."""
        await self._watch.close()
        if self._blocking is not None:
            await self._blocking.close()
        if self._started and self._own_link:
            await self._link.close()

    # --- adding ----------------------------------------------------------------------------------------

    async def add(self, name: str, data: Any = None, **options: Any) -> Job:
        """Adds one job. BullMQ: `add`.

        Options, in Python's or BullMQ's spelling: attempts, backoff, delay (ms), priority, lifo, job_id,
        remove_on_complete, remove_on_fail, keep_logs, timestamp (wall ms), deduplication, size_limit (bytes),
        stack_trace_limit, telemetry, parent (`{id, queue}` or a `Job`), and one of fail_parent_on_failure,
        continue_parent_on_failure, ignore_dependency_on_failure, remove_dependency_on_failure.

        Raises:
            InputError: refused before anything was written.
            ParentMissing: there is no such parent, or the job has another one.
            LinkDown: `sent=True`: it may have been added; a job_id of your own makes adding it again safe.
        """
        with span_of(self._telemetry, "add", f"{self.name}.{name}", self.name) as span:
            job_id, job = await self._run(self._ops.add(name, data, span.told(options)))
            span.note(job_name=name, job_id=job_id)
        return self._job(record_of(job_id, job))

    async def add_bulk(self, jobs: Iterable[Any]) -> list[Job]:
        """Adds many: `{"name": …, "data": …, "opts": {…}}` or (name, data, options) each. BullMQ: `addBulk`.

        All are checked before the first is sent; they travel together but are added one by one.
        """
        with span_of(self._telemetry, "addBulk", self.name, self.name) as span:
            added = await self._run(self._ops.add_bulk(jobs, span.told))
            span.note(bulk_names=[job.name for _, job in added], bulk_count=len(added))
        return [self._job(record_of(job_id, job)) for job_id, job in added]

    # --- waiting ---------------------------------------------------------------------------------------

    async def wait_until_finished(self, job_id: str, timeout: float | None = None) -> Any:
        """The job's return value, once it is there. `timeout` in seconds. BullMQ: `job.waitUntilFinished`.

        Raises:
            JobFailed: it failed; the message is its reason.
            JobMissing: it does not exist, or was removed meanwhile.
            WaitTimeout: not in time.
        """
        return await self._watch.wait(job_id, timeout)

    # --- how it is done -----------------------------------------------------------------------------------

    def _job(self, record: JobRecord) -> Job:
        return Job(record, self._plane, queue=self, clock=self._clock)

    async def _run(self, operation: Op[T]) -> T:
        await self.start()
        if not self._opened:
            await over_link(self._link, self._library).run(self._ops.open())
            self._opened = True
        return await over_link(self._link, self._library).run(operation)

    def _slot_key(self) -> str | None:
        """In a cluster a connection goes to the node of one slot: the queue's."""
        return self.keys.key("meta") if self._config.cluster else None

    async def _position(self) -> str:
        return await self._run(self._ops.position())

    async def _since(self, position: str) -> list[Any]:
        return await self._run(self._ops.since(position))

    async def _look(self, job_id: str) -> tuple[bool, Any]:
        return await self._run(self._ops.finished(job_id))

    async def _open_blocking(self) -> Link:
        if self._blocking is None:
            name = self.keys.events_client_name()
            self._blocking = Link(
                self._config, name=name, clock=self._clock, blocking=True, slot_key=self._slot_key()
            )
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


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError(f"{name}: expected a whole number from 1, got {value!r}")
    return value
