# SPDX-License-Identifier: MIT
"""Flows: trees of jobs, added in one step, on real servers."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from echomq_pool import FlowProducer, InputError, Job, Queue, SyncFlowProducer
from echomq_pool.api.flow import JobNode
from echomq_pool.errors import ParentMissing
from tests.support.planes import Bench
from tests.support.servers import Server

CHILD_FATES = ["fail_parent_on_failure", "continue_parent_on_failure", "ignore_dependency_on_failure",
               "remove_dependency_on_failure"]  # fmt: skip


@pytest.fixture
async def flows(server: Server) -> AsyncIterator[FlowProducer]:
    async with FlowProducer(url=server.url) as flows:
        yield flows


async def held(bench: Bench) -> Job:
    taken = await bench.taken()
    return Job(taken.job, bench.plane, taken.token)


def family(queue: str, *children: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "parent", "queue": queue, "opts": {"job_id": "P"}, "children": list(children), **fields}


def child(queue: str, job_id: str, **opts: Any) -> dict[str, Any]:
    return {"name": "child", "queue": queue, "data": {"id": job_id}, "opts": {"job_id": job_id, **opts}}


async def test_a_flow_is_stored_as_node_stores_it(flows: FlowProducer, bench: Bench) -> None:
    """law 12"""
    q = bench.keys.queue
    root = await flows.add(family(q, child(q, "c1", priority=3), child(q, "c2", delay=60_000)))
    assert [node.job.id for node in (root, *root.children)] == ["P", "c1", "c2"]
    key = bench.keys.job
    assert bench.get("P:dependencies") == [key("c1"), key("c2")]
    assert list(bench.get("waiting-children")) == ["P"]
    assert list(bench.get("prioritized")) == ["c1"]
    assert list(bench.get("delayed")) == ["c2"]
    stored = bench.get("c1")
    assert stored["parentKey"] == key("P")
    assert json.loads(stored["parent"]) == {"id": "P", "queueKey": bench.keys.qualified}
    assert json.loads(stored["opts"])["parent"] == {"id": "P", "queue": bench.keys.qualified}
    events = [row.split(" name=")[0] for row in bench.get("events") if not row.startswith("delayed")]
    assert events == ["added jobId=P", "waiting-children jobId=P", "added jobId=c1", "waiting jobId=c1",
                      "added jobId=c2"]  # fmt: skip


async def test_a_tree_runs_from_its_leaves_to_its_root(flows: FlowProducer, bench: Bench) -> None:
    q = bench.keys.queue
    tree = family(
        q, {**child(q, "middle"), "children": [child(q, "leaf1"), child(q, "leaf2")]}, child(q, "side")
    )
    await flows.add(tree)
    order = []
    for _ in range(5):
        job = await held(bench)
        order.append(job.id)
        await job.move_to_completed(
            {"from": job.id, "saw": sorted((await job.get_children_values()).values(), key=str)}
        )
    assert order[-1] == "P"
    assert order.index("middle") > max(order.index("leaf1"), order.index("leaf2"))
    root = await flows.get_flow("P", q)
    assert root is not None
    assert root.job.returnvalue["saw"] == sorted(
        [root_value(root, "middle"), root_value(root, "side")], key=str
    )


def root_value(root: JobNode, job_id: str) -> Any:
    return next(node.job.returnvalue for node in root.children if node.job.id == job_id)


async def test_every_node_gets_an_id_of_its_own(flows: FlowProducer, queue_name: str) -> None:
    root = await flows.add(
        {"name": "n", "queue": queue_name, "children": [{"name": "n", "queueName": queue_name}]}
    )
    for node in (root, root.children[0]):
        assert uuid.UUID(node.job.id).version == 4
    assert root.children[0].job.parent_key == f"emq:{{{queue_name}}}:{root.job.id}"


async def test_a_flow_over_several_queues_is_read_back(
    flows: FlowProducer, server: Server, queue_name: str
) -> None:
    other = f"{queue_name}-other"
    await flows.add(family(queue_name, {**child(other, "c"), "children": [child(queue_name, "g")]}))
    root = await flows.get_flow("P", queue_name)
    assert root is not None
    (middle,) = root.children
    assert (middle.job.id, middle.job.queue_name, middle.children[0].job.id) == ("c", other, "g")
    assert await middle.job.state() == "waiting-children"
    shallow = await flows.get_flow("P", queue_name, depth=2)
    assert shallow is not None
    assert shallow.children[0].children == []
    few = await flows.add(
        family(queue_name, *[child(other, f"x{n}") for n in range(30)], opts={"job_id": "Q"})
    )
    assert len(few.children) == 30
    read = await flows.get_flow("Q", queue_name, max_children=5)
    assert read is not None
    assert len(read.children) == 5
    assert await flows.get_flow("unknown", queue_name) is None


async def test_many_flows_travel_together(flows: FlowProducer, bench: Bench) -> None:
    q = bench.keys.queue
    trees = [
        family(q, *[child(q, f"c{n}-{m}") for m in range(15)], opts={"job_id": f"P{n}"}) for n in range(20)
    ]
    roots = await flows.add_bulk(trees)
    assert [root.job.id for root in roots] == [f"P{n}" for n in range(20)]
    assert len(bench.get("waiting-children")) == 20
    assert len(bench.get("wait")) == 300
    assert await flows.add_bulk([]) == []


async def test_options_of_a_queue_are_those_of_its_nodes(flows: FlowProducer, queue_name: str) -> None:
    options = {queue_name: {"job_options": {"attempts": 7}}}
    root = await flows.add(family(queue_name, child(queue_name, "c", attempts=2)), queues_options=options)
    assert (root.job.opts["attempts"], root.children[0].job.opts["attempts"]) == (7, 2)
    with pytest.raises(InputError, match=r"queues_options\.q"):
        await flows.add(family(queue_name), queues_options={"q": {"attempts": 3}})


@pytest.mark.parametrize("fate", CHILD_FATES)
async def test_a_failed_child_does_to_its_parent_what_its_option_says(
    flows: FlowProducer, bench: Bench, queue: Queue, fate: str
) -> None:
    """case C126"""
    q = bench.keys.queue
    root = await flows.add(family(q, child(q, "bad", **{fate: True}), child(q, "good")))
    bad = await held(bench)
    await bad.move_to_failed("no luck")
    parent, key = root.job, bench.keys.job("bad")
    if fate in ("fail_parent_on_failure", "continue_parent_on_failure"):
        assert await parent.state() == "waiting"
    else:
        assert await parent.state() == "waiting-children"
        await (await held(bench)).move_to_completed(1)
        assert await parent.state() == "waiting"
    await parent.refresh()
    told = {"fail_parent_on_failure": f"child {key} failed"}.get(fate)
    assert parent.deferred_failure == told
    ignored = fate in ("continue_parent_on_failure", "ignore_dependency_on_failure")
    assert await parent.get_ignored_children_failures() == ({key: "no luck"} if ignored else {})
    assert await parent.get_failed_children() == ([key] if told else [])


async def test_a_child_without_an_option_leaves_its_parent_waiting(
    flows: FlowProducer, bench: Bench, queue: Queue
) -> None:
    """case C125"""
    q = bench.keys.queue
    await flows.add(family(q, child(q, "bad"), child(q, "good")))
    await (await held(bench)).move_to_failed("no luck")
    await (await held(bench)).move_to_completed(1)
    assert await queue.get_state("P") == "waiting-children"
    (blocked,) = await queue.get_blocked_parents()
    assert (blocked.id, blocked.children) == ("P", [bench.keys.job("bad")])


async def test_a_failed_child_that_is_removed_at_once_frees_its_parent(
    flows: FlowProducer, bench: Bench
) -> None:
    """case C127"""
    q = bench.keys.queue
    root = await flows.add(family(q, child(q, "bad", ignore_dependency_on_failure=True, remove_on_fail=True)))
    await (await held(bench)).move_to_failed("no luck")
    assert await root.job.state() == "waiting"


async def test_an_existing_queue_without_braces_takes_flows(server: Server, queue_name: str) -> None:
    async with FlowProducer(url=server.url, prefix="bull", hash_tag=False) as flows:
        root = await flows.add(family(queue_name, child(queue_name, "c")))
        assert root.children[0].job.parent_key == f"bull:{queue_name}:P"
        read = await flows.get_flow("P", queue_name)
        assert read is not None
        assert [node.job.id for node in read.children] == ["c"]


BAD: list[tuple[Any, str]] = [
    ("x", "flow: expected"),
    ({"name": "n"}, "queue name"),
    ({"name": "n", "queue": "a:b"}, "queue name"),
    ({"name": 5, "queue": "q"}, "name: expected"),
    ({"name": "n", "queue": "q", "childs": []}, "flow.childs"),
    ({"name": "n", "queue": "q", "children": "c"}, "children: expected a list"),
    ({"name": "n", "queue": "q", "children": [{"name": "n", "queue": "q", "opts": {"x": 1}}]}, r"children\[0\]: x:"),
    ({"name": "n", "queue": "q", "opts": {"deduplication": {"id": "d"}},
      "children": [{"name": "n", "queue": "q"}]}, "with children"),
    ({"name": "n", "queue": "q", "children": [{"name": "n", "queue": "q", "opts": {
        "deduplication": {"id": "d"}}}]}, "with a parent"),
    ({"name": "n", "queue": "q", "children": [{"name": "n", "queue": "q", "opts": {"parent": {
        "id": "P", "queue": "emq:q"}}}]}, "below another"),
]  # fmt: skip


@pytest.mark.parametrize(("flow", "words"), BAD)
async def test_a_flow_that_cannot_be_is_refused_whole(
    flows: FlowProducer, server: Server, flow: Any, words: str
) -> None:
    """law 13"""
    with server.client() as client:
        before = client.dbsize()
        with pytest.raises(InputError, match=words):
            await flows.add(flow)
        assert client.dbsize() == before


async def test_a_root_under_a_parent_that_is_not_there_says_so(flows: FlowProducer, bench: Bench) -> None:
    q = bench.keys.queue
    tree = family(q, child(q, "c"), opts={"parent": {"id": "none", "queue": bench.keys.qualified}})
    with pytest.raises(ParentMissing):
        await flows.add(tree)


def test_the_synchronous_producer_does_the_same(server: Server, queue_name: str) -> None:
    with SyncFlowProducer(url=server.url) as flows:
        root = flows.add(family(queue_name, child(queue_name, "c")))
        assert root.children[0].job.state() == "waiting"
        read = flows.get_flow("P", queue_name)
        assert read is not None
        assert read.job.get_dependencies_count("unprocessed") == {"unprocessed": 1}
        with server.client() as client:
            client.script_flush()
        assert [node.job.id for node in flows.add_bulk([family(queue_name, opts={"job_id": "Q"})])] == ["Q"]
