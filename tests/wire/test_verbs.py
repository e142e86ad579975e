# SPDX-License-Identifier: MIT
"""A verb is done to one queue by Python and to its twin by Node, then every key of both is compared.

Times are made equal first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq_pool import SyncQueue
from tests.wire.ground import Side, job

pytestmark = pytest.mark.node

Ask = Callable[[SyncQueue], Any]
Tell = Callable[[Side], Any]


def in_turn(*calls: Callable[[], Any]) -> None:
    for call in calls:
        call()


VERBS: dict[str, tuple[Ask, Tell]] = {
    "pause": (lambda q: q.pause(), lambda s: s.of_queue("pause")),
    "pause and resume": (lambda q: in_turn(q.pause, q.resume), lambda s: (s.of_queue("pause"), s.of_queue("resume"))),
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
    "obliterate by force": (
        lambda q: q.obliterate(force=True),
        lambda s: s.of_queue("obliterate", {"force": True}),
    ),
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
    "setGlobalConcurrency": (
        lambda q: q.set_global_concurrency(3),
        lambda s: s.of_queue("setGlobalConcurrency", 3),
    ),
    "removeGlobalConcurrency": (
        lambda q: q.remove_global_concurrency(),
        lambda s: s.of_queue("removeGlobalConcurrency"),
    ),
    "setGlobalRateLimit": (
        lambda q: q.set_global_rate_limit(7, 5_000),
        lambda s: s.of_queue("setGlobalRateLimit", 7, 5_000),
    ),
    "removeGlobalRateLimit": (
        lambda q: q.remove_global_rate_limit(),
        lambda s: s.of_queue("removeGlobalRateLimit"),
    ),
    "rateLimit": (lambda q: q.rate_limit(60_000), lambda s: s.of_queue("rateLimit", 60_000)),
    "removeRateLimitKey": (
        lambda q: in_turn(lambda: q.rate_limit(60_000), q.remove_rate_limit_key),
        lambda s: (s.of_queue("rateLimit", 60_000), s.of_queue("removeRateLimitKey")),
    ),
    "removeOrphanedJobs": (
        lambda q: q.remove_orphaned_jobs(),
        lambda s: s.of_queue("removeOrphanedJobs"),
    ),
    "removeDeduplicationKey": (
        lambda q: q.remove_deduplication_key("D"),
        lambda s: s.of_queue("removeDeduplicationKey", "D"),
    ),
    "trimEvents": (lambda q: q.trim_events(0), lambda s: s.of_queue("trimEvents", 0)),
    "job.promote": (lambda q: job(q, "d0").promote(), lambda s: s.of_job("d0", "promote")),
    "job.promote prioritized": (lambda q: job(q, "dp").promote(), lambda s: s.of_job("dp", "promote")),
    "job.changeDelay": (
        lambda q: job(q, "d0").change_delay(9_000_000),
        lambda s: s.of_job("d0", "changeDelay", 9_000_000),
    ),
    "job.changePriority": (
        lambda q: job(q, "w1").change_priority(7),
        lambda s: s.of_job("w1", "changePriority", {"priority": 7}),
    ),
    "job.changePriority lifo": (
        lambda q: job(q, "p5").change_priority(3, lifo=True),
        lambda s: s.of_job("p5", "changePriority", {"priority": 3, "lifo": True}),
    ),
    "job.retry": (lambda q: job(q, "done1").retry(), lambda s: s.of_job("done1", "retry")),
    "job.retry completed": (
        lambda q: job(q, "done0").retry("completed", reset_attempts_made=True, reset_attempts_started=True),
        lambda s: s.of_job(
            "done0", "retry", "completed", {"resetAttemptsMade": True, "resetAttemptsStarted": True}
        ),
    ),
    "job.remove": (lambda q: job(q, "dd").remove(), lambda s: s.of_job("dd", "remove")),
    "job.updateData": (
        lambda q: job(q, "w0").update_data({"a": [1, "ü"]}),
        lambda s: s.of_job("w0", "updateData", {"a": [1, "ü"]}),
    ),
    "job.log": (lambda q: job(q, "w0").log("row"), lambda s: s.of_job("w0", "log", "row")),
    "job.clearLogs": (lambda q: job(q, "w0").clear_logs(1), lambda s: s.of_job("w0", "clearLogs", 1)),
    "job.removeDeduplicationKey": (
        lambda q: job(q, "dd").remove_deduplication_key(),
        lambda s: s.of_job("dd", "removeDeduplicationKey"),
    ),
    "job.removeChildDependency": (
        lambda q: job(q, "c0").remove_child_dependency(),
        lambda s: s.of_job("c0", "removeChildDependency"),
    ),
    "job.removeUnprocessedChildren": (
        lambda q: job(q, "P").remove_unprocessed_children(),
        lambda s: s.of_job("P", "removeUnprocessedChildren"),
    ),
    "upsertJobScheduler": (
        lambda q: q.upsert_job_scheduler("s", pattern="0 5 29 2 *", tz="UTC", name="tick", data={"x": 2}),
        lambda s: s.of_queue(
            "upsertJobScheduler", "s", {"pattern": "0 5 29 2 *", "tz": "UTC"}, {"name": "tick", "data": {"x": 2}}
        ),
    ),
    "removeJobScheduler": (
        lambda q: q.remove_job_scheduler("s"),
        lambda s: s.of_queue("removeJobScheduler", "s"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_leaves_the_same_keys_behind_on_either_side(sides: tuple[Side, Side], verb: str) -> None:
    """law 12; case C108"""
    ask, tell = VERBS[verb]
    one, other = sides
    before = one.dump()
    with one.ours() as queue:
        ask(queue)
    tell(other)
    assert one.dump() == as_six(other)
    if verb not in ("addJobLog", "trimEvents", "pause and resume", "clean delayed", "removeRateLimitKey"):
        assert one.dump() != before, "the verb did something"


def as_six(side: Side) -> dict[str, Any]:
    """Release 5 keeps the waiting jobs of a paused queue in a list of its own, which later ones only read."""
    found = side.dump()
    if side.ground.five and "paused" in found:
        found["wait"] = found.pop("paused") + found.get("wait", [])
    return found
