# SPDX-License-Identifier: MIT
"""Slow, stopped or stuck: the judge on a fake clock, and its eyes on real processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.supervisor.spawn import Spawned
from echomq_pool.supervisor.watchdog import Facts, State, Verdict, Watchdog, Watched, judge, look_at
from tests.support.toy import Hands, toy
from tests.support.waiting import eventually

pytestmark = pytest.mark.forks

SLEEPS_IN = {State.HUNG: "futex_do_wait", State.IDLE: "ep_poll", State.OUTSIDE: "unix_stream_read_generic"}
CALM = Facts("S", 100, 10, None, "ep_poll")


class World:
    """Children as figures, time as a number."""

    def __init__(self, *handles: int, limit_ms: int = 30_000) -> None:
        self.now = 1_000_000
        self.children = {h: Watched(h, h, self.now, limit_ms) for h in handles}
        self.facts: dict[int, Facts | None] = dict.fromkeys(handles, CALM)
        self.beating = set(handles)
        self.dog = Watchdog(lambda pid: self.facts[pid])

    def silent(self, handle: int, facts: Facts | None) -> None:
        self.beating.discard(handle)
        self.facts[handle] = facts

    def run(self, ms: int, step: int = 250) -> list[tuple[int, Verdict]]:
        """Verdicts with the time since the start, looking only when the dog wants to."""
        found: list[tuple[int, Verdict]] = []
        for _ in range(ms // step):
            self.now += step
            for handle in self.beating:
                if handle in self.children:
                    self.children[handle] = replace(self.children[handle], beat_ms=self.now)
            if self.now >= self.dog.next_look_ms:
                found += [(self.now, v) for v in self.dog.look(self.now, list(self.children.values()))]
        return found


def acts(found: list[tuple[int, Verdict]]) -> list[tuple[int, str]]:
    return [(v.handle, v.act) for _, v in found if v.act != "none"]


def test_whoever_beats_is_left_alone() -> None:
    assert World(1, 2, 3).run(600_000) == []


def test_a_deadlocked_loop_is_dumped_within_its_limit_and_a_second() -> None:
    """law 3"""
    world = World(1, 2, 3)
    world.silent(2, Facts("S", 100, 10, None, "futex_do_wait"))
    start = world.now
    found = world.run(120_000)
    assert acts(found) == [(2, "abort")]
    at, verdict = found[0]
    assert 30_000 <= at - start <= 31_500
    assert verdict.state is State.HUNG


def test_a_child_with_a_shorter_limit_is_judged_by_its_own() -> None:
    world = World(1, 2)
    world.children[1] = replace(world.children[1], limit_ms=7_500)
    world.silent(1, Facts("S", 100, 10, None, "futex_wait_queue"))
    start = world.now
    ((at, verdict),) = world.run(60_000)
    assert verdict.act == "abort"
    assert at - start <= 9_000


@pytest.mark.parametrize("wchan", ["unix_stream_read_generic", "tcp_recvmsg", "hrtimer_nanosleep", "do_wait"])
def test_who_waits_for_the_outside_world_is_left_with_a_warning_per_lock_duration(wchan: str) -> None:
    """law 1: whatever user code does to the loop."""
    world = World(1, 2)
    world.silent(1, Facts("S", 100, 10, None, wchan))
    assert acts(world.run(125_000)) == [(1, "warn")] * 4


def test_burning_cpu_is_busy_however_long() -> None:
    world = World(1, 2)
    world.silent(1, Facts("R", 100, 10, -1))
    assert acts(world.run(61_000)) == [(1, "warn")] * 2


def test_a_stopped_child_is_continued_once_and_killed_if_that_does_not_help() -> None:
    world = World(1, 2)
    world.silent(1, Facts("T", 100, 10, None, "do_signal_stop"))
    start = world.now
    found = world.run(60_000)
    assert acts(found) == [(1, "cont"), (1, "kill")]
    assert found[-1][0] - start < 33_000


def test_a_stopped_child_that_beats_again_after_being_continued_is_forgiven() -> None:
    world = World(1, 2)
    world.silent(1, Facts("T", 100, 10, None, "do_signal_stop"))
    assert acts(world.run(30_500)) == [(1, "cont")]
    world.beating.add(1)
    assert acts(world.run(60_000)) == []


def test_an_idle_loop_that_does_not_beat_is_replaced_in_good_order() -> None:
    world = World(1, 2)
    world.silent(1, CALM)
    assert acts(world.run(60_000)) == [(1, "recycle")]


def test_an_unreadable_child_is_left_alone() -> None:
    world = World(1, 2)
    world.silent(1, None)
    assert acts(world.run(61_000)) == [(1, "warn")] * 2


def test_all_stale_at_once_means_the_machine_slept_and_nobody_is_killed() -> None:
    world = World(1, 2, 3)
    for handle in (1, 2, 3):
        world.facts[handle] = Facts("S", 100, 10, None, "futex_do_wait")
    world.now += 3_600_000  # the lid was closed; nobody beat
    world.beating.clear()
    assert world.dog.look(world.now, list(world.children.values())) == []
    assert acts(world.run(10_000)) == []
    world.beating |= {1, 2, 3}
    assert acts(world.run(120_000)) == []


def test_all_stale_for_ever_is_no_sleep() -> None:
    """law 3: skipping a round is not looking away."""
    world = World(1, 2)
    for handle in (1, 2):
        world.silent(handle, Facts("S", 100, 10, None, "futex_do_wait"))
    assert sorted(acts(world.run(60_000))) == [(1, "abort"), (2, "abort")]


def test_a_job_past_its_limit_in_a_stuck_loop_costs_its_process() -> None:
    """The net under the worker's own timers: its deadline on the board."""
    world = World(1, 2)
    world.children[1] = replace(world.children[1], deadline_ms=world.now + 2_000, timed=True)
    start = world.now
    ((at, verdict),) = world.run(20_000)
    assert (verdict.state, verdict.act) == (State.OVERDUE, "kill")
    assert 2_500 <= at - start <= 3_000


def test_a_deadline_that_is_met_meanwhile_costs_nothing() -> None:
    world = World(1, 2)
    world.children[1] = replace(world.children[1], deadline_ms=world.now + 2_000, timed=True)
    assert world.run(2_250) == []
    world.children[1] = replace(world.children[1], deadline_ms=0)
    assert world.run(20_000) == []


def test_an_idle_pool_is_looked_at_a_few_times_per_limit() -> None:
    """law 11"""
    world = World(1, 2, 3)
    looks = 0
    original = world.dog.look

    def counted(now_ms: int, watched: list[Watched]) -> list[Verdict]:
        nonlocal looks
        looks += 1
        return original(now_ms, watched)

    world.dog = Watchdog(lambda pid: CALM)
    for _ in range(2_400):
        world.now += 250
        for h in world.children:
            world.children[h] = replace(world.children[h], beat_ms=world.now)
        if world.now >= world.dog.next_look_ms:
            looks += 1
            world.dog.look(world.now, list(world.children.values()))
    assert looks <= 600_000 / 29_000 + 2


def test_nothing_is_remembered_of_children_that_are_gone() -> None:
    world = World(1, 2)
    world.silent(1, CALM)
    world.run(30_000)
    del world.children[1]
    world.run(1_000)
    world.dog.look(world.now, list(world.children.values()))
    assert not world.dog._suspects


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        (CALM, None, State.UNREADABLE),
        (CALM, replace(CALM, status="t"), State.OUTSIDE),
        (CALM, replace(CALM, status="D", wchan="io_schedule"), State.OUTSIDE),
        (CALM, replace(CALM, cpu_ms=200), State.BUSY),
        (CALM, replace(CALM, switches=200, wchan="futex_do_wait"), State.BUSY),
        (CALM, replace(CALM, wchan=""), State.UNREADABLE),
        (CALM, replace(CALM, wchan="futex_do_wait"), State.HUNG),
        (CALM, replace(CALM, wchan="futex_do_wait", switches=11), State.HUNG),
    ],
)
def test_what_two_looks_mean(first: Facts, second: Facts | None, state: State) -> None:
    assert judge(first, second, 1_000) is state


@pytest.fixture
def held() -> Iterator[Hands]:
    hands = Hands()
    yield hands
    hands.close()


def seen(born: Spawned) -> State:
    first = look_at(born.pid)
    time.sleep(1.0)  # the distance between the looks is the thing itself, not a wait
    return judge(first, look_at(born.pid), 1_000)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("deadlocked", State.HUNG),
        ("busy", State.BUSY),
        ("outside", State.OUTSIDE),
        ("slept", State.OUTSIDE),
        ("idle_without_beat", State.IDLE),
        ("waits_for_the_gil", State.BUSY),
    ],
)
def test_real_processes_are_seen_for_what_they_are(held: Hands, name: str, state: State) -> None:
    born, _ = held.ready(toy(name))
    assert seen(born) is state


def test_a_stopped_process_is_seen_as_stopped(held: Hands) -> None:
    born, _ = held.ready(toy("good"))
    held.kill(born, signal.SIGSTOP)
    assert seen(born) is State.STOPPED


def test_a_hung_child_prints_its_stacks_and_dies_of_the_abort(
    held: Hands, capfd: pytest.CaptureFixture[str]
) -> None:
    born, _ = held.ready(toy("deadlocked"))
    dog = Watchdog()
    watched = Watched(1, born.pid, SYSTEM_CLOCK.mono_ms() - 2_000, 1_000)
    other = replace(watched, handle=2, beat_ms=SYSTEM_CLOCK.mono_ms() + 60_000)
    verdicts: list[Verdict] = []
    while not verdicts:
        verdicts = dog.look(SYSTEM_CLOCK.mono_ms(), [watched, other])
        time.sleep(0.05)
    assert [v.act for v in verdicts] == ["abort"]
    held.kill(born, signal.SIGABRT)
    assert held.end(born).signum == signal.SIGABRT
    assert "deadlocked" in capfd.readouterr().err


def test_a_busy_child_shows_its_stack_and_goes_on(held: Hands, capfd: pytest.CaptureFixture[str]) -> None:
    born, _ = held.ready(toy("busy"))

    def shown() -> bool:
        held.kill(born, signal.SIGUSR2)
        return "in busy" in capfd.readouterr().err

    eventually(shown)
    assert look_at(born.pid) is not None
