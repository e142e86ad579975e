# SPDX-License-Identifier: MIT
"""Conformance scenarios 47 to 55: flows."""

from __future__ import annotations

from typing import Any

import pytest

from echomq_pool.errors import InputError, WrongKind, WrongState
from echomq_pool.plane.lease_flows import FlowAdded, FlowNode
from tests.support.lease import LeaseBench, consistent


class Tree:
    """Nodes by letter, with fresh ids."""

    def __init__(self, bench: LeaseBench) -> None:
        self.bench = bench
        self.ids: dict[str, str] = {}

    def node(self, name: str, *children: FlowNode, **more: Any) -> FlowNode:
        self.ids[name] = self.bench.mint.new()
        return FlowNode(self.ids[name], name, children=children, **more)

    def __getitem__(self, name: str) -> str:
        return self.ids[name]


async def finish(bench: LeaseBench, *, result: str | None = None, error: str = "") -> str:
    """Claims the next job and completes it, or lets it die."""
    job_id, token = await bench.claimed()
    if error:
        assert await bench.queue.retry(job_id, token, 0, 1, error) == "dead"
    else:
        assert await bench.queue.complete(job_id, token, result) == "ok"
    return job_id


async def test_flow_add_holds_the_parent(bench: LeaseBench) -> None:
    """scenario 47 flow_add"""
    tree = Tree(bench)
    added = await bench.flows.add(tree.node("parent", tree.node("a"), tree.node("b")))
    assert added == FlowAdded(tree["parent"], [FlowAdded(tree["a"]), FlowAdded(tree["b"])])
    assert await bench.queue.get_job_state(tree["parent"]) == "awaiting_children"
    assert await bench.flows.dependencies(tree["parent"]) == 2
    assert set(bench.get("pending")) == {tree["a"], tree["b"]}
    assert bench.link.log.count("lease/addFlow") == 1


async def test_flow_add_refuses_to_overwrite(bench: LeaseBench) -> None:
    """In the sources adding a flow again resets the rows of jobs that live."""
    tree = Tree(bench)
    root = tree.node("parent", tree.node("a"))
    await bench.flows.add(root)
    await bench.claimed()
    before = bench.dump()
    with pytest.raises(WrongState, match="exists"):
        await bench.flows.add(root)
    assert bench.dump() == before


async def test_flow_add_checks_everything_first(bench: LeaseBench) -> None:
    tree = Tree(bench)
    with pytest.raises(WrongKind):
        await bench.flows.add(tree.node("p", FlowNode("ORD0NgWEfAEJfs", "{}")))
    twice = tree.node("x")
    with pytest.raises(InputError, match="flow_cycle"):
        await bench.flows.add(tree.node("p", twice, twice))
    deep = tree.node("0")
    for level in range(1, 9):
        deep = tree.node(str(level), deep)
    with pytest.raises(InputError, match="flow_too_deep"):
        await bench.flows.add(deep)
    assert bench.dump() == {}


async def test_flow_fanin(bench: LeaseBench) -> None:
    """scenario 48 flow_fanin"""
    tree = Tree(bench)
    await bench.flows.add(tree.node("parent", tree.node("a"), tree.node("b")))
    first = await finish(bench)
    assert await bench.queue.complete(first, 1) == "gone"
    assert await bench.queue.get_job_state(tree["parent"]) == "awaiting_children"
    await finish(bench)
    assert await bench.queue.get_job_state(tree["parent"]) == "pending"
    assert await finish(bench) == tree["parent"]
    bench.client.delete(bench.keys.key("wake"))
    assert bench.dump() == {"metrics:completed": {"count": "3"}}, "nothing is left of the flow"


async def test_flow_fanin_counts_a_child_that_was_reaped_before_it_completed(bench: LeaseBench) -> None:
    """In the sources such a parent waits for ever."""
    tree = Tree(bench)
    await bench.flows.add(tree.node("parent", tree.node("a")))
    job_id, token = await bench.claimed()
    bench.lapse(job_id)
    await bench.queue.reap()
    assert await bench.queue.complete(job_id, token) == "ok"
    assert await bench.queue.get_job_state(tree["parent"]) == "pending"


async def test_flow_children_values(bench: LeaseBench) -> None:
    """scenario 49 flow_children_values"""
    tree = Tree(bench)
    await bench.flows.add(tree.node("parent", tree.node("a"), tree.node("b")))
    one, other = await finish(bench, result="1\0x"), await finish(bench)
    assert await bench.flows.children_values(tree["parent"]) == {one: b"1\0x", other: other.encode()}
    assert await bench.flows.dependencies(tree["parent"]) == 0


async def test_flow_cross_queue(bench: LeaseBench) -> None:
    """scenario 50 flow_cross_queue"""
    tree, far = Tree(bench), bench.other("-far")
    await bench.flows.add(tree.node("parent", tree.node("a", queue=far.keys.queue), tree.node("b")))
    await finish(bench)
    assert await finish(far, result="far\0away") == tree["a"]
    assert await bench.queue.get_job_state(tree["parent"]) == "awaiting_children"
    signals = far.get("flow:outbox")
    assert await far.flows.deliver() == 1
    assert far.get("flow:outbox") is None
    assert await bench.queue.get_job_state(tree["parent"]) == "pending"
    assert (await bench.flows.children_values(tree["parent"]))[tree["a"]] == b"far\0away"
    far.client.rpush(far.keys.key("flow:outbox"), *signals)
    assert await far.flows.deliver() == 1
    assert await bench.flows.dependencies(tree["parent"]) == 0, "a signal that comes twice counts once"
    consistent(far.dump())


async def test_flow_cross_queue_a_malformed_signal_blocks_and_loses_nothing(bench: LeaseBench) -> None:
    tree, far = Tree(bench), bench.other("-far")
    await bench.flows.add(tree.node("parent", tree.node("a", queue=far.keys.queue)))
    far.client.rpush(far.keys.key("flow:outbox"), "nonsense")
    await finish(far)
    assert await far.flows.deliver() == 0
    assert len(far.get("flow:outbox")) == 2
    far.client.lpop(far.keys.key("flow:outbox"))
    assert await far.flows.deliver() == 1
    assert await bench.queue.get_job_state(tree["parent"]) == "pending"


async def test_flow_cross_queue_two_pumps_at_once_drop_nothing_undelivered(bench: LeaseBench) -> None:
    """Each trims only what it has delivered itself, while that is still at the head."""
    far = bench.other("-far")
    far.client.rpush(far.keys.key("flow:outbox"), "a", "b", "c")
    outbox = (far.keys.key("flow:outbox"),)
    assert await far.plane._desk.ask("outboxTrim", outbox, ("a", "b")) == 2
    assert await far.plane._desk.ask("outboxTrim", outbox, ("a", "b")) == 0
    assert far.get("flow:outbox") == ["c"]


async def test_flow_fail_parent(bench: LeaseBench) -> None:
    """scenario 51 flow_fail_parent"""
    tree, far = Tree(bench), bench.other("-far")
    await bench.flows.add(tree.node("here", tree.node("a"), tree.node("b")))
    assert await finish(bench, error="boom")
    assert await bench.queue.get_job_state(tree["here"]) == "dead"
    assert bench.row(tree["here"])["last_error"] == "boom"
    assert list((await bench.flows.failures(tree["here"])).values()) == [b"boom"]
    await bench.flows.add(tree.node("there", tree.node("c", queue=far.keys.queue)))
    await finish(far, error="far boom")
    assert await bench.queue.get_job_state(tree["there"]) == "awaiting_children"
    signals = far.get("flow:outbox")
    await far.flows.deliver()
    assert await bench.queue.get_job_state(tree["there"]) == "dead"
    dead = bench.get("metrics:failed")
    far.client.rpush(far.keys.key("flow:outbox"), *signals)
    await far.flows.deliver()
    assert bench.get("metrics:failed") == dead, "once"


async def test_flow_fail_parent_also_when_the_sweep_buries_the_child(bench: LeaseBench) -> None:
    tree = Tree(bench)
    await bench.flows.add(tree.node("parent", tree.node("a")))
    await bench.claimed()
    bench.lapse(tree["a"])
    assert await bench.queue.sweep_stalled(0) == ([], [tree["a"]])
    assert await bench.queue.get_job_state(tree["parent"]) == "dead"


async def test_flow_ignore_dep(bench: LeaseBench) -> None:
    """scenario 52 flow_ignore_dep"""
    tree = Tree(bench)
    ignored = tree.node("a", ignore_dependency_on_failure=True)
    await bench.flows.add(tree.node("parent", ignored, tree.node("b")))
    first = await finish(bench, error="boom")
    assert await bench.queue.get_job_state(tree["parent"]) == "awaiting_children"
    await finish(bench)
    assert await bench.queue.get_job_state(tree["parent"]) == "pending"
    assert await bench.flows.ignored_failures(tree["parent"]) == {first: b"boom"}
    assert first == tree["a"]


async def test_flow_add_bulk_leaves_out_the_poison_one(bench: LeaseBench) -> None:
    """scenario 53 flow_add_bulk"""
    tree = Tree(bench)
    good = [tree.node(f"p{n}", tree.node(f"c{n}")) for n in range(2)]
    poison = FlowNode("ORD0NgWEfAEJfs", "{}", children=(tree.node("x"),))
    added = await bench.flows.add_bulk([good[0], poison, good[1]])
    assert [flow.id for flow in added] == [tree["p0"], tree["p1"]]
    assert set(bench.get("pending")) == {tree["c0"], tree["c1"]}


@pytest.mark.parametrize("middle_queue", ["", "-far"], ids=["same queue", "other queue"])
async def test_flow_grandchild(bench: LeaseBench, middle_queue: str) -> None:
    """scenario 54 flow_grandchild"""
    tree, far = Tree(bench), bench.other(middle_queue)
    middle = tree.node("middle", tree.node("leaf"), queue=far.keys.queue)
    await bench.flows.add(tree.node("top", middle))
    for name in ("leaf", "middle"):
        assert await finish(far) == tree[name]
        await far.flows.deliver()
    assert await finish(bench) == tree["top"]


@pytest.mark.parametrize("middle_queue", ["", "-far"], ids=["same queue", "other queue"])
async def test_flow_grandchild_fail(bench: LeaseBench, middle_queue: str) -> None:
    """scenario 55 flow_grandchild_fail"""
    tree, far = Tree(bench), bench.other(middle_queue)
    middle = tree.node("middle", tree.node("leaf"), queue=far.keys.queue, ignore_dependency_on_failure=True)
    await bench.flows.add(tree.node("top", middle))
    await finish(far, error="boom")
    await far.flows.deliver()
    assert await far.queue.get_job_state(tree["middle"]) == "dead"
    assert await bench.queue.get_job_state(tree["top"]) == "pending", "the top ignores it"
    assert await bench.flows.ignored_failures(tree["top"]) == {tree["middle"]: b"boom"}


async def test_flow_grandchild_fail_climbs_to_the_top(bench: LeaseBench) -> None:
    tree, far = Tree(bench), bench.other("-far")
    middle = tree.node("middle", tree.node("leaf"), queue=far.keys.queue)
    await bench.flows.add(tree.node("top", middle))
    await finish(far, error="boom")
    await far.flows.deliver()
    assert await bench.queue.get_job_state(tree["top"]) == "dead"


async def test_a_child_that_is_removed_keeps_nobody_waiting(bench: LeaseBench) -> None:
    tree = Tree(bench)
    await bench.flows.add(tree.node("parent", tree.node("a"), tree.node("b")))
    await bench.queue.remove_job(tree["a"])
    assert await bench.queue.get_job_state(tree["parent"]) == "awaiting_children"
    await bench.queue.remove_job(tree["b"])
    assert await bench.queue.get_job_state(tree["parent"]) == "pending"


async def test_draining_the_children_drains_the_parent_that_they_freed(bench: LeaseBench) -> None:
    tree = Tree(bench)
    await bench.flows.add(tree.node("top", tree.node("parent", tree.node("a"), tree.node("b"))))
    assert await bench.queue.drain() == 4
    bench.client.delete(bench.keys.key("wake"))
    assert bench.dump() == {}


async def test_a_child_that_died_ignored_and_is_tried_again_counts_once(bench: LeaseBench) -> None:
    tree = Tree(bench)
    ignored = tree.node("a", ignore_dependency_on_failure=True)
    await bench.flows.add(tree.node("parent", ignored, tree.node("b")))
    job_id = await finish(bench, error="boom")
    await bench.queue.reprocess_job(job_id)
    await finish(bench)
    assert await bench.flows.dependencies(tree["parent"]) == 1
    assert await bench.queue.get_job_state(tree["parent"]) == "awaiting_children"
