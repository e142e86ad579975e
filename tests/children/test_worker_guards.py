# SPDX-License-Identifier: MIT
"""What a worker tells of the leases that its jobs take, and what it makes of the answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.ipc.messages import Guards, GuardsLost, Relearn
from echomq_pool.plane.guard import GuardKeys
from tests.support.guard_jobs import notes
from tests.support.hub import SLOT, Hub, Jobs, config_for
from tests.support.servers import Server
from tests.support.waiting import eventually

BASE = GuardKeys("emq").base


class Bench:
    """One worker, and the test in the lock manager's place."""

    def __init__(self, folder: Path, hub: Hub, jobs: Jobs) -> None:
        self.folder, self.hub, self.jobs = folder, hub, jobs

    def hold(self, name: str, ms: int, ttl: str = "60s") -> Guards:
        """A job that holds a lease; what was told of that."""
        self.jobs.put(lease=name, folder=str(self.folder), how="sleep", ms=ms, ttl=ttl)
        found: Guards = eventually(
            lambda: next((word for word in self.words() if word.held and word.held[0][0] == name), None)
        )
        return found

    def words(self) -> list[Guards]:
        return self.hub.of(Guards)

    def noted(self, word: str) -> list[str]:
        return [name for name, _, _ in notes(self.folder, word)]


@pytest.fixture
def bench(valkey_server: Server, queue_name: str, tmp_path: Path) -> Iterator[Bench]:
    config = config_for(valkey_server, (queue_name,), "guard_jobs:hold", concurrency=8)
    with Hub(config) as hub:
        yield Bench(tmp_path, hub, Jobs(valkey_server, queue_name))


def test_a_lease_is_told_when_it_is_taken_and_when_it_is_given_back(bench: Bench) -> None:
    """law 1"""
    began = SYSTEM_CLOCK.mono_ms()
    told = bench.hold("a", 200)
    ((name, token, ttl_ms, stamp_ms),) = told.held
    assert (name, ttl_ms, told.worker_id) == ("a", 60_000, bench.hub.worker_id)
    assert began <= stamp_ms <= SYSTEM_CLOCK.mono_ms()
    over = eventually(lambda: [word for word in bench.words() if token in word.freed])[0]
    assert over.number > told.number > 0
    assert bench.noted("kept") == ["a"]
    assert not bench.jobs.client.exists(BASE + "a")


def test_jobs_without_leases_tell_nothing_and_call_nothing(bench: Bench) -> None:
    """law 11"""
    with bench.jobs.client.monitor() as monitor:
        for _ in range(20):
            bench.jobs.put()  # fails at once: it names no lease
        bench.jobs.done(20)
        bench.jobs.client.set(bench.jobs.key("the-end"), 1)
        for command in monitor.listen():
            assert ":guard:" not in command["command"]
            if "the-end" in command["command"]:
                break
    assert bench.words() == []


def test_a_new_lock_manager_is_told_all_that_is_still_held(bench: Bench) -> None:
    """law 9: in parts, of which only the last has a number"""
    told = [bench.hold(f"n{number}", 60_000) for number in range(3)]
    short = bench.hold("short", 1)
    token = short.held[0][1]
    eventually(lambda: [word for word in bench.words() if token in word.freed])
    before = len(bench.words())
    bench.hub.send(Relearn(2))
    again = eventually(lambda: bench.words()[before:])
    assert [row[:3] for word in again for row in word.held] == [word.held[0][:3] for word in told]
    assert [word.number > max(w.number for w in told) for word in again] == [True]


def test_the_boards_word_keeps_a_lease_held_and_the_worker_out_of_it(bench: Bench) -> None:
    """law 4: whoever renews has said so there; nothing need have come through the loop"""
    told = bench.hold("b", 4_000, ttl="1500ms")
    renewed: list[Any] = []
    while not (bench.noted("kept") or bench.noted("lost")):
        bench.hub.board.set_guards(SLOT, told.number, SYSTEM_CLOCK.mono_ms())
        renewed.append(bench.jobs.client.exists(BASE + "b"))
        time.sleep(0.01)
    assert bench.noted("kept") == ["b"]
    assert renewed[-1] == 0, "it was renewed by the worker, too"


def test_a_word_that_does_not_know_of_a_lease_does_not_count_for_it(bench: Bench) -> None:
    """law 3, law 4: the worker then renews by itself"""
    told = bench.hold("c", 5_000, ttl="2s")
    there: list[int] = []
    while not (bench.noted("kept") or bench.noted("lost")):
        bench.hub.board.set_guards(SLOT, told.number - 1, SYSTEM_CLOCK.mono_ms())
        there.append(bench.jobs.client.exists(BASE + "c"))
        time.sleep(0.01)
    assert bench.noted("kept") == ["c"]
    assert there[:-5].count(0) == 0


def test_a_lease_told_to_be_lost_is_lost_and_forgotten(bench: Bench) -> None:
    """law 4, law 5"""
    told = bench.hold("d", 1_000)
    token = told.held[0][1]
    bench.hub.send(GuardsLost("somebody else", [token]))
    bench.hub.send(GuardsLost(bench.hub.worker_id, ["unknown", token]))
    answer = eventually(lambda: [word for word in bench.words() if token in word.freed])[0]
    assert answer.number > told.number
    eventually(lambda: bench.noted("lost") == ["d"])
    assert bench.noted("kept") == []
