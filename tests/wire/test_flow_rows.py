# SPDX-License-Identifier: MIT
"""Flows across the border: made by one side, done by the other, grown while they run."""

from __future__ import annotations

from typing import Any

import pytest

from echomq_pool import WaitingChildrenError
from tests.wire.fleet import ended
from tests.wire.ground import Side, job
from tests.wire.test_flows import OPTIONS, ending, flow_of, ids_of

pytestmark = pytest.mark.node


def test_options_of_a_queue_are_those_of_its_nodes_on_either_side(twins: tuple[Side, Side]) -> None:
    """BullMQ's `queuesOptions`"""
    options = {"attempts": 3, "backoff": {"type": "fixed", "delay": 9}}
    for side in twins:
        name = side.keys.wire_name if side is twins[0] else side.queue
        child = {"name": "c", "queueName": name, "data": {}, "opts": {"jobId": "c", "attempts": 1}}
        flow = {"name": "p", "queueName": name, "data": {}, "opts": {"jobId": "p"}, "children": [child]}
        if side is twins[0]:
            side.theirs("addFlow", flow=flow, opts={"queuesOptions": {name: {"defaultJobOptions": options}}})
        else:
            with side.flows() as flows:
                flows.add(flow, queues_options={name: {"job_options": options}})
    made, found = (side.dump() for side in twins)
    for dump in (made, found):
        dump["events"].sort()
    assert found == made


@pytest.mark.parametrize("option", ["", *OPTIONS])
def test_a_flow_ends_alike_whoever_made_it_and_whoever_does_it(twins: tuple[Side, Side], option: str) -> None:
    """case C111"""
    theirs, ours = twins
    node = theirs.ground.node
    theirs.node_worker(concurrency=5)
    with ours.worker(concurrency=5), ours.flows() as flows:
        ends = []
        for side in twins:
            ends.append(
                ending(
                    node,
                    side.at,
                    option,
                    node("addFlow", **side.at, flow=flow_of(side.keys.wire_name, option)),
                )
            )
            ends.append(ending(node, side.at, option, ids_of(flows.add(flow_of(side.queue, option)))))
    assert [end for end in ends if end != ends[0]] == []


@pytest.mark.parametrize("parent_is", ["ours", "theirs"])
def test_parent_and_children_are_done_by_different_sides(twins: tuple[Side, Side], parent_is: str) -> None:
    """case C111"""
    theirs, ours = twins
    above, below = (ours, theirs) if parent_is == "ours" else (theirs, ours)
    theirs.node_worker(concurrency=2)
    children = [{"name": f"c{n}", "queueName": below.keys.wire_name, "data": {"give": n}} for n in range(3)]
    flow = {"name": "P", "queueName": above.keys.wire_name, "data": {"give": "P"}, "children": children}
    with ours.worker(concurrency=2), above.ours() as queue:
        made = above.theirs("addFlow", flow=flow)
        assert ended(above.ground.node, above.at, made["id"])["returnvalue"] == "P"
        assert sorted(job(queue, made["id"]).get_children_values().values()) == [0, 1, 2]
        assert sorted(above.of_job(made["id"], "getChildrenValues").values()) == [0, 1, 2]


def test_a_running_parent_of_either_side_adds_children_and_ends_after_them(twins: tuple[Side, Side]) -> None:
    """BullMQ's WaitingChildrenError"""
    theirs, ours = twins
    ours_queue = ours.ours()

    def grow(one: Any) -> Any:
        """In a thread, since it uses a synchronous queue."""
        if one.name == "child":
            return one.data["give"]
        if not one.data.get("grown"):
            one.update_data({**one.data, "grown": True})
            ours_queue.add("child", {"give": "grown"}, parent={"id": one.id, "queue": one.queue_key})
        if one.move_to_waiting_children():
            raise WaitingChildrenError
        return list(one.get_children_values().values())

    theirs.node_worker()
    with ours_queue, ours.worker(grow), theirs.ours() as their_queue:
        for queue in (ours_queue, their_queue):
            assert queue.add("P", {"do": "grow"}).wait_until_finished(30) == ["grown"]
        for side in twins:
            made = side.theirs("add", job="P", data={"do": "grow"}, opts={})
            assert ended(side.ground.node, side.at, made["id"])["returnvalue"] == ["grown"]
