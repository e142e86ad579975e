# SPDX-License-Identifier: MIT
"""A StalledChecker on a stage, and jobs for it to find."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from echomq_pool.children.stalled_checker import StalledChecker
from echomq_pool.config.schema import WorkersConfig
from tests.children.stage import Stage, config_for, now_ms
from tests.support.servers import Server
from tests.support.waiting import eventually_async

INTERVAL = 100  # ms, stalled_interval of `group`


@asynccontextmanager
async def checker_on(server: Server, *groups: WorkersConfig, passing: bool = True) -> AsyncIterator[Stage]:
    """A running StalledChecker. With `passing` the board says all the time that the LockManager is on time."""
    stage = Stage(server, config_for(server, *groups))

    async def keep_passing() -> None:
        while True:
            stage.board.set_pass(now_ms())
            await asyncio.sleep(0.01)

    await stage.start(StalledChecker)
    task = asyncio.create_task(keep_passing()) if passing else None
    try:
        yield stage
    finally:
        if task is not None:
            task.cancel()
        await stage.crash()
        stage.client.config_set("slowlog-log-slower-than", 10_000)
        stage.client.close()


def sweeps(stage: Stage) -> float:
    return float(stage.child.metrics.counters.get("sweeps", 0))


async def after_sweeps(stage: Stage, n: int) -> None:
    """Waits for `n` more sweeps."""
    target = sweeps(stage) + n
    await eventually_async(lambda: sweeps(stage) >= target)


def passed(stage: Stage) -> bool:
    stage.board.set_pass(now_ms())
    return True


def abandon(stage: Stage, n: int = 1, queue: str = "", *, locked: bool = False, **fields: str) -> list[str]:
    """Jobs in active whose worker is gone: without a lock, unless `locked`."""
    ids = stage.add(n, queue=queue, **fields)
    keys = stage.keys[queue or stage.queues[0]]
    pipe = stage.client.pipeline()
    for job_id in ids:
        pipe.lmove(keys.key("wait"), keys.key("active"), "RIGHT", "LEFT")
        pipe.hset(keys.job(job_id), "ats", "1")
        if locked:
            pipe.set(keys.lock(job_id), "another:1", px=60_000)
    pipe.execute()
    return ids


def stalled(stage: Stage) -> set[str]:
    found = stage.client.smembers(stage.keys[stage.queues[0]].key("stalled"))
    return {member.decode() for member in found}
