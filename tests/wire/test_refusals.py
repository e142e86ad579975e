# SPDX-License-Identifier: MIT
"""Our producers beside BullMQ's under Node, on one server: same questions, same answers; same verbs, same keys after.

Two queues are filled alike; a verb is done to one by Python and to the other by Node, and then every key of both is
compared. Times are made equal first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq_pool import SyncQueue
from tests.support.node import NodeError
from tests.wire.ground import Side, job

pytestmark = pytest.mark.node

Ask = Callable[[SyncQueue], Any]
Tell = Callable[[Side], Any]

REFUSED: dict[str, tuple[Ask, Tell]] = {
    "promote what waits": (lambda q: job(q, "w0").promote(), lambda s: s.of_job("w0", "promote")),
    "retry what waits": (lambda q: job(q, "w0").retry(), lambda s: s.of_job("w0", "retry")),
    "change the delay of what waits": (
        lambda q: job(q, "w0").change_delay(5),
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
