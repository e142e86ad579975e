# SPDX-License-Identifier: MIT
"""Jobs added by our producers, done by BullMQ's Worker under Node, read back by both."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from echomq_pool import JobFailed, Queue, QueueEvents, SyncQueue
from tests.support.node import Node
from tests.support.servers import Server
from tests.support.waiting import eventually_async
from tests.wire.fleet import EMQ, Layout

SCHEDULER_RUNS = 4
WATCHED = 60


def sort_of(n: int) -> dict[str, Any]:
    """Job number n: every option that a producer may set."""
    data: dict[str, Any] = {"n": n, "do": "give", "give": {"n": n}}
    opts: dict[str, Any] = {}
    match n % 12:
        case 1:
            opts = {"lifo": True}
        case 2:
            opts = {"remove_on_complete": True}
        case 3:
            opts = {"priority": 1 + n % 7}
        case 4:
            opts = {"delay": 20 + n % 400}
        case 5:
            data |= {"do": "fail", "fail_times": 1}
            opts = {"attempts": 3, "backoff": {"type": "fixed", "delay": 20}, "priority": 3}
        case 6:
            data |= {"do": "fail", "fail_times": 2}
            opts = {"attempts": 4, "backoff": {"type": "exponential", "delay": 10, "jitter": 0.5}}
        case 7:
            opts = {"job_id": f"custom-{n}"}
        case 8:
            data |= {"do": "fail"}
            opts = {"attempts": 1 + n // 12 % 2, "stack_trace_limit": 1}
        case 9:
            opts = {"deduplication": {"id": f"once-{n}"}, "keep_logs": 3}
        case 10:
            data |= {"do": "fail"}
            opts = {"remove_on_fail": True}
        case 11:
            opts = {"remove_on_complete": {"age": 3600, "count": 10**6}, "remove_on_fail": False}
    return {"name": f"job-{n}", "data": data, "opts": opts}


def kept(total: int) -> set[int]:
    return {n for n in range(total) if n % 12 not in (2, 10)}


async def add_all(ours: Queue, sync: SyncQueue, total: int) -> dict[int, str]:
    """Half by the asynchronous twin, half by the synchronous one, the first ones singly. Returns ids by number."""
    rows = [sort_of(n) for n in range(total)]
    jobs: list[Any] = [await ours.add(row["name"], row["data"], **row["opts"]) for row in rows[:24]]
    jobs += [sync.add(row["name"], row["data"], **row["opts"]) for row in rows[24:48]]
    for start in range(48, total, 1_000):
        part = rows[start : start + 1_000]
        half = len(part) // 2
        jobs += await ours.add_bulk(part[:half])
        jobs += await asyncio.to_thread(sync.add_bulk, part[half:])
    return {n: job.id for n, job in enumerate(jobs)}


async def check_both_read_the_same(ours: Queue, node: Node, at: dict[str, str], ids: dict[int, str]) -> None:
    theirs = {job["id"]: job for job in node("jobs", **at, states=["completed", "failed"])}
    for n in kept(len(ids)):
        seen, job = theirs[ids[n]], await ours.get_job(ids[n])
        assert job is not None
        failing = n % 12 == 8
        assert seen["state"] == await ours.get_state(job.id) == ("failed" if failing else "completed")
        assert (seen["name"], seen["data"]) == (job.name, job.data) == (f"job-{n}", sort_of(n)["data"])
        assert seen["returnvalue"] == job.returnvalue == (None if failing else {"n": n})
        assert seen.get("failedReason") == job.failed_reason
        assert seen["stacktrace"] == job.stacktrace
        assert len(job.stacktrace) == {5: 1, 6: 2, 8: 1}.get(n % 12, 0)
        assert seen["attemptsMade"] == job.attempts_made == {5: 2, 6: 3, 8: 1 + n // 12 % 2}.get(n % 12, 1)
        assert seen["attemptsStarted"] == job.attempts_started
        assert (seen["priority"], seen["delay"]) == (job.priority, job.delay)
        assert (seen["timestamp"], seen["processedOn"], seen["finishedOn"]) == (
            job.timestamp,
            job.processed_on,
            job.finished_on,
        )
        assert plain(seen["opts"]) == plain(job.opts)
        if n % 12 == 4:
            assert seen["processedOn"] >= seen["timestamp"] + 20 + n % 400 - 1


def plain(opts: dict[str, Any]) -> dict[str, Any]:
    """Options as objects; Node's reader adds `attempts: 0` where it finds none."""
    return {key: value for key, value in opts.items() if (key, value) != ("attempts", 0)}


def check_events(node: Node, listener: int, total: int) -> None:
    """Node's QueueEvents saw every event of jobs that it did not add."""
    failed = sum(1 for n in range(total) if n % 12 in (8, 10))
    seen = node("seenCounts", listener=listener)
    assert seen["added"] == total + SCHEDULER_RUNS
    assert (seen["completed"], seen["failed"]) == (total - failed + SCHEDULER_RUNS, failed)
    assert seen["retries-exhausted"] == failed
    again = sum({5: 1, 6: 2, 8: n // 12 % 2}.get(n % 12, 0) for n in range(total))
    assert seen["active"] == total + SCHEDULER_RUNS + again
    finals = Counter(
        e["jobId"] for name in ("completed", "failed") for e in node("seen", listener=listener, event=name)
    )
    assert max(finals.values()) == 1


@pytest.mark.parametrize("total", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_jobs_of_all_sorts_added_by_our_producers_are_done_by_node_and_read_back_by_both(
    wire_server: Server, node: Node, layout: Layout, queue_name: str, total: int
) -> None:
    """promise 4.21; case C103"""
    at = layout.node(queue_name)
    listener = node("listen", **at)
    node("counts", **at)
    where = layout.ours(wire_server)
    async with Queue(queue_name, **where) as ours:
        with SyncQueue(queue_name, **where) as sync:
            await ours.upsert_job_scheduler(
                "beat", every=120, limit=SCHEDULER_RUNS, name="tick", data={"give": 1}
            )
            ids = await add_all(ours, sync, total)
            waits = [
                asyncio.ensure_future(ours.wait_until_finished(ids[n], 90))
                for n in range(total - WATCHED, total)
            ]
            await asyncio.sleep(0)
            node("startWorker", **at, behaviour="play", opts={"concurrency": 20})
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
            for n, outcome in zip(range(total - WATCHED, total), outcomes, strict=True):
                if n % 12 in (8, 10):
                    assert isinstance(outcome, JobFailed)
                    assert str(outcome).endswith(f"planned failure of job-{n}")
                else:
                    assert outcome == {"n": n}
            finished = total + SCHEDULER_RUNS - sum(1 for n in range(total) if n % 12 in (8, 10))
            await eventually_async(
                lambda: node("seenCounts", listener=listener).get("completed", 0) >= finished, within=100
            )
            check_events(node, listener, total)
            await check_both_read_the_same(ours, node, at, ids)
            assert sync.wait_until_finished(ids[0], 5) == {"n": 0}
            counts = node("counts", **at)
            assert await ours.get_job_counts(*counts) == counts == sync.get_job_counts(*counts)
            for n in (2, 10):
                assert await ours.get_job(ids[n]) is None


async def test_quick_jobs_done_by_node_end_every_wait(
    wire_server: Server, judge: Node, queue_name: str
) -> None:
    """case C120"""
    at = EMQ.node(queue_name)
    judge("startWorker", **at, behaviour="play", opts={"concurrency": 50})
    async with Queue(queue_name, **EMQ.ours(wire_server)) as ours:

        async def one(n: int) -> Any:
            job = await ours.add("quick", {"give": n})
            return await job.wait_until_finished(5)

        for start in range(0, 200, 50):
            got = await asyncio.gather(*(one(n) for n in range(start, start + 50)))
            assert got == list(range(start, start + 50))


async def test_our_reader_sees_every_event_of_jobs_that_node_adds_and_does(
    wire_server: Server, node: Node, layout: Layout, queue_name: str
) -> None:
    """promise 4.20, 4.21"""
    at, total = layout.node(queue_name), 60
    seen: list[tuple[str, str]] = []
    async with QueueEvents(queue_name, **layout.ours(wire_server)) as reader:
        reader.on("*", lambda event: seen.append((event.name, getattr(event, "job_id", ""))))
        listener = node("listen", **at)
        node("addBulk", **at, jobs=[theirs_of(n) for n in range(total)])
        node("startWorker", **at, behaviour="play", opts={"concurrency": 10})
        await eventually_async(lambda: sum(name in ("completed", "failed") for name, _ in seen) == total)
        await eventually_async(lambda: ("drained", "") in seen)
    theirs = node("seen", listener=listener)
    for name in (
        "added",
        "waiting",
        "active",
        "delayed",
        "progress",
        "completed",
        "failed",
        "retries-exhausted",
    ):
        assert [job_id for found, job_id in seen if found == name] == [
            event["jobId"] for event in theirs[name]
        ]


def theirs_of(n: int) -> dict[str, Any]:
    sorts: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"give": n}, {}),
        ({"do": "fail", "fail_times": 1}, {"attempts": 2, "backoff": 10}),
        ({"do": "fail"}, {}),
        ({"give": n}, {"delay": 20}),
        ({"do": "talk", "progress": n, "row": "x"}, {"priority": 1}),
    ]
    data, opts = sorts[n % 5]
    return {"name": f"job-{n}", "data": data, "opts": opts}
