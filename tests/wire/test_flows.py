# SPDX-License-Identifier: MIT
"""Flows made by BullMQ, their jobs done by our pool: parents end as they do when Node does all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from echomq_pool import SyncFlowProducer
from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, pool_of, workers

QUEUE = "flows-0"
OTHER = "flows-1"
OPTIONS = [
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, wire_server: Server) -> Iterator[PoolProcess]:
    with pool_of(
        tmp_path_factory.mktemp("flows"), wire_server, workers("all", [QUEUE, OTHER]), name="flows"
    ) as pool:
        yield pool


def flow_of(queue: str, option: str) -> dict[str, Any]:
    """A parent with a child that fails under `option` (one with none) and a grandchild below another."""
    bad = {"do": "fail"} if option else {"give": "fine"}
    return {
        "name": "parent", "queueName": queue, "data": {"give": "parent"},
        "children": [
            {"name": "bad", "queueName": queue, "data": bad, "opts": {option: True} if option else {}},
            {"name": "good", "queueName": queue, "data": {"give": "good", "ms": 20}, "opts": {"priority": 2},
             "children": [{"name": "grandchild", "queueName": queue, "data": {"give": [1]}, "opts": {"delay": 30}}]},
        ],
    }  # fmt: skip


def by_node(node: Node, at: dict[str, str], option: str) -> list[Any]:
    """How a flow of this kind ends that Node has made."""
    return ending(node, at, option, node("addFlow", **at, flow=flow_of(at["name"], option)))


def by_us(node: Node, at: dict[str, str], option: str, queue: str, server: Server) -> list[Any]:
    """How a flow of this kind ends that we have made."""
    with SyncFlowProducer(url=server.url) as producer:
        made = producer.add(flow_of(queue, option))
    return ending(node, at, option, ids_of(made))


def ids_of(found: Any) -> dict[str, Any]:
    return {"id": found.job.id, "children": [ids_of(child) for child in found.children]}


def ending(node: Node, at: dict[str, str], option: str, made: dict[str, Any]) -> list[Any]:
    """How a flow ends, without what differs from run to run."""
    ids = [made["id"], *(child["id"] for child in made["children"])]
    jobs = eventually(
        lambda: all((_j := node("job", **at, id=i))["state"] in ("completed", "failed") for i in ids) and ids,
        why=f"flow with {option or 'no option'}",
    )
    found = [node("job", **at, id=job_id) for job_id in jobs]
    family = node("family", **at, id=made["id"])
    names = {f"{at['prefix']}:{at['name']}:{child['id']}": child["id"] for child in made["children"]}
    known = {job["id"]: job["name"] for job in found}
    values = {known[names[key]]: value for key, value in family["values"].items()}
    reasons = [str(job.get("failedReason")).replace(f"{at['prefix']}:{at['name']}:", "") for job in found]
    for job_id, name in known.items():
        reasons = [reason.replace(job_id, name) for reason in reasons]
    if option == "continueParentOnFailure" and reasons[0] != "None":
        reasons[0] = "each client words it in its own way"
    return [
        [job["state"] for job in found],
        [job["returnvalue"] for job in found],
        reasons,
        values,
        family["dependencies"],
    ]


@pytest.mark.parametrize("option", ["", *OPTIONS])
def test_parents_end_as_in_node(fleet: PoolProcess, node: Node, queue_name: str, option: str) -> None:
    """case C111"""
    theirs_at, ours_at = EMQ.node(queue_name), EMQ.node(QUEUE)
    node("startWorker", **theirs_at, behaviour="play", opts={"concurrency": 5})
    assert by_node(node, ours_at, option) == by_node(node, theirs_at, option)


@pytest.mark.parametrize("option", ["", *OPTIONS])
def test_flows_of_ours_end_as_nodes_do(
    fleet: PoolProcess, judge: Node, wire_server: Server, queue_name: str, option: str
) -> None:
    """case C111"""
    theirs_at, ours_at = EMQ.node(queue_name), EMQ.node(QUEUE)
    judge("startWorker", **theirs_at, behaviour="play", opts={"concurrency": 5})
    theirs = by_node(judge, theirs_at, option)
    assert by_us(judge, theirs_at, option, queue_name, wire_server) == theirs
    assert by_us(judge, ours_at, option, QUEUE, wire_server) == theirs


@pytest.mark.parametrize("option", ["", "failParentOnFailure", "continueParentOnFailure"])
@pytest.mark.parametrize("parent_is", ["ours", "theirs"])
def test_parent_and_children_at_different_fleets(
    fleet: PoolProcess, judge: Node, queue_name: str, option: str, parent_is: str
) -> None:
    """case C111"""
    ours_at, theirs_at = EMQ.node(OTHER), EMQ.node(queue_name)
    parents, children = (ours_at, theirs_at) if parent_is == "ours" else (theirs_at, ours_at)
    judge("startWorker", **theirs_at, behaviour="play", opts={"concurrency": 5})
    bad = {"do": "fail"} if option else {"give": "fine"}
    flow = {
        "name": "parent", "queueName": parents["name"], "data": {"give": "parent"},
        "children": [
            {"name": "bad", "queueName": children["name"], "data": bad, "opts": {option: True} if option else {}},
            {"name": "good", "queueName": children["name"], "data": {"give": "good"}, "opts": {"priority": 1}},
        ],
    }  # fmt: skip
    made = judge("addFlow", **parents, flow=flow)
    job = eventually(
        lambda: (j := judge("job", **parents, id=made["id"]))["state"] in ("completed", "failed") and j
    )
    if option == "failParentOnFailure":
        assert job["state"] == "failed"
        assert made["children"][0]["id"] in job["failedReason"]
    elif option != "continueParentOnFailure":
        assert job["state"] == "completed"
        assert "good" in judge("family", **parents, id=made["id"])["values"].values()
