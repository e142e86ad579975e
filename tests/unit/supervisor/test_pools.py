# SPDX-License-Identifier: MIT
"""Pools: size, planned replacement with the heir first, never more than one too many."""

from __future__ import annotations

import pytest

from echomq_pool.supervisor.reason import ExitReason, Why
from echomq_pool.supervisor.spec import Backoff
from tests.support.fake_world import CRASH, Fake, Script, child, group, pool


def running(fake: Fake, name: str = "w") -> int:
    counts = fake.tree.count_children(name)
    assert counts is not None
    return counts["active"]


def test_the_heir_is_up_before_the_old_one_is_asked_to_leave() -> None:
    """case C078, C079"""
    fake = (
        Fake(group("root", pool("w", 2, budget=0)), {"w": Script(start_ms=100, stop=300)}).boot().advance(100)
    )
    old = fake.handle("w-1")
    fake.log.clear()
    ticket = fake.ask("replace_child", old, "recycle")
    fake.advance(99)
    assert fake.log == [("start", "w-3")]
    fake.advance(1)
    assert fake.log == [("start", "w-3"), ("up", "w-3"), ("ask", "w-1")]
    assert fake.asks[-1].reason == "recycle"
    assert ticket not in fake.replies
    fake.advance(300)
    assert fake.replies[ticket].ok
    assert fake.ids() == ["w-2", "w-3"]
    assert fake.said("replaced") == ["recycle"]


def test_replacements_of_a_pool_take_turns() -> None:
    """case C081: never more than one away, never more than one too many"""
    fake = (
        Fake(group("root", pool("w", 4, budget=0)), {"w": Script(start_ms=1_000, stop=500)})
        .boot()
        .advance(1_000)
    )
    before = list(fake.alive)
    for handle in before:
        fake.ask("replace_child", handle, "recycle")
    for _ in range(100):
        assert 4 <= len(fake.alive) <= 5
        fake.advance(100)
    assert running(fake) == 4
    assert min(fake.handles().values()) > max(before)
    assert len(fake.replies) == 4


def test_a_thousand_replacements_cost_no_budget() -> None:
    """case C079"""
    fake = Fake(group("root", pool("w", 2, budget=0), budget=0)).boot()
    for _ in range(1_000):
        assert fake.call("replace_child", fake.handle(fake.ids()[0]), "recycle").ok
    assert fake.finished is None
    assert len(fake.ids()) == 2


def test_an_heir_that_does_not_boot_leaves_the_old_one_running_and_is_reported() -> None:
    """case C048"""
    fake = Fake(group("root", pool("w", 2, budget=0), budget=0), {"w": Script(["ok", "ok", "error"])}).boot()
    before = fake.handles()
    answer = fake.call("replace_child", before["w-1"], "recycle")
    assert (answer.error, answer.detail) == ("not_replaced", "no such module")
    fake.advance(60_000)
    assert fake.handles() == before
    assert fake.said("not_replaced") == ["no such module"]


def test_two_wishes_of_one_child_are_one() -> None:
    fake = Fake(group("root", pool("w", 1)), {"w": Script(start_ms=10)}).boot().advance(10)
    first = fake.ask("replace_child", fake.handle("w-1"), "recycle")
    second = fake.ask("replace_child", fake.handle("w-1"), "recycle")
    assert fake.replies[second].error == "not_replaced"
    fake.advance(1_000)
    assert fake.replies[first].ok
    assert len(fake.alive) == 1


def test_an_old_one_that_dies_while_its_heir_starts_is_not_restarted_beside_it() -> None:
    """case C049: at most N + 1"""
    fake = Fake(group("root", pool("w", 2)), {"w": Script(start_ms=100)}).boot().advance(100)
    ticket = fake.ask("replace_child", fake.handle("w-1"), "recycle")
    fake.crash("w-1")
    assert fake.replies[ticket].ok
    fake.advance(1_000)
    assert fake.ids() == ["w-2", "w-3"]


def test_an_heir_that_fails_after_its_elder_died_is_tried_again() -> None:
    fake = (
        Fake(group("root", pool("w", 1)), {"w": Script(["ok", "error", "ok"], start_ms=100)})
        .boot()
        .advance(100)
    )
    fake.ask("replace_child", fake.handle("w-1"), "recycle")
    fake.crash("w-1")
    fake.advance(1_000)
    assert len(fake.alive) == 1
    assert fake.finished is None


def test_a_crash_of_a_sibling_during_a_replacement_is_mended_meanwhile() -> None:
    fake = Fake(group("root", pool("w", 2)), {"w": Script(start_ms=100, stop=10_000)}).boot().advance(100)
    fake.ask("replace_child", fake.handle("w-1"), "recycle")
    fake.advance(100)
    fake.crash("w-2")
    fake.advance(100)
    assert fake.ids() == ["w-1", "w-2", "w-3"]


def test_an_heir_that_crashes_while_its_elder_drains_is_restarted() -> None:
    fake = Fake(group("root", pool("w", 1)), {"w": Script(stop=10_000)}).boot()
    fake.ask("replace_child", fake.handle("w-1"), "recycle")
    fake.crash("w-2")
    assert fake.ids() == ["w-1", "w-2"]
    fake.advance(10_000)
    assert fake.ids() == ["w-2"]


def test_a_replaced_child_may_finish_what_it_runs_up_to_the_drain_time() -> None:
    fake = Fake(group("root", pool("w", 1, drain=3_000)), {"w": Script(stop=None)}).boot()
    fake.ask("replace_child", fake.handle("w-1"), "recycle")
    fake.advance(2_999)
    assert ("kill", "w-1") not in fake.log
    fake.advance(1)
    assert fake.ids() == ["w-2"]


def test_a_stop_during_a_replacement_ends_both() -> None:
    fake = Fake(group("root", pool("w", 1)), {"w": Script(start_ms=100)}).boot().advance(100)
    ticket = fake.ask("replace_child", fake.handle("w-1"), "recycle")
    fake.stop().advance(1_000)
    assert fake.finished is not None
    assert fake.alive == {}
    assert fake.replies[ticket].error == "not_replaced"


def test_a_child_that_must_not_live_twice_is_replaced_in_place() -> None:
    fake = Fake(group("root", child("locks"), budget=0)).boot()
    fake.log.clear()
    assert fake.call("replace_child", fake.handle("locks"), "restart").ok
    assert fake.log == [("ask", "locks"), ("exit", "locks"), ("start", "locks"), ("up", "locks")]
    assert fake.most_alive == 1


def test_a_static_child_that_may_live_twice_has_its_heir_first() -> None:
    fake = Fake(group("root", child("zygote", surge=True), budget=0)).boot()
    fake.log.clear()
    assert fake.call("replace_child", fake.handle("zygote"), "reload").ok
    assert fake.log == [("start", "zygote"), ("up", "zygote"), ("ask", "zygote"), ("exit", "zygote")]
    assert fake.tree.which_children("root") == [("zygote", fake.handle("zygote"), "worker")]


def test_growing_starts_the_missing_ones_together() -> None:
    fake = Fake(group("root", pool("w", 1)), {"w": Script(start_ms=100)}).boot().advance(100)
    ticket = fake.ask("scale", "w", 4, {})
    assert fake.starts("w-4") == 1
    fake.advance(100)
    assert fake.replies[ticket].value == {"target": 4, "running": 4, "problem": ""}


def test_growing_with_code_that_does_not_boot_fails_and_the_healthy_ones_stay() -> None:
    """case C048"""
    fake = Fake(group("root", pool("w", 2, budget=0), budget=0), {"w": Script(["ok", "ok", "error"])}).boot()
    before = fake.handles()
    answer = fake.call("scale", "w", 3, {})
    assert (answer.error, answer.detail) == ("start_error", "no such module")
    assert answer.value == {"target": 3, "running": 2, "problem": "w-3: no such module"}
    fake.advance(60_000)
    assert fake.handles() == before


def test_shrinking_sends_the_idle_away_first_and_then_the_oldest() -> None:
    fake = Fake(group("root", pool("w", 4))).boot()
    busy = {fake.handle("w-1"): 3, fake.handle("w-2"): 1, fake.handle("w-4"): 1}
    assert fake.call("scale", "w", 2, busy).ok
    assert fake.ids() == ["w-1", "w-4"]
    assert {a.reason for a in fake.asks} == {"scale"}


def test_shrinking_spares_the_running_and_forgets_what_waits_for_a_restart() -> None:
    tree = group("root", pool("w", 2, child("w", backoff=Backoff(60_000, 60_000, 0)), budget=99))
    fake = Fake(tree, {"w": Script(["ok", "ok", "error"])}).boot()
    fake.crash("w-2")
    assert fake.call("scale", "w", 1, {}).ok
    assert fake.ids() == ["w-1"]
    fake.advance(120_000)
    assert fake.ids() == ["w-1"]
    assert fake.asks == []


def test_a_scaled_pool_keeps_its_size_over_crashes() -> None:
    fake = Fake(group("root", pool("w", 1, budget=99))).boot()
    fake.call("scale", "w", 3, {})
    for name in ("w-1", "w-2", "w-3"):
        fake.crash(name)
    assert fake.ids() == ["w-1", "w-2", "w-3"]
    fake.call("scale", "w", 0, {})
    assert fake.ids() == []
    assert fake.finished is None


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_pool_may_have_a_strategy_of_its_own(strategy: str) -> None:
    fake = Fake(group("root", pool("w", 3, strategy=strategy))).boot()
    before = fake.handles()
    fake.crash("w-2")
    after = fake.handles()
    assert after.keys() == before.keys()
    assert (after["w-1"] == before["w-1"]) == (strategy == "rest_for_one")
    assert after["w-3"] != before["w-3"]
    fake.call("scale", "w", 4, {})
    assert len(fake.alive) == 4
    assert fake.call("replace_child", fake.handle("w-1"), "recycle").ok
    assert len(fake.alive) == 4


def test_a_round_of_one_for_all_during_a_replacement_ends_with_the_right_number() -> None:
    fake = Fake(
        group("root", pool("w", 3, strategy="one_for_all")), {"w": Script(start_ms=100, stop=50)}
    ).boot()
    fake.advance(1_000)
    fake.ask("replace_child", fake.handle("w-1"), "recycle")
    fake.crash("w-2")
    fake.advance(5_000)
    assert len(fake.alive) == 3
    assert running(fake) == 3


def test_requests_that_make_no_sense_for_a_static_group_are_refused() -> None:
    fake = Fake(group("root", child("a"))).boot()
    assert fake.call("scale", "root", 3, {}).error == "refused"
    assert fake.call("start_child", "root").error == "bad_spec"


def test_a_worker_that_leaves_by_itself_to_be_recycled_is_replaced_at_once() -> None:
    """case C083"""
    fake = Fake(group("root", pool("w", 2, budget=0), budget=0)).boot()
    for name in ("w-1", "w-2"):
        fake.end(fake.handle(name), ExitReason(Why.RECYCLE, code=11))
    fake.advance()
    assert fake.ids() == ["w-1", "w-2"]


def test_live_workers_never_exceed_their_number_by_more_than_one() -> None:
    """case C049"""
    fake = (
        Fake(group("root", pool("w", 3, budget=10_000)), {"w": Script(start_ms=7, stop=23)}).boot().advance(7)
    )
    for step in range(300):
        if step % 3 == 0 and fake.alive:
            fake.ask("replace_child", max(fake.alive), "recycle")
        if step % 5 == 0 and fake.alive:
            fake.end(min(fake.alive), CRASH)
        fake.advance(11)
    assert fake.most_alive <= 4
