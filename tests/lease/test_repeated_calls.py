# SPDX-License-Identifier: MIT
"""Law 6, row by row: what may be repeated ends in the same state as once; what has an id is added once."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from echomq_pool.errors import JobMissing
from echomq_pool.plane import lease_row
from echomq_pool.plane.lease_flows import FlowNode
from echomq_pool.plane.lease_repeat import Due
from echomq_pool.plane.repeat import RULES, Rule
from tests.support.lease import GROUPS, LIBRARY, LeaseBench

A, B, _ = GROUPS
Once = Callable[["Scene"], Awaitable[Any]]


class Scene:
    """A queue in which every script finds something to do."""

    def __init__(self, bench: LeaseBench) -> None:
        self.bench = bench
        self.q, self.plane, self.lanes = bench.queue, bench.plane, bench.lanes
        self.names: dict[str, str] = {}

    async def build(self) -> Scene:
        bench = self.bench
        for name in ("held", "lapsed", "owned", "dead"):
            self.names[name] = await bench.add()
        for _ in range(2):
            await bench.claimed()
        await bench.taken()
        await bench.claimed()
        await self.q.retry(self.names["dead"], 1, 0, 1, "boom")
        for name in ("wait", "other"):
            self.names[name] = await bench.add()
        self.names["lane"] = await bench.add_to(A)
        self.names["moving"] = await bench.add_to(A)
        self.names["flying"] = await bench.add_to(B)
        await self.lanes.pause(A)
        await self.lanes.claim()
        bench.lapse(self.names["lapsed"], self.names["flying"])
        self.names["parent"], child = bench.mint.new(), bench.mint.new()
        await bench.flows.add(FlowNode(self.names["parent"], "{}", children=(FlowNode(child, "{}"),)))
        self.names["child"] = child
        await self.q.enqueue_at(bench.mint.new(), "{}", 1)
        await bench.repeats.register("tick", 60_000, "{}")
        self.due: Due = (await bench.repeats.due())[0]
        bench.client.rpush(bench.keys.key("flow:outbox"), "x", "y")
        return self

    def __getitem__(self, name: str) -> str:
        return self.names[name]

    async def ask(self, script: str, suffixes: list[str], *args: Any) -> Any:
        """A script by its words; keys are given by suffix."""
        keys = [self.bench.keys.base + suffix for suffix in suffixes]
        return await self.plane._desk.ask(script, keys, args)


async def remove(s: Scene) -> None:
    with contextlib.suppress(JobMissing):
        await s.q.remove_job(s["wait"])


async def obliterate(s: Scene) -> None:
    s.bench.client.hset(s.bench.keys.key("meta"), "paused", 1)
    await s.q.obliterate(force=True)
    s.bench.client.delete(s.bench.keys.key("meta"))


REPEATABLE: dict[str, Once] = {
    "extendLock": lambda s: s.q.extend_lock(s["held"], 1),
    "extendLocks": lambda s: s.q.extend_locks([(s["held"], 1)]),
    "renew": lambda s: s.plane.extend([(s["held"], "1")]),
    "mark": lambda s: s.q.mark([(s["held"], 1)]),
    "promote": lambda s: s.q.promote(),
    "reap": lambda s: s.q.reap(),
    "reapGroup": lambda s: s.lanes.reap(B),
    "sweepStalled": lambda s: s.q.sweep_stalled(),
    "recover": lambda s: s.plane.recover(s.bench.owner, planned=False, evidence="SIGKILL"),
    "laneControl": lambda s: s.lanes.resume(A),
    "laneReassign": lambda s: s.lanes.reassign(s["moving"], B),
    "laneDrain": lambda s: s.lanes.drain(A),
    "drain": lambda s: s.q.drain(include_schedule=True),
    "obliterate": obliterate,
    "updateData": lambda s: s.q.update_data(s["held"], "new"),
    "updateProgress": lambda s: s.q.update_progress(s["held"], "50"),
    "removeJob": remove,
    "deliver": lambda s: s.ask(
        "deliver", [f"job:{s['parent']}"], s.bench.keys.base, s["parent"], s["child"], "ok", "1", 0
    ),
    "outboxTrim": lambda s: s.ask("outboxTrim", ["flow:outbox"], "x"),
    "repeatRegister": lambda s: s.bench.repeats.register("other", 5_000, "{}", 3_000),
    "repeatUpsert": lambda s: s.bench.repeats.upsert("tick", b"{}", every_ms=7_000, job_name="new"),
    "repeatFire": lambda s: s.bench.repeats.fire(s.due),
    "repeatCancel": lambda s: s.bench.repeats.cancel("tick"),
    "open": lambda s: s.plane.open(),
}


@pytest.mark.parametrize(
    "script",
    [
        name
        for name, rule in RULES.items()
        if rule is Rule.REPEAT and name.startswith("lease/") and "guard" not in name
    ],
)
async def test_what_may_be_repeated_ends_in_the_same_state_as_once(bench: LeaseBench, script: str) -> None:
    """law 6"""
    scene = await Scene(bench).build()
    once = REPEATABLE[script.partition("/")[2]]
    start = bench.dump()
    await once(scene)
    before = bench.dump()
    await once(scene)
    after = bench.dump()
    assert script in bench.link.log
    assert without_deadlines(after) == without_deadlines(before)
    assert before != start or script == "lease/open"
    bench.client.delete(bench.keys.key("flow:outbox"))


def without_deadlines(found: dict[str, Any]) -> dict[str, Any]:
    """A second renewal is later than the first."""
    return found | {"active": sorted(found.get("active", {}))}


ADDS: dict[str, Callable[[LeaseBench, str], Awaitable[Any]]] = {
    "enqueue": lambda b, i: b.queue.enqueue(i, "{}"),
    "schedule": lambda b, i: b.queue.enqueue_at(i, "{}", 5),
    "laneEnqueue": lambda b, i: b.lanes.enqueue(A, i, "{}"),
    "addFlow": lambda b, i: b.plane._desk.ask(
        "addFlow",
        (b.keys.key("pending"),),
        (b.keys.base, lease_row.pack([[i, "{}", 0, "", "", "fp", []]])),
    ),
}


@pytest.mark.parametrize("script", ADDS)
async def test_an_add_that_is_repeated_adds_once(bench: LeaseBench, script: str) -> None:
    """law 6"""
    assert RULES[f"lease/{script}"] is Rule.BY_ID
    job_id = bench.mint.new()
    await ADDS[script](bench, job_id)
    before = bench.dump()
    await ADDS[script](bench, job_id)
    assert bench.dump() == before


def test_every_script_that_settles_or_claims_is_resolved_by_asking() -> None:
    """law 6"""
    rules = {name: RULES[name] for name in LIBRARY}
    assert {n for n, r in rules.items() if r is Rule.CLAIM} == {
        "lease/take", "lease/claim", "lease/claimBatch", "lease/laneClaim",
    }  # fmt: skip
    assert {n for n, r in rules.items() if r is Rule.FATE} == {
        "lease/settle", "lease/complete", "lease/retry", "lease/delay",
    }  # fmt: skip
    assert {n for n, r in rules.items() if r is Rule.TELL} == {
        "lease/addLog", "lease/reprocessJob", "lease/reschedule", "lease/freeDedup",
    }  # fmt: skip
