# SPDX-License-Identifier: MIT
"""Who is restarted, how often, how soon, and when a group gives up."""

from __future__ import annotations

from random import Random

import pytest

from echomq_pool.supervisor.intensity import add_restart, restart_delay
from echomq_pool.supervisor.reason import SHUTDOWN, ExitReason, Why
from echomq_pool.supervisor.spec import Backoff
from tests.support.fake_world import CRASH, KILL, NORMAL, Fake, Script, child, group, pool

DETAILED = ExitReason(Why.SHUTDOWN, detail="because")


@pytest.mark.parametrize("reason", [NORMAL, SHUTDOWN, DETAILED, CRASH, KILL])
def test_a_permanent_child_is_always_restarted(reason: ExitReason) -> None:
    """acceptance: permanent_normal, permanent_shutdown, permanent_abnormal"""
    fake = Fake(group("root", child("a"))).boot()
    before = fake.handle("a")
    fake.crash("a", reason)
    assert fake.handle("a") != before


@pytest.mark.parametrize("reason", [NORMAL, SHUTDOWN, DETAILED])
def test_a_transient_child_that_ends_well_stays_down_with_its_spec(reason: ExitReason) -> None:
    """acceptance: transient_normal, transient_shutdown"""
    fake = Fake(group("root", child("a", "transient"))).boot()
    fake.crash("a", reason)
    assert fake.tree.which_children("root") == [("a", None, "worker")]
    assert fake.call("restart_child", "root", "a").ok
    assert fake.ids() == ["a"]


@pytest.mark.parametrize(
    "reason", [CRASH, KILL, ExitReason(Why.OOM), ExitReason(Why.ORPHANED), ExitReason(Why.UNKNOWN)]
)
def test_a_transient_child_that_ends_badly_is_restarted(reason: ExitReason) -> None:
    """acceptance: transient_abnormal"""
    fake = Fake(group("root", child("a", "transient"))).boot()
    fake.crash("a", reason)
    fake.advance(1_000)
    assert fake.ids() == ["a"]


@pytest.mark.parametrize("reason", [NORMAL, SHUTDOWN, CRASH, KILL])
def test_a_temporary_child_is_never_restarted_and_its_name_is_free_again(reason: ExitReason) -> None:
    """acceptance: temporary_normal, temporary_shutdown, temporary_abnormal"""
    fake = Fake(group("root", child("a", "temporary"))).boot()
    fake.crash("a", reason)
    assert fake.tree.which_children("root") == []
    assert fake.call("start_child", "root", child("a", "temporary")).ok


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
@pytest.mark.parametrize("ending", ["kill", "normal", "crash", "api"])
@pytest.mark.parametrize("restart", ["temporary", "transient", "permanent"])
def test_specs_of_temporary_children_are_not_kept(strategy: str, ending: str, restart: str) -> None:
    """acceptance: do_not_save_child_specs_for_temporary_children"""
    fake = Fake(group("root", child("a", restart), strategy=strategy)).boot()
    if ending == "api":
        fake.call("terminate_child", "root", "a")
    else:
        fake.crash("a", {"kill": KILL, "normal": NORMAL, "crash": CRASH}[ending])
    known = [row[0] for row in fake.tree.which_children("root") or []]
    assert known == ([] if restart == "temporary" else ["a"])
    again = fake.call("start_child", "root", child("a", restart))
    assert again.ok == (restart == "temporary")


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one", "dynamic"])
def test_arguments_of_temporary_children_are_not_kept(strategy: str) -> None:
    """acceptance: do_not_save_start_parameters_for_temporary_children, simple_one_for_one_corruption"""
    big = {"much": list(range(1_000))}
    temporary, kept = child("t", "temporary", args=big), child("p", args=big)
    if strategy == "dynamic":
        fake = Fake(group("root", pool("t", 2, temporary))).boot()
        fake.crash("t-1")
        leaf = fake.tree.leaf(fake.handle("t-2"))
    else:
        fake = Fake(group("root", temporary, kept, strategy=strategy)).boot()
        leaf = fake.tree.leaf(fake.handle("t"))
        keeper = fake.tree.leaf(fake.handle("p"))
        assert keeper is not None
        assert keeper.spec.args == big
    assert leaf is not None
    assert leaf.spec.args == {}


def test_crashes_far_enough_apart_never_trip_the_limit() -> None:
    """acceptance: multiple_restarts"""
    fake = Fake(group("root", child("a"), budget=1, period_ms=1_000)).boot()
    for _ in range(20):
        fake.advance(2_100)
        fake.crash("a")
    assert fake.finished is None
    assert fake.starts("a") == 21


def test_one_for_one_renews_only_the_dead_and_ends_one_crash_over_the_limit() -> None:
    """acceptance: one_for_one"""
    fake = Fake(group("root", child("a"), child("b"))).boot()
    a, b = fake.handle("a"), fake.handle("b")
    fake.crash("a")
    assert fake.handle("a") != a
    assert fake.handle("b") == b
    fake.crash("a")
    assert fake.finished is not None
    assert fake.finished.outcome == "gave_up"
    assert fake.said("shutdown") == ["reached_max_restart_intensity"]
    assert fake.alive == {}


@pytest.mark.parametrize(("strategy", "crashing"), [("one_for_one", "once"), ("one_for_all", "good")])
def test_failed_retries_alone_reach_the_limit(strategy: str, crashing: str) -> None:
    """acceptance: one_for_one_escalation, one_for_all_escalation"""
    tree = group("root", child("once"), child("good"), strategy=strategy, budget=4)
    fake = Fake(tree, {"once": Script(["ok", "error"])}).boot()
    fake.crash(crashing)
    fake.advance(1_000)
    assert fake.finished is not None
    assert fake.finished.outcome == "gave_up"
    assert fake.starts("once") == 1 + 4
    assert fake.alive == {}


def test_one_for_all_renews_all_and_no_old_one_lives() -> None:
    """acceptance: one_for_all"""
    fake = Fake(group("root", child("a"), child("b"), strategy="one_for_all")).boot()
    before = set(fake.alive)
    fake.crash("b")
    assert fake.ids() == ["a", "b"]
    assert not before & set(fake.alive)
    fake.crash("a")
    assert fake.finished is not None


def test_one_round_of_one_for_all_counts_once_whatever_its_size() -> None:
    fake = Fake(group("root", *(child(f"c{i}") for i in range(9)), strategy="one_for_all", budget=2)).boot()
    fake.crash("c3").crash("c7")
    assert fake.finished is None
    assert len(fake.alive) == 9


def test_a_failure_in_a_one_for_all_round_stops_the_first_again_then_both_start() -> None:
    """acceptance: one_for_all_other_child_fails_restart"""
    tree = group("root", child("a"), child("b"), strategy="one_for_all", budget=5)
    fake = Fake(tree, {"b": Script(["ok", "error", "ok"])}).boot()
    fake.log.clear()
    fake.crash("a")
    fake.advance(10)
    told = [entry for entry in fake.log if entry[0] in ("start", "ask")]
    assert told == [
        ("ask", "b"),
        ("start", "a"),
        ("start", "b"),
        ("ask", "a"),
        ("start", "a"),
        ("start", "b"),
    ]
    assert fake.ids() == ["a", "b"]


def test_rest_for_one_renews_the_dead_and_those_after_it() -> None:
    """acceptance: rest_for_one"""
    fake = Fake(group("root", child("a"), child("b"), child("c"), strategy="rest_for_one")).boot()
    before = fake.handles()
    fake.crash("b")
    after = fake.handles()
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert after["c"] != before["c"]
    assert fake.tree.count_children("root") == {"specs": 3, "active": 3, "supervisors": 0, "workers": 3}
    fake.crash("b")
    assert fake.finished is not None


def test_a_failing_later_child_of_rest_for_one_reaches_the_limit() -> None:
    """acceptance: rest_for_one_escalation"""
    tree = group("root", child("a"), child("once"), strategy="rest_for_one", budget=4)
    fake = Fake(tree, {"once": Script(["ok", "error"])}).boot()
    fake.crash("a")
    fake.advance(1_000)
    assert fake.finished is not None
    assert fake.starts("once") == 1 + 4


def test_a_rest_for_one_retry_begins_at_the_child_that_failed() -> None:
    """acceptance: rest_for_one_other_child_fails_restart"""
    tree = group("root", child("a"), child("b"), child("c"), strategy="rest_for_one", budget=5)
    fake = Fake(tree, {"b": Script(["ok", "error", "ok"])}).boot()
    fake.crash("a")
    fake.advance(10)
    assert fake.ids() == ["a", "b", "c"]
    assert (fake.starts("a"), fake.starts("b"), fake.starts("c")) == (2, 3, 2)


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_temporary_bystander_is_dropped_and_the_supervisor_lives(strategy: str) -> None:
    """acceptance: temporary_bystander"""
    fake = Fake(group("root", child("a"), child("t", "temporary"), strategy=strategy)).boot()
    fake.crash("a")
    assert fake.ids() == ["a"]
    assert [row[0] for row in fake.tree.which_children("root") or []] == ["a"]
    assert fake.finished is None


def test_a_bystander_that_dies_before_its_turn_costs_no_further_restart() -> None:
    tree = group("root", child("a"), child("b"), child("c"), strategy="one_for_all")
    fake = Fake(tree, {"c": Script(stop=50)}).boot()
    fake.crash("b")
    fake.crash("a", CRASH)
    fake.advance(100)
    assert fake.ids() == ["a", "b", "c"]
    assert fake.finished is None


def test_a_group_round_starts_what_an_operator_had_stopped() -> None:
    """otp-supervisor 1.2.6"""
    fake = Fake(group("root", child("a"), child("b"), strategy="one_for_all")).boot()
    fake.call("terminate_child", "root", "a")
    assert fake.ids() == ["b"]
    fake.crash("b")
    assert fake.ids() == ["a", "b"]


def test_a_pool_renews_only_the_dead_one_and_ends_over_the_limit() -> None:
    """acceptance: simple_one_for_one, simple_one_for_one_escalation"""
    fake = Fake(group("root", pool("w", 3, budget=1), budget=0)).boot()
    before = fake.handles()
    fake.crash("w-2")
    after = fake.handles()
    assert (after["w-1"], after["w-3"]) == (before["w-1"], before["w-3"])
    assert after["w-2"] != before["w-2"]
    fake.crash("w-1")
    assert fake.finished is not None
    assert fake.alive == {}


def test_failing_restarts_in_a_pool_reach_the_limit_and_stop_the_others() -> None:
    """acceptance: simple_one_for_one_escalation"""
    fake = Fake(group("root", pool("w", 2, budget=4), budget=0), {"w": Script(["ok", "ok", "error"])}).boot()
    fake.crash("w-1")
    fake.advance(1_000)
    assert fake.finished is not None
    assert fake.starts("w-1") == 1 + 4


def test_a_pool_child_that_acks_ignore_on_a_restart_is_silently_gone() -> None:
    """acceptance: simple_one_for_one_restart_ignore"""
    fake = Fake(group("root", pool("w", 1)), {"w": Script(["ok", "ok", "ok", "ignore"])}).boot()
    fake.crash("w-1").crash("w-1").crash("w-1")
    assert fake.tree.which_children("w") == []
    assert fake.finished is None


def test_a_pool_stops_in_parallel() -> None:
    """acceptance: simple_one_for_one_shutdown"""
    fake = Fake(
        group("root", pool("w", 3, child("w", shutdown=2_000))),
        {"w-3": Script(stop=5_000), "w": Script(stop=1_000)},
    )
    fake.boot().stop()
    fake.advance(1_999)
    assert fake.finished is None
    fake.advance(1)
    assert fake.finished is not None


def test_nested_groups_renew_only_what_died_and_a_group_that_gave_up_comes_back_whole() -> None:
    """acceptance: tree"""
    left = group("left", child("a"), child("b"))
    right = group("right", child("c"), restart=child("x", "transient").restart)
    fake = Fake(group("root", left, right, strategy="one_for_all", budget=2)).boot()
    before = fake.handles()
    fake.crash("a")
    assert {k: v for k, v in fake.handles().items() if k != "a"} == {
        k: v for k, v in before.items() if k != "a"
    }
    fake.call("start_child", "left", child("late"))
    fake.call("terminate_child", "root", "right")
    before = fake.handles()
    fake.crash("a")  # left is past its budget: the one_for_all root renews both, run-time children are lost
    assert fake.ids() == ["a", "b", "c"]
    assert not set(before.values()) & set(fake.handles().values())


def test_a_transient_group_that_gave_up_is_restarted_because_giving_up_is_abnormal() -> None:
    """otp-supervisor 1.3: gave_up is abnormal for every parent"""
    inner = group("inner", child("a"), budget=0, restart=child("x", "transient").restart)
    fake = Fake(group("root", inner)).boot()
    fake.crash("a")
    assert fake.ids() == ["a"]
    assert fake.finished is None


def test_budgets_multiply_through_levels() -> None:
    fake = Fake(
        group("root", group("inner", child("a"), budget=5, period_ms=60_000), budget=3, period_ms=300_000)
    ).boot()
    crashes = 0
    while fake.finished is None:
        fake.crash("a")
        crashes += 1
    assert crashes == (3 + 1) * (5 + 1)


def test_a_root_that_gives_up_drains_what_still_works_under_a_deadline() -> None:
    """otp-supervisor 1.3: at the root, drain what still works"""
    bad = group("bad", child("a"), budget=0)
    tree = group("root", bad, pool("w", 2, child("w", shutdown="infinity")), budget=0)
    fake = Fake(tree, {"w": Script(stop=4_000)}, drain_ms=10_000).boot()
    fake.crash("a")
    assert [a.deadline_ms for a in fake.asks] == [10_000, 10_000]
    assert fake.ids() == ["w-1", "w-2"]
    fake.advance(4_000)
    assert fake.finished is not None
    assert fake.finished.outcome == "gave_up"


def test_a_child_that_says_no_restart_will_help_ends_its_group_at_once() -> None:
    """otp-supervisor 1.3: exit code 78"""
    fake = Fake(group("root", child("a", "transient"), child("b"), budget=9)).boot()
    fake.crash("a", ExitReason(Why.CRASH, code=78))
    assert fake.finished is not None
    assert fake.finished.outcome == "gave_up"


def test_a_job_that_exits_with_78_costs_its_worker_only() -> None:
    """case C115: user code runs in pools, and what it does costs that job only"""
    fake = Fake(group("root", pool("w", 2))).boot()
    fake.crash("w-1", ExitReason(Why.CRASH, code=78))
    assert fake.ids() == ["w-1", "w-2"]


@pytest.mark.parametrize("why", [Why.HANG, Why.TIMEOUT, Why.CANCEL, Why.MEMORY, Why.RECYCLE])
def test_ends_that_we_decide_cost_no_budget_and_no_delay(why: Why) -> None:
    """design, section 2; case C083: planned ends are always replaced"""
    spec = child("w", backoff=Backoff(100, 30_000, 0))
    fake = Fake(group("root", pool("w", 2, spec, budget=0), budget=0)).boot()
    for _ in range(50):
        fake.crash("w-1", ExitReason(why))
    assert fake.finished is None
    assert fake.ids() == ["w-1", "w-2"]


def test_the_first_restart_is_immediate_and_the_next_ones_wait_longer_and_longer() -> None:
    """case C047"""
    spec = child("a", backoff=Backoff(100, 30_000, 0))
    fake = Fake(group("root", spec, budget=10_000, period_ms=60_000), {"a": Script(["ok", "error"])}).boot()
    fake.crash("a")
    fake.advance(30_000)
    assert fake.starts("a") < 30
    assert fake.starts("a") == 1 + 1 + 8  # at 0, then after 100, 200 … 12 800 ms
    assert fake.finished is None


def test_a_crash_loop_after_ready_waits_too() -> None:
    """case C047"""
    spec = child("a", backoff=Backoff(100, 30_000, 0.25))
    fake = Fake(group("root", spec, budget=10_000, period_ms=60_000)).boot()
    for _ in range(3_000):
        if "a" in fake.ids():
            fake.crash("a")
        fake.advance(10)
    assert fake.starts("a") < 30


def test_a_healthy_period_resets_the_delay() -> None:
    spec = child("a", backoff=Backoff(100, 30_000, 0))
    fake = Fake(group("root", spec, budget=100, period_ms=1_000)).boot()
    fake.crash("a").crash("a")
    assert fake.ids() == []
    fake.advance(100)
    assert fake.ids() == ["a"]
    fake.advance(1_000)
    fake.crash("a")
    assert fake.ids() == ["a"]


def test_endless_failed_restarts_end_with_the_cause_after_few_starts() -> None:
    """case C046"""
    patient = child("w", backoff=Backoff(100, 30_000, 0))
    tree = group("root", pool("w", 2, patient, budget=3, period_ms=5_000), budget=0)
    fake = Fake(tree, {"w": Script(["ok", "ok", "die"])}).boot()
    fake.crash("w-1").crash("w-2")
    fake.advance(15_000)
    assert fake.finished is not None
    assert "died before its ack" in fake.finished.cause
    assert sum(what == "start" for what, _ in fake.log) <= 3 * 2 + 2


def test_a_failed_fork_waits_a_second_and_costs_no_budget_while_others_work() -> None:
    """acceptance: fork fails"""
    tree = group("root", pool("w", 2, budget=1, period_ms=60_000), budget=0)
    fake = Fake(tree, {"w": Script(["ok", "ok", *["nofork"] * 6, "ok"])}).boot()
    fake.crash("w-1")
    fake.advance(999)
    assert fake.starts("w-1") == 2
    fake.advance(1)
    assert fake.starts("w-1") == 3
    fake.advance(30_000)
    assert fake.ids() == ["w-1", "w-2"]
    assert fake.finished is None


def test_a_pool_that_can_fork_nothing_and_has_nobody_left_ends() -> None:
    """case C043"""
    tree = group("root", pool("w", 1, budget=3, period_ms=60_000), budget=0)
    fake = Fake(tree, {"w": Script(["ok", "nofork"])}).boot()
    fake.crash("w-1")
    fake.advance(60_000)
    assert fake.finished is not None
    assert "EAGAIN" in fake.finished.cause


def test_an_out_of_memory_kill_is_followed_by_a_slow_restart() -> None:
    """otp-supervisor 1.3: oom"""
    fake = Fake(group("root", child("a"))).boot()
    fake.crash("a", ExitReason(Why.OOM, signal=9))
    assert fake.ids() == []
    fake.advance(1_000)
    assert fake.ids() == ["a"]


def test_intensity_is_a_list_of_times() -> None:
    times, over = add_restart((), 0, 2, 1_000)
    times, over = add_restart(times, 10, 2, 1_000)
    assert not over
    kept, over = add_restart(times, 1_000, 2, 1_000)
    assert (kept, over) == ((0, 10, 1_000), True)  # the edge of the period belongs to it
    kept, over = add_restart(times, 1_001, 2, 1_000)
    assert (kept, over) == ((10, 1_001), False)


def test_the_delay_doubles_up_to_its_cap_with_jitter_around_it() -> None:
    rng = Random(1)
    exact = [restart_delay(Backoff(100, 1_000, 0), n, rng) for n in range(7)]
    assert exact == [0, 100, 200, 400, 800, 1_000, 1_000]
    spread = {restart_delay(Backoff(100, 1_000, 0.25), 1, rng) for _ in range(200)}
    assert min(spread) >= 75
    assert max(spread) <= 125
    assert len(spread) > 20
    assert restart_delay(Backoff(100, 1_000, 0.25), 10**6, rng) <= 1_000


def test_a_group_that_fails_to_start_during_a_round_does_not_forget_who_began_it() -> None:
    """Found by random lives: the round of the later child replaced that of the earlier one, which stayed down."""
    inner = group("inner", child("i"), child("j", shutdown=5_000))
    tree = group("root", child("a", backoff=Backoff(50, 50, 0)), inner, strategy="rest_for_one", budget=99)
    fake = Fake(tree).boot()
    fake.scripts |= {"i": Script(stop=100), "j": Script(["error", "ok"])}
    fake._starts.clear()
    fake.crash("a")
    fake.advance(100)  # inner has been renewed, has failed to start, and is still stopping
    fake.crash("a")
    fake.advance(5_000)
    assert fake.ids() == ["a", "i", "j"]
