# SPDX-License-Identifier: MIT
"""Preloading: the app is imported once, many workers are forked from that."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from echomq_pool.config.schema import PoolConfig, WorkersConfig
from echomq_pool.ipc.messages import Bye, Failed, Ready, Stats, Stop
from echomq_pool.supervisor.reaper import Reaper
from echomq_pool.supervisor.spawn import ForkFailed, Spawned
from echomq_pool.supervisor.zygote import Zygote
from tests.support.toy import Hands, ToySpec, gone, toy
from tests.support.waiting import eventually

pytestmark = pytest.mark.forks


def config(app: str) -> PoolConfig:
    group = WorkersConfig("orders", ("orders", "mail"), f"tests.support.{app}:handle", preload=True)
    return PoolConfig(name="toys", workers=(group,))


SPEC = ToySpec("echomq_pool.supervisor.zygote:serve", "zygote-orders", {"group": "orders", "preload": []})


class ZygoteHands(Hands):
    """Hands that hold one zygote."""

    def __init__(self, app: str = "toy_app") -> None:
        super().__init__(config=config(app))
        zygote = Zygote.start(self.spawner, SPEC, 1, 1_000, self.config)
        assert isinstance(zygote, Zygote)
        self.zygote = zygote
        self.children[zygote.process.pid] = zygote.process
        self.failed: list[ForkFailed] = []
        self.reaper = Reaper(lambda pid: pid in self.children, self.learn)

    def learn(self) -> None:
        self.take(self.zygote.read())

    def take(self, born: list[Any]) -> list[Any]:
        for one in born:
            if isinstance(one, Spawned):
                self.children[one.pid] = one
            else:
                self.failed.append(one)
        return born

    def fork(self, spec: ToySpec) -> Spawned:
        """One worker out of the zygote."""
        incarnation, slot = self._next, self._next % 10 + 2
        self._next += 1
        assert self.zygote.request(spec, slot, incarnation) is None

        def look() -> Spawned | None:
            self.learn()
            return next((c for c in self.children.values() if c.incarnation == incarnation), None)

        born: Spawned = eventually(look)
        return born


@pytest.fixture
def held() -> Iterator[ZygoteHands]:
    hands = ZygoteHands()
    yield hands
    hands.close()


def test_a_worker_of_the_zygote_is_a_child_of_the_supervisor_with_the_app_already_imported(
    held: ZygoteHands,
) -> None:
    """Design, section 2: the app is imported once in the zygote."""
    assert isinstance(held.message(held.zygote.process), Ready)
    born = held.fork(toy("surroundings"))
    facts = held.message(born)
    assert isinstance(facts, Stats)
    seen = facts.histograms
    assert seen["ppid"] == os.getpid()
    assert seen["pgid"] == seen["sid"] == born.pid
    assert "tests.support.toy_app" in seen["modules"]
    assert seen["gc"] is True
    assert seen["frozen"] > 10_000
    assert sorted(seen["fds"]) == ["0", "1", "2", "3", "4"]
    assert seen["mask"] == []


def test_the_exit_status_of_its_workers_arrives_here(held: ZygoteHands) -> None:
    """Double fork and subreaper: we are the parent."""
    born = held.fork(toy("returns", code=11, bye="recycle"))
    assert held.end(born).code == 11
    assert isinstance(held.last_words[born.pid][-1].message(), Bye)
    killed = held.fork(toy("good"))
    held.kill(killed)
    assert held.end(killed).signum == signal.SIGKILL


def test_a_worker_that_dies_before_we_heard_of_it_is_still_ours(held: ZygoteHands) -> None:
    """The reply lies in the socket before the worker becomes our child, so the reaper reads it first."""
    held.message(held.zygote.process)
    for incarnation in range(1, 21):
        assert held.zygote.request(toy("returns", code=7, ready=False), 2, incarnation) is None

    def all_ended() -> bool:
        held.collect()
        return len(held.ends) == 20

    eventually(all_ended)
    assert {end.code for end in held.ends.values()} == {7}


def test_workers_survive_the_death_of_their_zygote(held: ZygoteHands) -> None:
    born = held.fork(toy("good"))
    assert isinstance(held.message(born), Ready)
    held.kill(held.zygote.process)
    held.end(held.zygote.process)
    assert not gone(born.pid)
    assert held.stop(born).code == 0


def test_workers_of_a_zygote_do_not_outlive_the_supervisor() -> None:
    """case C065, law 9: the kernel ends them although somebody else had forked them."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        inner = ZygoteHands()
        pids = [inner.fork(toy(name)).pid for name in ("good", "slept", "busy")]
        os.write(write, " ".join(map(str, [inner.zygote.process.pid, *pids])).encode())
        signal.pause()
    pids = [int(word) for word in os.read(read, 1_000).split()]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    eventually(lambda: all(gone(p) for p in pids), within=1)
    os.close(read)
    os.close(write)


def test_requests_that_a_dead_zygote_did_not_answer_have_failed(held: ZygoteHands) -> None:
    held.message(held.zygote.process)
    held.kill(held.zygote.process, signal.SIGSTOP)
    assert held.zygote.request(toy("good"), 2, 77) is None
    held.kill(held.zygote.process)
    held.end(held.zygote.process)
    held.take(held.zygote.lost())
    assert [(f.incarnation, f.errno_name) for f in held.failed] == [(77, "ESRCH")]


def test_a_zygote_leaves_on_stop_and_with_the_supervisor(held: ZygoteHands) -> None:
    process = held.zygote.process
    held.message(process)
    process.channel.send(Stop(deadline_ms=0))
    assert held.end(process).code == 0
    assert isinstance(held.last_words[process.pid][-1].message(), Bye)


@pytest.mark.parametrize(
    ("app", "named"), [("toy_app_thread", "metrics-flusher"), ("toy_app_file", "socket:")]
)
def test_an_app_that_leaves_a_thread_or_a_descriptor_is_refused_by_name(app: str, named: str) -> None:
    """A preload that leaves a thread running is refused with its name."""
    hands = ZygoteHands(app)
    try:
        failed = hands.message(hands.zygote.process)
        assert isinstance(failed, Failed)
        assert named in failed.error
        assert f"tests.support.{app}:handle" in failed.error
        assert failed.final
        assert hands.end(hands.zygote.process).code == 13
    finally:
        hands.close()


def test_an_app_that_cannot_be_imported_says_so_with_its_traceback() -> None:
    """case C051"""
    hands = ZygoteHands("no_such_app")
    try:
        failed = hands.message(hands.zygote.process)
        assert isinstance(failed, Failed)
        assert "no_such_app" in failed.error
        assert "Traceback" in failed.trace
        assert hands.end(hands.zygote.process).code == 13
    finally:
        hands.close()


def test_workers_of_one_zygote_draw_different_random_numbers(held: ZygoteHands) -> None:
    drawn = set()
    for _ in range(4):
        ready = held.message(held.fork(toy("draws")))
        assert isinstance(ready, Ready)
        drawn.add(ready.info)
    assert len(drawn) == 4


def test_the_config_of_a_generation_is_the_one_its_zygote_was_born_with(held: ZygoteHands) -> None:
    held.message(held.zygote.process)
    held.config = replace(held.config, name="other")
    facts = held.message(held.fork(toy("surroundings")))
    assert isinstance(facts, Stats)
    assert "other" not in facts.histograms["cmdline"]
