# SPDX-License-Identifier: MIT
"""The connection by which tasks are enqueued: told once per process, opened at the first use.

`connect(url=…)` tells it in a web application; in a worker the pool has told it already. Nothing is assumed: without
either, enqueuing is refused.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from echomq_pool.api.lease_queue import Queue
from echomq_pool.api.queue import server_of
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError


class SyncProducer(Protocol):
    """The part of `SyncQueue` that tasks use."""

    def add(self, name: str, data: Any = None, **options: Any) -> SyncJob: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Target:
    """Which server, and how keys are named there."""

    redis: RedisConfig
    prefix: str
    hash_tag: bool


@dataclass(slots=True)
class Producers:
    """The queues that tasks have used so far: asynchronous ones per event loop, synchronous ones per process."""

    target: Target | None = None
    _by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], Queue]] = field(
        default_factory=WeakKeyDictionary
    )
    _sync: dict[tuple[int, str, str], SyncProducer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def connect(
        self, url: str = "", *, redis: RedisConfig | None = None, prefix: str = "emq", hash_tag: bool = True
    ) -> None:
        """Says where tasks are enqueued from now on. Arguments are those of `Queue`.

        Raises:
            InputError: an address that cannot be used.
        """
        self.target = Target(redis or server_of(url), prefix, hash_tag)
        self._by_loop.clear()
        self._sync.clear()

    async def queue(self, name: str, plane: str = "lock") -> Queue:
        """The asynchronous queue of the running loop."""
        queues = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        key = (name, plane)
        if key not in queues:
            target = self._told()
            queues[key] = Queue(
                name, plane=plane, redis=target.redis, prefix=target.prefix, hash_tag=target.hash_tag
            )
            await queues[key].start()
        return queues[key]

    def sync_queue(self, name: str, plane: str = "lock") -> SyncProducer:
        """The synchronous queue of this process; a fork opens its own."""
        with self._lock:
            key = (os.getpid(), name, plane)
            if key not in self._sync:
                target = self._told()
                # Imported at its first use: a worker's tasks module imports this one, and its process is to stay
                # small (redis-py costs every worker 30 MB).
                module = importlib.import_module("echomq_pool.api.sync_lease")
                self._sync[key] = module.SyncQueue(
                    name, plane=plane, redis=target.redis, prefix=target.prefix, hash_tag=target.hash_tag
                )
            return self._sync[key]

    async def close(self) -> None:
        """Closes what the running loop and this process have opened."""
        for queue in self._by_loop.pop(asyncio.get_running_loop(), {}).values():
            await queue.close()
        self.close_sync()

    def close_sync(self) -> None:
        """Closes the synchronous queues of this process."""
        with self._lock:
            for key in [key for key in self._sync if key[0] == os.getpid()]:
                self._sync.pop(key).close()

    def _told(self) -> Target:
        if self.target is None:
            raise InputError(
                "tasks are not connected: call echomq_pool.connect(url) before the first job is enqueued"
            )
        return self.target


producers = Producers()
connect = producers.connect
