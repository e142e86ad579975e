# SPDX-License-Identifier: MIT
"""Many plain jobs by one script: it leaves what a call for each would have left."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echomq_pool.api.ops_add import together
from echomq_pool.plane import adding, codec
from echomq_pool.plane.adding import NewJob
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.redisio.scripts import load_library
from tests.support.wire import NOW, Wire

LIBRARY = load_library("pool")
NUMBERS = itertools.count()  # a queue for each example

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "attempts": st.integers(0, 3),
        "lifo": st.booleans(),
        "removeOnComplete": st.one_of(st.booleans(), st.fixed_dictionaries({"count": st.integers(0, 9)})),
        "backoff": st.just({"type": "exponential", "delay": 1000}),
        "tm": st.text(max_size=5),
    },
)
JOBS = st.lists(st.tuples(st.text(max_size=6), st.integers(-5, 5) | st.text(max_size=6), OPTIONS), min_size=2)
META = st.fixed_dictionaries(
    {},
    optional={
        "paused": st.just("1"),
        "concurrency": st.sampled_from(["1", "3"]),
        "opts.maxLenEvents": st.sampled_from(["0", "4", "100"]),
    },
)


def add_in_one(client: Any, queue: str, jobs: list[NewJob]) -> Any:
    call = adding.add_many(QueueKeys("emq", queue), jobs)
    script = LIBRARY["addJobs"]
    client.script_load(script.text)
    return client.evalsha(script.sha, len(call.keys), *call.keys, *call.args)


@given(JOBS, META, st.integers(0, 2), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_plain_jobs_in_one_call_leave_what_single_calls_leave(
    client: Any, rows: list[Any], meta: dict[str, str], active: int, before: bool
) -> None:
    """promise 4.20; law 12"""
    number = next(NUMBERS)
    single, many = Wire(client, f"single{number}"), Wire(client, f"many{number}")
    for queue in (single, many):
        if meta:
            client.hset(queue.key("meta"), mapping=meta)
        if active:
            client.rpush(queue.key("active"), *map(str, range(active)))
        if before:
            queue.add()
    jobs = [NewJob(name, codec.encode(data), opts, "", NOW) for name, data, opts in rows]
    ids = [single.add("", job.name, job.data.decode(), **job.opts) for job in jobs]
    assert add_in_one(client, f"many{number}", jobs) == int(ids[0])
    assert ids == [str(int(ids[0]) + n) for n in range(len(jobs))]
    assert many.dump() == single.dump()


def test_a_sleeping_worker_is_woken_once_for_all(client: Any, queue_name: str) -> None:
    """law 11"""
    wire = Wire(client, queue_name)
    add_in_one(client, queue_name, [NewJob("a", b"1", {}, "", NOW), NewJob("b", b"2", {}, "", NOW)])
    assert wire.get("marker") == {"0": 0}
    assert wire.get("wait") == ["2", "1"]


def test_only_neighbours_that_are_plain_go_together_and_the_order_stays() -> None:
    jobs = [
        NewJob("a", b"1"),
        NewJob("b", b"1", {"lifo": True}),
        NewJob("c", b"1", {"delay": 5}),
        NewJob("d", b"1"),
        NewJob("e", b"1", {"priority": 2}),
        NewJob("f", b"1", {}, "own"),
        NewJob("g", b"1", {"de": {"id": "x"}}),
        NewJob("h", b"1"),
        NewJob("i", b"1"),
    ]
    assert ["".join(job.name for job in group) for group in together(jobs)] == [
        "ab", "c", "d", "e", "f", "g", "hi",
    ]  # fmt: skip
    assert [len(group) for group in together([NewJob("n", b"1")] * 120)] == [50, 50, 20]
