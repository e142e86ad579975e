# SPDX-License-Identifier: MIT
"""Jobs added by BullMQ under Node, done by our pool, read back by Node."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, Layout

SCHEDULER_RUNS = 5


def sort_of(n: int, folder: str) -> dict[str, Any]:
    """Job number n: plain, prioritized, delayed, retried with each back-off, custom id, failing."""
    data: dict[str, Any] = {"n": n, "folder": folder, "ms": 0}
    opts: dict[str, Any] = {}
    match n % 10:
        case 4:
            opts = {"priority": 1 + n % 7}
        case 5:
            opts = {"delay": 20 + n % 400}
        case 6:
            data["fail_times"] = 1
            opts = {"attempts": 3, "backoff": {"type": "fixed", "delay": 20}}
        case 7:
            data["fail_times"] = 2
            opts = {"attempts": 4, "backoff": {"type": "exponential", "delay": 10}}
        case 8:
            opts = {"jobId": f"custom-{n}"}
        case 9:
            data["fail_times"] = 99
            opts = {"attempts": 1 + n // 10 % 2}
    return {"name": f"job-{n}", "data": data, "opts": opts}


def start_pool(tmp_path: Path, server: Server, queue: str, layout: Layout) -> PoolProcess:
    body = f"""
[[workers]]
name = "all"
queues = ["{queue}"]
processor = "tests.support.soak_jobs:mixed"
processes = 2
concurrency = 20
"""
    return PoolProcess(tmp_path, server.url, body, top=layout.toml()).start()


def finish(node: Node, at: dict[str, str], total: int) -> dict[str, int]:
    """Waits until nothing is left to do and returns Node's counts."""

    def done() -> dict[str, int] | None:
        counts: dict[str, int] = node("counts", **at)
        return counts if counts["completed"] + counts["failed"] >= total else None

    counts: dict[str, int] = eventually(done, within=100, why="all jobs finished")
    return counts


def check_jobs(node: Node, at: dict[str, str], total: int) -> None:
    """Node's own Job objects tell the story that each job was meant to have."""
    failed = {job["data"]["n"]: job for job in node("jobs", **at, states=["failed"])}
    assert set(failed) == {n for n in range(total) if n % 10 == 9}
    for n, job in failed.items():
        assert job["failedReason"] == f"planned failure of job-{n}"
        assert job["attemptsMade"] == 1 + n // 10 % 2
        assert len(job["stacktrace"]) == job["attemptsMade"]
        assert "RuntimeError" in job["stacktrace"][-1]
    completed = [job for job in node("jobs", **at, states=["completed"]) if job["name"] != "tick"]
    assert {job["data"]["n"] for job in completed} == set(range(total)) - set(failed)
    for job in completed:
        n = job["data"]["n"]
        assert job["returnvalue"] == {"n": n}
        assert job["attemptsMade"] == {6: 2, 7: 3}.get(n % 10, 1)
        assert job["stalledCounter"] == 0
        assert n % 10 != 8 or job["id"] == f"custom-{n}"
        assert n % 10 != 5 or job["processedOn"] >= job["timestamp"] + 20 + n % 400 - 1


def check_events(node: Node, listener: int, counts: dict[str, int], total: int) -> None:
    """Node's QueueEvents saw every transition, each final one exactly once."""
    seen = eventually(
        lambda: (s := node("seenCounts", listener=listener)).get("completed", 0) >= counts["completed"] and s,
        why="all events read",
    )
    assert seen["completed"] == counts["completed"]
    assert seen["failed"] == counts["failed"]
    assert seen["added"] == total + counts["completed"] - (total - counts["failed"])
    finals = Counter(
        e["jobId"] for name in ("completed", "failed") for e in node("seen", listener=listener, event=name)
    )
    assert max(finals.values()) == 1
    retried = sum(1 for n in range(total) if n % 10 == 6) + 2 * sum(1 for n in range(total) if n % 10 == 7)
    retried_failures = sum(1 for n in range(total) if n % 10 == 9 and n // 10 % 2)
    assert seen["active"] == counts["completed"] + counts["failed"] + retried + retried_failures
    assert seen["retries-exhausted"] == counts["failed"]


@pytest.mark.parametrize("total", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_jobs_of_all_sorts_added_by_node_are_done_by_the_pool_and_read_back_by_node(
    tmp_path: Path, wire_server: Server, node: Node, layout: Layout, queue_name: str, total: int
) -> None:
    """promise 4.21"""
    at = layout.node(queue_name)
    listener = node("listen", **at)
    pool = start_pool(tmp_path, wire_server, queue_name, layout)
    try:
        node("upsertScheduler", **at, id="beat", repeat={"every": 150, "limit": SCHEDULER_RUNS},
             template={"name": "tick", "data": {"n": -1, "folder": str(tmp_path), "ms": 0}})  # fmt: skip
        for start in range(0, total, 1_000):
            node("addBulk", **at, jobs=[sort_of(n, str(tmp_path)) for n in range(start, start + 1_000)])
        counts = finish(node, at, total + SCHEDULER_RUNS)
        assert counts["completed"] + counts["failed"] == total + SCHEDULER_RUNS
        check_jobs(node, at, total)
        check_events(node, listener, counts, total)
        workers = eventually(lambda: len(w := node("workers", **at)) == 2 and w, why="Node sees both workers")
        assert all("id" in worker for worker in workers)
        assert pool.stop() == 0
    finally:
        pool.destroy()


def test_a_job_that_failed_in_our_pool_can_be_retried_from_node(
    tmp_path: Path, wire_server: Server, node: Node, queue_name: str
) -> None:
    """case C107"""
    at = EMQ.node(queue_name)
    pool = start_pool(tmp_path, wire_server, queue_name, EMQ)
    try:
        data = {"n": 1, "folder": str(tmp_path), "fail_times": 1}
        job = node("add", **at, job="once", data=data, opts={})
        eventually(lambda: node("job", **at, id=job["id"])["state"] == "failed")
        node("retry", **at, id=job["id"])
        done = eventually(lambda: (j := node("job", **at, id=job["id"]))["state"] == "completed" and j)
        assert done["returnvalue"] == {"n": 1}
    finally:
        pool.destroy()
