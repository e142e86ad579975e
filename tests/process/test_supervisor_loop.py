# SPDX-License-Identifier: MIT
"""The supervisor's loop with real processes that need no server: starts, ends, frames, signals, exit codes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.loop import Loop, child, pool
from tests.support.waiting import eventually


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path)
    yield made
    made.destroy()


def worker(loop: Loop, name: str = "w", start: str = "worker", **args: object) -> dict[str, object]:
    return child(name, start, loop.folder, args=args)


def locks(loop: Loop, **args: object) -> dict[str, object]:
    return child("lock_manager", "lock_manager", loop.folder, args=args)


def over(pid: int) -> bool:
    """Whether it runs no more; who has to reap it depends on where the tests run."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_children_start_in_order_and_leave_in_reverse(loop: Loop) -> None:
    """acceptance: order_of_children; promise of exit code 0"""
    loop.start(child("a", folder=loop.folder), child("b", folder=loop.folder), pool("w", 2, worker(loop)))
    started = [line.split("id=")[1].split()[0] for line in loop.lines("progress: started", "type=worker")]
    assert started[:2] == ["a", "b"]
    assert loop.stop() == 0
    ended = [line.split(" (pid")[0].split()[-1] for line in loop.lines("ended: shutdown")]
    assert sorted(ended[:2]) == ["w-1", "w-2"]
    assert ended[2:] == ["b", "a"]


def test_a_first_start_that_fails_exits_13_with_the_trace_and_leaves_nobody(loop: Loop) -> None:
    """acceptance: faulty_application_shutdown; case C051"""
    loop.start(child("a", folder=loop.folder), child("bad", "broken"), ready=False)
    assert loop.wait() == 13
    assert loop.lines("bad cannot start: RuntimeError: there is no shop module")
    assert loop.lines("bad |", "loop_children.py")
    assert loop.heard("a", "STOP")
    assert not psutil.pid_exists(loop.heard("a", "born")[0][1])


def test_a_child_that_never_acks_is_shown_with_its_stack_and_killed(loop: Loop) -> None:
    """acceptance: ack timeout; case C050"""
    loop.start(child("mute", "mute", start_timeout_ms=300), ready=False)
    assert loop.wait() == 13
    assert "boot timeout: no ack within 300 ms" in loop.log()
    assert "in mute" in loop.log()  # the line of its stack


def test_a_killed_child_is_replaced_at_once_and_its_death_is_one_line(loop: Loop) -> None:
    """case C037, C039; promise: every death is one log line"""
    loop.start(child("a", folder=loop.folder), pool("w", 3, worker(loop)))
    before = loop.pids()
    victim = loop.pids("w-2")[0]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: loop.pids("w-2") not in ([], [victim]) and loop.is_ready(), within=2)
    assert len(set(before) & set(loop.pids())) == 3
    lines = [
        line for line in loop.lines(f"{victim}") if "DEBUG" not in line.upper() and "started" not in line
    ]
    assert len(lines) == 1, lines
    assert "w-2" in lines[0]
    assert "SIGKILL: from outside" in lines[0]


def test_a_pool_past_its_budget_exits_70_after_the_others_have_left(loop: Loop) -> None:
    """otp-supervisor 3.2: exit codes"""
    doomed = {
        "id": "doomed",
        "strategy": "one_for_one",
        "max_restarts": 1,
        "children": [child("x", folder=loop.folder)],
    }
    loop.start(child("a", folder=loop.folder), doomed)
    for _ in range(20):
        if loop.process is None or loop.process.poll() is not None:
            break
        for process in loop.family():
            if process.pid == (loop.heard("x", "born") or [[0, 0]])[-1][1]:
                process.kill()
        time.sleep(0.1)
    assert loop.wait() == 70
    assert loop.heard("a", "STOP")
    assert loop.lines("the pool gave up")


def test_frames_sent_before_a_death_come_before_the_word_of_it(loop: Loop) -> None:
    """acceptance: restart drops no frame sent before death"""
    loop.start(locks(loop), pool("w", 1, worker(loop, does="die holding"), max_restarts=1_000))
    heard = eventually(
        lambda: (h := loop.diary("lock_manager")) and sum(e[0] == "DOWN" for e in h) >= 3 and h
    )
    order = [e[0] for e in heard if e[0] in ("HELD", "DOWN")]
    assert order[:6] == ["HELD", "DOWN"] * 3
    down = next(e for e in heard if e[0] == "DOWN")
    assert down[6:8] == [False, "exit code 3"]
    assert len(next(e for e in heard if e[0] == "HELD")[3]) == 200


def test_a_new_lock_manager_is_told_of_the_living_and_the_dead_and_asks_for_all_that_is_held(
    loop: Loop,
) -> None:
    """law 9; design, section 3: a lock manager that dies meanwhile is told again"""
    lazy = loop.folder / "lazy"
    lazy.touch()
    loop.start(locks(loop, lazy=str(lazy)), pool("w", 2, worker(loop)))
    os.kill(loop.pids("w-1")[0], signal.SIGKILL)
    eventually(lambda: loop.heard("lock_manager", "DOWN") and loop.is_ready())
    first = loop.pids("lock_manager")[0]
    lazy.unlink()
    os.kill(first, signal.SIGKILL)
    eventually(
        lambda: loop.pids("lock_manager") not in ([], [first]) and loop.ask("status")["recovering"] == 0
    )
    again = [e for e in loop.diary("lock_manager") if e[1] != first]
    assert [e[2] for e in again if e[0] == "DOWN"] == [e[2] for e in loop.heard("lock_manager", "DOWN")][:1]
    assert len([e for e in again if e[0] == "UP"]) >= 2
    eventually(lambda: sum(e[1] != first for e in loop.heard("lock_manager", "HELD")) == 2)
    assert loop.heard("w-2", "RELEARN")


def test_a_worker_with_an_overdue_job_is_killed_and_the_job_named_at_no_cost(loop: Loop) -> None:
    """design, section 4: over its timeout; case C152"""
    template = worker(loop, does="overdue", until=4)
    loop.start(locks(loop), pool("w", 1, template, max_restarts=0), ready=False)
    (down,) = eventually(lambda: loop.heard("lock_manager", "DOWN"))
    assert down[6:9] == [True, "timeout", [["toys", "7", "timeout", "timed out after 100 ms"]]]
    eventually(loop.is_ready)
    assert loop.stop() == 0


def test_a_wish_brings_the_heir_before_the_old_one_leaves(loop: Loop) -> None:
    """case C078, C083"""
    loop.start(pool("w", 1, worker(loop, does="wish", until=3), max_restarts=0), ready=False)
    eventually(lambda: loop.heard("w-1", "STOP"))
    (stop,) = loop.heard("w-1", "STOP")
    assert stop[4] == "recycle"
    assert loop.heard("w-2", "born")
    eventually(lambda: [c["id"] for c in loop.children()] == ["w-2"])


def test_a_pool_grows_and_shrinks_on_request(loop: Loop) -> None:
    """issue: scale reaches any group"""
    loop.start(pool("w", 2, worker(loop)))
    assert loop.ask("scale", group="w", n=3)["running"] == 3
    assert loop.ask("scale", group="w", n=1)["target"] == 1
    eventually(lambda: len(loop.pids("w")) == 1)
    assert "not_found" in loop.refused("scale", group="nowhere", n=1)


def test_one_more_and_one_fewer_by_signal(loop: Loop) -> None:
    """issue: TTIN and TTOU change the first group by one"""
    loop.start(pool("v", 1, worker(loop, "v")), pool("w", 1, worker(loop)))
    loop.signal(signal.SIGTTIN)
    eventually(lambda: len(loop.pids("w")) == 2 and loop.is_ready())
    loop.signal(signal.SIGTTOU)
    eventually(lambda: len(loop.pids("w")) == 1)
    assert len(loop.pids("v")) == 1


def test_quiet_and_resume_reach_the_workers_and_those_born_later(loop: Loop) -> None:
    """design, section 3.3"""
    loop.start(child("a", folder=loop.folder), pool("w", 1, worker(loop)))
    loop.signal(signal.SIGTSTP)
    eventually(lambda: loop.heard("w-1", "QUIET"))
    assert loop.ask("status")["state"] == "quiet"
    os.kill(loop.pids("w-1")[0], signal.SIGKILL)
    eventually(lambda: len(loop.heard("w-1", "QUIET")) == 2)
    loop.signal(signal.SIGCONT)
    eventually(lambda: loop.heard("w-1", "RESUME"))
    assert not loop.heard("a", "QUIET")


def test_a_dump_shows_states_and_stacks(loop: Loop) -> None:
    """issue: USR2 dumps states and stacks"""
    loop.start(child("a", folder=loop.folder))
    loop.signal(signal.SIGUSR2)
    eventually(lambda: loop.lines("id=a", "state=running") and "loop_children.py" in loop.log())
    assert loop.is_ready()


def test_a_reload_replaces_every_process_and_takes_the_new_tree(loop: Loop) -> None:
    """issue: HUP, rolling reload"""
    loop.start(child("a", folder=loop.folder), pool("w", 2, worker(loop)))
    before = set(loop.pids())
    loop.write(child("a", folder=loop.folder), pool("w", 3, worker(loop)))
    loop.signal(signal.SIGHUP)
    eventually(lambda: loop.lines("reload: done"))
    eventually(lambda: len(loop.pids()) == 4 and loop.is_ready())
    assert not before & set(loop.pids())
    assert {c["generation"] for c in loop.children()} == {1}


def test_a_reload_asked_for_during_another_is_done_after_it(loop: Loop) -> None:
    """issue: HUP, rolling reload; the last word about the configuration is never lost"""
    loop.start(pool("w", 1, worker(loop)))
    for size in (2, 3, 4):
        loop.write(pool("w", size, worker(loop)))
        loop.signal(signal.SIGHUP)
        eventually(lambda n=size: len(loop.lines("reloading")) + len(loop.lines("once more")) >= n - 1)  # type: ignore[misc]
    eventually(lambda: len(loop.pids()) == 4 and loop.is_ready())
    assert not loop.lines("a reload is going on")


def test_a_reload_that_cannot_be_read_or_does_not_boot_leaves_everybody_alone(loop: Loop) -> None:
    """issue: a config or code that does not boot leaves the old ones running"""
    flag = loop.folder / "flag"
    flag.touch()
    template = worker(loop, start="flag", flag=str(flag))
    loop.start(child("a", folder=loop.folder), pool("w", 2, template))
    before = loop.pids()
    (loop.folder / "tree.json").write_text("{nonsense")
    assert loop.refused("reload").startswith("config: tree.json")
    loop.write(child("a", folder=loop.folder), pool("w", 2, template))
    flag.unlink()
    assert "the flag is down" in loop.refused("reload")
    assert loop.pids() == before
    flag.touch()
    assert loop.ask("reload") is True


def test_scaling_up_with_code_that_does_not_start_is_reported_and_harms_nobody(loop: Loop) -> None:
    """case C048"""
    flag = loop.folder / "flag"
    flag.touch()
    loop.start(pool("w", 2, worker(loop, start="flag", flag=str(flag)), max_restarts=0))
    before = loop.pids()
    flag.unlink()
    assert "the flag is down" in loop.refused("scale", group="w", n=3)
    assert loop.pids() == before


def test_a_deaf_worker_is_killed_at_the_deadline_and_the_exit_code_says_so(loop: Loop) -> None:
    """promise of exit code 75"""
    template = worker(loop, stop_ms=-1) | {"shutdown": "infinity"}
    loop.start(locks(loop), pool("w", 1, template), shutdown_timeout_ms=700)
    begin = time.monotonic()
    assert loop.stop() == 75
    assert 0.6 < time.monotonic() - begin < 3.7
    (down,) = loop.heard("lock_manager", "DOWN")
    assert down[6] is True
    assert [e[0] for e in loop.diary("lock_manager")][-2:] == ["DOWN", "STOP"]


def test_a_later_second_term_hurries_and_an_early_one_does_not(loop: Loop) -> None:
    """case C064"""
    template = worker(loop, stop_ms=-1) | {"shutdown": "infinity"}
    loop.start(pool("w", 1, template), shutdown_timeout_ms=60_000)
    loop.signal(signal.SIGTERM)
    eventually(lambda: loop.heard("w-1", "STOP"))
    loop.signal(signal.SIGTERM)
    time.sleep(1.1)  # the time that makes the third one a second one
    assert len(loop.heard("w-1", "STOP")) == 1
    loop.signal(signal.SIGTERM)
    assert loop.wait() == 0
    assert [stop[3] for stop in loop.heard("w-1", "STOP")] == [False, True]


def test_quit_is_fast_from_the_first(loop: Loop) -> None:
    loop.start(pool("w", 1, worker(loop, stop_ms=-1)), shutdown_timeout_ms=60_000)
    loop.signal(signal.SIGQUIT)
    assert loop.wait() == 0
    assert loop.heard("w-1", "STOP")[0][3] is True


def test_those_who_start_nothing_new_are_told_so_at_once(loop: Loop) -> None:
    """otp-supervisor 3.3: all workers stop fetching at once"""
    slow = worker(loop, stop_ms=600)
    loop.start(
        locks(loop),
        child("stalled_checker", folder=loop.folder),
        pool("v", 1, worker(loop, "v")),
        pool("w", 1, slow),
    )
    assert loop.stop() == 0
    assert loop.heard("v-1", "QUIET")
    assert loop.heard("stalled_checker", "QUIET")
    assert not loop.heard("lock_manager", "QUIET")


def test_a_stopped_child_is_woken_then_killed_and_replaced(loop: Loop) -> None:
    """acceptance: SIGSTOPped child; law 3"""
    loop.start(child("a", folder=loop.folder), child("b", "plain", loop.folder), hang_timeout_ms=1_500)
    pid = loop.pids("a")[0]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: loop.lines("a (pid", "stopped by a signal", "woken"))
    eventually(loop.is_ready)
    assert loop.pids("a") == [pid]  # it went on when it was woken


def test_grandchildren_end_with_their_worker(loop: Loop) -> None:
    """case C066; acceptance: grandchild cleanup"""
    loop.start(pool("w", 1, worker(loop, does="beget")))
    (begot,) = eventually(lambda: loop.heard("w-1", "begot"))
    os.kill(loop.pids("w")[0], signal.SIGKILL)
    eventually(
        lambda: not psutil.pid_exists(begot[2]) or psutil.Process(begot[2]).status() == psutil.STATUS_ZOMBIE
    )


def test_nobody_outlives_a_killed_supervisor(loop: Loop) -> None:
    """law 9: acceptance: supervisor SIGKILLed → no process left in 1 s"""
    loop.start(locks(loop), child("a", folder=loop.folder), pool("w", 3, worker(loop)))
    family = loop.family()
    assert len(family) == 5
    loop.signal(signal.SIGKILL)
    eventually(lambda: all(over(process.pid) for process in family), within=1.5)


def test_many_deaths_leave_no_descriptor_and_no_zombie(loop: Loop) -> None:
    """case C038, C042; acceptance: 1000 crashes leak neither fd nor memory (small dose)"""
    loop.start(locks(loop), pool("w", 4, worker(loop), max_restarts=10_000))
    supervisor = psutil.Process(loop.pid)
    before = supervisor.num_fds()
    for _ in range(60):
        victims = eventually(lambda: len(found := loop.pids("w")) == 4 and found)
        os.kill(victims[0], signal.SIGKILL)
        eventually(lambda: len(loop.lines(f"pid {victims[0]}) ended")) == 1)  # noqa: B023 - called at once
    eventually(lambda: loop.is_ready() and len(loop.pids("w")) == 4)
    eventually(lambda: supervisor.num_fds() <= before)
    assert all(p.status() != psutil.STATUS_ZOMBIE for p in supervisor.children())
    assert loop.ask("status")["recovering"] == 0
    assert "Traceback" not in loop.log()


def test_a_restart_on_request_brings_a_new_process(loop: Loop) -> None:
    loop.start(child("a", folder=loop.folder), pool("w", 1, worker(loop)))
    a, w = loop.pids("a"), loop.pids("w")
    assert loop.ask("restart", child="a") is True
    assert loop.ask("restart", child="w-1") is True
    eventually(loop.is_ready)
    assert loop.pids("a") != a
    assert loop.pids("w") != w
    assert "not_found" in loop.refused("restart", child="nobody")
    assert "unknown_verb" in loop.refused("dance")


def test_a_term_in_the_middle_of_a_slow_boot_is_obeyed(loop: Loop) -> None:
    """case C056"""
    loop.start(child("a", folder=loop.folder), child("slow", "mute"), ready=False)
    eventually(lambda: loop.heard("a", "born"))
    assert loop.stop() in (0, 75)
    assert not loop.family()


def test_an_idle_supervisor_sleeps(loop: Loop) -> None:
    """law 11"""
    loop.start(locks(loop), child("a", folder=loop.folder), pool("w", 2, worker(loop)))
    supervisor = psutil.Process(loop.pid)
    eventually(lambda: loop.ask("status")["uptime_s"] >= 1)
    before = supervisor.cpu_times()
    time.sleep(2)  # what is measured is that nothing happens
    after = supervisor.cpu_times()
    assert (after.user + after.system) - (before.user + before.system) < 0.05
