# SPDX-License-Identifier: MIT
"""The two planes side by side, for docs/planes.md: `python -m benchmarks.planes`. Prints a table; takes a minute."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from echomq_pool import SyncQueue
from tests.support.pool import PLANES, PoolProcess
from tests.support.servers import Server
from tests.support.soak_jobs import ledger
from tests.support.waiting import eventually

JOBS = 20_000
IDLE_S = 30  # three times as long as a worker blocks
BODY = """
[supervisor]
control = "@CONTROL@"

[[workers]]
name = "w"
queues = ["q"]
plane = "PLANE"
processor = "PROCESSOR"
processes = PROCESSES
concurrency = CONCURRENCY
max_stalled_count = 100
max_restarts = 100
"""


def pool(
    folder: Path, server: Server, plane: str, processor: str, processes: int, concurrency: int
) -> PoolProcess:
    body = BODY.replace("PLANE", plane).replace("PROCESSOR", processor)
    body = body.replace("PROCESSES", str(processes)).replace("CONCURRENCY", str(concurrency))
    return PoolProcess(folder, server.url, body, log_level="warning").start()


def server_us(client: Any) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6


def pool_us(process: PoolProcess) -> float:
    return sum(sum(p.cpu_times()[:2]) for p in process.tree()) * 1e6


def figures(plane: str) -> dict[str, float]:
    server = Server("valkey").start()
    folder = Path(tempfile.mkdtemp(prefix="planes-"))
    found: dict[str, float] = {}
    try:
        with SyncQueue("q", plane=plane, url=server.url) as queue, server.client() as client:
            drain(found, folder, server, queue, client, plane)
            alive(found, folder, server, queue, client, plane)
    finally:
        server.destroy()
    return found


def drain(
    found: dict[str, float], folder: Path, server: Server, queue: SyncQueue, client: Any, plane: str
) -> None:
    """What a waiting job weighs, and how fast and how dear 20 000 empty ones are."""
    before = client.info("memory")["used_memory"]
    for _ in range(JOBS // 1_000):
        queue.add_bulk([("noop", {"order": 4711, "items": ["a", "b"]}, {"remove_on_complete": True} if plane == "lock" else {})] * 1_000)  # fmt: skip  # noqa: E501
    found["bytes per waiting job"] = (client.info("memory")["used_memory"] - before) / JOBS
    queue.pause()
    process = pool(folder, server, plane, "benchmarks.planes:noop", 1, 64)
    try:
        start, began = (server_us(client), pool_us(process)), time.monotonic()
        queue.resume()
        left = eventually(lambda: queue.get_job_counts("waiting", "active"), within=1)
        while sum(left.values()):
            time.sleep(0.02)
            left = queue.get_job_counts("waiting", "active")
        seconds = time.monotonic() - began
        found["jobs per second, one process"] = JOBS / seconds
        found["server CPU per job, µs"] = (server_us(client) - start[0]) / JOBS
        found["pool CPU per job, µs"] = (pool_us(process) - start[1]) / JOBS
        process.stop()
    finally:
        process.destroy()


def alive(
    found: dict[str, float], folder: Path, server: Server, queue: SyncQueue, client: Any, plane: str
) -> None:
    """From adding to the start of a single job; from SIGKILL to its next start; what an idle pool sends."""
    process = pool(folder, server, plane, "tests.support.soak_jobs:work", 2, 4)
    try:
        eventually(lambda: sum("b" in row["flags"] for row in client.client_list()) >= 2)
        found["add to start, median ms"] = statistics.median(latency(folder, queue, 1) for _ in range(30))
        found["SIGKILL to the next start, median ms"] = statistics.median(
            recovery(folder, queue, process) for _ in range(7)
        )
        eventually(process.is_ready)
        eventually(lambda: sum("b" in row["flags"] for row in client.client_list()) >= 2)
        found["due to start of a delayed job, median ms"] = statistics.median(
            latency(folder, queue, 1, delay=300) - 300 for _ in range(21)
        )
        before = client.info("commandstats")
        time.sleep(IDLE_S)
        after = client.info("commandstats")
        scripts = after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"]
        found["script calls per second of an idle pool"] = scripts / IDLE_S
    finally:
        process.destroy()


def started(folder: Path, job_id: str, runs: int) -> list[tuple[int, int]]:
    rows = [(pid, ms) for word, job, pid, ms in ledger(folder) if word == "start" and job == job_id]
    return rows if len(rows) >= runs else []


def latency(folder: Path, queue: SyncQueue, ms: int, **options: int) -> float:
    began = time.monotonic_ns() / 1e6
    job_id = str(queue.add("job", {"ms": ms, "folder": str(folder)}, **options).id)
    return float(eventually(lambda: started(folder, job_id, 1))[0][1] - began)


def recovery(folder: Path, queue: SyncQueue, process: PoolProcess) -> float:
    job_id = str(queue.add("job", {"ms": 1_200, "folder": str(folder)}).id)
    pid = eventually(lambda: started(folder, job_id, 1))[0][0]
    killed = time.monotonic_ns() / 1e6
    os.kill(pid, signal.SIGKILL)
    again = eventually(lambda: started(folder, job_id, 2))[1][1]
    eventually(lambda: sum(queue.get_job_counts("waiting", "active").values()) == 0)
    eventually(process.is_ready)
    return float(again - killed)


async def noop(job: Any) -> None:
    """Nothing."""


def main() -> None:
    psutil.cpu_percent()
    rows = {plane: figures(plane) for plane in PLANES}
    print(f"| | {' | '.join(rows)} |\n| --- | {' | '.join('---:' for _ in rows)} |")
    for name in rows["lock"]:
        print(f"| {name} | {' | '.join(f'{rows[plane][name]:,.1f}' for plane in rows)} |")


if __name__ == "__main__":
    main()
