# SPDX-License-Identifier: MIT
"""What each step of a job costs the server: µs of its script as the server counts them, and its whole CPU.

The server is one thread, so these are the ceiling of everything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support.meter import Meter
from benchmarks.support.planes import PlaneBench, plane_bench
from echomq_pool.api.queue import Queue
from echomq_pool.plane.base import JobRecord
from tests.support.servers import Server

TITLE = "Scripts: cost of one step"
METHOD = (
    "16 in flight on one connection of the pool's own class; completions that end in one turn of the loop share a "
    "call. Script µs: EVALSHA in commandstats, per step; server µs: CPU of the server process per step, with reading, "
    "parsing and writing."
)
Held = tuple[JobRecord, str]
Step = Callable[[PlaneBench, JobRecord, str], Awaitable[Any]]

SETTLES: dict[str, Step] = {
    "moveToFinished or finishBatch, completed": lambda b, job, token: b.plane.complete(job, token, b'"ok"'),
    "moveToFinished, failed": lambda b, job, token: b.plane.fail(job, token, "boom", ["Traceback: boom"]),
    "retryJob": lambda b, job, token: b.plane.retry(job, token, "boom", ["Traceback: boom"]),
    "moveToDelayed": lambda b, job, token: b.plane.delay(job, token, 60_000),
    "moveJobFromActiveToWait": lambda b, job, token: b.plane.release(job, token),
    "extendLocks, one lease": lambda b, job, token: b.plane.extend([(job.id, token)]),
    "updateProgress": lambda b, job, token: b.plane.progress(job.id, b"50"),
    "getState": lambda b, job, token: b.plane.state(job.id),
}
ADDS: dict[str, dict[str, Any]] = {
    "addStandardJob": {},
    "addStandardJob, own id": {"job_id": "own-{n}"},
    "addDelayedJob": {"delay": 3_600_000},
    "addPrioritizedJob": {"priority": 5},
}


@pytest.fixture
def count(pick: Any) -> int:
    number: int = pick(20, 5_000, 20_000)
    return number


async def _fill(server: Server, queue: str, count: int, options: dict[str, Any]) -> None:
    async with Queue(queue, url=server.url) as producer:
        for start in range(0, count, 1_000):
            numbers = range(start, min(count, start + 1_000))
            await producer.add_bulk(
                ("job", {"n": n}, {k: v.format(n=n) if isinstance(v, str) else v for k, v in options.items()})
                for n in numbers
            )


def _note(row: Row, script: str, spent: Any, calls: int) -> None:
    per = 1e6 / calls
    row(
        TITLE,
        METHOD,
        script=script,
        calls=calls,
        script_us=spent.script_us / calls,
        scripts=spent.scripts / calls,
        server_us=spent.server_cpu_s * per,
        client_us=spent.client_cpu_s * per,
        commands_inside=(spent.commands - spent.scripts) / calls,
        bytes_in=spent.bytes_in / calls,
        bytes_out=spent.bytes_out / calls,
    )


@pytest.mark.benchmark(group="scripts")
@pytest.mark.parametrize("script", ADDS)
def test_add(benchmark: Any, server: Server, row: Row, count: int, script: str) -> None:
    with plane_bench(server) as bench:
        bench.run(_fill(server, "warm", 10, {}))
        with Meter(server) as spent:
            benchmark.pedantic(lambda: bench.run(_fill(server, "bench", count, ADDS[script])), rounds=1)
        _note(row, script, spent, count)


@pytest.mark.benchmark(group="scripts")
@pytest.mark.parametrize("script", SETTLES)
def test_a_step_of_a_held_job(benchmark: Any, server: Server, row: Row, count: int, script: str) -> None:
    with plane_bench(server) as bench:
        bench.run(_fill(server, "bench", count, {}))
        held: list[Held] = bench.run(bench.take_all(count))

        def step(number: int) -> Awaitable[Any]:
            job, token = held[number]
            return SETTLES[script](bench, job, token)

        with Meter(server) as spent:
            benchmark.pedantic(lambda: bench.run(bench.each(count, step)), rounds=1)
        _note(row, script, spent, count)


@pytest.mark.benchmark(group="scripts")
def test_take(benchmark: Any, server: Server, row: Row, count: int) -> None:
    with plane_bench(server) as bench:
        bench.run(_fill(server, "bench", count, {}))
        with Meter(server) as spent:
            benchmark.pedantic(lambda: bench.run(bench.take_all(count)), rounds=1)
        _note(row, "moveToActive", spent, count)


@pytest.mark.benchmark(group="scripts")
def test_the_whole_cycle(benchmark: Any, server: Server, row: Row, count: int) -> None:
    """Finish with fetch-next: the one call of a busy worker."""
    with plane_bench(server) as bench:
        bench.run(_fill(server, "bench", count + 16, {}))
        lanes = bench.run(bench.take_all(16))
        left = iter(range(count))

        async def lane(job: JobRecord, token: str) -> None:
            for _ in left:
                taken = await bench.plane.complete(job, token, b'"ok"', fetch=True)
                job = taken.job  # type: ignore[union-attr]

        async def drain() -> None:
            await bench.each(len(lanes), lambda n: lane(*lanes[n]))

        with Meter(server) as spent:
            benchmark.pedantic(lambda: bench.run(drain()), rounds=1)
        _note(row, "finishBatch and fetch the next", spent, count)
