# SPDX-License-Identifier: MIT
"""What it costs to have many jobs waiting or delayed: memory of the server, and whether anything gets slower."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support.meter import Meter
from benchmarks.support.planes import plane_bench
from echomq_pool import SyncQueue
from echomq_pool.plane.base import Taken
from tests.support.servers import Server

TITLE = "Depth: N jobs that wait or are delayed"
METHOD = (
    "Server bytes: growth of used_memory per job, data of one number. Add µs, take µs: script time of a further add of "
    "the same kind (by the bulk call) and of a take of a waiting job, mean of 200, with all of them there."
)
FURTHER = 200


@pytest.fixture
def depths(pick: Any, pytestconfig: pytest.Config) -> list[int]:
    top = [1_000_000] if pytestconfig.getoption("million") else []
    chosen: list[int] = pick([500], [10_000, 100_000], [10_000, 100_000, *top])
    return chosen


def fill(server: Server, count: int, options: dict[str, Any]) -> None:
    with SyncQueue("bench", url=server.url) as queue:
        for start in range(0, count, 1_000):
            size = min(1_000, count - start)
            queue.add_bulk(("job", {"n": start + n}, options) for n in range(size))


def used(server: Server) -> int:
    with server.client() as client:
        memory: int = client.info("memory")["used_memory"]
        return memory


@pytest.mark.benchmark(group="depth")
@pytest.mark.parametrize("state", ["waiting", "delayed"])
def test_depth(benchmark: Any, server: Server, row: Row, depths: list[int], state: str) -> None:
    options = {"delay": 86_400_000} if state == "delayed" else {}
    further = min(FURTHER, depths[0])
    there = 0
    empty = used(server)

    def grow(to: int) -> None:
        nonlocal there
        fill(server, to - there, options)
        there = to

    def all_depths() -> None:
        for depth in depths:
            grow(depth)
            add, take = further_cost(server, further, options)
            row(
                TITLE,
                METHOD,
                state=state,
                jobs=depth,
                server_bytes_per_job=(used(server) - empty) / depth,
                add_us=add,
                take_us=take,
            )

    benchmark.pedantic(all_depths, rounds=1)


def further_cost(server: Server, count: int, options: dict[str, Any]) -> tuple[float, float]:
    """Script µs of one more add of the same kind and of one more take."""
    with Meter(server) as adding:
        fill(server, count, options)
    if options:
        fill(server, count, {})  # something to take
    with plane_bench(server) as bench, Meter(server) as taking:
        answers = bench.run(bench.each(count, lambda _: bench.plane.take(bench.token())))
    assert all(isinstance(answer, Taken) for answer in answers)
    return adding.script_us / count, taking.script_us / count
