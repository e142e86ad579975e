# SPDX-License-Identifier: MIT
"""The targets that need nobody but this repository and BullMQ under Node; `make compare` adds the Python peers.

Each prints its ratio with its target. A target that is missed does not fail the benchmark: on a busy machine most
are. What noise cannot change is held by `tests/process/test_cost_*.py`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.peers import common
from benchmarks.peers.catalog import NODE, OURS, OURS_LEASE, PEERS
from benchmarks.support import contest, environments, pools, targets
from benchmarks.support.contest import Arena, Contestant, Sizes
from benchmarks.support.meter import Meter, cpu_seconds, percentile, pss_mb
from benchmarks.support.planes import plane_bench
from benchmarks.support.seed import LEASE_MS, active_jobs, token_of
from benchmarks.support.wire import Wire
from benchmarks.test_memory import APP
from benchmarks.test_probe import KEYS as PROBE_KEYS
from benchmarks.test_probe import pipelined, variadic
from benchmarks.test_recovery import kill_once
from benchmarks.test_renewal import CALLS, KEYS, LIBRARY
from tests.support.monitor import requests
from tests.support.servers import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.benchmark(group="targets")


@pytest.fixture
def sizes(scale: str) -> Sizes:
    return contest.SIZES["tiny" if scale == "smoke" else scale]


@pytest.fixture
def elsewhere(scale: str) -> None:
    """For targets whose way of measuring is smoked by a benchmark of their own."""
    if scale == "smoke":
        pytest.skip("smoked by the benchmark of the same name in another file")


@pytest.fixture
def contestants(server: Server, tmp_path: Path) -> Iterator[list[Contestant]]:
    """echomq-pool on both planes and BullMQ under Node, on one server."""
    arena = Arena(server)
    found = []
    for peer in PEERS:
        if peer.name in (OURS, OURS_LEASE, NODE):
            try:
                found.append(Contestant(peer, environments.prepare(peer, tmp_path), arena))
            except environments.Unavailable as error:
                pytest.skip(str(error))
    yield found
    for contestant in found:
        contestant.end()


def interleaved(
    contestants: list[Contestant], measure: Callable[[Contestant, Sizes], dict[str, Any]], sizes: Sizes
) -> dict[str, dict[str, Any]]:
    """Medians by peer, after as many rounds as the sizes say."""
    rows: dict[str, list[dict[str, Any]]] = {c.peer.name: [] for c in contestants}
    for _ in range(sizes.rounds):
        for contestant in contestants:
            rows[contestant.peer.name].append(measure(contestant, sizes))
    return {name: contest.median_of(values) for name, values in rows.items()}


def test_drain_against_node(benchmark: Any, row: Row, sizes: Sizes, contestants: list[Contestant]) -> None:
    found = benchmark.pedantic(lambda: interleaved(contestants, contest.noop_drain, sizes), rounds=1)
    targets.against_peers(row, {"noop": found})


def test_enqueue_against_node(benchmark: Any, row: Row, sizes: Sizes, contestants: list[Contestant]) -> None:
    chosen = contestants if sizes.noop > 1_000 else contestants[:1]
    found = benchmark.pedantic(lambda: interleaved(chosen, contest.enqueue, sizes), rounds=1)
    targets.against_peers(row, {"enqueue": found})


@pytest.mark.usefixtures("elsewhere")
def test_kill_9(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path) -> None:
    with pools.pool(tmp_path, server, "hold", concurrency=4) as pool:

        def kills() -> list[float]:
            seconds = []
            for n in range(pick(1, 10, 50)):
                seconds.append(kill_once(server, tmp_path, f"job-{n}"))
                eventually(pool.is_ready)
            return seconds

        seconds = benchmark.pedantic(kills, rounds=1)
    targets.judge(row, "kill -9 → running again, p99, ms", percentile(seconds, 0.99) * 1000, at_most=250)


def test_renewal_of_ten_thousand(benchmark: Any, server: Server, row: Row, pick: Any) -> None:
    """promise 4.4"""
    count, rounds = pick(100, 10_000, 10_000), pick(1, 5, 20)
    ids = active_jobs(server, KEYS, count, missing_every=0)
    call = CALLS.extend([(i, token_of(i)) for i in ids])
    with closing(Wire(server.port)) as wire:
        sha = wire.call("SCRIPT", "LOAD", LIBRARY["extendLocks"].text)

        def spent(work: Callable[[], Any]) -> float:
            work()
            with Meter(server) as meter:
                for _ in range(rounds):
                    work()
            return meter.server_cpu_s

        def renew() -> None:
            assert wire.call("EVALSHA", sha, len(call.keys), *call.keys, *call.args) == []

        def set_all() -> None:
            wire.pipeline(("SET", KEYS.lock(i), token_of(i), "PX", LEASE_MS) for i in ids)

        ratio = benchmark.pedantic(lambda: spent(renew) / max(1e-9, spent(set_all)), rounds=1)
    targets.judge(row, f"renewal of {count} leases, server CPU ÷ bare SET…PX", ratio, at_most=3)


def test_exists_probe(benchmark: Any, server: Server, row: Row, pick: Any) -> None:
    count, rounds = pick(100, 100_000, 100_000), pick(1, 5, 15)
    ids = active_jobs(server, PROBE_KEYS, count)

    def median(work: Callable[[Wire], Any]) -> float:
        with closing(Wire(server.port)) as wire:
            work(wire)
            times = []
            for _ in range(rounds):
                began = time.perf_counter()
                work(wire)
                times.append(time.perf_counter() - began)
            return statistics.median(times)

    one_write, by_thousand = benchmark.pedantic(
        lambda: (median(lambda w: pipelined(w, ids)), median(lambda w: variadic(w, ids))), rounds=1
    )
    bare, pools_own = one_write / by_thousand, through_the_link(server, ids, rounds)
    targets.judge(
        row, f"EXISTS, {count} active: pipelined ÷ variadic, pool's connection", pools_own, at_least=3
    )
    targets.judge(row, f"EXISTS, {count} active: pipelined ÷ variadic, bare connection", bare, at_least=3)
    theirs = redis_benchmark(server.port, count)
    if theirs:
        targets.judge(
            row, f"EXISTS, {count} active: pipelined ÷ redis-benchmark", one_write / theirs, at_most=1.3
        )


def through_the_link(server: Server, ids: list[str], rounds: int) -> float:
    """The same ratio on the pool's own connection, where every reply has a future of its own."""
    with plane_bench(server, PROBE_KEYS.queue) as bench:

        async def pipelined() -> None:
            await asyncio.gather(*(bench.link.call("EXISTS", PROBE_KEYS.lock(i)) for i in ids))

        async def median(work: Callable[[], Any]) -> float:
            times = []
            for _ in range(rounds):
                began = time.perf_counter()
                await work()
                times.append(time.perf_counter() - began)
            return statistics.median(times)

        return bench.run(median(pipelined)) / bench.run(median(bench.plane.probe))


def redis_benchmark(port: int, count: int) -> float:
    """Seconds that redis-benchmark takes for as many, a thousand in a pipeline; 0 when it is not installed."""
    program = shutil.which("redis-benchmark")
    if program is None:
        return 0.0
    key = f"{PROBE_KEYS.base}__rand_int__:lock"
    command = [
        program,
        "-p",
        port,
        "-c",
        1,
        "-P",
        min(1_000, count),
        "-n",
        count,
        "-r",
        count,
        "-q",
        "EXISTS",
        key,
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=True)
    rates = re.findall(r"([\d.]+) requests per second", done.stdout)
    return count / float(rates[-1]) if rates else 0.0


@pytest.mark.usefixtures("elsewhere")
def test_cpu_bound_jobs(benchmark: Any, row: Row, sizes: Sizes, contestants: list[Contestant]) -> None:
    ours = contestants[0]

    def both() -> tuple[float, float]:
        return bare_loops(sizes.cpu), contest.cpu_drain(ours, sizes)["jobs_per_s"]

    bare, pool = benchmark.pedantic(both, rounds=1)
    targets.judge(row, "jobs of 2 ms of CPU, 2 processes ÷ two bare loops", pool / bare, at_least=0.93)


def bare_loops(count: int) -> float:
    """Jobs a second of two Python processes that do nothing else; start-up left out."""
    code = (
        "import sys, time; from benchmarks.peers import common; n = int(sys.argv[1]); t = time.monotonic()\n"
    )
    code += "for _ in range(n): common.burn()\nprint(time.monotonic() - t)"
    seconds: list[float] = []

    def loop() -> None:
        command = [*environments.python_command(), "-c", code, str(count // 2)]
        done = subprocess.run(
            command, cwd=environments.REPOSITORY, capture_output=True, text=True, check=True
        )
        seconds.append(float(done.stdout))

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count // 2 * 2 / max(seconds)


@pytest.mark.usefixtures("elsewhere")
def test_waiting_jobs(benchmark: Any, row: Row, sizes: Sizes, contestants: list[Contestant]) -> None:
    found = benchmark.pedantic(lambda: contest.io_drain(contestants[0], sizes), rounds=1)
    ideal = 100 / common.IO_S
    targets.judge(row, "jobs of 50 ms at 100, of ideal", found["jobs_per_s"] / ideal, at_least=0.95)


@pytest.mark.usefixtures("elsewhere")
def test_idle_pool(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path) -> None:
    """law 11"""
    seconds = pick(1.0, 12.0, 60.0)
    with pools.pool(tmp_path, server, processes=8) as pool:
        tree = pool.tree()
        before = cpu_seconds(tree)
        seen = benchmark.pedantic(lambda: requests(server, seconds), rounds=1)
        used = cpu_seconds(tree) - before
    targets.judge(row, "idle, 8 workers: client requests a second", seen.total() / seconds, at_most=3)
    targets.judge(row, "idle, 8 workers: per cent of a core", used / seconds * 100, at_most=0.3)


@pytest.mark.usefixtures("elsewhere")
def test_preloaded_workers(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path) -> None:
    def workers_mb(processes: int) -> float:
        more = "preload = true"
        with pools.pool(tmp_path, server, APP, processes=processes, concurrency=4, more=more) as pool:
            return pss_mb(pool.pids("bench") + pool.pids("zygote"))

    count = pick(2, 8, 8)
    ratio = benchmark.pedantic(lambda: workers_mb(count) / workers_mb(1), rounds=1)
    targets.judge(row, f"{count} preloaded workers of 60 MB ÷ one, PSS", ratio, at_most=1.6)
