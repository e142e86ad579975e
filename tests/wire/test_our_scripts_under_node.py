# SPDX-License-Identifier: MIT
"""BullMQ runs on our Lua: its queues, workers, readers and schedulers cannot tell the difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomq_pool.redisio.export import export_scripts
from echomq_pool.redisio.scripts import load_library
from tests.support.node import Node
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, ended, finish

LIBRARY = load_library("lock")
USED = ["addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob", "moveToActive", "moveToFinished",
        "retryJob", "moveToDelayed", "extendLocks", "moveStalledJobsToWait", "pause", "updateProgress", "addLog",
        "updateData", "getCounts", "getStateV2", "isFinished", "addJobScheduler", "updateJobScheduler",
        "getJobScheduler", "removeJobScheduler", "moveJobFromActiveToWait"]  # fmt: skip
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def lone_server() -> Iterator[Server]:
    """A server that nobody but this Node ever loads a script into."""
    server = Server("valkey").start()
    yield server
    server.destroy()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our scripts by the names under which BullMQ has its own, as `echomq-pool scripts --out DIR` writes them."""
    folder = tmp_path_factory.mktemp("scripts")
    found = {path.stem.rpartition("-")[0]: path.read_text() for path in export_scripts(folder / "lua")}
    (folder / "scripts.json").write_text(json.dumps(found))
    return folder / "scripts.json"


@pytest.fixture(scope="module")
def ported(texts: Path, lone_server: Server) -> Iterator[Node]:
    """BullMQ 6.2.0 with every script of ours in the place of its own."""
    node = Node("bullmq-620", lone_server.port, texts)
    yield node
    node.close()


def sort_of(n: int) -> dict[str, Any]:
    data: dict[str, Any] = {"n": n, "give": {"n": n}}
    opts: dict[str, Any] = {}
    match n % 8:
        case 1:
            opts = {"priority": 1 + n % 5}
        case 2:
            opts = {"delay": 10 + n % 300}
        case 3:
            data |= {"do": "fail", "fail_times": 1}
            opts = {"attempts": 3, "backoff": {"type": "fixed", "delay": 15}}
        case 4:
            data |= {"do": "fail", "fail_times": 1}
            opts = {"attempts": 2}
        case 5:
            data |= {"do": "fail"}
            opts = {"attempts": 1 + n // 8 % 2}
        case 6:
            opts = {"jobId": f"custom-{n}", "lifo": True}
        case 7:
            opts = {"deduplication": {"id": f"once-{n}"}, "removeOnComplete": 1_000}
    return {"name": f"job-{n}", "data": data, "opts": opts}


def test_a_whole_mix_of_jobs(ported: Node, queue_name: str, lone_server: Server) -> None:
    """promise 4.22, 4.21"""
    at, total = EMQ.node(queue_name), 400
    listener = ported("listen", **at)
    ported(
        "upsertScheduler",
        **at,
        id="beat",
        repeat={"every": 100, "limit": 5},
        template={"name": "tick", "data": {"give": 1}},
    )
    ported(
        "upsertScheduler",
        **at,
        id="cron",
        repeat={"pattern": "* * * * * *", "limit": 2},
        template={"name": "tock"},
    )
    ported("addBulk", **at, jobs=[sort_of(n) for n in range(total)])
    worker = ported("startWorker", **at, behaviour="play", opts={"concurrency": 10, "lockRenewTime": 100})
    counts = finish(ported, at, total + 7)
    assert counts["failed"] == total // 8
    seen = eventually(
        lambda: (s := ported("seenCounts", listener=listener)).get("completed") == counts["completed"] and s
    )
    again = sum({3: 1, 4: 1, 5: n // 8 % 2}.get(n % 8, 0) for n in range(total))
    assert (seen["added"], seen["active"], seen["failed"]) == (total + 7, total + 7 + again, counts["failed"])
    assert seen["retries-exhausted"] == counts["failed"]
    for job in ported("jobs", **at, states=["completed"]):
        if job["name"].startswith("job-"):
            assert job["returnvalue"] == {"n": job["data"]["n"]}
            assert job["attemptsMade"] == {3: 2, 4: 2}.get(job["data"]["n"] % 8, 1)
    ported("stopWorker", worker=worker)
    assert seen["drained"] >= 1


def test_everything_else_that_a_queue_can_do(ported: Node, queue_name: str, lone_server: Server) -> None:
    """promise 4.22"""
    at = EMQ.node(queue_name)
    listener = ported("listen", **at)
    options = {"concurrency": 3, "lockDuration": 600, "lockRenewTime": 100, "stalledInterval": 300}
    ported("startWorker", **at, behaviour="play", opts={**options, "limiter": {"max": 1000, "duration": 100}})
    talk = ported("add", **at, job="talk", data={"do": "talk", "progress": [1], "row": "r"}, opts={})
    assert ended(ported, at, talk["id"])["progress"] == [1]
    assert ported("logs", **at, id=talk["id"]) == ["r"]
    limited = ported("add", **at, job="limit", data={"do": "limit", "limit_ms": 100}, opts={})
    assert ended(ported, at, limited["id"])["returnvalue"] == "limited once"
    ported("pause", **at)
    held = ported("add", **at, job="held", data={"give": 1, "ms": 900}, opts={})
    assert ported("job", **at, id=held["id"])["state"] == "waiting"
    ported("resume", **at)
    assert ported("waitFor", **at, id=held["id"], listener=listener) == 1
    assert ended(ported, at, held["id"])["stalledCounter"] == 0
    flow = {"name": "parent", "queueName": at["name"], "data": {"give": "p"},
            "children": [{"name": "child", "queueName": at["name"], "data": {"give": "c"}}]}  # fmt: skip
    parent = ported("addFlow", **at, flow=flow)
    assert ended(ported, at, parent["id"])["returnvalue"] == "p"
    late = [ported("add", **at, job="late", data={"give": n}, opts={"delay": DAY_MS}) for n in range(3)]
    ported("promote", **at, id=late[0]["id"])
    ported("changeDelay", **at, id=late[1]["id"], delay=50)
    ported("remove", **at, id=late[2]["id"])
    assert [ended(ported, at, job["id"])["returnvalue"] for job in late[:2]] == [0, 1]
    ported("upsertScheduler", **at, id="s", repeat={"every": DAY_MS, "offset": 5}, template={"name": "s"})
    assert ported("scheduler", **at, id="s")["every"] == DAY_MS
    assert ported("removeScheduler", **at, id="s") is True
    assert ported("counts", **at)["delayed"] == 0


def test_stalled_jobs_are_recovered(ported: Node, queue_name: str, lone_server: Server, texts: Path) -> None:
    """promise 4.22"""
    at = EMQ.node(queue_name)
    doomed = Node("bullmq-620", lone_server.port, texts)
    try:
        doomed("startWorker", **at, behaviour="stuck", opts={"lockDuration": 500, "skipStalledCheck": True})
        job = ported("add", **at, job="held", data={"give": 7}, opts={})
        eventually(lambda: ported("counts", **at)["active"] == 1)
    finally:
        doomed.kill()
    ported("startWorker", **at, behaviour="play", opts={"stalledInterval": 300})
    found = ended(ported, at, job["id"])
    assert (found["returnvalue"], found["stalledCounter"]) == (7, 1)


def test_the_upkeep_of_a_queue(ported: Node, queue_name: str, lone_server: Server) -> None:
    """promise 4.22"""
    at, base = EMQ.node(queue_name), EMQ.base(queue_name)
    ids = ported(
        "addBulk",
        **at,
        jobs=[{"name": f"p{n}", "data": {"give": n}, "opts": {"priority": n}} for n in range(5)],
    )
    assert ported("countsPerPriority", **at, priorities=[0, 1, 2, 9]) == {"0": 1, "1": 1, "2": 1, "9": 0}
    ported("changePriority", **at, id=ids[4], priority=1, lifo=True)
    assert ported("page", **at, states=["prioritized"], start=0, end=1, asc=True) == [ids[4], ids[1]]
    ported("updateData", **at, id=ids[0], data={"do": "fail", "fail_times": 1})
    options = {"concurrency": 1, "metrics": {"maxDataPoints": 10}}
    worker = ported("startWorker", **at, behaviour="play", opts=options)
    assert finish(ported, at, 5) == {**ported("counts", **at), "completed": 4, "failed": 1}
    assert ported("metrics", **at, kind="completed")["meta"]["count"] == 4
    ported("retryJobs", **at, state="failed")
    assert ended(ported, at, ids[0])["returnvalue"] == {}
    late = ported(
        "addBulk", **at, jobs=[{"name": "late", "data": {}, "opts": {"delay": DAY_MS}} for _ in range(3)]
    )
    ported("promoteJobs", **at)
    assert [ended(ported, at, job_id)["returnvalue"] for job_id in late] == [None] * 3
    ported("stopWorker", worker=worker)
    once = {"deduplication": {"id": "d"}}
    first = ported("add", **at, job="once", data={}, opts=once)
    assert ported("removeDeduplicationKey", **at, key="d") == 1
    assert ported("add", **at, job="once", data={}, opts=once)["id"] != first["id"]
    assert ported("rateLimitTtl", **at, max=1) <= 0
    assert ported("isMaxed", **at) is False
    with lone_server.client() as client:
        client.hset(f"{base}999", "name", "orphan")
        ported("removeOrphanedJobs", **at)
        assert client.exists(f"{base}999") == 0
        assert client.exists(f"{base}1") == 1
    assert len(ported("clean", **at, state="completed")) == 8
    ported("drain", **at)
    assert set(ported("counts", **at).values()) == {0}
    ported("obliterate", **at)
    with lone_server.client() as client:
        assert [key for key in client.scan_iter(match=f"{base}*") if not key.endswith(b"stalled-check")] == []


def test_families_and_their_removal(ported: Node, queue_name: str) -> None:
    """promise 4.22"""
    at = EMQ.node(queue_name)
    children = [
        {"name": f"c{n}", "queueName": at["name"], "data": {"give": n}, "opts": {"delay": DAY_MS}}
        for n in range(3)
    ]
    made = ported(
        "addFlow",
        **at,
        flow={"name": "parent", "queueName": at["name"], "data": {"give": "p"}, "children": children},
    )
    kids = [child["id"] for child in made["children"]]
    assert len(ported("dependencies", **at, id=made["id"])["unprocessed"]) == 3
    assert ported("removeChildDependency", **at, id=kids[0]) is True
    ported("remove", **at, id=kids[1])
    assert len(ported("dependencies", **at, id=made["id"])["unprocessed"]) == 1
    ported("removeUnprocessedChildren", **at, id=made["id"])
    assert ported("job", **at, id=made["id"])["state"] == "waiting"
    ported("startWorker", **at, behaviour="play", opts={})
    assert ended(ported, at, made["id"])["returnvalue"] == "p"
    assert ported("job", **at, id=kids[2]) is None


def test_it_really_was_our_text_and_no_other(ported: Node, lone_server: Server, queue_name: str) -> None:
    """promise 4.22"""
    assert ported("foreign") == [], "BullMQ has no script that we do not have"
    if set(USED) - loaded(lone_server):  # the others have run elsewhere
        test_a_whole_mix_of_jobs(ported, f"{queue_name}-mix", lone_server)
        test_everything_else_that_a_queue_can_do(ported, f"{queue_name}-else", lone_server)
    found = loaded(lone_server)
    assert [name for name in USED if name not in found] == []
    with lone_server.client() as client:
        assert client.info("memory")["number_of_cached_scripts"] == len(found), "and no text of another"


def loaded(server: Server) -> set[str]:
    """Which of our scripts the server has."""
    names = list(LIBRARY)
    with server.client() as client:
        there = client.script_exists(*(LIBRARY[name].sha for name in names))
    return {name for name, is_there in zip(names, there, strict=True) if is_there}
