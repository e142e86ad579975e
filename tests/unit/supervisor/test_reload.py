# SPDX-License-Identifier: MIT
"""New specifications at run time: the rules alone, or a rolling reload."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echomq_pool.supervisor.spec import GroupSpec
from tests.support.fake_world import Fake, Script, child, group, pool


def tree(generation: int, *, workers: int = 3, extra: str = "", budget: int = 3) -> GroupSpec:
    infra = [child(name, generation=generation) for name in ("events", "locks")]
    if extra:
        infra.append(child(extra, generation=generation))
    zygote = child("zygote", surge=True, generation=generation)
    workers_group = pool("w", workers, child("w", generation=generation), budget=budget)
    return group("root", group("infra", *infra), zygote, workers_group)


def generations(fake: Fake) -> dict[str, int]:
    return {spec.id: spec.generation for spec in fake.alive.values()}


def test_a_reload_replaces_everything_and_capacity_never_falls() -> None:
    """acceptance: code_change (SIGHUP); otp-supervisor 3.3, reload"""
    fake = Fake(tree(1), {"w": Script(start_ms=50, stop=200)}).boot().advance(50)
    ticket = fake.ask("reconfigure", tree(2))
    for _ in range(60):
        up = [c for c in fake.alive.values() if c.id.startswith("w-")]
        assert 3 <= len(up) <= 4
        fake.advance(20)
    assert fake.replies[ticket].ok
    assert set(generations(fake).values()) == {2}
    assert len(fake.alive) == 6
    assert fake.tree.root.spec == tree(2)


def test_one_heir_of_the_new_generation_acks_before_anything_else_is_touched() -> None:
    fake = Fake(tree(1)).boot()
    fake.scripts["w"] = Script(["wait"])
    fake.log.clear()
    fake.ask("reconfigure", tree(2))
    assert [name for what, name in fake.log if what == "start"] == ["zygote", "w-4"]
    assert [name for what, name in fake.log if what == "ask"] == ["zygote"]


def test_code_that_does_not_boot_leaves_the_old_ones_running() -> None:
    """acceptance: code_change (bad ones refused, old stay)"""
    fake = Fake(tree(1)).boot()
    before = {k: v for k, v in fake.handles().items() if k != "zygote"}
    fake.scripts["w"] = Script(["error"])
    answer = fake.call("reconfigure", tree(2))
    assert (answer.error, answer.detail) == ("reload_failed", "no such module")
    assert {k: v for k, v in fake.handles().items() if k != "zygote"} == before
    assert fake.tree.root.spec == tree(1)
    fake.scripts["w"] = Script()
    fake.crash("w-1")
    assert len(fake.alive) == 6


def test_an_app_that_the_new_zygote_cannot_import_changes_nothing_at_all() -> None:
    fake = Fake(tree(1)).boot()
    before = fake.handles()
    fake.scripts["zygote"] = Script(["error"])
    assert fake.call("reconfigure", tree(2)).error == "reload_failed"
    assert fake.handles() == before


def test_a_singleton_that_does_not_start_comes_back_as_it_was() -> None:
    fake = Fake(tree(1)).boot()
    fake.scripts["locks"] = Script(["error", "ok"])
    assert fake.call("reconfigure", tree(2)).error == "reload_failed"
    fake.advance(1_000)
    found = generations(fake)
    assert found["locks"] == 1
    assert found["events"] == 1
    assert {found[f"w-{n}"] for n in (1, 2, 3)} == {1}
    assert len(fake.alive) == 6


def test_a_later_heir_that_fails_stops_the_reload_half_way_and_nobody_is_lost() -> None:
    fake = Fake(tree(1)).boot()
    fake.scripts["w"] = Script(["ok", "error"])
    fake._starts.clear()
    answer = fake.call("reconfigure", tree(2))
    assert answer.error == "reload_failed"
    fake.advance(10_000)
    workers = [g for name, g in generations(fake).items() if name.startswith("w-")]
    assert sorted(workers) == [1, 1, 2]


def test_a_reload_takes_new_sizes_budgets_children_and_drops_what_has_vanished() -> None:
    """acceptance: code_change_map"""
    fake = Fake(tree(1, extra="observer")).boot()
    assert fake.call("reconfigure", tree(2, workers=5, extra="scheduler", budget=9)).ok
    assert sum(i.startswith("w-") for i in fake.ids()) == 5
    assert "observer" not in fake.ids()
    assert "scheduler" in fake.ids()
    found = fake.tree.group("w")
    assert found is not None
    assert found.spec.max_restarts == 9
    assert fake.call("reconfigure", tree(3, workers=1)).ok
    assert sum(i.startswith("w-") for i in fake.ids()) == 1


def test_a_new_zygote_is_up_before_the_first_worker_that_needs_it() -> None:
    """issue: `preload = true` switched on, or a preloaded group added, by a reload"""
    fake = Fake(group("root", group("infra", child("events")), pool("w", 2, child("w")))).boot()
    fake.log.clear()
    zygotes = [child(f"zygote-{name}", surge=True, generation=2) for name in ("w", "x")]
    infra = group("infra", child("events"), *zygotes)
    x = pool("x", 1, child("x", generation=2))
    assert fake.call("reconfigure", group("root", infra, pool("w", 2, child("w", generation=2)), x)).ok
    started = [name for what, name in fake.log if what == "start"]
    assert started[:2] == ["zygote-w", "zygote-x"]
    assert len(fake.alive) == 6


def test_a_reload_right_after_a_failed_one_waits_for_its_undoing() -> None:
    """issue: HUP; the mistake is corrected while the old singletons are still coming back"""
    fake = Fake(tree(1)).boot()
    fake.scripts["events"] = Script(start_ms=500)
    fake.scripts["locks"] = Script(["error", "ok"])
    bad = fake.ask("reconfigure", tree(2))
    for _ in range(40):
        if bad in fake.replies:
            break
        fake.advance(100)
    assert fake.replies[bad].error == "reload_failed"
    good = fake.ask("reconfigure", tree(3))
    fake.advance(10_000)
    assert fake.replies[good].ok, fake.replies[good]
    assert set(generations(fake).values()) == {3}
    assert len(fake.alive) == 6


def test_groups_come_and_go_with_a_reload() -> None:
    fake = Fake(group("root", pool("a", 1), pool("b", 1))).boot()
    assert fake.call("reconfigure", group("root", pool("a", 1), pool("c", 2))).ok
    assert fake.ids() == ["a-1", "c-1", "c-2"]
    assert fake.tree.group("b") is None


def test_two_pools_roll_side_by_side() -> None:
    def both(generation: int) -> GroupSpec:
        return group("root", *(pool(n, 3, child(n, generation=generation)) for n in ("a", "b")))

    fake = Fake(both(1), {"*": Script(stop=1_000)}).boot()
    ticket = fake.ask("reconfigure", both(2))
    fake.advance(3_000)
    assert fake.replies[ticket].ok
    assert set(generations(fake).values()) == {2}


def test_a_second_reload_waits_for_nobody_and_is_refused() -> None:
    fake = Fake(tree(1), {"w": Script(stop=1_000)}).boot()
    first = fake.ask("reconfigure", tree(2))
    assert fake.call("reconfigure", tree(3)).error == "restarting"
    fake.advance(5_000)
    assert fake.replies[first].ok
    assert fake.call("reconfigure", tree(2)).ok


def test_an_unchanged_specification_touches_nobody() -> None:
    fake = Fake(tree(1)).boot()
    before = fake.handles()
    assert fake.call("reconfigure", tree(1)).ok
    assert fake.handles() == before


def test_a_reload_replaces_a_worker_that_hangs_in_its_start() -> None:
    fake = Fake(tree(1, workers=1, budget=99)).boot()
    fake.scripts["w"] = Script(["silent"])
    fake.crash("w-1")
    fake.scripts["w"] = Script()
    assert fake.call("reconfigure", tree(2, workers=1)).ok
    assert [g for name, g in generations(fake).items() if name.startswith("w-")] == [2]


def test_a_stop_during_a_reload_ends_everything() -> None:
    fake = Fake(tree(1), {"w": Script(stop=1_000, start_ms=100)}).boot().advance(100)
    ticket = fake.ask("reconfigure", tree(2))
    fake.advance(150)
    fake.stop().advance(5_000)
    assert fake.finished is not None
    assert fake.alive == {}
    assert fake.replies[ticket].error == "reload_failed"


def test_new_rules_alone_start_nobody_and_keep_everybody() -> None:
    """acceptance: code_change, code_change_map"""
    fake = Fake(group("root", child("a"), child("b"), budget=0)).boot()
    handles = fake.handles()
    new = group("root", child("c"), child("a", shutdown=77), strategy="one_for_all", budget=5)
    assert fake.call("reconfigure", new, roll=False).ok
    assert fake.handles() == handles
    known = {row[0]: row[1] for row in fake.tree.which_children("root") or []}
    assert known == {"a": handles["a"], "b": handles["b"], "c": None}
    assert fake.tree.get_childspec("root", "a").value.shutdown == 77
    assert fake.call("restart_child", "root", "c").ok
    fake.call("terminate_child", "root", "b")
    assert fake.call("delete_child", "root", "b").ok
    fake.crash("a")
    assert fake.ids() == ["a", "c"]
    assert fake.handle("a") != handles["a"]


def test_bad_new_rules_are_refused_and_the_old_ones_stay() -> None:
    """acceptance: code_change, code_change_simple"""
    spec = group("root", child("a"), pool("w", 1))
    fake = Fake(spec).boot()
    assert fake.call("reconfigure", group("root", child("w"))).error == "bad_spec"
    assert fake.call("reconfigure", group("root", child("a"), group("w"))).error == "bad_spec"
    assert fake.call("reconfigure", group("root", group("x"), group("y", group("x")))).error == "bad_spec"
    assert fake.tree.root.spec == spec


@pytest.mark.parametrize("roll", [True, False])
def test_a_template_can_be_swapped(roll: bool) -> None:
    """acceptance: code_change_simple, code_change_simple_map"""
    fake = Fake(group("root", pool("w", 2))).boot()
    before = fake.handles()
    swapped = group("root", pool("w", 2, child("w", args={"new": 1})))
    assert fake.call("reconfigure", swapped, roll=roll).ok
    assert (fake.handles() == before) != roll
    fake.call("start_child", "w")
    newest = fake.tree.leaf(max(fake.alive))
    assert newest is not None
    assert newest.spec.args == {"new": 1}
    assert replace(newest.spec, id="w") == child("w", args={"new": 1})
