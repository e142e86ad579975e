# SPDX-License-Identifier: MIT
"""Deaths: noticed, buried in order, decoded; strangers told from our own."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq_pool.ipc.messages import Bye, Ready
from echomq_pool.supervisor.reaper import Reaper, kill_group, reap, signal_child
from echomq_pool.supervisor.reason import Why
from echomq_pool.supervisor.spawn import Spawned
from echomq_pool.supervisor.status import Evidence, OomMeter, WaitStatus, from_wait, judge
from tests.support.toy import Hands, gone, toy
from tests.support.waiting import eventually

pytestmark = pytest.mark.forks


@pytest.fixture
def held() -> Iterator[Hands]:
    hands = Hands()
    yield hands
    hands.close()


def test_a_killed_idle_child_is_noticed_by_its_pidfd_and_leaves_no_zombie(held: Hands) -> None:
    """case C039"""
    born, _ = held.ready(toy("good"))
    held.kill(born)
    assert select.select([born.pidfd], [], [], 20)[0]
    held.collect()
    assert held.ends[born.pid].signum == signal.SIGKILL
    assert not Path(f"/proc/{born.pid}").exists()


def test_twenty_kills_leave_no_zombie(held: Hands) -> None:
    """case C042"""
    born = [held.ready(toy("slept"))[0] for _ in range(10)]
    for one in born:
        held.kill(one)
    for one in born:
        held.end(one)
    assert not [one.pid for one in born if Path(f"/proc/{one.pid}").exists()]


def test_a_signal_for_a_buried_child_reaches_nobody(held: Hands) -> None:
    """case C045: its pid may be somebody else's by then, its pidfd never is."""
    born, _ = held.ready(toy("good"))
    pidfd = os.dup(born.pidfd)
    held.kill(born)
    held.end(born)
    assert signal_child(pidfd, signal.SIGKILL) is False
    os.close(pidfd)


def test_a_burst_of_deaths_is_taken_in_one_look(held: Hands) -> None:
    """Signals merge: many deaths may be one notice."""
    born = [held.start(toy("returns", code=3)) for _ in range(12)]
    for one in born:
        assert select.select([one.pidfd], [], [], 20)[0]
    held.collect()
    assert [held.ends[one.pid].code for one in born] == [3] * 12


def test_a_look_takes_no_more_than_its_limit(held: Hands) -> None:
    born = [held.start(toy("returns", code=3)) for _ in range(5)]
    for one in born:
        assert select.select([one.pidfd], [], [], 20)[0]
    taken = held.reaper.collect(lambda pid: None, limit=2)
    assert len(taken) == 2
    for end in taken:
        buried = held.children.pop(end.pid)
        buried.channel.close()
        os.close(buried.pidfd)


def test_what_a_child_had_sent_before_its_death_is_read_before_it_is_buried(held: Hands) -> None:
    born = held.start(toy("returns", code=11, bye="recycle"))
    held.end(born)
    words = [f.message() for f in held.last_words[born.pid]]
    assert isinstance(words[0], Ready)
    assert words[-1] == Bye("recycle")


def test_what_a_child_has_started_dies_with_it(held: Hands) -> None:
    """case C067: SIGKILL of the child, then of its group while it is still a zombie."""
    born, ready = held.ready(toy("parent_of_sleepers"))
    pids = [int(word) for word in ready.info.split()]
    assert not any(gone(pid) for pid in pids)
    held.kill(born)
    held.end(born)
    eventually(lambda: all(gone(pid) for pid in pids), within=1)


def test_killing_the_group_of_a_child_without_one_says_so() -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(300)
        os._exit(0)
    assert kill_group(pid) is False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("code", [0, 3, 13, 70])
def test_an_adopted_orphan_is_reaped_and_its_exit_code_means_nothing(
    held: Hands, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """case C054: ownership comes before status."""
    caplog.set_level(logging.DEBUG, "echomq.reaper")
    born, _ = held.ready(toy("orphan_maker", code=code))
    assert held.end(born).code == 0

    def orphan_reaped() -> bool:
        held.collect()
        return f"exit code {code}" in caplog.text

    eventually(orphan_reaped)
    assert list(held.ends) == [born.pid]


def test_a_child_that_somebody_else_reaped_is_unknown() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    end = reap(pid)
    assert end.unknown
    assert judge(end, Evidence(acked=True)).kind is Why.UNKNOWN


def test_late_knowledge_makes_a_stranger_ours() -> None:
    """A zygote's reply may come with the death: it is read before a stranger is reaped."""
    known: set[int] = set()
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    reaper = Reaper(lambda p: p in known, lambda: known.add(pid))
    ends: list[WaitStatus] = eventually(lambda: reaper.collect(lambda p: None))
    assert [(e.pid, e.code) for e in ends] == [(pid, 5)]


def test_the_peak_memory_of_a_child_comes_with_its_end(held: Hands) -> None:
    born = held.start(toy("returns", code=0))
    assert held.end(born).peak_bytes > 4_000_000


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0x0300, "exit code 3"),
        (9, "signal SIGKILL"),
        (11 | 0x80, "signal SIGSEGV (core dumped)"),
        (40, "signal 40"),
    ],
)
def test_a_wait_status_in_words(status: int, text: str) -> None:
    assert str(from_wait(1, status)) == text


OK = Evidence(acked=True)
ASKED = Evidence(acked=True, asked=True)


@pytest.mark.parametrize(
    ("end", "known", "kind"),
    [
        (WaitStatus(1, 0), Evidence(acked=True, bye="normal"), Why.NORMAL),
        (WaitStatus(1, 0), OK, Why.CRASH),
        (WaitStatus(1, 0), Evidence(acked=True, bye="recycle"), Why.CRASH),
        (WaitStatus(1, 0), ASKED, Why.SHUTDOWN),
        (WaitStatus(1, 10), ASKED, Why.SHUTDOWN),
        (WaitStatus(1, 0), Evidence(acked=True, asked=True, why=Why.SCALE), Why.SCALE),
        (WaitStatus(1, 10), OK, Why.CRASH),
        (WaitStatus(1, 11), Evidence(acked=True, bye="recycle"), Why.RECYCLE),
        (WaitStatus(1, 11), OK, Why.CRASH),
        (WaitStatus(1, 13), OK, Why.BOOT_FAILED),
        (WaitStatus(1, 0), Evidence(), Why.BOOT_FAILED),
        (WaitStatus(1, signum=11), Evidence(), Why.BOOT_FAILED),
        (WaitStatus(1, 0), Evidence(asked=True), Why.SHUTDOWN),
        (WaitStatus(1, signum=6), Evidence(aborted=True), Why.BOOT_FAILED),
        (WaitStatus(1, 1), OK, Why.CRASH),
        (WaitStatus(1, 1), ASKED, Why.CRASH),
        (WaitStatus(1, 78), OK, Why.CRASH),
        (WaitStatus(1, 12), OK, Why.ORPHANED),
        (WaitStatus(1, signum=11), OK, Why.SIGNAL),
        (WaitStatus(1, signum=9), OK, Why.SIGNAL),
        (WaitStatus(1, signum=9), Evidence(acked=True, oom=True), Why.OOM),
        (WaitStatus(1, signum=11), Evidence(acked=True, oom=True), Why.SIGNAL),
        (WaitStatus(1, signum=9), Evidence(acked=True, asked=True, killed=True), Why.KILLED),
        (WaitStatus(1, signum=9), Evidence(acked=True, killed=True, oom=True), Why.KILLED),
        (WaitStatus(1, signum=9), Evidence(acked=True, killed=True, why=Why.TIMEOUT), Why.TIMEOUT),
        (WaitStatus(1, signum=9), Evidence(acked=True, killed=True, why=Why.SCALE), Why.KILLED),
        (WaitStatus(1, signum=6), Evidence(acked=True, aborted=True, why=Why.HANG), Why.HANG),
        (WaitStatus(1, signum=6), OK, Why.SIGNAL),
        (WaitStatus(1, signum=11), Evidence(acked=True, asked=True, killed=True), Why.SIGNAL),
    ],
)
def test_each_row_of_the_reason_table(end: WaitStatus, known: Evidence, kind: Why) -> None:
    assert judge(end, known).kind is kind


def test_a_sigkill_from_outside_is_called_that() -> None:
    assert "from outside" in judge(WaitStatus(1, signum=9), OK).text


@pytest.mark.parametrize(
    ("code", "bye", "kind"),
    [(0, "normal", Why.NORMAL), (0, "", Why.CRASH), (11, "recycle", Why.RECYCLE), (256, "", Why.CRASH)],
)
def test_reasons_of_real_ends(held: Hands, code: int, bye: str, kind: Why) -> None:
    born: Spawned = held.start(toy("returns", code=code, bye=bye))
    end = held.end(born)
    words = [f.message() for f in held.last_words[born.pid]]
    last = words[-1]
    known = Evidence(
        acked=any(isinstance(m, Ready) for m in words), bye=last.reason if isinstance(last, Bye) else None
    )
    assert judge(end, known).kind is kind


@pytest.mark.parametrize(
    ("membership", "file"),
    [
        ("0::/pool.slice\n", "pool.slice/memory.events"),
        ("0::/elsewhere\n", "memory.events"),
        ("4:cpu,memory:/docker/x\n0::/\n", "memory/docker/x/memory.oom_control"),
        ("4:memory:/docker/x\n", "memory/memory.oom_control"),
    ],
)
def test_out_of_memory_kills_are_counted_in_both_cgroup_versions(
    tmp_path: Path, membership: str, file: str
) -> None:
    (tmp_path / "self").write_text(membership)
    counter = tmp_path / file
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_text("oom 3\noom_kill 2\n")
    meter = OomMeter(tmp_path, tmp_path / "self")
    assert meter.count() == 2
    assert not meter.rose()
    counter.write_text("oom 4\noom_kill 3\n")
    assert meter.rose()
    assert not meter.rose()


def test_without_a_readable_counter_nothing_is_called_out_of_memory(tmp_path: Path) -> None:
    meter = OomMeter(tmp_path, tmp_path / "none")
    assert meter.count() is None
    assert not meter.rose()
