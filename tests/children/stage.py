# SPDX-License-Identifier: MIT
"""A LockManager or StalledChecker in the test's own loop: the test plays its supervisor and its workers."""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from echomq_pool.children.base import Child
from echomq_pool.children.lock_manager import LockManager
from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.config.schema import PoolConfig, RedisConfig, SupervisorConfig, WorkersConfig
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Down, Held, HeldJob, Message, Settled, Up
from echomq_pool.plane.base import Taken
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lock import LockPlane
from tests.support.planes import LIBRARY
from tests.support.servers import Server
from tests.support.waiting import eventually_async

LEASE = 1_200  # ms: long enough for a busy machine, short enough for many leases per test
TICK = LEASE // 4
M = TypeVar("M", bound=Message)
now_ms = SYSTEM_CLOCK.mono_ms


def group(*queues: str, lease: int = LEASE, **options: Any) -> WorkersConfig:
    """A `[[workers]]` entry with a short lock, renewed at half of it."""
    options = {"lock_renew_time_ms": lease // 2, "stalled_interval_ms": 100, **options}
    return WorkersConfig("g", queues, "app:job", lock_duration_ms=lease, **options)


def config_for(server: Server, *groups: WorkersConfig, hang_ms: int = 30_000) -> PoolConfig:
    link = RedisConfig(url=server.url, port=server.port, command_timeout_ms=2_000)
    return PoolConfig(redis=link, workers=groups, supervisor=SupervisorConfig(hang_timeout_ms=hang_ms))


class Worker:
    """A worker process as far as leases go: it takes jobs and says so."""

    def __init__(self, stage: Stage, slot: int, pid: int = 0) -> None:
        self.stage = stage
        self.id = str(uuid.uuid4())
        self.slot = slot
        self.pid = pid or os.getpid()
        self.held: list[HeldJob] = []
        self._numbers = itertools.count()

    def up(self, client_ids: list[int] | None = None) -> Worker:
        self.stage.tell(Up(self.id, self.slot, self.pid, list(self.stage.queues), client_ids or []))
        return self

    async def take(self, n: int = 1, *, tell: bool = True, queue: str = "") -> list[HeldJob]:
        """Takes `n` jobs that must be there, and tells of them."""
        queue = queue or self.stage.queues[0]
        jobs = [await self._take_one(queue) for _ in range(n)]
        self.held += jobs
        self.stage.board.set_busy(self.slot, len(self.held))
        if tell:
            self.stage.tell(Held(self.id, jobs))
        return jobs

    async def _take_one(self, queue: str) -> HeldJob:
        taken_ms = now_ms()
        found = await self.stage.planes[queue].take(f"{self.id}:{next(self._numbers)}")
        assert isinstance(found, Taken), found
        job = found.job
        return HeldJob(
            queue,
            job.id,
            found.token,
            job.ats,
            job.atm,
            job.attempts,
            job.backoff,
            job.lifo,
            taken_ms,
            0,
            job.name,
        )

    def settle(self, *jobs: HeldJob) -> None:
        self.held = [job for job in self.held if job not in jobs]
        self.stage.board.set_busy(self.slot, len(self.held))
        self.stage.tell(Settled(self.id, [[job.queue, job.id, job.token] for job in jobs]))

    def retell(self) -> None:
        self.stage.tell(Held(self.id, self.held, full=True, end=True))

    def down(self, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "worker_id": self.id, "slot": self.slot, "queues": list(self.stage.queues), "client_ids": [],
            "planned": False, "reason": "signal SIGKILL (from outside)", "expired": [],
        }  # fmt: skip
        self.stage.tell(Down(**{**fields, **changes}))


class Stage:
    """The child under test, the far end of its channel, a second client, and planes for the workers."""

    def __init__(self, server: Server, config: PoolConfig, board: Board | None = None) -> None:
        self.server = server
        self.config = config
        self.queues = config.queues()
        self.board = board or Board.create(8, len(self.queues))
        self.client: Any = server.client()  # redis-py types every reply as two
        self.keys = {queue: QueueKeys("emq", queue) for queue in self.queues}
        self.got: list[tuple[int, Message]] = []
        self.child: Any = None
        self._slots = itertools.count(2)

    async def start(self, child_class: type[Child] = LockManager) -> None:
        near, far = pair()
        self.far = Channel(far)
        # fmt: off
        context = ChildContext(
            "child", 1, 1, os.getpid(), self.config, {}, Channel(near), self.board, SYSTEM_CLOCK
        )
        # fmt: on
        self.child = child_class(context)
        await self.child.setup()
        self.planes = {
            queue: LockPlane(self.child.links.of(queue), keys, LIBRARY, self.child.planes[queue].options)
            for queue, keys in self.keys.items()
        }
        self.running = asyncio.create_task(self.child.run())
        await self.child.links.links[0].ready()

    async def crash(self) -> None:
        """The child is gone without a word, as after SIGKILL."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        if isinstance(self.child, LockManager):
            self.child._end()
        await self.child.links.close()

    def tell(self, message: Message) -> None:
        self.child.on_message(message)

    def worker(self, pid: int = 0) -> Worker:
        return Worker(self, next(self._slots), pid).up()

    def heard(self, kind: type[M]) -> list[M]:
        """Every message of one kind that the child has sent so far."""
        self.child.flush()
        while frames := self.far.receive():
            self.got += [(frame.slot, frame.message()) for frame in frames]
        return [message for _, message in self.got if isinstance(message, kind)]

    async def hears(self, kind: type[M], within: float = 10.0) -> M:
        """The first message of one kind, waited for."""
        found: list[M] = await eventually_async(
            lambda: self.heard(kind), within=within, why=f"no {kind.__name__}"
        )
        return found[0]

    def add(self, n: int = 1, *, queue: str = "", **fields: str) -> list[str]:
        """Puts plain jobs into wait, oldest first."""
        keys = self.keys[queue or self.queues[0]]
        ids = [f"j{uuid.uuid4().hex[:8]}" for _ in range(n)]
        pipe = self.client.pipeline()
        row = {
            "name": "job",
            "data": "{}",
            "opts": '{"attempts":1}',
            "timestamp": "1",
            "delay": "0",
            **fields,
        }
        for job_id in ids:
            pipe.hset(keys.job(job_id), mapping=row)
            pipe.lpush(keys.key("wait"), job_id)
        pipe.execute()
        return ids

    def waiting(self, queue: str = "") -> list[str]:
        """Ids in wait, next to run first."""
        found = self.client.lrange(self.keys[queue or self.queues[0]].key("wait"), 0, -1)
        return [i.decode() for i in reversed(found)]

    def active(self, queue: str = "") -> list[str]:
        found = self.client.lrange(self.keys[queue or self.queues[0]].key("active"), 0, -1)
        return [i.decode() for i in found]

    def field(self, job_id: str, name: str, queue: str = "") -> str | None:
        value = self.client.hget(self.keys[queue or self.queues[0]].job(job_id), name)
        return None if value is None else value.decode()

    def lock_ttl(self, job_id: str, queue: str = "") -> int:
        """PTTL of the job's lock, -2 when there is none."""
        return int(self.client.pttl(self.keys[queue or self.queues[0]].lock(job_id)))

    def scripts_run(self, name: str) -> int:
        """How often the server ran one script: EVALSHA calls seen by the slow log of everything."""
        sha = LIBRARY[name].sha.encode()
        entries = self.client.slowlog_get(-1)
        return sum(entry["command"].startswith(b"EVALSHA " + sha) for entry in entries)

    def count_scripts(self) -> None:
        """From here on `scripts_run` counts."""
        self.client.config_set("slowlog-max-len", 100_000)
        self.client.config_set("slowlog-log-slower-than", 0)
        self.client.slowlog_reset()


@asynccontextmanager
async def stage_on(server: Server, *groups: WorkersConfig, hang_ms: int = 30_000) -> AsyncIterator[Stage]:
    """A running LockManager for these groups; the server's slow log is left as it was found."""
    stage = Stage(server, config_for(server, *groups, hang_ms=hang_ms))
    await stage.start()
    try:
        yield stage
    finally:
        await stage.crash()
        stage.client.config_set("slowlog-log-slower-than", 10_000)
        stage.client.close()


async def for_leases(n: float) -> None:
    """Lets `n` lock durations pass: what is tested is that nothing happens in them."""
    await asyncio.sleep(n * LEASE / 1000)
