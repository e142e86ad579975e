# SPDX-License-Identifier: MIT
"""What the end of a child means for its parent."""

from __future__ import annotations

import pytest

from tests.support.wire import NOW, Wire, as_json


def family(wire: Wire, *children: str, **flags: bool) -> None:
    """A waiting parent P and its children, none of them taken; the events so far are dropped."""
    wire.add("P", children=True)
    for child in children:
        wire.add(child, parent=wire.child_of("P", **flags))
    wire.events()


def fail(wire: Wire, job_id: str, reason: str = "boom", **opts: object) -> None:
    assert wire.take()[1] == job_id
    assert wire.finish(job_id, reason, failed=True, **opts) == 0  # type: ignore[arg-type]


def test_the_three_node_flow_of_the_protocol_page(wire: Wire) -> None:
    """promise 4.20: fpof on K1 releases P with its reason before K1's own `failed`; K2 is left alone."""
    wire.add("P", children=True)
    wire.add("K1", parent=wire.child_of("P", fpof=True))
    wire.add("K2", delay=60_000, parent=wire.child_of("P"))
    assert wire.events() == [
        "added jobId=P name=job",
        "waiting-children jobId=P",
        "added jobId=K1 name=job",
        "waiting jobId=K1",
        "added jobId=K2 name=job",
        f"delayed jobId=K2 delay={NOW + 60_000}",
    ]
    assert wire.get("P:dependencies") == [wire.key("K1"), wire.key("K2")]
    fail(wire, "K1")
    reason = f"child {wire.key('K1')} failed"
    assert wire.get("P:dependencies") == [wire.key("K2")]
    assert wire.get("P:unsuccessful") == {wire.key("K1"): NOW}
    assert wire.get("P")["defa"] == reason
    assert wire.get("wait") == ["P"]
    assert wire.events() == [
        "active jobId=K1 prev=waiting",
        "waiting jobId=P prev=waiting-children",
        "failed jobId=K1 failedReason=boom prev=active",
        "retries-exhausted jobId=K1 attemptsMade=1",
    ]
    fail(wire, "P", reason)
    assert "defa" not in wire.get("P")
    assert wire.get("delayed") is not None
    wire.now += 60_000
    fail(wire, "K2")
    assert wire.get("P:dependencies") == [wire.key("K2")], "no option: the child stays"


def test_the_last_child_to_complete_releases_the_parent_to_the_front(wire: Wire) -> None:
    family(wire, "a", "b")
    wire.add("behind")
    for child in ("a", "b"):
        wire.take()
        wire.finish(child, f'"{child}"')
    assert wire.get("P:processed") == {wire.key("a"): '"a"', wire.key("b"): '"b"'}
    assert wire.get("P:dependencies") is None
    assert wire.get("waiting-children") is None
    assert wire.get("wait") == ["behind", "P"]
    assert [e for e in wire.events() if "jobId=P" in e or "completed" in e] == [
        'completed jobId=a returnvalue="a" prev=active',
        "waiting jobId=P prev=waiting-children",
        'completed jobId=b returnvalue="b" prev=active',
    ]


def test_a_released_parent_keeps_its_priority_or_delay(wire: Wire) -> None:
    wire.add("prio", children=True, priority=3)
    wire.add("late", children=True, delay=500)
    for parent in ("prio", "late"):
        wire.add("k" + parent, parent=wire.child_of(parent))
        wire.take()
        wire.finish("k" + parent)
    assert wire.get("prioritized") == {"prio": 3 * 2**32 + 1}
    assert wire.get("delayed") == {"late": (NOW + 500) * 4096}
    assert wire.get("marker")["1"] == NOW + 500
    assert f"delayed jobId=late delay={NOW + 500}" in wire.events()


def test_a_child_without_options_leaves_the_parent_waiting_until_it_is_removed(wire: Wire) -> None:
    family(wire, "k")
    fail(wire, "k")
    assert wire.get("P:dependencies") == [wire.key("k")]
    assert wire.get("waiting-children") == {"P": NOW}


def test_a_failed_child_that_is_not_kept_detaches_itself(wire: Wire) -> None:
    wire.add("P", children=True, priority=4)
    wire.add("k", parent=wire.child_of("P"))
    wire.events()
    fail(wire, "k", keep={"count": 0})
    assert wire.get("k") is None
    assert wire.get("wait") == ["P"], "detaching ignores the parent's priority"
    assert wire.events()[1:3] == [
        "waiting jobId=P prev=waiting-children",
        "failed jobId=k failedReason=boom prev=active",
    ]


def test_cpof_releases_the_parent_at_once(wire: Wire) -> None:
    family(wire, "k", "other", cpof=True)
    fail(wire, "k")
    assert wire.get("P:failed") == {wire.key("k"): "boom"}
    assert wire.get("P:dependencies") == [wire.key("other")]
    assert wire.get("wait") == ["other", "P"]
    assert "defa" not in wire.get("P")


@pytest.mark.parametrize("flag", ["idof", "rdof"])
def test_ignored_and_removed_dependencies_release_only_with_the_last_child(wire: Wire, flag: str) -> None:
    family(wire, "a", "b", **{flag: True})
    fail(wire, "a")
    assert wire.get("waiting-children") == {"P": NOW}
    fail(wire, "b")
    assert wire.get("wait") == ["P"]
    kept = {wire.key("a"): "boom", wire.key("b"): "boom"}
    assert wire.get("P:failed") == (kept if flag == "idof" else None)


def test_fpof_on_a_running_parent_only_leaves_the_reason(wire: Wire) -> None:
    family(wire, "a", "b", fpof=True)
    wire.client.zrem(wire.key("waiting-children"), "P")
    wire.client.lpush(wire.key("active"), "P")
    wire.client.set(wire.key("P:lock"), wire.token)
    fail(wire, "a")
    assert wire.get("P")["defa"] == f"child {wire.key('a')} failed"
    assert "P" not in wire.get("wait")
    wire.take()
    wire.finish("b")
    assert wire.finish("P") == -9


def test_fpof_pulls_a_delayed_parent_forward(wire: Wire) -> None:
    family(wire, "a", "b", fpof=True)
    wire.client.zrem(wire.key("waiting-children"), "P")
    wire.client.zadd(wire.key("delayed"), {"P": (NOW + 9_000) * 4096})
    wire.client.hset(wire.key("P"), "delay", 9_000)
    fail(wire, "a")
    assert wire.get("delayed") is None
    assert wire.get("wait") == ["b", "P"]
    assert wire.get("P")["delay"] == "0"
    assert wire.get("P")["defa"] == f"child {wire.key('a')} failed"


def test_fpof_leaves_a_failed_parent_and_a_missing_one_alone(wire: Wire) -> None:
    family(wire, "a", "b", fpof=True)
    wire.client.zrem(wire.key("waiting-children"), "P")
    wire.client.zadd(wire.key("failed"), {"P": 1})
    fail(wire, "a")
    assert "defa" not in wire.get("P")
    wire.client.delete(wire.key("P"))
    fail(wire, "b")
    assert wire.get("P") is None
    assert set(wire.get("P:unsuccessful")) == {wire.key("a"), wire.key("b")}


def test_a_parent_in_another_queue_is_released_there_by_its_own_pause(wire: Wire, queue_name: str) -> None:
    """A parent of another queue under the same hash tag; blocked is judged by the parent's queue."""
    upper = Wire(wire.client, queue_name)
    upper.base = f"emq2:{{{queue_name}}}:"
    upper.add("P", children=True)
    upper.pause()
    parent = {"id": "P", "queueKey": upper.base[:-1]}
    wire.add("k", parent=parent)
    upper.events()
    wire.take()
    wire.finish("k")
    assert upper.get("wait") == ["P"]
    assert upper.get("marker") is None
    assert upper.events() == ["waiting jobId=P prev=waiting-children"]


def test_a_parent_known_only_by_its_key_is_found(wire: Wire) -> None:
    family(wire, "k")
    wire.client.hdel(wire.key("k"), "parent")
    wire.take()
    wire.finish("k", "7")
    assert wire.get("P:processed") == {wire.key("k"): "7"}
    assert wire.get("wait") == ["P"]


def test_parents_of_parents_go_on_step_by_step(wire: Wire) -> None:
    wire.add("G", children=True)
    wire.add("P", children=True, parent=wire.child_of("G"))
    wire.add("k", parent=wire.child_of("P"))
    for job_id in ("k", "P", "G"):
        assert wire.take()[1] == job_id
        assert wire.finish(job_id, f'"{job_id}"') == 0
    assert as_json(wire.get("G:processed")[wire.key("P")]) == "P"
