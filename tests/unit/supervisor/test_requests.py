# SPDX-License-Identifier: MIT
"""What an operator may ask of a group, and what is answered."""

from __future__ import annotations

import time

import pytest

from echomq_pool.supervisor.spec import Backoff
from tests.support.fake_world import CRASH, NORMAL, Fake, Script, child, group, pool

SLOW = Backoff(1_000, 30_000, 0)


def test_a_failing_start_child_is_answered_with_the_error_and_not_kept() -> None:
    """acceptance: sup_start_child_returns_error"""
    fake = Fake(group("root", budget=0), {"bad": Script(["error"])}).boot()
    answer = fake.call("start_child", "root", child("bad"))
    assert (answer.error, answer.detail) == ("start_error", "no such module")
    assert fake.tree.which_children("root") == []
    assert fake.advance(60_000).starts("bad") == 1


def test_a_failing_start_in_a_pool_records_nothing() -> None:
    """acceptance: sup_start_child_returns_error_simple"""
    fake = Fake(group("root", pool("w", 0, budget=0)), {"w": Script(["error"])}).boot()
    assert fake.call("start_child", "w").error == "start_error"
    assert fake.tree.which_children("w") == []


def test_a_failing_restart_child_keeps_the_spec_and_is_not_retried() -> None:
    """acceptance: sup_start_restart_child_returns_error"""
    fake = Fake(group("root", child("a"), budget=0), {"a": Script(["ok", "error"])}).boot()
    fake.call("terminate_child", "root", "a")
    assert fake.call("restart_child", "root", "a").error == "start_error"
    fake.advance(60_000)
    assert fake.tree.which_children("root") == [("a", None, "worker")]
    assert fake.starts("a") == 2


def test_the_spec_of_a_child_is_shown_whole_and_an_unknown_one_is_not_found() -> None:
    """acceptance: sup_start_map"""
    spec = child("a")
    fake = Fake(group("root", spec)).boot()
    assert fake.tree.get_childspec("root", "a").value == spec
    assert (spec.shutdown, spec.restart, spec.significant, spec.start_timeout_ms) == (
        5_000,
        "permanent",
        False,
        60_000,
    )
    assert fake.tree.get_childspec("root", "b").error == "not_found"


def test_the_template_is_readable_through_any_live_child() -> None:
    """acceptance: sup_start_map_simple"""
    fake = Fake(group("root", child("a"), pool("w", 2))).boot()
    assert fake.tree.get_childspec("w", fake.handle("w-2")).value == child("w")
    assert fake.tree.get_childspec("w", fake.handle("a")).error == "not_found"


def test_the_whole_life_cycle_of_a_static_child() -> None:
    """acceptance: child_adm"""
    fake = Fake(group("root")).boot()
    started = fake.call("start_child", "root", child("a"))
    assert started.value == fake.handle("a")
    again = fake.call("start_child", "root", child("a"))
    assert (again.error, again.value) == ("already_started", fake.handle("a"))
    assert fake.call("restart_child", "root", "a").error == "running"
    assert fake.call("delete_child", "root", "a").error == "running"
    assert fake.call("terminate_child", "root", "a").ok
    assert fake.call("terminate_child", "root", "a").ok
    assert fake.call("start_child", "root", child("a")).error == "already_present"
    assert fake.call("restart_child", "root", "a").ok
    assert fake.call("terminate_child", "root", fake.handle("a")).error == "not_found"
    fake.call("terminate_child", "root", "a")
    assert fake.call("delete_child", "root", "a").ok
    assert fake.call("delete_child", "root", "a").error == "not_found"
    assert fake.call("restart_child", "root", "a").error == "not_found"
    assert fake.call("terminate_child", "root", "a").error == "not_found"


def test_pool_children_are_addressed_by_handle_only() -> None:
    """acceptance: child_adm_simple"""
    fake = Fake(group("root", child("other"), pool("w", 1))).boot()
    handle = fake.handle("w-1")
    assert fake.call("terminate_child", "w", "w-1").error == "by_handle"
    assert fake.call("restart_child", "w", handle).error == "refused"
    assert fake.call("delete_child", "w", handle).error == "refused"
    assert fake.call("terminate_child", "w", handle).ok
    assert fake.call("terminate_child", "w", handle).ok
    assert fake.call("terminate_child", "w", fake.handle("other")).error == "not_found"
    assert fake.call("terminate_child", "w", 999).error == "not_found"
    assert fake.ids() == ["other"]


def test_the_info_of_an_ack_is_returned_and_a_restart_with_it_works() -> None:
    """acceptance: extra_return, simple_one_for_one_extra"""
    fake = Fake(group("root", pool("w", 0)), {"*": Script(info="hello")}).boot()
    assert fake.call("start_child", "root", child("a")).detail == "hello"
    assert fake.call("start_child", "w").detail == "hello"
    fake.crash("a").crash("w-1")
    assert fake.ids() == ["a", "w-1"]


def test_a_start_that_an_operator_asked_for_is_reported_quietly() -> None:
    """acceptance: external_start_no_progress_log"""
    fake = Fake(group("root")).boot()
    fake.reports.clear()
    fake.call("start_child", "root", child("a"))
    fake.crash("a")
    by_operator, by_restart = [r for r in fake.reports if r.context == "progress"]
    assert (by_operator.level, by_restart.level) == (10, 20)


def test_a_deaf_child_can_be_terminated_while_others_are_served() -> None:
    """acceptance: child_unlink"""
    fake = Fake(group("root", child("mute", shutdown=1_000)), {"mute": Script(stop=None)}).boot()
    ticket = fake.ask("terminate_child", "root", "mute")
    assert fake.call("start_child", "root", child("b")).ok
    assert ticket not in fake.replies
    fake.advance(1_000)
    assert fake.replies[ticket].ok


def test_two_who_ask_for_the_same_stop_are_both_answered() -> None:
    fake = Fake(group("root", child("a")), {"a": Script(stop=100)}).boot()
    tickets = [fake.ask("terminate_child", "root", "a") for _ in range(2)]
    fake.advance(100)
    assert all(fake.replies[t].ok for t in tickets)
    assert sum(what == "ask" for what, _ in fake.log) == 1


def test_a_child_terminated_while_it_starts_answers_both_requests() -> None:
    fake = Fake(group("root"), {"a": Script(start_ms=500)}).boot()
    start = fake.ask("start_child", "root", child("a"))
    stop = fake.ask("terminate_child", "root", "a")
    assert fake.replies[start].error == "terminated"
    assert fake.replies[stop].ok


def test_requests_are_counted_exactly() -> None:
    """acceptance: count_children"""
    fake = Fake(group("root", child("a"), pool("w", 200), group("inner", child("b")))).boot()
    assert fake.tree.count_children("w") == {"specs": 1, "active": 200, "supervisors": 0, "workers": 200}
    assert fake.tree.count_children("root") == {"specs": 3, "active": 3, "supervisors": 2, "workers": 1}
    for handle in list(fake.handles().values()):
        spec = fake.alive.get(handle)
        if spec is not None and spec.id.startswith("w-"):
            fake.call("terminate_child", "w", handle)
    assert fake.tree.count_children("w") == {"specs": 1, "active": 0, "supervisors": 0, "workers": 0}


def test_groups_are_counted_as_supervisors_and_gone_when_stopped() -> None:
    """acceptance: count_children_supervisor"""
    fake = Fake(group("root", *(group(f"g{i}", child(f"c{i}")) for i in range(4)))).boot()
    assert fake.tree.count_children("root") == {"specs": 4, "active": 4, "supervisors": 4, "workers": 0}
    for i in range(4):
        assert fake.call("terminate_child", "root", f"g{i}").ok
    assert fake.tree.count_children("root") == {"specs": 4, "active": 0, "supervisors": 4, "workers": 0}
    assert fake.alive == {}


def test_restarting_children_leave_active_and_stay_among_the_workers() -> None:
    """acceptance: count_restarting_children"""
    tree = group("root", pool("w", 2, child("w", backoff=SLOW), budget=99))
    fake = Fake(tree, {"w": Script(["ok", "ok", "error", "error", "ok"])}).boot()
    fake.crash("w-1")
    assert fake.tree.count_children("w") == {"specs": 1, "active": 1, "supervisors": 0, "workers": 2}
    assert ("w-1", "restarting", "worker") in (fake.tree.which_children("w") or [])
    fake.advance(10_000)
    assert fake.tree.count_children("w") == {"specs": 1, "active": 2, "supervisors": 0, "workers": 2}
    fake.call("terminate_child", "w", fake.handle("w-1"))
    assert fake.tree.count_children("w") == {"specs": 1, "active": 1, "supervisors": 0, "workers": 1}


def test_children_are_listed_after_each_step_newest_first() -> None:
    """acceptance: which_children, which_children_simple_one_for_one"""
    fake = Fake(group("root", child("a"), child("b"))).boot()
    a, b = fake.handle("a"), fake.handle("b")
    assert fake.tree.which_children("root") == [("b", b, "worker"), ("a", a, "worker")]
    fake.call("terminate_child", "root", "a")
    assert fake.tree.which_children("root") == [("b", b, "worker"), ("a", None, "worker")]
    fake.call("delete_child", "root", "a")
    assert fake.tree.which_children("root") == [("b", b, "worker")]
    fake = Fake(group("root", pool("w", 2))).boot()
    listed = fake.tree.which_children("w") or []
    assert [row[0] for row in listed] == ["w-2", "w-1"]
    assert {row[1] for row in listed} == set(fake.alive)


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_a_wedged_restart_can_be_ended_and_delays_nothing(strategy: str) -> None:
    """acceptance: hanging_restart_loop, hanging_restart_loop_rest_for_one"""
    tree = group(
        "root", child("first"), child("wedged", backoff=SLOW), child("last"), strategy=strategy, budget=99
    )
    fake = Fake(tree, {"wedged": Script(["ok", "error"], start_ms=2_000)}).boot().advance(2_000)
    first = fake.handle("first")
    fake.crash("wedged")
    assert fake.call("restart_child", "root", "wedged").error == "restarting"
    fake.advance(2_500)
    assert fake.call("start_child", "root", child("wedged")).error in ("already_present", "already_started")
    assert fake.call("delete_child", "root", "wedged").error == "restarting"
    assert fake.call("terminate_child", "root", "wedged").ok
    fake.advance(60_000)
    assert "wedged" not in fake.ids()
    if strategy == "rest_for_one":
        assert fake.handle("first") == first
        assert "last" not in fake.ids()
    fake.stop()
    assert fake.finished is not None


def test_a_wedged_restart_in_a_pool_can_be_ended_too() -> None:
    """acceptance: hanging_restart_loop_simple"""
    tree = group("root", pool("w", 1, child("w", backoff=SLOW), budget=99))
    fake = Fake(tree, {"w": Script(["ok", "error"])}).boot()
    handle = fake.handle("w-1")
    fake.crash("w-1")
    fake.advance(50)
    fake.stop()
    assert fake.finished is not None
    assert handle not in fake.alive


def test_a_whole_stop_is_not_delayed_by_a_wedged_start() -> None:
    """acceptance: hanging_restart_loop"""
    fake = Fake(
        group("root", child("wedged", shutdown=500)), {"wedged": Script(["ok", "silent"], stop=None)}
    ).boot()
    fake.crash("wedged")
    fake.stop().advance(500)
    assert fake.finished is not None


def test_names_are_bound_anew_after_every_way_to_end() -> None:
    """acceptance: simple_global_supervisor (names of groups and children stay valid)"""
    inner = group("inner", child("named"), budget=1)
    fake = Fake(group("root", inner, budget=3)).boot()
    seen = {fake.handle("named")}
    fake.crash("named")
    seen.add(fake.handle("named"))
    fake.crash("named")  # the group gives up and comes back
    seen.add(fake.handle("named"))
    fake.call("terminate_child", "inner", "named")
    fake.call("restart_child", "inner", "named")
    seen.add(fake.handle("named"))
    assert len(seen) == 4


def test_a_cause_is_handed_through_unchanged() -> None:
    """acceptance: already_started_outside_supervisor"""
    fake = Fake(group("root"), {"a": Script(["wait"])}).boot()
    ticket = fake.ask("start_child", "root", child("a"))
    fake.fail(fake.handle("a"), "the socket /run/x is taken by pid 7")
    assert fake.replies[ticket].detail == "the socket /run/x is taken by pid 7"


def test_a_pool_holds_no_more_than_max_children_restarting_ones_included() -> None:
    """acceptance: max_children (Elixir)"""
    tree = group("root", pool("w", 2, child("w", backoff=SLOW), max_children=2, budget=99))
    fake = Fake(tree, {"w": Script(["ok", "ok", "error"])}).boot()
    fake.crash("w-1")
    assert fake.call("start_child", "w").error == "max_children"
    assert fake.call("scale", "w", 3, {}).error == "max_children"


@pytest.mark.parametrize("restart", ["temporary", "permanent"])
def test_time_grows_with_the_number_of_children_and_not_with_its_square(restart: str) -> None:
    """acceptance: simple_one_for_one_scale_many_temporary_children, scale_start_stop_many_children"""

    def cost(count: int) -> float:
        fake = Fake(group("root", pool("w", count, child("w", restart))))
        begin = time.process_time()
        fake.boot().stop()
        assert fake.finished is not None
        return time.process_time() - begin

    small = min(cost(100) for _ in range(7))
    assert min(cost(1_000) for _ in range(4)) <= 50 * max(small, 0.001)


def test_many_children_come_and_go_within_bounded_time() -> None:
    """acceptance: scale_start_stop_many_children"""
    fake = Fake(group("root", pool("w", 0))).boot()
    for _ in range(300):
        fake.call("start_child", "w")
    for handle in list(fake.alive):
        assert fake.call("terminate_child", "w", handle).ok
    assert fake.tree.which_children("w") == []
    assert fake.call("start_child", "w").ok
    assert fake.ids() == ["w-1"]


def test_a_stopped_group_can_be_started_again_with_its_static_children_only() -> None:
    """otp-supervisor 1.2.11"""
    fake = Fake(group("root", group("inner", child("a")))).boot()
    fake.call("start_child", "inner", child("late"))
    fake.call("terminate_child", "root", "inner")
    assert fake.call("start_child", "inner", child("x")).error == "not_running"
    assert fake.call("restart_child", "root", "inner").ok
    assert fake.ids() == ["a"]


def test_a_terminate_ends_a_group_and_its_own_patience_caps_what_is_inside() -> None:
    """acceptance: sup_stop_timeout (children that are supervisors)"""
    inner = group("inner", child("deaf", shutdown="infinity"), shutdown=700)
    fake = Fake(group("root", inner), {"deaf": Script(stop=None)}).boot()
    ticket = fake.ask("terminate_child", "root", "inner")
    fake.advance(700)
    assert fake.replies[ticket].ok
    assert fake.alive == {}


def test_nothing_is_restarted_that_an_operator_stops_even_if_it_crashes_then() -> None:
    """otp-supervisor 1.2.13: shutdown_error, reported and never restarted"""
    fake = Fake(group("root", child("a")), {"a": Script(reason=CRASH)}).boot()
    assert fake.call("terminate_child", "root", "a").ok
    assert fake.said("shutdown_error") == ["exit code 1"]
    assert fake.alive == {}


def test_a_normal_end_of_an_asked_stop_is_an_error_for_permanent_children_only() -> None:
    fake = Fake(group("root", child("p"), child("t", "transient")), {"*": Script(reason=NORMAL)}).boot()
    fake.call("terminate_child", "root", "t")
    assert fake.said("shutdown_error") == []
    fake.call("terminate_child", "root", "p")
    assert fake.said("shutdown_error") == ["normal"]


def test_a_child_that_waits_for_its_turn_in_a_round_cannot_be_deleted_under_it() -> None:
    """Found by random lives: a deleted child was started by the round that still named it."""
    tree = group("root", child("a"), child("b"), strategy="one_for_all", budget=9)
    fake = Fake(tree, {"a": Script(start_ms=100)}).boot().advance(100)
    fake.crash("a")
    assert fake.call("delete_child", "root", "b").error == "restarting"
    assert fake.call("restart_child", "root", "b").error == "restarting"
    fake.advance(100)
    assert fake.ids() == ["a", "b"]
    fake.stop()
    assert fake.finished is not None
    assert fake.alive == {}
