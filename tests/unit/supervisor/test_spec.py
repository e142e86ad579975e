# SPDX-License-Identifier: MIT
"""Specifications: defaults, every bad field named, every valid combination accepted."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from echomq_pool.errors import SpecError
from echomq_pool.supervisor.spec import (
    Backoff,
    ChildSpec,
    GroupSpec,
    Restart,
    Strategy,
    check_tree,
    child_spec,
    group_spec,
)
from echomq_pool.supervisor.strategy import Start, Stop, plan
from tests.support.fake_world import child, group

GOOD: dict[str, Any] = {"id": "a", "start": "pkg.mod:run"}
TEMPLATE = {"id": "w", "start": "pkg.mod:run"}


def test_defaults_are_those_of_otp() -> None:
    """acceptance: sup_start_map"""
    spec = child_spec(GOOD)
    assert spec == ChildSpec(
        "a", "pkg.mod:run", {}, Restart.PERMANENT, 5_000, False, 60_000, Backoff(), 0, "fork"
    )
    made = group_spec({"id": "g"})
    assert (made.strategy, made.max_restarts, made.period_ms, made.auto_shutdown) == (
        "one_for_one",
        1,
        5_000,
        "never",
    )
    assert made.shutdown == "infinity"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"id": None}, "id"), ({"id": ""}, "id"), ({"id": 7}, "id"), ({"id": "x" * 65}, "id"),
        ({"start": "nocolon"}, "start"), ({"start": 3}, "start"), ({"start": "a:b:c"}, "start"),
        ({"args": [1]}, "args"), ({"restart": "sometimes"}, "restart"), ({"shutdown": -1}, "shutdown"),
        ({"shutdown": "soon"}, "shutdown"), ({"shutdown": True}, "shutdown"), ({"significant": 1}, "significant"),
        ({"start_timeout_ms": 0}, "start_timeout_ms"), ({"backoff": 3}, "backoff"),
        ({"backoff": {"jitter": 1.5}}, "backoff"), ({"backoff": {"speed": 1}}, "speed"),
        ({"generation": -1}, "generation"), ({"spawner": "thread"}, "spawner"), ({"surge": "yes"}, "surge"),
        ({"stop_first": 0}, "stop_first"), ({"colour": "red"}, "colour"),
        ({"significant": True}, "significant"),
    ],
)  # fmt: skip
def test_each_bad_field_of_a_child_is_named(change: dict[str, Any], named: str) -> None:
    """acceptance: sup_start_map_faulty_specs, child_specs_map"""
    with pytest.raises(SpecError, match=f"\\b{named}\\b"):
        child_spec(GOOD | change)


@pytest.mark.parametrize("missing", ["id", "start"])
def test_missing_fields_are_named(missing: str) -> None:
    """acceptance: sup_start_map_faulty_specs"""
    with pytest.raises(SpecError, match=f"{missing}: missing"):
        child_spec({k: v for k, v in GOOD.items() if k != missing})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"strategy": "two_for_one"}, "strategy"), ({"max_restarts": -1}, "max_restarts"),
        ({"max_restarts": "many"}, "max_restarts"), ({"period_ms": 0}, "period_ms"),
        ({"period_ms": float("inf")}, "period_ms"), ({"auto_shutdown": "perhaps"}, "auto_shutdown"),
        ({"children": 3}, "children"), ({"children": [3]}, "child"), ({"children": [GOOD, GOOD]}, "duplicate id 'a'"),
        ({"strategy": "dynamic"}, "template"),
        ({"strategy": "dynamic", "template": TEMPLATE, "children": [GOOD]}, "template"),
        ({"template": TEMPLATE, "children": [GOOD]}, "children"), ({"count": 2}, "count"),
        ({"strategy": "dynamic", "template": TEMPLATE, "auto_shutdown": "any_significant"}, "auto_shutdown"),
        ({"strategy": "dynamic", "template": TEMPLATE, "count": 3, "max_children": 2}, "max_children"),
        ({"significant": True}, "significant"), ({"drain": -2}, "drain"), ({"intensity": 3}, "intensity"),
        ({"children": [GOOD | {"restart": "transient", "significant": True}]}, "significant"),
    ],
)  # fmt: skip
def test_each_bad_flag_of_a_group_is_named(change: dict[str, Any], named: str) -> None:
    """acceptance: sup_flags, child_specs_map"""
    with pytest.raises(SpecError, match=named):
        group_spec({"id": "g"} | change)


def test_every_valid_combination_passes() -> None:
    """acceptance: child_specs_map"""
    for restart, shutdown, spawner in itertools.product(
        Restart, (0, 5_000, "brutal_kill", "infinity"), ("fork", "zygote:orders")
    ):
        spec = child_spec(GOOD | {"restart": restart.value, "shutdown": shutdown, "spawner": spawner})
        assert spec.restart is restart
    for strategy in Strategy:
        body = {"template": TEMPLATE, "count": 2} if strategy is Strategy.DYNAMIC else {"children": [GOOD]}
        assert group_spec({"id": "g", "strategy": strategy.value} | body).strategy is strategy


def test_nested_mappings_become_a_tree() -> None:
    made = group_spec(
        {"id": "root", "children": [GOOD, {"id": "g", "strategy": "rest_for_one", "children": [GOOD]}]}
    )
    assert isinstance(made.children[0], ChildSpec)
    assert isinstance(made.children[1], GroupSpec)
    check_tree(made)


def test_two_groups_of_one_name_are_refused() -> None:
    with pytest.raises(SpecError, match="'x'"):
        check_tree(group("root", group("x"), group("y", group("x"))))


ALL = [child("a"), child("t", "temporary"), child("b"), child("c")]


def test_the_plan_of_each_strategy() -> None:
    """style, habit 4: the rules can be checked on paper"""
    assert plan(Strategy.ONE_FOR_ONE, ALL, "b") == [Start("b")]
    assert plan(Strategy.DYNAMIC, ALL, "b") == [Start("b")]
    assert plan(Strategy.REST_FOR_ONE, ALL, "b") == [Stop("c"), Start("b"), Start("c")]
    whole = [Stop("c"), Stop("t"), Stop("a"), Start("a"), Start("b"), Start("c")]
    assert plan(Strategy.ONE_FOR_ALL, ALL, "b") == whole
    assert plan(Strategy.REST_FOR_ONE, ALL, "a")[-3:] == [Start("a"), Start("b"), Start("c")]
