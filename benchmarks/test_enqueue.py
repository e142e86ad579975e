# SPDX-License-Identifier: MIT
"""Adding jobs from one process: one by one, many in flight, in bulk; asynchronous and synchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support.meter import Meter
from echomq_pool import Queue, SyncQueue
from tests.support.servers import Server

TITLE = "Enqueue from one process"
METHOD = (
    "One producer, data of one number. Client µs, server µs: CPU of the producer and of the server per job."
)


def sync_one(server: Server, jobs: int) -> None:
    with SyncQueue("q", url=server.url) as queue:
        for n in range(jobs):
            queue.add("job", {"n": n})


def sync_bulk(server: Server, jobs: int) -> None:
    with SyncQueue("q", url=server.url) as queue:
        for start in range(0, jobs, 1_000):
            queue.add_bulk(("job", {"n": n}, {}) for n in range(start, min(jobs, start + 1_000)))


def async_one(server: Server, jobs: int) -> None:
    async def run() -> None:
        async with Queue("q", url=server.url) as queue:
            for n in range(jobs):
                await queue.add("job", {"n": n})

    asyncio.run(run())


def async_many(server: Server, jobs: int) -> None:
    async def run() -> None:
        async with Queue("q", url=server.url) as queue:
            numbers = iter(range(jobs))

            async def lane() -> None:
                for n in numbers:
                    await queue.add("job", {"n": n})

            await asyncio.gather(*(lane() for _ in range(100)))

    asyncio.run(run())


def async_bulk(server: Server, jobs: int) -> None:
    async def run() -> None:
        async with Queue("q", url=server.url) as queue:
            for start in range(0, jobs, 1_000):
                await queue.add_bulk(("job", {"n": n}, {}) for n in range(start, min(jobs, start + 1_000)))

    asyncio.run(run())


FORMS: dict[str, Callable[[Server, int], None]] = {
    "SyncQueue.add, one by one": sync_one,
    "SyncQueue.add_bulk, by the thousand": sync_bulk,
    "Queue.add, one by one": async_one,
    "Queue.add, 100 in flight": async_many,
    "Queue.add_bulk, by the thousand": async_bulk,
}


@pytest.mark.benchmark(group="enqueue")
@pytest.mark.parametrize("form", FORMS)
def test_enqueue(benchmark: Any, server: Server, row: Row, pick: Any, form: str) -> None:
    jobs = pick(50, 5_000, 50_000)
    FORMS[form](server, 10)
    with Meter(server) as spent:
        benchmark.pedantic(FORMS[form], args=(server, jobs), rounds=1)
    row(
        TITLE,
        METHOD,
        form=form,
        jobs=jobs,
        jobs_per_s=jobs / spent.wall_s,
        client_us=spent.client_cpu_s / jobs * 1e6,
        server_us=spent.server_cpu_s / jobs * 1e6,
        bytes_per_job=spent.bytes_in / jobs,
    )
