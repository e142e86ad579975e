# SPDX-License-Identifier: MIT
"""Our producers beside BullMQ's under Node, on the same queue: same questions, same answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from echomq_pool import SyncQueue
from echomq_pool.plane.schedule import SchedulerRecord
from tests.wire.ground import NODES_OWN, Side, fill, ids, job

pytestmark = pytest.mark.node

Ask = Callable[[SyncQueue], Any]
Tell = Callable[[Side], Any]

STATES = {
    "Waiting": "waiting",
    "Active": "active",
    "Delayed": "delayed",
    "Prioritized": "prioritized",
    "WaitingChildren": "waiting-children",
    "Completed": "completed",
    "Failed": "failed",
}
SAMPLE = ("done0", "done1", "w0", "p3", "d0", "P")


def of_state(name: str, state: str) -> dict[str, tuple[Ask, Tell]]:
    """How many there are, which, and whether a job is one of them."""
    plain = state.replace("-", "_")
    found: dict[str, tuple[Ask, Tell]] = {
        f"get{name}Count": (
            lambda q: q.get_job_counts(state)[state],
            lambda s: s.of_queue(f"get{name}Count"),
        ),
        f"get{name}": (lambda q: ids(getattr(q, f"get_{plain}")()), lambda s: ids(s.of_queue(f"get{name}"))),
    }
    if name != "Prioritized":  # Node has no such question about a job
        found[f"is{name}"] = (
            lambda q: [getattr(job(q, job_id), f"is_{plain}")() for job_id in SAMPLE],
            lambda s: [s.of_job(job_id, f"is{name}") for job_id in SAMPLE],
        )
    return found


def without_paused(counts: dict[str, int]) -> dict[str, int]:
    """Release 5 has a list of its own for jobs of a paused queue."""
    return {state: count for state, count in counts.items() if (state, count) != ("paused", 0)}


def meta_of(found: dict[str, Any]) -> dict[str, str]:
    """Node gives numbers and adds what is not there."""
    named = {"concurrency", "max", "duration", "paused"}
    return {key: str(value) for key, value in found.items() if key in named and value is not False}


def series_of(record: SchedulerRecord | None) -> dict[str, Any]:
    assert record is not None
    return {
        "key": record.id,
        "name": record.name,
        "pattern": record.pattern,
        "tz": record.tz,
        "next": record.next_ms,
        "count": record.iterations,
        "data": json.loads(record.data),
    }


def theirs_of(found: dict[str, Any]) -> dict[str, Any]:
    same = {key: found.get(key) for key in ("key", "name", "pattern", "tz", "next")}
    return same | {"count": found["iterationCount"], "data": found["template"]["data"]}


QUESTIONS: dict[str, tuple[Ask, Tell]] = {
    "getJobCounts": (lambda q: q.get_job_counts(), lambda s: without_paused(s.of_queue("getJobCounts"))),
    "getJobCountByTypes": (
        lambda q: sum(q.get_job_counts("waiting", "delayed").values()),
        lambda s: s.of_queue("getJobCountByTypes", "waiting", "delayed"),
    ),
    "getJobs waiting": (
        lambda q: ids(q.get_jobs("waiting")),
        lambda s: ids(s.of_queue("getJobs", ["waiting"])),
    ),
    "getJobs asc": (
        lambda q: ids(q.get_jobs(["waiting", "delayed"], 1, 2, True)),
        lambda s: ids(s.of_queue("getJobs", ["waiting", "delayed"], 1, 2, True)),
    ),
    "getJobState": (lambda q: q.get_state("P"), lambda s: s.of_queue("getJobState", "P")),
    "getJobLogs": (
        lambda q: {"logs": q.get_job_logs("w0", 0, 1, False), "count": q.count_job_logs("w0")},
        lambda s: s.of_queue("getJobLogs", "w0", 0, 1, False),
    ),
    "getCountsPerPriority": (
        lambda q: {str(p): n for p, n in q.get_counts_per_priority([0, 1, 3, 5]).items()},
        lambda s: s.of_queue("getCountsPerPriority", [0, 1, 3, 5]),
    ),
    "getGlobalConcurrency": (
        lambda q: q.get_global_concurrency(),
        lambda s: s.of_queue("getGlobalConcurrency"),
    ),
    "getGlobalRateLimit": (
        lambda q: dict(zip(("max", "duration"), q.get_global_rate_limit() or (), strict=True)),
        lambda s: s.of_queue("getGlobalRateLimit"),
    ),
    "getRateLimitTtl": (lambda q: q.get_rate_limit_ttl(), lambda s: s.of_queue("getRateLimitTtl")),
    "isPaused": (lambda q: q.is_paused(), lambda s: s.of_queue("isPaused")),
    "isMaxed": (lambda q: q.is_maxed(), lambda s: s.of_queue("isMaxed")),
    "getDeduplicationJobId": (
        lambda q: q.get_deduplication_job_id("D"),
        lambda s: s.of_queue("getDeduplicationJobId", "D"),
    ),
    "getMetrics": (
        lambda q: (q.get_metrics("completed").count, q.get_metrics("completed").points),
        lambda s: (lambda m: (m["meta"]["count"], m["data"]))(s.of_queue("getMetrics", "completed")),
    ),
    "getDependencies": (
        lambda q: sorted(key for key, _ in q.get_dependencies("P", "pending").items),
        lambda s: sorted(
            item["id"] for item in s.of_queue("getDependencies", "P", "pending", 0, -1)["items"]
        ),
    ),
    "getDependenciesCount": (
        lambda q: job(q, "P").get_dependencies_count(),
        lambda s: s.of_job("P", "getDependenciesCount"),
    ),
    "getMeta": (
        lambda q: {key: value for key, value in q.get_meta().items() if key not in NODES_OWN},
        lambda s: meta_of(s.of_queue("getMeta")),
    ),
    "getVersion": (lambda q: q.get_meta()["version"], lambda s: s.of_queue("getVersion")),
    "getJobScheduler": (
        lambda q: series_of(q.get_job_scheduler("s")),
        lambda s: theirs_of(s.of_queue("getJobScheduler", "s")),
    ),
    "getJobSchedulers": (
        lambda q: [series_of(found) for found in q.get_job_schedulers()],
        lambda s: [theirs_of(found) for found in s.of_queue("getJobSchedulers", 0, -1)],
    ),
    "getJobSchedulersCount": (
        lambda q: q.get_job_schedulers_count(),
        lambda s: s.of_queue("getJobSchedulersCount"),
    ),
    "exportPrometheusMetrics": (
        lambda q: sorted(q.export_prometheus_metrics({"env": "x"}).strip().splitlines()),
        lambda s: sorted(
            row
            for row in s.of_queue("exportPrometheusMetrics", {"env": "x"}).strip().splitlines()
            if 'state="paused"' not in row  # of release 5
        ),
    ),
    "getWorkers": (lambda q: q.get_workers(), lambda s: s.of_queue("getWorkers")),
}

for _name, _state in STATES.items():
    QUESTIONS |= of_state(_name, _state)


def test_both_give_the_same_answers(side: Side) -> None:
    """case C106"""
    fill(side)
    with side.ours() as queue:
        for name, (ask, tell) in QUESTIONS.items():
            ours, theirs = ask(queue), tell(side)
            assert (list(ours) if isinstance(ours, tuple) else ours) == (
                list(theirs) if isinstance(theirs, tuple) else theirs
            ), name


def test_a_job_reads_alike_on_both_sides(sides: tuple[Side, Side]) -> None:
    side = sides[0]
    with side.ours() as queue:
        for job_id in ("done0", "done1", "w0", "p3", "d0", "P", "c1"):
            ours, theirs = job(queue, job_id).as_dict(), side.theirs("job", id=job_id)
            stored = side.of_job(job_id, "asJSON")
            assert (ours["name"], ours["data"]) == (stored["name"], json.loads(stored["data"]))
            for name in ("id", "name", "data", "opts", "returnvalue", "failedReason", "stacktrace", "delay",
                         "priority", "progress", "attemptsMade", "attemptsStarted", "timestamp"):  # fmt: skip
                one, other = ours[name], theirs.get(name)
                assert one == other or (not one and not other), (job_id, name)


def test_a_flow_reads_alike_on_both_sides(sides: tuple[Side, Side]) -> None:
    side = sides[0]
    with side.flows() as flows:
        root = flows.get_flow("P", side.queue)
    assert root is not None
    theirs = side.theirs("getFlow", id="P", opts={})
    assert (root.job.id, sorted(node.job.id for node in root.children)) == (
        theirs["id"],
        sorted(node["id"] for node in theirs["children"]),
    )
