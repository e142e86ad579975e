# SPDX-License-Identifier: MIT
"""How a tree comes up and goes down."""

from __future__ import annotations

import pytest

from echomq_pool.supervisor.reason import SHUTDOWN, ExitReason
from tests.support.fake_world import CRASH, KILL, NORMAL, Fake, Script, child, group, pool


def test_an_empty_tree_starts_and_stops() -> None:
    """acceptance: sup_start_normal, sup_start_ignore_init"""
    fake = Fake(group("root")).boot()
    assert fake.tree.count_children("root") == {"specs": 0, "active": 0, "supervisors": 0, "workers": 0}
    fake.stop()
    assert fake.finished is not None
    assert fake.finished.outcome == "stopped"


def test_children_start_in_order_each_after_the_ack_before_it_and_stop_in_reverse() -> None:
    """acceptance: order_of_children"""
    fake = Fake(group("root", child("c"), child("a"), child("b")), {"*": Script(start_ms=10)}).boot()
    fake.advance(100)
    assert fake.log == [("start", "c"), ("up", "c"), ("start", "a"), ("up", "a"), ("start", "b"), ("up", "b")]
    fake.log.clear()
    fake.stop()
    assert fake.log == [("ask", "b"), ("exit", "b"), ("ask", "a"), ("exit", "a"), ("ask", "c"), ("exit", "c")]


def test_a_group_round_starts_in_order_and_stops_in_exact_reverse() -> None:
    """acceptance: order_of_children"""
    fake = Fake(group("root", child("c"), child("a"), child("b"), strategy="one_for_all")).boot()
    fake.log.clear()
    fake.crash("a")
    told = [entry for entry in fake.log if entry[0] in ("ask", "start")]
    assert told == [("ask", "b"), ("ask", "c"), ("start", "c"), ("start", "a"), ("start", "b")]


def test_an_ignoring_permanent_child_keeps_its_spec_without_a_process() -> None:
    """acceptance: sup_start_ignore_child"""
    fake = Fake(group("root", child("idle"), child("good")), {"idle": Script(["ignore"])}).boot()
    assert fake.tree.which_children("root") == [
        ("good", fake.handle("good"), "worker"),
        ("idle", None, "worker"),
    ]
    counts = fake.tree.count_children("root")
    assert counts is not None
    assert (counts["specs"], counts["active"]) == (2, 1)


def test_an_ignoring_temporary_child_leaves_no_spec() -> None:
    """acceptance: sup_start_ignore_temporary_child, sup_start_ignore_temporary_child_start_child"""
    scripts = {"idle": Script(["ignore"]), "late": Script(["ignore"])}
    fake = Fake(group("root", child("idle", "temporary"), child("good")), scripts).boot()
    assert [row[0] for row in fake.tree.which_children("root") or []] == ["good"]
    answer = fake.call("start_child", "root", child("late", "temporary"))
    assert (answer.ok, answer.value, answer.detail) == (True, None, "ignore")
    assert [row[0] for row in fake.tree.which_children("root") or []] == ["good"]


@pytest.mark.parametrize("restart", ["temporary", "permanent"])
def test_an_ignoring_pool_child_is_not_recorded_and_the_stop_is_clean(restart: str) -> None:
    """acceptance: sup_start_ignore_temporary_child_start_child_simple,
    sup_start_ignore_permanent_child_start_child_simple"""
    fake = Fake(group("root", pool("w", 0, child("w", restart))), {"w": Script(["ignore"])}).boot()
    assert fake.call("start_child", "w").detail == "ignore"
    assert fake.tree.which_children("w") == []
    fake.stop()
    assert fake.finished is not None
    assert fake.said("shutdown_error") == []


def test_a_failed_first_start_stops_what_is_up_in_reverse_and_is_final() -> None:
    """acceptance: sup_start_error_return, sup_start_fail, faulty_application_shutdown (exit 13 is the loop's)"""
    inner = group("inner", child("b"), child("bad"))
    fake = Fake(group("root", child("a"), inner), {"bad": Script(["error"])}).boot()
    assert fake.finished is not None
    assert (fake.finished.outcome, fake.finished.cause) == ("boot_failed", "inner: bad: no such module")
    assert fake.alive == {}
    stops = [name for what, name in fake.log if what == "ask"]
    assert stops == ["b", "a"]
    assert fake.log[4] == ("start", "bad")
    assert fake.starts("bad") == 1


def test_a_death_before_the_ack_is_a_failed_start() -> None:
    """acceptance: sup_start_fail"""
    fake = Fake(group("root", child("bad")), {"bad": Script(["die"])}).boot()
    assert fake.finished is not None
    assert "died before its ack" in fake.finished.cause


def test_a_silent_start_is_aborted_and_then_killed() -> None:
    """acceptance: ack timeout; case C050"""
    fake = Fake(group("root", child("mute", start_timeout_ms=500)), {"mute": Script(["silent"])}).boot()
    fake.advance(499)
    assert fake.log == [("start", "mute")]
    fake.advance(1)
    assert fake.log[-1] == ("abort", "mute")
    fake.advance(2_000)
    assert fake.log[-2:] == [("kill", "mute"), ("exit", "mute")]
    assert fake.finished is not None
    assert "boot timeout: no ack within 500 ms" in fake.finished.cause


def test_an_ack_after_the_start_was_given_up_changes_nothing() -> None:
    """acceptance: ack timeout"""
    fake = Fake(
        group("root", child("slow", start_timeout_ms=500)), {"slow": Script(["ok"], start_ms=900)}
    ).boot()
    fake.advance(5_000)
    assert fake.finished is not None
    assert fake.finished.outcome == "boot_failed"


def test_a_slow_boot_within_its_time_is_left_alone() -> None:
    """case C050"""
    fake = Fake(
        group("root", child("slow", start_timeout_ms=10_000)), {"slow": Script(start_ms=4_000)}
    ).boot()
    fake.advance(60_000)
    assert fake.log == [("start", "slow"), ("up", "slow")]


def test_infinite_patience_lasts_until_the_child_leaves_or_the_global_deadline_comes() -> None:
    """acceptance: sup_stop_infinity"""
    tree = group(
        "root", child("deaf", shutdown="infinity"), group("inner", child("slow", shutdown="infinity"))
    )
    fake = Fake(tree, {"slow": Script(stop=9_000), "deaf": Script(stop=None)}).boot()
    fake.stop(within=20_000).advance(9_000)
    assert ("kill", "slow") not in fake.log
    fake.advance(10_999)
    assert ("kill", "deaf") not in fake.log
    fake.advance(1)
    assert fake.log[-2:] == [("kill", "deaf"), ("exit", "deaf")]
    assert fake.finished is not None


def test_a_deaf_child_is_killed_when_its_own_patience_is_over() -> None:
    """acceptance: sup_stop_timeout"""
    fake = Fake(
        group("root", child("good"), child("deaf", shutdown=1_000)), {"deaf": Script(stop=None)}
    ).boot()
    fake.stop().advance(999)
    assert ("kill", "deaf") not in fake.log
    fake.advance(1)
    assert fake.said("shutdown_error") == ["killed"]
    assert fake.finished is not None


def test_pool_children_are_stopped_together_under_one_time() -> None:
    """acceptance: sup_stop_timeout_dynamic, dynamic stop with mixed patience"""
    fake = Fake(group("root", pool("w", 10, child("w", shutdown=1_000))), {"w": Script(stop=None)}).boot()
    fake.stop().advance(1_000)
    assert fake.finished is not None
    assert [what for what, _ in fake.log[-30:]] == ["ask"] * 10 + ["kill"] * 10 + ["exit"] * 10
    (folded,) = [r for r in fake.reports if r.context == "shutdown_error"]
    assert folded.offender["count"] == 10


def test_a_brutal_kill_comes_at_once_and_for_that_child_only() -> None:
    """acceptance: sup_stop_brutal_kill, sup_stop_brutal_kill_dynamic"""
    brutal = child("brutal", shutdown="brutal_kill")
    fake = Fake(
        group("root", child("good"), brutal, pool("w", 10, child("w", shutdown="brutal_kill")))
    ).boot()
    fake.stop()
    assert [entry for entry in fake.log if entry[0] == "ask"] == [("ask", "good")]
    assert sum(what == "kill" for what, _ in fake.log) == 11
    assert fake.said("shutdown_error") == []


def test_children_that_end_by_themselves_during_the_stop_do_not_disturb_it() -> None:
    """acceptance: sup_stop_race"""
    reasons = [NORMAL, SHUTDOWN, CRASH, KILL]
    kinds = ["permanent", "transient", "temporary"]
    children = [child(f"{kind}{i}", kind) for kind in kinds for i in range(4)]
    fake = Fake(group("root", child("slow"), *children, child("last")), {"last": Script(stop=100)}).boot()
    fake.stop()
    for kind in kinds:
        for i, reason in enumerate(reasons):
            fake.end(fake.handle(f"{kind}{i}"), reason)
    fake.advance(1_000)
    assert fake.finished is not None
    assert sum(what == "start" for what, _ in fake.log) == 14
    assert "signal SIGKILL" in " ".join(fake.said("shutdown_error"))


@pytest.mark.parametrize("reason", [NORMAL, SHUTDOWN, CRASH, KILL])
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
def test_a_pool_stops_whatever_its_children_answer(restart: str, reason: ExitReason) -> None:
    """acceptance: sup_stop_non_shutdown_exit_dynamic"""
    fake = Fake(group("root", pool("w", 5, child("w", restart))), {"w": Script(reason=reason)}).boot()
    fake.stop()
    assert fake.finished is not None
    assert fake.alive == {}


def test_a_second_stop_shortens_the_deadline_and_hurries_those_already_asked() -> None:
    """acceptance: second signal during stop; case C064"""
    fake = Fake(group("root", pool("w", 2, child("w", shutdown=25_000))), {"w": Script(stop=None)}).boot()
    fake.stop(within=25_000).advance(2_000)
    fake.stop(within=3_000, fast=True)
    assert [(a.deadline_ms, a.fast) for a in fake.asks] == [(25_000, False)] * 2 + [(5_000, True)] * 2
    fake.advance(3_000)
    assert fake.finished is not None


def test_a_later_longer_stop_does_not_give_more_time() -> None:
    fake = Fake(group("root", child("deaf", shutdown="infinity")), {"deaf": Script(stop=None)}).boot()
    fake.stop(within=1_000).stop(within=60_000).advance(1_000)
    assert fake.finished is not None


def test_a_stop_during_the_boot_ends_what_has_started() -> None:
    """acceptance: SIGTERM at any moment; case C056"""
    fake = Fake(group("root", child("a"), child("b"), child("c")), {"b": Script(start_ms=500)}).boot()
    fake.advance(100)
    fake.stop()
    assert fake.finished is not None
    assert fake.finished.outcome == "stopped"
    assert ("start", "c") not in fake.log


def test_those_that_go_first_are_asked_at_once_while_the_others_wait_their_turn() -> None:
    """design, section 3.3: all workers stop at T0; the singletons that nobody needs too"""
    infra = group("infra", child("events"), child("locks"), child("sweeper", stop_first=True))
    tree = group("root", infra, pool("w", 2, stop_first=True), pool("v", 2, stop_first=True))
    fake = Fake(tree, {"w": Script(stop=500), "v": Script(stop=900), "sweeper": Script(stop=10)}).boot()
    fake.log.clear()
    fake.stop()
    assert [name for what, name in fake.log if what == "ask"] == ["sweeper", "w-1", "w-2", "v-1", "v-2"]
    fake.advance(899)
    assert fake.ids() == ["events", "locks", "v-1", "v-2"]
    fake.advance(1)
    assert [name for what, name in fake.log if what == "ask"][-2:] == ["locks", "events"]
    assert fake.finished is not None


def test_a_lock_manager_that_dies_while_workers_drain_comes_back() -> None:
    """law 9"""
    infra = group("infra", child("locks"))
    fake = Fake(group("root", infra, pool("w", 2, stop_first=True)), {"w": Script(stop=5_000)}).boot()
    fake.stop()
    fake.crash("locks")
    assert fake.ids() == ["locks", "w-1", "w-2"]
    fake.advance(6_000)
    assert fake.finished is not None


def test_those_whose_turn_comes_after_the_deadline_still_get_a_last_second() -> None:
    infra = group("infra", child("locks"))
    scripts = {"w": Script(stop=None), "locks": Script(stop=800)}
    fake = Fake(group("root", infra, pool("w", 1, stop_first=True)), scripts).boot()
    fake.stop(within=5_000).advance(5_000 + 799)
    assert fake.ids() == ["locks"]
    fake.advance(1)
    assert fake.finished is not None
    assert ("kill", "locks") not in fake.log


def test_nobody_outlives_the_hard_limit_of_the_stop() -> None:
    infra = group("infra", *(child(f"s{i}") for i in range(5)))
    fake = Fake(group("root", infra), {"*": Script(stop=None)}).boot()
    fake.stop(within=1_000).advance(3_500)
    assert fake.finished is not None


def test_a_stop_request_for_a_child_that_is_gone_sends_no_signal_anywhere() -> None:
    """case C045"""
    fake = Fake(group("root", child("a", "transient"))).boot()
    gone = fake.handle("a")
    fake.crash("a", NORMAL)
    assert fake.call("terminate_child", "root", "a").ok
    assert fake.call("replace_child", gone, "recycle").error == "not_found"
    assert fake.asks == []  # the fake world also refuses any signal to a dead handle


def test_the_reason_of_a_stop_is_passed_to_the_child() -> None:
    fake = Fake(group("root", child("a"))).boot()
    fake.stop()
    assert fake.asks[0].reason == "shutdown"


def test_an_unknown_group_is_not_found() -> None:
    """acceptance: child_adm"""
    fake = Fake(group("root")).boot()
    assert fake.call("start_child", "nowhere", child("a")).error == "not_found"
    assert fake.tree.which_children("nowhere") is None
    assert fake.tree.get_childspec("nowhere", "a").error == "not_found"


def test_requests_before_the_start_say_that_nothing_runs() -> None:
    """acceptance: child_adm (no supervisor: a clear error)"""
    fake = Fake(group("root"))
    assert fake.call("start_child", "root", child("a")).error == "not_running"
