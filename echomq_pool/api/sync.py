# SPDX-License-Identifier: MIT
"""The synchronous producer, over redis-py. The only module of the package that imports redis-py."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from echomq_pool.api.job import JobView, SyncJob
from echomq_pool.api.operations import Ask, Op, Operations, outcome_of, record_of
from echomq_pool.api.queue import TRIES, server_of
from echomq_pool.api.repeats import Moment, check_repeat
from echomq_pool.api.watch import BLOCK_MS
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import (
    InputError,
    JobMissing,
    LinkDown,
    LinkRefused,
    ReplyError,
    ServerUnready,
    WaitTimeout,
)
from echomq_pool.plane.base import JobRecord, PlaneOptions
from echomq_pool.plane.calls import Call, Calls
from echomq_pool.plane.events import decode
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.schedule import SchedulerRecord
from echomq_pool.redisio.scripts import Script, load_library

T = TypeVar("T")

_UNREADY = ("LOADING", "BUSY", "READONLY", "OOM", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF")
_REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM", "MOVED", "ASK", "NOPROTO")
PAUSE_S = 0.05


class SyncQueue:
    """One queue, as a context manager; safe to share between threads. Arguments and methods are those of `Queue`."""

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
        self._library = load_library()
        self._ops = Operations(self.keys, Calls(self.keys, PlaneOptions()), clock)
        self._client = client_of(redis or server_of(url))
        self._clock = clock
        self._loaded = threading.Event()

    def __enter__(self) -> SyncQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
        self._client.connection_pool.disconnect()

    # --- adding ----------------------------------------------------------------------------------------

    def add(self, name: str, data: Any = None, **options: Any) -> SyncJob:
        """See `Queue.add`."""
        job_id, job = self._run(self._ops.add(name, data, options))
        return self._job(record_of(job_id, job))

    def add_bulk(self, jobs: Iterable[Any]) -> list[SyncJob]:
        """See `Queue.add_bulk`."""
        added = self._run(self._ops.add_bulk(jobs))
        return [self._job(record_of(job_id, job)) for job_id, job in added]

    # --- looking ---------------------------------------------------------------------------------------

    def get_job(self, job_id: str) -> SyncJob | None:
        record = self._run(self._ops.load(job_id))
        return None if record is None else self._job(record)

    def get_state(self, job_id: str) -> str:
        return self._run(self._ops.state(job_id))

    def get_job_logs(self, job_id: str, start: int = 0, end: int = -1) -> list[str]:
        return self._run(self._ops.logs(job_id, start, end))

    def get_job_counts(self, *states: str) -> dict[str, int]:
        return self._run(self._ops.counts(states))

    counts = get_job_counts

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
            return self._client.execute_command(
                "XREAD", "COUNT", 1_000, "BLOCK", block, "STREAMS", key, position
            )
        except (redis.ConnectionError, redis.TimeoutError):
            time.sleep(PAUSE_S)
            return None

    # --- the queue as a whole ------------------------------------------------------------------------------

    def pause(self) -> None:
        self._run(self._ops.pause())

    def resume(self) -> None:
        self._run(self._ops.resume())

    def is_paused(self) -> bool:
        return self._run(self._ops.is_paused())

    def set_global_concurrency(self, limit: int | None) -> None:
        self._run(self._ops.set_concurrency(limit))

    def set_global_rate_limit(self, max: int | None, duration_ms: int | None = None) -> None:
        self._run(self._ops.set_rate_limit(max, duration_ms))

    def cancel(self, job_id: str, reason: str = "cancelled") -> None:
        self._run(self._ops.cancel(job_id, reason))

    # --- schedulers -------------------------------------------------------------------------------------

    def upsert_job_scheduler(
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
    ) -> SyncJob | None:
        """See `Queue.upsert_job_scheduler`."""
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
        record = self._run(self._ops.upsert_scheduler(scheduler_id, repeat, name, data, opts or {}))
        return None if record is None else self._job(record)

    def get_job_scheduler(self, scheduler_id: str) -> SchedulerRecord | None:
        return self._run(self._ops.get_scheduler(scheduler_id))

    def get_job_scheduler_ids(self) -> list[str]:
        return self._run(self._ops.scheduler_ids())

    def remove_job_scheduler(self, scheduler_id: str) -> bool:
        return self._run(self._ops.remove_scheduler(scheduler_id))

    def repair_job_scheduler(self, scheduler_id: str) -> tuple[str, str]:
        return self._run(self._ops.repair_scheduler(scheduler_id))

    # --- how it is done -----------------------------------------------------------------------------------

    def _job(self, record: JobRecord) -> SyncJob:
        view = JobView(record, queue_name=self.name)

        def run(verb: str, *args: Any, **options: Any) -> Any:
            return _verb(self, view, verb, *args, **options)

        return SyncJob(view, run)

    def _run(self, operation: Op[T]) -> T:
        try:
            batch = next(operation)
            while True:
                batch = operation.send(self._send(batch))
        except StopIteration as end:
            value: T = end.value
            return value

    def _send(self, batch: list[Ask]) -> list[Any]:
        if len(batch) == 1:
            return [self._ask(batch[0])]
        replies = self._pipelined(batch)
        for reply in replies:
            if isinstance(reply, Exception):
                raise _translated(reply, sent=True) from reply
        return replies

    def _pipelined(self, batch: list[Ask]) -> list[Any]:
        """One write for all; calls whose script was not loaded never ran and are sent again alone."""
        self._load()
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for ask in batch:
                    pipe.execute_command(*self._command(ask))
                replies = list(pipe.execute(raise_on_error=False))
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise _translated(error, sent=True) from error
        lost = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        for index in lost:
            replies[index] = self._ask(batch[index])
        return replies

    def _ask(self, ask: Ask) -> Any:
        tries = TRIES if ask.repeat else 1
        while True:
            tries -= 1
            try:
                return self._execute(ask)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                if tries <= 0:
                    raise _translated(error, sent=True) from error
                time.sleep(PAUSE_S)
            except redis.RedisError as error:
                raise _translated(error, sent=True) from error

    def _execute(self, ask: Ask) -> Any:
        try:
            return self._client.execute_command(*self._command(ask))
        except NoScriptError:
            assert isinstance(ask.what, Call)
            self._client.script_load(self._library[ask.what.script].text)
            return self._client.execute_command(*self._command(ask))

    def _command(self, ask: Ask) -> tuple[Any, ...]:
        if isinstance(ask.what, Call):
            script: Script = self._library[ask.what.script]
            return ("EVALSHA", script.sha, len(ask.what.keys), *ask.what.keys, *ask.what.args)
        return ask.what

    def _load(self) -> None:
        """Scripts are loaded before a pipeline needs them; a flush since then shows as NOSCRIPT."""
        if self._loaded.is_set():
            return
        try:
            for script in self._library.values():
                self._client.script_load(script.text)
        except redis.RedisError as error:
            raise _translated(error, sent=False) from error
        self._loaded.set()


def client_of(config: RedisConfig) -> Any:
    """A client that answers in bytes, decodes nothing and never repeats a command by itself (law 6)."""
    options: dict[str, Any] = {
        "db": config.db,
        "username": config.username or None,
        "password": config.password or None,
        "socket_connect_timeout": config.connect_timeout_ms / 1000,
        # A blocked read lasts BLOCK_MS by itself.
        "socket_timeout": config.command_timeout_ms / 1000 + BLOCK_MS / 1000,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if config.unix_path:
        return redis.Redis(unix_socket_path=config.unix_path, **options)
    if config.tls is not None:
        options |= {
            "ssl": True,
            "ssl_ca_certs": config.tls.ca_file or None,
            "ssl_certfile": config.tls.cert_file or None,
            "ssl_keyfile": config.tls.key_file or None,
            "ssl_cert_reqs": "required" if config.tls.verify else "none",
            "ssl_check_hostname": config.tls.verify,
        }
    return redis.Redis(host=config.host, port=config.port, **options)


def _translated(error: Exception, *, sent: bool) -> Exception:
    text = str(error)
    code = text.split(" ", 1)[0].rstrip(":")
    if isinstance(error, redis.AuthenticationError) or code in _REFUSED:
        return LinkRefused(text)
    if isinstance(error, redis.BusyLoadingError | redis.ReadOnlyError) or code in _UNREADY:
        return ServerUnready(code, text)
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return LinkDown(text, sent=sent and "connecting to" not in text)
    if isinstance(error, redis.ResponseError):
        return ReplyError(code, text)
    return error


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


def _verb(queue: SyncQueue, view: JobView, verb: str, *args: Any, **options: Any) -> Any:
    """What a producer may do with a job; the rest needs the worker that holds it."""
    ops, run = queue._ops, queue._run
    if verb == "update_progress":
        run(ops.progress(view.id, args[0]))
        view.record.progress = args[0]
        return None
    if verb == "log":
        return run(ops.log(view.id, str(args[0]), view.opts.get("keepLogs")))
    if verb == "update_data":
        run(ops.update_data(view.id, args[0]))
        return _reread(queue, view)
    if verb == "state":
        return queue.get_state(view.id)
    if verb == "refresh":
        return _reread(queue, view)
    if verb == "wait_until_finished":
        return queue.wait_until_finished(view.id, *args)
    if verb == "cancel":
        return queue.cancel(view.id, *args)
    raise InputError(f"job {view.id} is not held by this process")


def _reread(queue: SyncQueue, view: JobView) -> bool:
    record = queue._run(queue._ops.load(view.id))
    if record is not None:
        view.show(record)
    return record is not None
