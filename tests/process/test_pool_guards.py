# SPDX-License-Identifier: MIT
"""Leases that jobs take, in a real pool: kept while the worker lives, free once it is dead."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomq_pool import Lease, SyncLease, SyncQueue
from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane.guard import GuardKeys
from tests.redisio.test_topology import two_nodes  # noqa: F401 - a fixture
from tests.support.guard_jobs import notes
from tests.support.pool import PLANES, PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

BODY = """
[supervisor]
control = "@CONTROL@"
max_restarts = 100

[infra]
max_restarts = 100

[[workers]]
name = "async"
queues = ["QUEUE"]
plane = "PLANE"
processor = "tests.support.guard_jobs:hold"
processes = 3
concurrency = 1
max_stalled_count = 100
max_restarts = 100

[[workers]]
name = "sync"
queues = ["QUEUE-sync"]
plane = "PLANE"
processor = "tests.support.guard_jobs:hold_sync"
processes = 2
concurrency = 1
max_stalled_count = 100
max_restarts = 100
"""
KEYS = GuardKeys("emq")
KINDS = [("async", "gil"), ("async", "block"), ("async", "sleep"), ("sync", "gil"), ("sync", "block")]


class Bench:
    """A pool, its two queues, and a look at the leases."""

    def __init__(self, folder: Path, server: Server, name: str, plane: str) -> None:
        self.folder, self.server, self.name = folder, server, name
        self.queues = {
            kind: SyncQueue(name + end, url=server.url, plane=plane)
            for kind, end in (("async", ""), ("sync", "-sync"))
        }
        self.client: Any = server.client()
        self.pool = PoolProcess(folder, server.url, BODY.replace("QUEUE", name).replace("PLANE", plane))

    def hold(self, kind: str, how: str, ms: int, ttl: str) -> str:
        """A job that holds a lease; its name."""
        name = f"{self.name}:{kind}:{how}"
        data = {"lease": name, "ttl": ttl, "ms": ms, "how": how, "folder": str(self.folder)}
        self.queues[kind].add("job", data)
        return name

    def won(self, name: str, after: int = 0) -> tuple[int, int] | None:
        """(pid, fencing token) of its first holding with a greater token than `after`."""
        rows = [(pid, number) for lease, pid, number in notes(self.folder, "won") if lease == name]
        return next((row for row in rows if row[1] > after), None)

    def kept(self) -> set[str]:
        return {name for name, _, _ in notes(self.folder, "kept")}

    def there(self, name: str) -> bool:
        return bool(self.client.exists(KEYS.base + name))

    def stays(self, names: list[str], *, meanwhile: Any = None) -> None:
        """Watches leases from when they are held until their jobs say that they kept them; none may be gone before."""
        eventually(lambda: all(self.won(name) for name in names))
        began, gone = time.monotonic(), set()
        while self.kept() < set(names):
            missing = {name for name in names if not self.there(name)}
            gone |= missing - self.kept()
            assert not gone, f"lapsed: {gone}\n{self.pool.log()[-3000:]}"
            assert not notes(self.folder, "lost")
            assert time.monotonic() - began < 60
            if meanwhile is not None:
                meanwhile()
            time.sleep(0.02)
        eventually(lambda: not any(self.there(name) for name in names))

    def close(self) -> None:
        self.pool.destroy()
        self.client.close()
        for queue in self.queues.values():
            queue.close()


@pytest.fixture(params=PLANES)
def bench(
    tmp_path: Path, own_server: Server, queue_name: str, request: pytest.FixtureRequest
) -> Iterator[Bench]:
    bench = Bench(tmp_path, own_server, queue_name, request.param)
    bench.pool.start()
    yield bench
    bench.close()


def test_a_lease_outlasts_whatever_its_job_does_to_the_gil_or_the_loop(bench: Bench) -> None:
    """law 1: three times its time to live, in every kind of job; and it is given back at the end of the block"""
    bench.stays([bench.hold(kind, how, 7_000, "2s") for kind, how in KINDS])
    assert bench.pool.stop() == 0


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_the_lease_of_a_killed_worker_is_free_at_once_and_the_next_number_is_greater(
    bench: Bench, kind: str
) -> None:
    """law 1, law 5: long before its time to live is over, and the job's next run gets it again"""
    name = bench.hold(kind, "block", 60_000, "60s")
    pid, number = eventually(lambda: bench.won(name))
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    again = eventually(lambda: bench.won(name, after=number))
    assert again[0] != pid
    assert time.monotonic() - killed < 20, "it waited for the end of the lease"
    os.kill(again[0], signal.SIGKILL)
    bench.queues[kind].pause()
    with SyncLease(name, url=bench.server.url, wait="30s") as lease:
        assert lease.fencing_token > again[1]


def test_no_lease_lapses_while_the_lock_manager_is_killed_or_stuck(bench: Bench) -> None:
    """law 1, law 3, law 9: a new one is told all; a stuck one is replaced by the worker itself"""
    names = [bench.hold("async", "sleep", 9_000, "3s"), bench.hold("sync", "block", 9_000, "3s")]
    began = time.monotonic()
    done: list[int] = []

    def trouble() -> None:
        if len(done) < 3 and time.monotonic() - began > 1 + len(done) and bench.pool.is_ready():
            (pid,) = bench.pool.pids("lock_manager")
            os.kill(pid, signal.SIGKILL if len(done) < 2 else signal.SIGSTOP)
            done.append(pid)

    bench.stays(names, meanwhile=trouble)
    assert len(set(done)) == 3


def test_the_leases_of_a_pool_whose_supervisor_was_killed_are_given_back(bench: Bench) -> None:
    """law 9"""
    name = bench.hold("async", "sleep", 60_000, "40s")
    eventually(lambda: bench.won(name))
    least = eventually(lambda: bench.client.pttl(KEYS.base + name))
    # Renewed, so the lock manager has heard of it: a word still in the dead supervisor's hands would be lost.
    eventually(lambda: bench.client.pttl(KEYS.base + name) > least)
    os.kill(bench.pool.pid, signal.SIGKILL)
    eventually(lambda: not bench.there(name), within=15)


CLUSTERED = """
[[workers]]
name = "work"
queues = ["a", "b"]
processor = "tests.support.guard_jobs:hold"
processes = 2
concurrency = 4
max_restarts = 100
"""


@pytest.mark.timeout(120)
async def test_in_a_cluster_all_leases_live_in_one_slot_whichever_node_has_the_queue(
    tmp_path: Path,
    two_nodes: tuple[Server, Server],  # noqa: F811
) -> None:
    """law 1, law 10: kept, given back at a death, and the same to whoever asks from outside"""
    pool = PoolProcess(tmp_path, two_nodes[0].url, CLUSTERED)
    pool.config.write_text(pool.config.read_text().replace("[log]", "cluster = true\n[log]", 1))
    cluster = RedisConfig(url=two_nodes[0].url, port=two_nodes[0].port, cluster=True)
    data = {"how": "sleep", "folder": str(tmp_path)}
    try:
        pool.start()
        for name in ("a", "b"):
            with SyncQueue(name, redis=cluster) as queue:
                queue.add("job", {**data, "lease": f"short:{name}", "ttl": "2s", "ms": 6_000})
                queue.add("job", {**data, "lease": f"long:{name}", "ttl": "60s", "ms": 60_000})
        eventually(lambda: len(notes(tmp_path, "won")) == 4, why=pool.log())
        assert not SyncLease("long:a", redis=cluster).acquire(wait=0)
        eventually(lambda: {name for name, _, _ in notes(tmp_path, "kept")} == {"short:a", "short:b"})
        assert not notes(tmp_path, "lost")
        last = max(number for _, _, number in notes(tmp_path, "won"))
        with SyncLease("short:a", redis=cluster, wait="20s") as sync_lease:
            assert sync_lease.fencing_token > last
        for pid in {pid for name, pid, _ in notes(tmp_path, "won") if name.startswith("long")}:
            os.kill(pid, signal.SIGKILL)
        for name in ("a", "b"):  # given back long before its time, or taken again by the job's next run
            async with Lease(f"free:{name}", redis=cluster, wait="20s") as lease:
                assert lease.fencing_token > sync_lease.fencing_token
        eventually(lambda: len(notes(tmp_path, "won")) == 6, why=pool.log())
    finally:
        pool.destroy()
