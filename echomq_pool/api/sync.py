# SPDX-License-Identifier: MIT
"""The synchronous producer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, ClassVar

from echomq_pool.api.ask import Op, T, library
from echomq_pool.api.job_view import JobView
from echomq_pool.api.operations import Operations
from echomq_pool.api.ops_add import record_of
from echomq_pool.api.ops_look import outcome_of
from echomq_pool.api.options import check_options
from echomq_pool.api.queue import LIBRARY_NAME, _positive, server_of
from echomq_pool.api.sync_driver import PASSING, PAUSE_S, SyncDriver, client_of, shared
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.api.sync_verbs import SyncQueueVerbs
from echomq_pool.api.telemetry import ProducerTelemetry, span_of
from echomq_pool.api.watch import BLOCK_MS
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, JobMissing, WaitTimeout
from echomq_pool.plane.base import JobRecord, PlaneOptions
from echomq_pool.plane.calls import Calls
from echomq_pool.plane.events import decode
from echomq_pool.plane.keys import QueueKeys


class SyncQueue(SyncQueueVerbs):
    """One queue, as a context manager; safe to share between threads. Arguments and methods are those of `Queue`.

    `client`: a client of redis-py, `Redis` or `RedisCluster`, that answers in bytes; the queue then leaves it open.
    """

    _planes: ClassVar[dict[str, type[SyncQueue]]] = {}

    def __init_subclass__(cls, plane: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if plane:
            SyncQueue._planes[plane] = cls

    def __new__(cls, *args: Any, plane: str = "lock", **options: Any) -> SyncQueue:
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
        client: Any = None,
    ) -> None:
        self.keys = QueueKeys(prefix, name, hash_tag)
        self.name = name
        self._ops = Operations(self.keys, Calls(self.keys, PlaneOptions()), clock)
        self._ops.defaults = check_options(job_options or {})
        self._max_len_events = _positive("max_len_events", max_len_events)
        self._own_client = client is None
        found = client_of(redis or server_of(url)) if client is None else shared(client)
        self._client = found.at(self.keys.key("meta"))
        self._driver = SyncDriver(self._client, library())
        self._clock = clock
        self._telemetry = telemetry
        self._opened = False  # whether it was asked that the queue is this plane's

    def __enter__(self) -> SyncQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        if self._own_client:
            self._client.close()

    # --- adding ----------------------------------------------------------------------------------------

    def add(self, name: str, data: Any = None, **options: Any) -> SyncJob:
        """See `Queue.add`."""
        with span_of(self._telemetry, "add", f"{self.name}.{name}", self.name) as span:
            job_id, job = self._run(self._ops.add(name, data, span.told(options)))
            span.note(job_name=name, job_id=job_id)
        return self._job(record_of(job_id, job))

    def add_bulk(self, jobs: Iterable[Any]) -> list[SyncJob]:
        """See `Queue.add_bulk`."""
        with span_of(self._telemetry, "addBulk", self.name, self.name) as span:
            added = self._run(self._ops.add_bulk(jobs, span.told))
            span.note(bulk_names=[job.name for _, job in added], bulk_count=len(added))
        return [self._job(record_of(job_id, job)) for job_id, job in added]

    # --- waiting ---------------------------------------------------------------------------------------

    def wait_until_finished(self, job_id: str, timeout: float | None = None) -> Any:
        """See `Queue.wait_until_finished`. Blocks this thread on a connection of its own."""
        deadline = None if timeout is None else time.monotonic() + timeout
        position = self._run(self._ops.position())
        while True:
            try:
                over, value = self._run(self._ops.finished(job_id))
            except JobMissing:
                # It may have left its value in the stream before it was removed.
                _, over, value = _scan([(b"", self._run(self._ops.since(position)))], job_id, position)
                if not over:
                    raise
            while not over:
                remaining = BLOCK_MS / 1000 if deadline is None else deadline - time.monotonic()
                if remaining <= 0:
                    raise WaitTimeout(f"job {job_id} is not finished after {timeout} s")
                reply = self._read(position, min(remaining, BLOCK_MS / 1000))
                if reply is None:
                    break  # nothing came, or the connection was lost: look again
                position, over, value = _scan(reply, job_id, position)
            if over:
                return value

    def _read(self, position: str, block_s: float) -> Any:
        try:
            block = max(1, int(block_s * 1000))
            key = self.keys.key("events")
            return self._client.one(("XREAD", "COUNT", 1_000, "BLOCK", block, "STREAMS", key, position))
        except PASSING:
            time.sleep(PAUSE_S)
            return None

    # --- how it is done -----------------------------------------------------------------------------------

    def _job(self, record: JobRecord) -> SyncJob:
        view = JobView(record, queue_name=self.name, queue_key=self.keys.qualified)

        def run(verb: str, *args: Any, **options: Any) -> Any:
            return self._verb(view, verb, *args, **options)

        return SyncJob(view, run)

    def _run(self, operation: Op[T]) -> T:
        if not self._opened:
            self._driver.run(self._ops.open())
            self._opened = True
        if self._max_len_events is not None:
            most, self._max_len_events = self._max_len_events, None
            self._driver.run(self._ops.greet(most, LIBRARY_NAME))
        return self._driver.run(operation)

    def _verb(self, view: JobView, verb: str, *args: Any, **options: Any) -> Any:
        """What a producer may do with a job; the rest needs the worker that holds it."""
        if verb == "state":
            return self.get_state(view.id)
        if verb == "wait_until_finished":
            return self.wait_until_finished(view.id, *args)
        if verb == "cancel":
            return self.cancel(view.id, *args)
        operation = getattr(self._ops.of_job, verb, None)
        if operation is None:
            raise InputError(
                f"job {view.id} is not held by this process: {verb} is for its processor, and for jobs of "
                "Worker.get_next_job"
            )
        return self._run(operation(view, *args, **options))


def _scan(reply: Any, job_id: str, position: str) -> tuple[str, bool, Any]:
    streams = reply.items() if isinstance(reply, dict) else reply
    for _, entries in streams:
        for entry_id, flat in entries:
            position = entry_id.decode()
            event = decode("", entry_id, _flat(flat))
            if event.job_id == job_id:
                over, value = outcome_of(event.name, job_id, event.data)
                if over:
                    return position, True, value
    return position, False, None


def _flat(fields: Any) -> list[bytes]:
    if isinstance(fields, dict):
        return [item for pair in fields.items() for item in pair]
    return list(fields)
