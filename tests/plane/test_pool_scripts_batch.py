# SPDX-License-Identifier: MIT
"""finishBatch leaves what as many calls of moveToFinished leave: every key, every event in its order, every answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack
import pytest
import redis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from echomq_pool.redisio.scripts import load_library
from tests.support import random_calls
from tests.support.random_calls import Draw, Operation
from tests.support.twins import comparable, expiries
from tests.support.wire import Wire, flat, text

BATCH = load_library("pool")["finishBatch"]
KEYS = "wait active prioritized events stalled delayed meta pc completed metrics:completed marker"
ALONE, NONE = 1, 0


@dataclass(frozen=True)
class Row:
    """One job to complete."""

    id: str
    token: str
    value: str = "null"
    kept: bool = True
    fetch: bool = True
    limited: bool = False  # kept within the limits of the call

    @property
    def packed(self) -> list[Any]:
        kind = 4 if self.limited else 2 * self.kept
        return [self.id, self.token, self.value, kind + self.fetch]


Limits = dict[str, int]


def together(
    wire: Wire, rows: list[Row], *, name: str = "", metrics: Any = "", limits: Limits | None = None
) -> Any:
    """One call for all rows; [due, answer of each row], or [-1]."""
    sha = wire.client.script_load(BATCH.text)
    packed = msgpack.packb([part for row in rows for part in row.packed])
    keys = [wire.base + key for key in KEYS.split()]
    keep = msgpack.packb(limits) if limits else ""
    args = (wire.base, wire.now, 30_000, name, metrics, packed, keep)
    return text(wire.client.evalsha(sha, len(keys), *keys, *args))


def alone(wire: Wire, row: Row, *, name: str = "", metrics: Any = "", limits: Limits | None = None) -> Any:
    """The same for one row by moveToFinished."""
    wire.token = row.token
    return wire.finish(
        row.id,
        row.value,
        fetch=row.fetch,
        keep=limits if row.limited else {"count": -1 if row.kept else 0},
        name=name or None,
        maxMetricsSize=metrics,
    )


def next_of(answer: Any) -> Any:
    """(next job or None, ms of the next delayed one) of an answer of moveToFinished."""
    if not isinstance(answer, list):
        assert answer == 0
        return None, 0
    found, job_id, limited, due = answer
    assert limited == 0
    return ((job_id, flat(found)) if job_id else None), due


def state(wire: Wire) -> Any:
    found = wire.dump()
    return comparable(found, wire.base), expiries(wire, list(found))


def compare(single: Wire, batch: Wire, rows: list[Row], **more: Any) -> list[Row]:
    """Completes `rows` both ways, compares, and returns those that the batch left to be done alone."""
    before = state(batch)
    assert state(single) == before, "the two queues were not the same to begin with"
    due, *answers = together(batch, rows, **more)
    if due == -1:
        assert state(batch) == before, "a batch that is refused changes nothing"
        return rows
    assert len(answers) == len(rows)
    seen_due = 0
    for row, answer in zip(rows, answers, strict=True):
        if answer == ALONE:
            continue
        expected, its_due = next_of(alone(single, row, **more))
        seen_due = its_due or seen_due
        found = None if answer == NONE else (answer[1], flat(answer[0]))
        assert comparable(found, batch.base) == comparable(expected, single.base)
    assert due == seen_due
    assert state(batch) == state(single)
    return [row for row, answer in zip(rows, answers, strict=True) if answer == ALONE]


def twins(client: redis.Redis, queue_name: str) -> tuple[Wire, Wire]:
    return Wire(client, queue_name + "s"), Wire(client, queue_name + "b")


# --- plain jobs ---------------------------------------------------------------------------------------------------


def filled(wire: Wire, jobs: int, taken: int, **opts: Any) -> list[Row]:
    """`jobs` plain jobs of which `taken` are active, each under a token of its own; the rows to complete them."""
    for _ in range(jobs):
        wire.add(**opts)
    rows = []
    for number in range(taken):
        wire.token = f"w:{number}"
        rows.append(Row(wire.take()[1], wire.token, str(number)))
    wire.client.delete(wire.key("marker"))  # a sleeping worker woke
    return rows


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("waiting", [0, 2, 9])
@pytest.mark.parametrize("options", [{}, {"priority": 3}])
def test_plain_jobs_are_all_finished_by_the_one_call(
    client: redis.Redis, queue_name: str, kept: bool, waiting: int, options: dict[str, Any]
) -> None:
    """promise 4.21; case C031: with more, fewer and no jobs that wait, `drained` once and at the end."""
    single, batch = twins(client, queue_name)
    for wire in (single, batch):
        rows = filled(wire, 5 + waiting, 5, **options)
    rows = [Row(row.id, row.token, row.value, kept) for row in rows]
    assert compare(single, batch, rows, name="pool/w-1", metrics=3) == []
    assert (batch.events()[-1] == "drained") == (waiting == 0)


def test_only_those_who_ask_get_a_job(client: redis.Redis, queue_name: str) -> None:
    """case C031: no more are taken than somebody waits for."""
    single, batch = twins(client, queue_name)
    for wire in (single, batch):
        rows = filled(wire, 20, 6)
    rows = [Row(row.id, row.token, fetch=n % 3 == 1) for n, row in enumerate(rows)]
    assert compare(single, batch, rows) == []
    assert len(batch.get("active")) == 2


def test_earlier_attempts_are_counted(client: redis.Redis, queue_name: str) -> None:
    """case C031"""
    single, batch = twins(client, queue_name)
    for wire in (single, batch):
        rows = filled(wire, 3, 3)
        client.hset(wire.key(rows[1].id), "atm", 4)
    assert compare(single, batch, rows) == []
    assert batch.get(rows[1].id)["atm"] == "5"


def test_the_far_end_of_active_is_reached_too(client: redis.Redis, queue_name: str) -> None:
    """case C031: what lies between others in `active` leaves them in their order."""
    single, batch = twins(client, queue_name)
    for wire in (single, batch):
        rows = filled(wire, 40, 30)
    assert compare(single, batch, [rows[29], rows[2], rows[28]]) == []
    assert compare(single, batch, [rows[3], rows[0], rows[5]]) == []


LIMITS: list[Limits] = [
    {"count": 3},
    {"count": 1},
    {"count": 30},
    {"age": 60},
    {"count": 4, "age": 60, "limit": 2},
]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("others", ["none", "kept for good", "gone"])
def test_finished_jobs_beyond_the_limits_go_as_after_single_calls(
    client: redis.Redis, queue_name: str, limits: Limits, others: str
) -> None:
    """case C031; case C140: by number and by age, beside such as are kept for good or not at all."""
    single, batch = twins(client, queue_name)
    for wire in (single, batch):
        for row in filled(wire, 12, 12):
            alone(wire, row)
            wire.now += 10_000
        rows = filled(wire, 12, 6)
    own = [n % 2 == 0 or others == "none" for n in range(len(rows))]
    rows = [
        Row(r.id, r.token, kept=others != "gone", limited=mine) for r, mine in zip(rows, own, strict=True)
    ]
    assert compare(single, batch, rows, limits=limits) == []


def test_an_old_job_that_its_parent_still_counts_is_taken_off_before_it_goes(
    client: redis.Redis, queue_name: str
) -> None:
    """promise 4.21"""
    wire = Wire(client, queue_name)
    (old,) = filled(wire, 1, 1)
    alone(wire, old)
    wire.add("P", children=True)
    client.hset(wire.key(old.id), "parentKey", wire.key("P"))
    client.sadd(wire.key("P:dependencies"), wire.key(old.id))
    rows = [Row(row.id, row.token, fetch=False, limited=True) for row in filled(wire, 2, 2)]
    assert together(wire, rows, limits={"count": 2}) == [0, NONE, NONE]
    assert (wire.get("P:dependencies"), wire.get(old.id)) == (None, None)
    assert wire.get("wait") == ["P"]
    assert sorted(wire.get("completed")) == sorted(row.id for row in rows)


def _later(wire: Wire) -> None:
    wire.add("later", delay=60_000)


def _due(wire: Wire) -> None:
    for number in range(7):
        wire.add(f"due-{number}", delay=5, priority=number % 3)
    wire.now += 10


def _paused(wire: Wire) -> None:
    _due(wire)
    _later(wire)
    wire.pause()


def _ancient_markers(wire: Wire) -> None:
    wire.client.lpush(wire.key("wait"), "0:1", "0:2", "x", "0:3")
    wire.add("last")


def _no_job_behind_it(wire: Wire) -> None:
    wire.client.lpush(wire.key("wait"), "ghost")


@pytest.mark.parametrize("make", [_later, _due, _paused, _ancient_markers, _no_job_behind_it])
@pytest.mark.parametrize("fetch", [True, False])
def test_what_comes_next_is_found_as_by_single_calls(
    client: redis.Redis, queue_name: str, make: Any, fetch: bool
) -> None:
    """case C031: delayed jobs, due ones of any priority, a paused queue, what ancient versions left in `wait`."""
    single, batch = twins(client, queue_name)
    for wire in (single, batch):
        rows = [Row(row.id, row.token, fetch=fetch) for row in filled(wire, 4, 4)]
        make(wire)
    assert compare(single, batch, rows) == []


@pytest.mark.parametrize("cap", [None, 0, 1, 150, 10_000])
def test_the_stream_is_trimmed_as_by_single_calls(
    client: redis.Redis, queue_name: str, cap: int | None
) -> None:
    """case C031"""
    single, batch = twins(client, queue_name)
    for wire in (single, batch):
        rows = filled(wire, 200, 12)
        if cap is None:
            client.hdel(wire.key("meta"), "opts.maxLenEvents")
        else:
            client.hset(wire.key("meta"), "opts.maxLenEvents", cap)
    assert compare(single, batch, rows) == []


@pytest.mark.parametrize("field", ["concurrency", "max"])
def test_a_queue_with_limits_refuses_batches_and_nothing_is_changed(
    client: redis.Redis, queue_name: str, field: str
) -> None:
    """case C031"""
    wire = Wire(client, queue_name)
    rows = filled(wire, 4, 2)
    client.hset(wire.key("meta"), field, 1)
    before = wire.dump()
    assert together(wire, rows) == [-1]
    assert wire.dump() == before


# --- what is not plain --------------------------------------------------------------------------------------------


def _stale(wire: Wire, row: Row) -> None:
    wire.client.set(wire.key(row.id + ":lock"), "other:1", px=60_000)


def _lapsed(wire: Wire, row: Row) -> None:
    wire.lose_lock(row.id)


def _gone(wire: Wire, row: Row) -> None:
    wire.client.delete(wire.key(row.id))


def _not_active(wire: Wire, row: Row) -> None:
    wire.client.lrem(wire.key("active"), 1, row.id)


def _parent(wire: Wire, row: Row) -> None:
    wire.client.hset(wire.key(row.id), "parentKey", wire.key("P"))


def _deduplicated(wire: Wire, row: Row) -> None:
    wire.client.hset(wire.key(row.id), "deid", "x")


def _children(wire: Wire, row: Row) -> None:
    wire.client.sadd(wire.key(row.id + ":dependencies"), wire.key("C"))


def _failed_children(wire: Wire, row: Row) -> None:
    wire.client.zadd(wire.key(row.id + ":unsuccessful"), {wire.key("C"): 1})


ODD = [_stale, _lapsed, _gone, _not_active, _parent, _deduplicated, _children, _failed_children]


@pytest.mark.parametrize("make", ODD)
def test_a_job_that_is_not_plain_is_left_alone_and_the_others_are_finished(
    client: redis.Redis, queue_name: str, make: Any
) -> None:
    """law 5; promise 4.21: a stale token, children, a parent, a deduplication id: nothing of that job is changed."""
    single, batch = twins(client, queue_name)
    for wire in (single, batch):
        rows = filled(wire, 8, 4)
        wire.sweep_again()  # marks them all
        make(wire, rows[1])
    assert compare(single, batch, rows) == [rows[1]]


def test_a_batch_of_strangers_writes_nothing_at_all(client: redis.Redis, queue_name: str) -> None:
    """law 5"""
    wire = Wire(client, queue_name)
    rows = filled(wire, 8, 4)
    client.hdel(wire.key("meta"), "opts.maxLenEvents")
    before = wire.dump()
    assert together(wire, [Row(row.id, "stale:0") for row in rows]) == [0, ALONE, ALONE, ALONE, ALONE]
    assert wire.dump() == before


# --- anything -----------------------------------------------------------------------------------------------------

STATES: dict[Operation, int] = {
    operation: weight
    for operation, weight in random_calls.EVERYDAY.items()
    if operation not in (random_calls.upsert, random_calls.advance)
}
SEEDS = st.integers(0, 2**31)
STEPS = st.lists(st.tuples(st.sampled_from(list(STATES)), SEEDS), max_size=30)


def each_id_is_in_one_place(wire: Wire) -> bool:
    """An automatic id may meet one of a caller's; a job that waits while it is active is nobody's promise."""
    places = ("wait", "active", "prioritized", "delayed")
    ids = [job_id for place in places for job_id in wire.get(place) or []]
    return len(ids) == len(set(ids))


def some_rows(wire: Wire, draw: Draw) -> list[Row]:
    """Active jobs, most of them under the tokens that they have."""
    active = list(dict.fromkeys(wire.get("active") or []))
    rows = []
    for job_id in draw.sample(active, draw.randint(0, len(active))) + ["nowhere"] * (draw.random() < 0.1):
        token = wire.get(job_id + ":lock") if draw.random() < 0.9 else None
        value = draw.choice(["null", '{"r":"ä"}'])
        kept, fetch, limited = draw.random() < 0.6, draw.random() < 0.8, draw.random() < 0.3
        rows.append(Row(job_id, token or "gone:1", value, kept, fetch, limited))
    return rows


@pytest.mark.parametrize(
    "examples", [100, pytest.param(5_000, marks=[pytest.mark.soak, pytest.mark.timeout(2_000)])]
)
def test_in_any_state_a_batch_comes_to_the_same_as_its_jobs_one_by_one(
    client: redis.Redis, queue_name: str, examples: int
) -> None:
    """promise 4.21, 4.22; case C031"""
    limits = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )

    @limits
    @given(
        STEPS,
        st.integers(0, 8),
        SEEDS,
        st.sampled_from(["", "wk"]),
        st.sampled_from(["", 3]),
        st.sampled_from(LIMITS),
    )
    def same(
        steps: list[tuple[Operation, int]], taken: int, seed: int, name: str, metrics: Any, keep: Limits
    ) -> None:
        single, batch = twins(client, queue_name)
        try:
            for wire in (single, batch):
                for operation, choice in steps:
                    operation(wire, Draw(choice))
                for number in range(taken):
                    wire.token = f"w:{number}"
                    wire.add()
                    wire.take()
                wire.now += seed % 70
            assume(each_id_is_in_one_place(batch))
            rows = some_rows(batch, Draw(seed))
            if rows:
                compare(single, batch, rows, name=name, metrics=metrics, limits=keep)
        finally:
            for wire in (single, batch):
                client.delete(*[wire.key(suffix) for suffix in wire.dump()] or ["none"])

    same()
