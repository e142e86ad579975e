# SPDX-License-Identifier: MIT
"""arq: one process for each worker, as it has no pool; a short poll delay, no results."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings

from benchmarks.peers import common
from benchmarks.peers.common import Load

POLL_S = 0.02  # its default of 0.5 s would be most of every figure


async def noop(ctx: Any, n: int = 0) -> None:
    common.tick()


async def io(ctx: Any, n: int = 0) -> None:
    await asyncio.sleep(common.IO_S)
    common.tick()


async def cpu(ctx: Any, n: int = 0) -> None:
    common.burn()
    common.tick()


async def mark(ctx: Any, at: int) -> None:
    common.mark(at)


async def hold(ctx: Any, key: str, seconds: float) -> None:
    common.started(key)
    await asyncio.sleep(seconds)


class WorkerSettings:
    functions: ClassVar[list[Any]] = [noop, io, cpu, mark, hold]
    redis_settings = RedisSettings.from_dsn(common.url())
    max_jobs = common.concurrency()
    queue_read_limit = max(1_000, common.concurrency() * 5)
    poll_delay = POLL_S
    keep_result = 0
    log_results = False
    job_timeout = 3 if common.quickest() else 300  # a lost job is free again some 10 s after it


class Arq:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._pool: ArqRedis | None = None

    async def pool(self) -> ArqRedis:
        if self._pool is None:
            self._pool = await create_pool(RedisSettings.from_dsn(common.url()))
        return self._pool

    def describe(self, load: Load) -> dict[str, Any]:
        command = common.tool("arq", "benchmarks.peers.arq_peer.WorkerSettings")
        extra = ", job timeout 3 s" if common.quickest() else ""
        settings = f"{load.processes} processes × max_jobs {load.concurrency}, poll delay {POLL_S} s{extra}"
        return {"commands": [command] * load.processes, "settings": settings}

    def bulk(self, kind: str, count: int) -> None:
        async def add() -> None:  # it has no call for many; a hundred in flight are the quickest
            pool = await self.pool()
            for start in range(0, count, 100):
                numbers = range(start, min(count, start + 100))
                await asyncio.gather(*(pool.enqueue_job(kind, n) for n in numbers))

        self._runner.run(add())

    def one(self, kind: str, count: int) -> None:
        async def add() -> None:
            pool = await self.pool()
            for n in range(count):
                await pool.enqueue_job(kind, n)

        self._runner.run(add())

    def _add(self, *args: Any) -> None:
        async def add() -> None:
            await (await self.pool()).enqueue_job(*args)

        self._runner.run(add())

    def mark(self) -> None:
        self._add("mark", time.time_ns())

    def hold(self, key: str, seconds: float) -> None:
        self._add("hold", key, seconds)


if __name__ == "__main__":
    common.run(Arq())
