# SPDX-License-Identifier: MIT
"""Workers of both sides on the jobs of both: limits, locks, retries, retention, metrics, ends."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from echomq_pool import SyncQueue
from tests.support.waiting import eventually
from tests.wire.fleet import ended
from tests.wire.ground import Side, job, running_loop
from tests.wire.test_same_records import differences, settled_dump

pytestmark = pytest.mark.node

HOUR_MS = 3_600_000


def end_of(side: Side, data: dict[str, Any], state: str = "completed", **opts: Any) -> dict[str, Any]:
    """A job that Node adds, once it has ended, as Node sees it."""
    made = side.theirs("add", job="n", data=data, opts=opts)
    return ended(side.ground.node, side.at, made["id"], state)


def reach(queue: SyncQueue, **counts: int) -> None:
    """Waits until so many jobs are in these states."""
    eventually(lambda: queue.get_job_counts(*counts) == counts, why=f"{counts} in {queue.name}")


def test_each_side_does_the_jobs_of_the_other(twins: tuple[Side, Side]) -> None:
    """promise 4.21"""
    theirs, ours = twins
    theirs.node_worker(concurrency=4, name="they")
    with ours.worker(concurrency=4, name="we"):
        for side in twins:
            with side.ours() as queue:
                jobs = queue.add_bulk([("n", {"give": n}, {"priority": n % 3}) for n in range(20)])
                assert [one.wait_until_finished(30) for one in jobs] == list(range(20))
            many = [{"name": "n", "data": {"give": n}} for n in range(20)]
            for n, job_id in enumerate(side.theirs("addBulk", jobs=many)):
                assert ended(side.ground.node, side.at, job_id)["returnvalue"] == n


def test_a_processor_apart_is_a_process_there_and_a_thread_here(twins: tuple[Side, Side]) -> None:
    """BullMQ's sandboxed processors"""

    def plain(one: Any) -> dict[str, Any]:
        return {"pid": os.getpid(), "thread": threading.current_thread().name, "give": one.data["give"]}

    theirs, ours = twins
    theirs.node_worker("sandbox")
    with ours.worker(plain), theirs.ours() as queue:
        away = queue.add("n", {"give": 1}).wait_until_finished(60)
        found = end_of(ours, {"give": 2})["returnvalue"]
    assert (away["give"], found["give"], found["pid"]) == (1, 2, os.getpid())
    assert found["thread"] != threading.current_thread().name


# --- limits ------------------------------------------------------------------------------------------


def test_a_limiter_of_either_side_stops_both(twins: tuple[Side, Side]) -> None:
    """case C130"""
    theirs, ours = twins
    theirs.node_worker(limiter={"max": 2, "duration": HOUR_MS})
    with ours.worker(limiter=(2, HOUR_MS)):
        for side in twins:
            with side.ours() as queue:
                queue.add_bulk([("n", {"give": n}) for n in range(5)])
                reach(queue, completed=2)
                assert queue.get_rate_limit_ttl(2) > HOUR_MS / 2
                assert side.of_queue("getRateLimitTtl", 2) > HOUR_MS / 2
        # Whoever comes to a queue that is limited takes nothing.
        ours.node_worker(limiter={"max": 2, "duration": HOUR_MS})
        with theirs.worker(limiter=(2, HOUR_MS)), ours.ours() as mine, theirs.ours() as other_queue:
            for queue in (mine, other_queue):
                assert queue.get_job_counts("waiting", "prioritized", "active") == {
                    "waiting": 3, "prioritized": 0, "active": 0}  # fmt: skip


def test_a_global_concurrency_of_either_side_binds_workers_of_the_other(twins: tuple[Side, Side]) -> None:
    """case C130"""
    theirs, ours = twins
    with theirs.ours() as queue, ours.ours() as mine:
        queue.set_global_concurrency(1)
        ours.of_queue("setGlobalConcurrency", 1)
        theirs.node_worker("stuck", concurrency=5)
        with ours.worker(concurrency=5):
            for one in (queue, mine):
                one.add_bulk([("n", {"do": "until"}) for _ in range(3)])
            for one, side in ((queue, theirs), (mine, ours)):
                reach(one, active=1)
                assert one.is_maxed() is side.of_queue("isMaxed") is True
                assert one.get_job_counts("active", "waiting") == {"active": 1, "waiting": 2}


def test_a_global_rate_limit_of_either_side_binds_workers_of_the_other(twins: tuple[Side, Side]) -> None:
    """case C130"""
    theirs, ours = twins
    with theirs.ours() as queue, ours.ours() as mine:
        queue.set_global_rate_limit(2, HOUR_MS)
        ours.of_queue("setGlobalRateLimit", 2, HOUR_MS)
        theirs.node_worker(concurrency=1)
        with ours.worker():
            for one, side in ((queue, theirs), (mine, ours)):
                one.add_bulk([("n", {"give": n}) for n in range(5)])
                reach(one, completed=2)
                assert one.get_rate_limit_ttl() > HOUR_MS / 2
                assert side.of_queue("getRateLimitTtl") > HOUR_MS / 2
                assert one.get_job_counts("active", "waiting") == {"active": 0, "waiting": 3}


# --- locks -------------------------------------------------------------------------------------------


def test_locks_are_renewed_under_the_sweeps_of_the_other(twins: tuple[Side, Side]) -> None:
    """promise 4.24"""
    theirs, ours = twins
    theirs.node_worker(lockDuration=1_000, stalledInterval=200, maxStalledCount=0)
    short: dict[str, Any] = {"lock_duration_ms": 1_000, "stalled_interval_ms": 200, "max_stalled_count": 0}
    with ours.worker(**short), theirs.worker(None, **short) as idle:
        idle.wait(call(idle.worker.start_stalled_check))
        for side in twins:
            side.theirs("sweepOnce", max=0, interval=200)
        ids = [side.theirs("add", job="n", data={"give": 1, "ms": 2_500}, opts={})["id"] for side in twins]
        for side, job_id in zip(twins, ids, strict=True):
            found = ended(side.ground.node, side.at, job_id)
            assert (found["returnvalue"], found["stalledCounter"], found["attemptsStarted"]) == (1, 0, 1)


async def call(what: Callable[[], Any]) -> None:
    what()


def test_a_job_whose_worker_is_lost_comes_back_by_the_sweep_of_either_side(twins: tuple[Side, Side]) -> None:
    """case C027, C033"""
    theirs = twins[0]
    for side in twins:
        with side.ours() as queue, side.client() as store:
            for limit, state in ((1, "waiting"), (0, "failed")):
                made = queue.add("n", {"give": limit}, attempts=1)
                assert side.theirs("take", token="lost:1")["id"] == made.id
                store.delete(side.keys.lock(made.id), side.keys.key("stalled-check"))
                # Whose lock is gone is marked, then judged by the next sweep.
                if side is theirs:
                    side.theirs("sweepOnce", max=limit, interval=100)
                    come_back(side, made.id, state)
                else:
                    options: dict[str, Any] = {"stalled_interval_ms": 100, "max_stalled_count": limit}
                    with side.worker(None, **options) as hand:
                        hand.wait(call(hand.worker.start_stalled_check))
                        come_back(side, made.id, state)
                queue.obliterate(force=True)
                side.ground.node("reset")


def come_back(side: Side, job_id: str, state: str) -> None:
    """In the line again, or there with the note that whoever takes it must fail it."""
    with side.client() as store:
        key = side.keys.job(job_id)
        eventually(lambda: store.hget(key, "stc") == b"1", why="it is counted")
        assert store.lrange(side.keys.key("wait"), 0, -1) == [job_id.encode()]
        assert store.hexists(key, "defa") is (state == "failed")


# --- retries, retention, metrics ---------------------------------------------------------------------

BACKOFFS: dict[str, Any] = {
    "fixed": {"type": "fixed", "delay": HOUR_MS},
    "exponential": {"type": "exponential", "delay": HOUR_MS},
    "custom": {"type": "odd"},
}


@pytest.mark.parametrize("kind", BACKOFFS)
def test_a_failed_run_is_put_off_alike(twins: tuple[Side, Side], kind: str) -> None:
    """BullMQ's `backoff`"""
    theirs, ours = twins
    theirs.node_worker(custom=HOUR_MS * 3)
    with ours.worker("tests.wire.jobs:play"):
        delays = [
            end_of(s, {"do": "fail"}, "delayed", attempts=3, backoff=BACKOFFS[kind])["delay"] for s in twins
        ]
    assert delays[0] == delays[1] == (3 * HOUR_MS if kind == "custom" else HOUR_MS)


def test_finished_jobs_are_kept_as_the_worker_of_either_side_says(twins: tuple[Side, Side]) -> None:
    """BullMQ's `removeOnComplete`, `removeOnFail` of a worker"""
    theirs, ours = twins
    theirs.node_worker(removeOnComplete={"count": 2}, removeOnFail={"count": 1})
    with ours.worker(remove_on_complete=2, remove_on_fail=1):
        for side in twins:
            with side.ours() as queue:
                jobs = queue.add_bulk([("n", {"give": n}) for n in range(5)])
                jobs += queue.add_bulk([("n", {"do": "fail"}) for _ in range(3)])
                reach(queue, waiting=0, active=0, completed=2, failed=1)
                assert [one.id for one in queue.get_completed()] == [jobs[4].id, jobs[3].id]
                assert side.theirs("counts")["completed"] == 2


def test_what_is_too_old_goes_when_another_of_its_kind_finishes(twins: tuple[Side, Side]) -> None:
    """case C136: as BullMQ, age is looked at by the next job that ends the same way; `clean` looks at once."""
    theirs, ours = twins
    theirs.node_worker(removeOnComplete={"age": 60}, removeOnFail={"age": 60})
    keep: dict[str, Any] = {"remove_on_complete": {"age": 60}, "remove_on_fail": {"age": 60}}
    with ours.worker(**keep):
        for side in twins:
            with side.ours() as queue, side.client() as store:
                old = end_of(side, {"do": "fail"}, "failed")["id"]
                store.zadd(side.keys.key("failed"), {old: 1})
                end_of(side, {"give": 1})
                assert queue.get_state(old) == "failed", "only a failure looks at failures"
                young = end_of(side, {"do": "fail"}, "failed")["id"]
                assert queue.get_state(old) == "unknown"
                store.zadd(side.keys.key("failed"), {young: 1})
                assert queue.clean(60_000, 0, "failed") == [young]


def test_finished_jobs_are_counted_for_the_other_side_to_read(twins: tuple[Side, Side]) -> None:
    """BullMQ's `metrics`"""
    theirs, ours = twins
    theirs.node_worker(metrics={"maxDataPoints": 10})
    with ours.worker(metrics_points=10):
        for side in twins:
            with side.ours() as queue:
                queue.add_bulk([("n", {"give": n}) for n in range(3)])
                queue.add("n", {"do": "fail"})
                reach(queue, completed=3, failed=1)
                for kind, count in (("completed", 3), ("failed", 1)):
                    assert queue.get_metrics(kind).count == count
                    assert side.theirs("metrics", kind=kind)["meta"]["count"] == count


# --- the worker itself -------------------------------------------------------------------------------


def test_a_paused_worker_of_either_side_takes_nothing_until_it_goes_on(twins: tuple[Side, Side]) -> None:
    """BullMQ's `worker.pause`, `resume`, `close`"""
    theirs, ours = twins
    number = theirs.node_worker()
    with ours.worker() as mine, theirs.ours() as queue:
        theirs.theirs("workerCall", worker=number, method="pause")
        mine.wait(mine.worker.pause())
        away, here = queue.add("n", {"give": 1}), ours.theirs("add", job="n", data={"give": 2}, opts={})
        # A worker that had taken it would have done it before one that comes now.
        with theirs.worker():
            assert away.wait_until_finished(30) == 1
        assert theirs.theirs("started") == []
        assert ours.theirs("job", id=here["id"])["state"] == "waiting"
        mine.wait(call(mine.worker.resume))
        theirs.theirs("workerCall", worker=number, method="resume")
        assert ended(ours.ground.node, ours.at, here["id"])["returnvalue"] == 2
        assert queue.add("n", {"give": 3}).wait_until_finished(30) == 3
        theirs.theirs("stopWorker", worker=number)


def test_running_jobs_are_cancelled_by_their_worker_on_either_side(twins: tuple[Side, Side]) -> None:
    """BullMQ's `cancelJob`, `cancelAllJobs`"""
    theirs, ours = twins
    number = theirs.node_worker("until", concurrency=3)
    with ours.worker(concurrency=3) as mine, theirs.ours() as queue, ours.ours() as own:
        jobs = [queue.add("n", {"do": "until"}, attempts=3) for _ in range(3)]
        theirs_of_ours = [
            ours.theirs("add", job="n", data={"do": "until"}, opts={"attempts": 3}) for _ in range(3)
        ]
        reach(queue, active=3)
        reach(own, active=3)
        theirs.theirs("workerCall", worker=number, method="cancelJob", args=[jobs[0].id, "enough"])
        mine.wait(call(lambda: mine.worker.cancel(theirs_of_ours[0]["id"], "enough")))
        assert ended(ours.ground.node, ours.at, theirs_of_ours[0]["id"], "failed")["failedReason"] == "enough"
        eventually(lambda: jobs[0].state() == "failed")
        assert own.get_job_counts("active") == queue.get_job_counts("active") == {"active": 2}
        theirs.theirs("workerCall", worker=number, method="cancelAllJobs", args=["all"])
        mine.wait(call(lambda: mine.worker.cancel_all("all")))
        reach(queue, failed=3)
        reach(own, failed=3)


class Told:
    """Middleware that notes what happens to jobs, as Node's worker tells it."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def on_start(self, one: Any) -> None:
        self.seen.append(["active", one.name])

    def on_success(self, one: Any, value: Any) -> None:
        self.seen.append(["completed", one.name])

    def on_failure(self, one: Any, error: BaseException) -> None:
        self.seen.append(["failed", one.name])


def test_what_happens_to_the_others_jobs_is_told_alike(twins: tuple[Side, Side]) -> None:
    """BullMQ's `worker.on`"""
    theirs, ours = twins
    number, told = theirs.node_worker(), Told()
    with ours.worker(middleware=[told]), theirs.ours() as queue:
        for name, data in (("good", {"give": 1}), ("bad", {"do": "fail"})):
            queue.add(name, data)
            ours.theirs("add", job=name, data=data, opts={})
        wanted = [["active", "good"], ["completed", "good"], ["active", "bad"], ["failed", "bad"]]
        assert eventually(lambda: len(s := theirs.theirs("told", worker=number)) == 4 and s) == wanted
        eventually(lambda: told.seen == wanted, why=str(told.seen))


def test_the_context_of_a_trace_is_written_and_left_out_alike(twins: tuple[Side, Side]) -> None:
    """BullMQ's `telemetry`"""
    theirs, ours = twins
    metadata = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
    given = [{"metadata": metadata}, {"metadata": metadata, "omitContext": True}, {"omitContext": True}]
    with ours.ours() as queue:
        for telemetry in given:
            theirs.theirs("add", job="n", data={}, opts={"telemetry": telemetry})
            queue.add("n", {}, telemetry=telemetry)
        ours.theirs("counts")
        assert differences(settled_dump(ours), settled_dump(theirs)) == []
        for side in twins:
            seen = [side.theirs("job", id=str(n))["opts"] for n in (1, 2, 3)]
            with side.ours() as own:
                assert [job(own, str(n)).opts for n in (1, 2, 3)] == seen


# --- series and the last of many ---------------------------------------------------------------------


def test_a_series_of_either_side_is_advanced_by_the_other(twins: tuple[Side, Side]) -> None:
    """case C093"""
    theirs, ours = twins
    with theirs.ours() as queue:
        queue.upsert_job_scheduler("s", every=100, limit=3, name="tick", data={"give": "us"})
    ours.theirs("upsertScheduler", id="s", repeat={"every": 100, "limit": 3},
                template={"name": "tick", "data": {"give": "node"}})  # fmt: skip
    theirs.node_worker()
    with ours.worker():
        for side, by in ((theirs, "us"), (ours, "node")):
            with side.ours() as queue:
                reach(queue, completed=3)
            jobs = side.theirs("jobs", states=["completed"])
            assert {(one["name"], one["returnvalue"]) for one in jobs} == {("tick", by)}
            slots = sorted(int(one["id"].rpartition(":")[2]) for one in jobs)
            assert [(b - a) % 100 for a, b in itertools.pairwise(slots)] == [0, 0]
            assert side.theirs("counts")["delayed"] == 0


def test_the_last_of_many_follows_the_run_of_either_side(twins: tuple[Side, Side]) -> None:
    """BullMQ's `keepLastIfActive`"""
    theirs, ours = twins
    dedup: dict[str, Any] = {"deduplication": {"id": "d", "keepLastIfActive": True}}
    theirs.node_worker()
    with ours.worker():
        for side in twins:
            with side.ours() as queue:
                first = queue.add("first", {"ms": 1_500, "give": 0}, **dedup)
                reach(queue, active=1)
                assert side.theirs("add", job="second", data={"give": 1}, opts=dedup)["id"] == first.id
                assert queue.add("third", {"give": 2}, **dedup).id == first.id
                reach(queue, completed=2)
                assert [one.name for one in queue.get_completed()] == ["third", "first"]


def test_a_pools_worker_in_a_loop_of_its_own_is_closed_with_its_jobs_done(side: Side) -> None:
    """BullMQ's `close`"""
    with side.ours() as queue, running_loop(), side.worker() as mine:
        made = side.theirs("add", job="n", data={"give": 1, "ms": 300}, opts={})
        eventually(lambda: queue.get_state(made["id"]) == "active")
        mine.wait(mine.worker.close())
        assert side.theirs("job", id=made["id"])["state"] == "completed"
