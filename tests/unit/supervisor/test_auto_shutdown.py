# SPDX-License-Identifier: MIT
"""When a group ends by itself, because significant children have ended for good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from echomq_pool.errors import SpecError
from echomq_pool.supervisor.reason import ExitReason
from echomq_pool.supervisor.spec import AutoShutdown, GroupSpec, Restart
from tests.support.fake_world import CRASH, KILL, NORMAL, Fake, child, group, pool

ANY, ALL, NEVER = AutoShutdown.ANY, AutoShutdown.ALL, AutoShutdown.NEVER


def ended(fake: Fake) -> bool:
    if fake.finished is not None:
        assert fake.finished.outcome == "shutdown"
        assert fake.alive == {}
    return fake.finished is not None


def two(mode: AutoShutdown, restart: str, *, significant: bool = True, strategy: str = "one_for_one") -> Fake:
    """A group of two such children and a permanent one."""
    children = [child(f"s{i}", restart, significant=significant) for i in (1, 2)]
    return Fake(group("root", child("p"), *children, auto_shutdown=mode, budget=9, strategy=strategy)).boot()


@pytest.mark.parametrize("mode", list(AutoShutdown))
@pytest.mark.parametrize("restart", ["temporary", "transient"])
def test_ends_of_insignificant_children_never_end_the_group(mode: AutoShutdown, restart: str) -> None:
    """acceptance: nonsignificant_temporary, nonsignificant_transient"""
    for reason in (KILL, CRASH, NORMAL):
        fake = two(mode, restart, significant=False)
        fake.crash("s1", reason)
        fake.call("terminate_child", "root", "s2")
        assert not ended(fake)


@pytest.mark.parametrize("reason", [KILL, CRASH, NORMAL])
def test_any_end_of_a_significant_temporary_child_counts_unless_asked_for(reason: ExitReason) -> None:
    """acceptance: significant_temporary"""
    fake = two(ANY, "temporary")
    fake.call("terminate_child", "root", "s1")
    assert not ended(fake)
    fake.crash("s2", reason)
    assert ended(fake)
    fake = two(ALL, "temporary")
    fake.crash("s1", reason)
    assert not ended(fake)
    fake.crash("s2", reason)
    assert ended(fake)


def test_only_the_good_end_of_a_significant_transient_child_counts() -> None:
    """acceptance: significant_transient"""
    fake = two(ANY, "transient")
    fake.call("terminate_child", "root", "s1")
    fake.crash("s2", KILL).crash("s2", CRASH)
    assert not ended(fake)
    fake.crash("s2", NORMAL)
    assert ended(fake)
    fake = two(ALL, "transient")
    fake.crash("s1", NORMAL).crash("s2", CRASH)
    assert not ended(fake)
    fake.crash("s2", NORMAL)
    assert ended(fake)


def test_significance_is_refused_where_it_cannot_work() -> None:
    """acceptance: significant_simple"""
    with pytest.raises(SpecError, match="auto_shutdown"):
        replace(pool("w", 1), auto_shutdown=ANY)
    with pytest.raises(SpecError, match="significant"):
        child("a", "permanent", significant=True)
    with pytest.raises(SpecError, match="significant"):
        group("root", child("a", "transient", significant=True))


@pytest.mark.parametrize("mode", [ANY, ALL])
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
@pytest.mark.parametrize("restart", ["temporary", "transient"])
def test_a_significant_bystander_that_is_stopped_ends_nothing(
    mode: AutoShutdown, strategy: str, restart: str
) -> None:
    """acceptance: significant_bystander"""
    tree = group(
        "root", child("p"), child("s", restart, significant=True), auto_shutdown=mode, strategy=strategy
    )
    fake = Fake(tree).boot()
    fake.crash("p")
    assert not ended(fake)
    assert "p" in fake.ids()


@pytest.mark.parametrize("significant", [True, False])
def test_an_inner_shutdown_ends_the_outer_group_only_if_the_inner_is_significant(significant: bool) -> None:
    """acceptance: significant_escalation"""
    inner = group("inner", child("s", "temporary", significant=True), auto_shutdown=ANY)
    inner = replace(inner, restart=Restart.TRANSIENT, significant=significant)
    fake = Fake(group("root", child("p"), inner, auto_shutdown=ANY)).boot()
    fake.crash("s", NORMAL)
    assert ended(fake) == significant


def test_a_permanent_group_that_shut_itself_down_is_started_again() -> None:
    inner = group("inner", child("s", "temporary", significant=True), auto_shutdown=ANY)
    fake = Fake(group("root", inner)).boot()
    fake.crash("s", NORMAL)
    assert fake.ids() == ["s"]


Later = Callable[[Fake], None]


@pytest.mark.parametrize(
    ("before", "after", "first", "second"),
    [(NEVER, ANY, True, True), (ANY, NEVER, False, False), (NEVER, ALL, False, True), (ALL, NEVER, False, False),
     (ANY, ALL, False, True), (ALL, ANY, True, True)],
)  # fmt: skip
def test_a_mode_changed_at_run_time_rules_the_later_ends(
    before: AutoShutdown, after: AutoShutdown, first: bool, second: bool
) -> None:
    """acceptance: significant_upgrade_never_any, significant_upgrade_any_never, significant_upgrade_never_all,
    significant_upgrade_all_never, significant_upgrade_any_all, significant_upgrade_all_any"""
    fake = Fake(tree_of(before)).boot()
    handles = dict(fake.handles())
    assert fake.call("reconfigure", tree_of(after), roll=False).ok
    assert fake.handles() == handles
    fake.crash("s1", NORMAL)
    assert ended(fake) == first
    if not first:
        fake.crash("s2", NORMAL)
        assert ended(fake) == second


def test_a_new_child_follows_the_new_mode() -> None:
    """acceptance: significant_upgrade_never_any"""
    fake = Fake(group("root", child("p"))).boot()
    late = child("late", "temporary", significant=True)
    assert fake.call("start_child", "root", late).error == "bad_spec"
    fake.call("reconfigure", group("root", child("p"), auto_shutdown=ANY), roll=False)
    assert fake.call("start_child", "root", late).ok
    fake.crash("late", NORMAL)
    assert ended(fake)


def test_the_significance_of_a_child_can_change_both_ways() -> None:
    """acceptance: significant_upgrade_child"""

    def tree(significant: bool) -> GroupSpec:
        return group("root", child("p"), child("s", "transient", significant=significant), auto_shutdown=ANY)

    for before, after in ((False, True), (True, False)):
        fake = Fake(tree(before)).boot()
        assert fake.call("reconfigure", tree(after), roll=False).ok
        fake.crash("s", NORMAL)
        assert ended(fake) == after


def tree_of(mode: AutoShutdown) -> GroupSpec:
    significant = mode is not NEVER
    children = [child(f"s{i}", "temporary", significant=significant) for i in (1, 2)]
    return group("root", child("p"), *children, auto_shutdown=mode)
