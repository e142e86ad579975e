# SPDX-License-Identifier: MIT
"""Deduplication: who owns an id, for how long, and what becomes of those that came too late."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.wire import NOW, Wire, as_json


def add(
    wire: Wire, job_id: str = "", *, delay: int = 0, priority: int = 0, data: str = "{}", **de: Any
) -> Any:
    opts: dict[str, Any] = {"de": {"id": "D", **de}}
    if delay:
        opts["delay"] = delay
    if priority:
        opts["priority"] = priority
    return wire.add(job_id, data=data, **opts)


def test_simple_mode_answers_the_owner_until_it_has_finished(wire: Wire) -> None:
    """case C138"""
    assert add(wire) == "1"
    assert add(wire) == "1"
    assert wire.get("1")["deid"] == "D"
    assert wire.get("2") is None
    assert wire.get("de:D") == "1"
    assert wire.client.pttl(wire.key("de:D")) == -1
    assert wire.events()[-1] == "deduplicated jobId=1 deduplicationId=D deduplicatedJobId=2"
    assert wire.get("id") == "2"
    wire.take()
    wire.finish("1")
    assert wire.get("de:D") is None
    assert add(wire) == "3"


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("keep", [-1, 0])
def test_every_end_of_the_owner_frees_the_id(wire: Wire, failed: bool, keep: int) -> None:
    """case C138"""
    add(wire)
    wire.take()
    wire.finish("1", failed=failed, keep={"count": keep})
    assert wire.get("de:D") is None


def test_throttling_lasts_as_long_as_its_ttl_and_outlives_the_job(wire: Wire) -> None:
    assert add(wire, ttl=60_000) == "1"
    wire.client.pexpire(wire.key("de:D"), 30_000)
    assert add(wire, ttl=60_000) == "1"
    assert wire.client.pttl(wire.key("de:D")) <= 30_000
    wire.take()
    wire.finish("1")
    assert wire.get("de:D") == "1"


def test_extend_restarts_the_ttl(wire: Wire) -> None:
    assert add(wire, ttl=60_000, extend=True) == "1"
    wire.client.pexpire(wire.key("de:D"), 30_000)
    assert add(wire, ttl=60_000, extend=True) == "1"
    assert wire.client.pttl(wire.key("de:D")) > 50_000
    assert wire.get("de:D") == "1"
    assert wire.events()[-1] == "deduplicated jobId=1 deduplicationId=D deduplicatedJobId=2"


@pytest.mark.parametrize("extend", [False, True])
def test_replace_takes_the_place_of_a_delayed_owner(wire: Wire, extend: bool) -> None:
    assert add(wire, delay=100, ttl=60_000, replace=True, extend=extend) == "1"
    wire.client.pexpire(wire.key("de:D"), 30_000)
    wire.events()
    assert add(wire, delay=100, ttl=60_000, replace=True, extend=extend) == "2"
    assert list(wire.get("delayed")) == ["2"]
    assert wire.get("1") is None
    assert wire.get("de:D") == "2"
    ttl = wire.client.pttl(wire.key("de:D"))
    assert ttl > 50_000 if extend else 0 < ttl <= 30_000
    assert wire.events() == [
        "removed jobId=1 prev=delayed",
        "deduplicated jobId=2 deduplicationId=D deduplicatedJobId=1",
        "added jobId=2 name=job",
        f"delayed jobId=2 delay={NOW + 100}",
    ]


def test_replace_without_ttl_sets_the_key_anew(wire: Wire) -> None:
    add(wire, delay=100, replace=True)
    assert add(wire, delay=100, replace=True) == "2"
    assert wire.get("de:D") == "2"
    assert wire.client.pttl(wire.key("de:D")) == -1


def test_replace_is_silent_when_the_owner_is_not_delayed(wire: Wire) -> None:
    add(wire, replace=True)
    wire.events()
    assert add(wire, replace=True) == "1"
    assert wire.events() == []


def test_a_parent_job_ignores_replace(wire: Wire) -> None:
    add(wire, delay=100)
    assert wire.add("P", children=True, de={"id": "D", "replace": True}) == "1"
    assert wire.events()[-1] == "deduplicated jobId=1 deduplicationId=D deduplicatedJobId=P"


def test_the_latest_add_during_a_run_becomes_a_job_at_its_end(wire: Wire) -> None:
    """promise 4.20: the follow-up is announced before the end of the job it waited for."""
    assert add(wire, keepLastIfActive=True) == "1"
    assert add(wire, keepLastIfActive=True) == "1"
    assert wire.events()[-1] == "deduplicated jobId=1 deduplicationId=D deduplicatedJobId=2"
    wire.take()
    assert add(wire, keepLastIfActive=True, data='"early"') == "1"
    assert add(wire, keepLastIfActive=True, priority=3, data='"late"') == "1"
    parked = wire.get("dn:D")
    assert as_json(parked.pop("opts")) == {"priority": 3, "de": {"id": "D", "keepLastIfActive": True}}
    assert parked == {"name": "job", "data": '"late"', "jid": "4"}
    wire.events()
    wire.now += 9
    wire.finish("1")
    assert wire.get("de:D") == "4"
    assert wire.get("dn:D") is None
    assert wire.get("prioritized") == {"4": 3 * 2**32 + 1}
    assert (wire.get("4")["data"], wire.get("4")["timestamp"]) == ('"late"', str(NOW + 9))
    assert wire.events() == [
        "added jobId=4 name=job",
        "waiting jobId=4",
        "completed jobId=1 returnvalue=null prev=active",
    ]


def test_a_parked_child_comes_back_to_its_parent(wire: Wire) -> None:
    wire.add("P", children=True)
    add(wire, "first", keepLastIfActive=True)
    wire.take()
    wire.add("k", parent=wire.child_of("P"), de={"id": "D", "keepLastIfActive": True})
    assert wire.get("k") is None
    wire.finish("first")
    assert wire.get("k")["parentKey"] == wire.key("P")
    assert as_json(wire.get("k")["parent"])["id"] == "P"
    assert wire.get("P:dependencies") == [wire.key("k")]


def test_parking_ignores_the_ttl_and_makes_the_key_last(wire: Wire) -> None:
    add(wire, keepLastIfActive=True, ttl=60_000)
    assert wire.client.pttl(wire.key("de:D")) == -1
    wire.client.pexpire(wire.key("de:D"), 30_000)
    wire.take()
    add(wire, keepLastIfActive=True, ttl=60_000)
    assert wire.client.pttl(wire.key("de:D")) == -1


def test_a_retry_does_not_release_the_parked_one(wire: Wire) -> None:
    add(wire, keepLastIfActive=True)
    wire.take()
    add(wire, keepLastIfActive=True)
    wire.retry("1")
    assert wire.get("dn:D")["jid"] == "2"
    wire.take()
    wire.delay("1", 5)
    assert wire.get("dn:D")["jid"] == "2"


def test_delayed_and_prioritized_adds_deduplicate_alike(wire: Wire) -> None:
    assert add(wire, delay=5) == "1"
    assert add(wire, priority=5) == "1"
    assert add(wire) == "1"
    assert wire.get("wait") is None
    assert wire.get("prioritized") is None
