# SPDX-License-Identifier: MIT
"""Our producers beside BullMQ's under Node, on one server: same questions, same answers; same verbs, same keys after.

Two queues are filled alike; a verb is done to one by Python and to the other by Node, and then every key of both is
compared. Times are made equal first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from echomq_pool import SyncFlowProducer, SyncQueue
from echomq_pool.plane.base import JobRecord, PlaneOptions
from echomq_pool.plane.calls import Calls
from echomq_pool.plane.keys import QueueKeys
from tests.support.node import Node, NodeError
from tests.support.planes import LIBRARY
from tests.support.servers import Server
from tests.support.wire import dump

pytestmark = pytest.mark.node

LAYOUTS = [("emq", True), ("bull", False)]


@pytest.fixture(scope="module")
def node(valkey_server: Server) -> Iterator[Node]:
    node = Node("bullmq-620", valkey_server.port)
    yield node
    node.close()


@dataclass
class Side:
    """One queue, as both clients open it."""

    server: Server
    node: Node
    keys: QueueKeys
    prefix: str
    hash_tag: bool

    def ours(self) -> SyncQueue:
        return SyncQueue(self.keys.queue, url=self.server.url, prefix=self.prefix, hash_tag=self.hash_tag)

    def flows(self) -> SyncFlowProducer:
        return SyncFlowProducer(url=self.server.url, prefix=self.prefix, hash_tag=self.hash_tag)

    def theirs(self, verb: str, **args: Any) -> Any:
        return self.node(verb, prefix=self.prefix, name=self.keys.wire_name, **args)

    def of_queue(self, method: str, *args: Any) -> Any:
        return self.theirs("queueCall", method=method, args=list(args))

    def of_job(self, job_id: str, method: str, *args: Any) -> Any:
        return self.theirs("jobCall", id=job_id, method=method, args=list(args))

    def dump(self) -> dict[str, Any]:
        """Every key, with times and the queue's own name made equal, and without what Node notes of itself."""
        with self.server.client() as client:
            found = _alike(dump(client, self.keys.base), self.keys.wire_name)
        meta = found.get("meta", {})
        for field in ("version", "opts.maxLenEvents"):
            meta.pop(field, None)
        return {key: value for key, value in found.items() if value}


def _alike(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {_alike(key, name): _alike(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [_alike(item, name) for item in value]
    if isinstance(value, float):
        return "time" if value > 1e12 else value
    if isinstance(value, str):
        return re.sub(r"\b\d{10,}\b", "time", value.replace(name, "queue"))
    return value


def fill(side: Side) -> None:
    """Jobs in every state, a family, a series, a deduplication id, logs and metrics."""
    with side.ours() as queue, side.flows() as flows, side.server.client() as client:
        queue.add_bulk([("done", {"n": n}, {"job_id": f"done{n}"}) for n in range(4)])
        for n in range(4):
            finish(side, client, f"done{n}", n % 2 == 0)
        queue.add_bulk([("n", None, {"job_id": f"w{n}"}) for n in range(3)])
        queue.add_bulk([("n", None, {"job_id": f"p{n}", "priority": n}) for n in (1, 3, 5)])
        queue.add_bulk([("n", None, {"job_id": f"d{n}", "delay": 3_600_000 + 60_000 * n}) for n in range(2)])
        queue.add("n", job_id="dp", delay=7_200_000, priority=4)
        queue.add("n", job_id="dd", deduplication={"id": "D"})
        for row in ("one", "two", "three"):
            queue.add_job_log("w0", row)
        flows.add(
            {
                "name": "parent",
                "queue": side.keys.queue,
                "opts": {"job_id": "P"},
                "children": [
                    {"name": "c", "queue": side.keys.queue, "opts": {"job_id": f"c{n}", **fate}}
                    for n, fate in enumerate(({}, {"fail_parent_on_failure": True}, {"delay": 10_000_000}))
                ],
            }
        )
        queue.set_global_concurrency(50)
        queue.set_global_rate_limit(1_000, 60_000)


def finish(side: Side, client: Any, job_id: str, good: bool) -> None:
    """Takes the next job and ends it, by a worker's own calls."""
    calls, now = Calls(side.keys, PlaneOptions()), 1_700_000_000_000
    job = JobRecord(job_id)
    end = (
        calls.complete(job, "t:1", b'{"ok":true}', now, False)
        if good
        else calls.fail(job, "t:1", "no luck", ["trace"], now, False)
    )
    for call in (calls.take("t:1", now), end):
        client.eval(LIBRARY[call.script].text, len(call.keys), *call.keys, *call.args)


@pytest.fixture(params=LAYOUTS, ids=["emq-braces", "bull-plain"])
def sides(
    request: pytest.FixtureRequest, valkey_server: Server, node: Node, queue_name: str
) -> tuple[Side, Side]:
    prefix, hash_tag = request.param
    made = []
    for suffix in ("x", "y"):
        keys = QueueKeys(prefix, f"{queue_name}{suffix}", hash_tag)
        made.append(Side(valkey_server, node, keys, prefix, hash_tag))
        fill(made[-1])
    assert made[0].dump() == made[1].dump()
    return made[0], made[1]


def ids(jobs: Any) -> list[str]:
    return [job["id"] if isinstance(job, dict) else job.id for job in jobs]


# --- questions ---------------------------------------------------------------------------------------

Ask = Callable[[SyncQueue], Any]
Tell = Callable[[Side], Any]

QUESTIONS: dict[str, tuple[Ask, Tell]] = {
    "getJobCounts": (lambda q: q.get_job_counts(), lambda s: s.of_queue("getJobCounts")),
    "count": (lambda q: q.count(), lambda s: s.of_queue("count")),
    "getJobs waiting": (
        lambda q: ids(q.get_jobs("waiting")),
        lambda s: ids(s.of_queue("getJobs", ["waiting"])),
    ),
    "getJobs asc": (
        lambda q: ids(q.get_jobs(["waiting", "delayed"], 1, 2, True)),
        lambda s: ids(s.of_queue("getJobs", ["waiting", "delayed"], 1, 2, True)),
    ),
    "getWaiting": (lambda q: ids(q.get_waiting()), lambda s: ids(s.of_queue("getWaiting"))),
    "getDelayed": (lambda q: ids(q.get_delayed(0, 1)), lambda s: ids(s.of_queue("getDelayed", 0, 1))),
    "getPrioritized": (lambda q: ids(q.get_prioritized()), lambda s: ids(s.of_queue("getPrioritized"))),
    "getCompleted": (lambda q: ids(q.get_completed()), lambda s: ids(s.of_queue("getCompleted"))),
    "getFailed": (lambda q: ids(q.get_failed()), lambda s: ids(s.of_queue("getFailed"))),
    "getWaitingChildren": (
        lambda q: ids(q.get_waiting_children()),
        lambda s: ids(s.of_queue("getWaitingChildren")),
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
        lambda q: q.get_job("P").get_dependencies_count(),  # type: ignore[union-attr]
        lambda s: s.of_job("P", "getDependenciesCount"),
    ),
    "exportPrometheusMetrics": (
        lambda q: sorted(q.export_prometheus_metrics({"env": "x"}).strip().splitlines()),
        lambda s: sorted(s.of_queue("exportPrometheusMetrics", {"env": "x"}).strip().splitlines()),
    ),
    "getWorkers": (lambda q: q.get_workers(), lambda s: s.of_queue("getWorkers")),
    "isCompleted": (
        lambda q: q.get_job("done0").is_completed(),  # type: ignore[union-attr]
        lambda s: s.of_job("done0", "isCompleted"),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=["emq-braces", "bull-plain"])
def test_both_give_the_same_answers(
    valkey_server: Server, node: Node, queue_name: str, layout: tuple[str, bool]
) -> None:
    """case C106"""
    side = Side(valkey_server, node, QueueKeys(layout[0], queue_name, layout[1]), *layout)
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
            ours, theirs = queue.get_job(job_id).as_dict(), side.theirs("job", id=job_id)  # type: ignore[union-attr]
            for name in ("id", "name", "data", "opts", "returnvalue", "failedReason", "stacktrace", "delay",
                         "priority", "progress", "attemptsMade", "attemptsStarted", "timestamp"):  # fmt: skip
                one, other = ours[name], theirs.get(name)
                assert one == other or (not one and not other), (job_id, name)


def test_a_flow_reads_alike_on_both_sides(sides: tuple[Side, Side]) -> None:
    side = sides[0]
    with side.flows() as flows:
        root = flows.get_flow("P", side.keys.queue)
    assert root is not None
    theirs = side.theirs("getFlow", id="P", opts={})
    assert (root.job.id, sorted(node.job.id for node in root.children)) == (
        theirs["id"],
        sorted(node["id"] for node in theirs["children"]),
    )


# --- verbs -------------------------------------------------------------------------------------------

VERBS: dict[str, tuple[Ask, Tell]] = {
    "pause": (lambda q: q.pause(), lambda s: s.of_queue("pause")),
    "pause and resume": (lambda q: (q.pause(), q.resume()), lambda s: (s.of_queue("pause"), s.of_queue("resume"))),
    "drain": (lambda q: q.drain(), lambda s: s.of_queue("drain")),
    "drain delayed": (lambda q: q.drain(True), lambda s: s.of_queue("drain", True)),
    "clean completed": (lambda q: q.clean(0), lambda s: s.of_queue("clean", 0, 0, "completed")),
    "clean failed 1": (lambda q: q.clean(0, 1, "failed"), lambda s: s.of_queue("clean", 0, 1, "failed")),
    "clean wait": (lambda q: q.clean(0, 2, "wait"), lambda s: s.of_queue("clean", 0, 2, "wait")),
    "clean delayed": (lambda q: q.clean(0, 0, "delayed"), lambda s: s.of_queue("clean", 0, 0, "delayed")),
    "clean prioritized": (
        lambda q: q.clean(0, 0, "prioritized"),
        lambda s: s.of_queue("clean", 0, 0, "prioritized"),
    ),
    "obliterate": (lambda q: q.obliterate(), lambda s: s.of_queue("obliterate")),
    "retryJobs failed": (lambda q: q.retry_jobs(count=1), lambda s: s.of_queue("retryJobs", {"count": 1})),
    "retryJobs completed": (
        lambda q: q.retry_jobs("completed"),
        lambda s: s.of_queue("retryJobs", {"state": "completed"}),
    ),
    "promoteJobs": (lambda q: q.promote_jobs(), lambda s: s.of_queue("promoteJobs")),
    "remove": (lambda q: q.remove("w1"), lambda s: s.of_queue("remove", "w1")),
    "remove parent": (lambda q: q.remove("P"), lambda s: s.of_queue("remove", "P")),
    "remove child": (
        lambda q: q.remove("c0", remove_children=False),
        lambda s: s.of_queue("remove", "c0", {"removeChildren": False}),
    ),
    "updateJobProgress": (
        lambda q: q.update_job_progress("w0", {"done": 5}),
        lambda s: s.of_queue("updateJobProgress", "w0", {"done": 5}),
    ),
    "addJobLog": (lambda q: q.add_job_log("w0", "row", 2), lambda s: s.of_queue("addJobLog", "w0", "row", 2)),
    "removeGlobalConcurrency": (
        lambda q: q.remove_global_concurrency(),
        lambda s: s.of_queue("removeGlobalConcurrency"),
    ),
    "removeGlobalRateLimit": (
        lambda q: q.remove_global_rate_limit(),
        lambda s: s.of_queue("removeGlobalRateLimit"),
    ),
    "rateLimit": (lambda q: q.rate_limit(60_000), lambda s: s.of_queue("rateLimit", 60_000)),
    "removeDeduplicationKey": (
        lambda q: q.remove_deduplication_key("D"),
        lambda s: s.of_queue("removeDeduplicationKey", "D"),
    ),
    "trimEvents": (lambda q: q.trim_events(0), lambda s: s.of_queue("trimEvents", 0)),
    "job.promote": (lambda q: q.get_job("d0").promote(), lambda s: s.of_job("d0", "promote")),
    "job.promote prioritized": (lambda q: q.get_job("dp").promote(), lambda s: s.of_job("dp", "promote")),
    "job.changeDelay": (
        lambda q: q.get_job("d0").change_delay(9_000_000),
        lambda s: s.of_job("d0", "changeDelay", 9_000_000),
    ),
    "job.changePriority": (
        lambda q: q.get_job("w1").change_priority(7),
        lambda s: s.of_job("w1", "changePriority", {"priority": 7}),
    ),
    "job.changePriority lifo": (
        lambda q: q.get_job("p5").change_priority(3, lifo=True),
        lambda s: s.of_job("p5", "changePriority", {"priority": 3, "lifo": True}),
    ),
    "job.retry": (lambda q: q.get_job("done1").retry(), lambda s: s.of_job("done1", "retry")),
    "job.retry completed": (
        lambda q: q.get_job("done0").retry("completed", reset_attempts_made=True, reset_attempts_started=True),
        lambda s: s.of_job(
            "done0", "retry", "completed", {"resetAttemptsMade": True, "resetAttemptsStarted": True}
        ),
    ),
    "job.remove": (lambda q: q.get_job("dd").remove(), lambda s: s.of_job("dd", "remove")),
    "job.updateData": (
        lambda q: q.get_job("w0").update_data({"a": [1, "ü"]}),
        lambda s: s.of_job("w0", "updateData", {"a": [1, "ü"]}),
    ),
    "job.log": (lambda q: q.get_job("w0").log("row"), lambda s: s.of_job("w0", "log", "row")),
    "job.clearLogs": (lambda q: q.get_job("w0").clear_logs(1), lambda s: s.of_job("w0", "clearLogs", 1)),
    "job.removeDeduplicationKey": (
        lambda q: q.get_job("dd").remove_deduplication_key(),
        lambda s: s.of_job("dd", "removeDeduplicationKey"),
    ),
    "job.removeChildDependency": (
        lambda q: q.get_job("c0").remove_child_dependency(),
        lambda s: s.of_job("c0", "removeChildDependency"),
    ),
    "job.removeUnprocessedChildren": (
        lambda q: q.get_job("P").remove_unprocessed_children(),
        lambda s: s.of_job("P", "removeUnprocessedChildren"),
    ),
    "upsertJobScheduler": (
        lambda q: q.upsert_job_scheduler("s", pattern="0 0 29 2 *", tz="UTC", name="tick", data={"x": 1}),
        lambda s: s.of_queue(
            "upsertJobScheduler", "s", {"pattern": "0 0 29 2 *", "tz": "UTC"}, {"name": "tick", "data": {"x": 1}}
        ),
    ),
    "removeJobScheduler": (
        lambda q: (q.upsert_job_scheduler("s", pattern="0 0 29 2 *", tz="UTC"), q.remove_job_scheduler("s")),
        lambda s: (
            s.of_queue("upsertJobScheduler", "s", {"pattern": "0 0 29 2 *", "tz": "UTC"}),
            s.of_queue("removeJobScheduler", "s"),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_leaves_the_same_keys_behind_on_either_side(sides: tuple[Side, Side], verb: str) -> None:
    """law 12"""
    ask, tell = VERBS[verb]
    one, other = sides
    before = one.dump()
    with one.ours() as queue:
        ask(queue)
    tell(other)
    assert one.dump() == other.dump()
    if verb not in ("addJobLog", "trimEvents", "pause and resume", "removeJobScheduler", "clean delayed"):
        assert one.dump() != before, "the verb did something"


# --- refusals ----------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Ask, Tell]] = {
    "promote what waits": (lambda q: q.get_job("w0").promote(), lambda s: s.of_job("w0", "promote")),
    "retry what waits": (lambda q: q.get_job("w0").retry(), lambda s: s.of_job("w0", "retry")),
    "change the delay of what waits": (
        lambda q: q.get_job("w0").change_delay(5),
        lambda s: s.of_job("w0", "changeDelay", 5),
    ),
    "a name with a colon": (
        lambda q: q.add("n", job_id="a:b"),
        lambda s: s.of_queue("add", "n", {}, {"jobId": "a:b"}),
    ),
    "a number as id": (
        lambda q: q.add("n", job_id="12"),
        lambda s: s.of_queue("add", "n", {}, {"jobId": "12"}),
    ),
    "a priority too high": (
        lambda q: q.add("n", priority=2**21),
        lambda s: s.of_queue("add", "n", {}, {"priority": 2**21}),
    ),
    "data over its limit": (
        lambda q: q.add("n", "x" * 50, size_limit=10),
        lambda s: s.of_queue("add", "n", "x" * 50, {"sizeLimit": 10}),
    ),
    "two fates": (
        lambda q: q.add("n", fail_parent_on_failure=True, remove_dependency_on_failure=True),
        lambda s: s.of_queue(
            "add", "n", {}, {"failParentOnFailure": True, "removeDependencyOnFailure": True}
        ),
    ),
    "deduplication without an id": (
        lambda q: q.add("n", deduplication={"ttl": 5}),
        lambda s: s.of_queue("add", "n", {}, {"deduplication": {"ttl": 5}}),
    ),
    "both every and pattern": (
        lambda q: q.upsert_job_scheduler("s", every=5, pattern="* * * * *"),
        lambda s: s.of_queue("upsertJobScheduler", "s", {"every": 5, "pattern": "* * * * *"}),
    ),
    "neither every nor pattern": (
        lambda q: q.upsert_job_scheduler("s"),
        lambda s: s.of_queue("upsertJobScheduler", "s", {}),
    ),
    "a parent that is not there": (
        lambda q: q.add("n", parent={"id": "no", "queue": q.keys.qualified}),
        lambda s: s.of_queue("add", "n", {}, {"parent": {"id": "no", "queue": s.keys.qualified}}),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_both_refuse_and_leave_nothing_behind(sides: tuple[Side, Side], what: str) -> None:
    """law 13"""
    ask, tell = REFUSED[what]
    one, other = sides
    before = one.dump()
    with one.ours() as queue, pytest.raises(Exception, match=r".") as caught:
        ask(queue)
    assert type(caught.value).__module__ == "echomq_pool.errors", caught.value
    with pytest.raises(NodeError):
        tell(other)
    assert one.dump() == before == other.dump()
