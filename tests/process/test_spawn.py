# SPDX-License-Identifier: MIT
"""The fork recipe: what a child is born with, and what it is not."""

from __future__ import annotations

import errno
import os
import random
import resource
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from echomq_pool.config.schema import PoolConfig, WorkersConfig
from echomq_pool.ipc.messages import Bye, Failed, Quiet, Ready, Stats
from echomq_pool.supervisor.signals import Inbox
from echomq_pool.supervisor.spawn import ForkFailed, Spawned
from echomq_pool.supervisor.threads import other_threads
from echomq_pool.supervisor.titles import title
from tests.support.toy import Hands, ToySpec, gone, toy
from tests.support.waiting import eventually

pytestmark = pytest.mark.forks


@pytest.fixture
def held() -> Iterator[Hands]:
    hands = Hands()
    yield hands
    hands.close()


def facts(held: Hands, born: Spawned) -> dict[str, Any]:
    message = held.message(born)
    assert isinstance(message, Stats)
    return message.histograms


def descriptors() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


def test_a_child_acks_serves_and_leaves_when_told(held: Hands) -> None:
    born, _ = held.ready(toy("good"))
    born.channel.send(Quiet())
    assert held.message(born) == Quiet()
    assert held.stop(born).code == 0
    assert held.last_words[born.pid][-1].message() == Bye("shutdown")


def test_a_child_has_no_descriptor_beyond_its_allow_list(held: Hands) -> None:
    """CLOEXEC does nothing over a plain fork: siblings' channels, selectors, sockets must all be closed."""
    sibling, _ = held.ready(toy("good"))
    listener = socket.create_server(("127.0.0.1", 0))
    selector = selectors.DefaultSelector()
    selector.register(sibling.channel, selectors.EVENT_READ)
    with listener, selector:
        seen = facts(held, held.start(toy("surroundings")))
    assert sorted(seen["fds"]) == ["0", "1", "2", "3", "4"]
    assert seen["fds"]["0"] == "/dev/null"
    assert seen["fds"]["4"].startswith("/memfd:echomq-board")


def test_the_supervisors_selector_survives_its_children(held: Hands) -> None:
    """The epoll set is shared: a child that unregistered from it would make us deaf."""
    sibling, _ = held.ready(toy("good"))
    with selectors.DefaultSelector() as selector:
        held.spawner.own(selector)
        selector.register(sibling.channel, selectors.EVENT_READ)
        held.stop(held.ready(toy("good"))[0])
        sibling.channel.send(Quiet())
        assert selector.select(20)


def test_end_of_file_comes_although_siblings_were_forked_meanwhile(held: Hands) -> None:
    """A sibling that holds the other end would keep it open for ever."""
    first, _ = held.ready(toy("mute"))
    held.ready(toy("good"))

    def closed() -> bool:
        first.channel.receive()
        return first.channel.closed

    eventually(closed)
    assert not gone(first.pid)  # end of file is not death


def test_extra_descriptors_arrive_under_new_numbers(held: Hands) -> None:
    here, there = socket.socketpair()
    with here, there:
        seen = facts(held, held.start(toy("surroundings"), extra_fds=[there.fileno()]))
    assert seen["extra"] == [5]
    assert sorted(seen["fds"]) == ["0", "1", "2", "3", "4", "5"]


def test_a_child_starts_with_default_handlers_no_mask_no_wakeup_and_its_own_session(
    held: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    inbox = Inbox()
    held.spawner.own(inbox)
    try:
        born = held.start(toy("surroundings"))
        seen = facts(held, born)
    finally:
        inbox.close()
    assert seen["mask"] == []
    assert seen["wakeup"] == -1
    assert seen["pgid"] == seen["sid"] == born.pid
    assert seen["ppid"] == os.getpid()
    assert seen["notify"] is None
    ignored_or_quiet = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}
    assert set(seen["handled"]) == ignored_or_quiet | {signal.SIGPIPE, signal.SIGXFSZ}


def test_a_childs_signals_do_not_reach_our_inbox(held: Hands) -> None:
    inbox = Inbox()
    held.spawner.own(inbox)
    try:
        born, _ = held.ready(toy("good"))
        inbox.read()
        for _ in range(20):
            held.kill(born, signal.SIGTERM)
        born.channel.send(Quiet())
        assert held.message(born) == Quiet()
        assert signal.SIGTERM not in inbox.read()
    finally:
        inbox.close()


def test_children_take_no_orders_by_term_and_int(held: Hands) -> None:
    """case C059"""
    born, _ = held.ready(toy("good"))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        held.kill(born, number)
    born.channel.send(Quiet())
    assert held.message(born) == Quiet()


def test_what_a_job_starts_can_be_terminated_all_the_same(held: Hands) -> None:
    """case C068: neither a subprocess nor a forked process inherits the deafness."""
    born, ready = held.ready(toy("parent_of_sleepers"))
    pids = [int(word) for word in ready.info.split()]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: all(gone(pid) for pid in pids))
    assert not gone(born.pid)


def test_what_a_job_forks_does_not_hold_our_channel(held: Hands) -> None:
    """case C068: end of file must mean that the worker itself is gone."""
    born, ready = held.ready(toy("parent_of_sleepers"))
    ours = (Path(f"/proc/{born.pid}/fd") / "3").readlink()
    for word in ready.info.split():
        links = {path.readlink() for path in Path(f"/proc/{word}/fd").iterdir()}
        assert ours not in links


def test_a_signal_at_the_moment_of_the_fork_reaches_the_supervisor_and_spares_the_child(
    held: Hands,
) -> None:
    """case C052: a small dose; TERM lands anywhere around the fork, on parent and child alike."""
    inbox = Inbox()
    held.spawner.own(inbox)
    got = 0
    try:
        for _ in range(40):
            pid = os.fork()
            if pid == 0:
                time.sleep(random.random() * 0.003)
                os.kill(os.getppid(), signal.SIGTERM)
                os._exit(0)
            born, _ = held.ready(toy("good"))
            os.waitpid(pid, 0)
            got += signal.SIGTERM in inbox.read()
            held.kill(born, signal.SIGTERM)
            assert held.stop(born).code == 0
    finally:
        inbox.close()
    assert got == 40


def test_a_failed_start_is_told_with_its_traceback(held: Hands) -> None:
    """case C051"""
    born = held.start(toy("raises"))
    failed = held.message(born)
    assert isinstance(failed, Failed)
    assert failed.error == "ValueError: no such thing as a good start"
    assert "Traceback" in failed.trace
    assert held.end(born).code == 13


@pytest.mark.parametrize("start", ["no.such.module:x", "os:no_such_function", "os:sep", "nonsense"])
def test_a_start_function_that_is_not_there_is_a_failed_start(held: Hands, start: str) -> None:
    born = held.start(ToySpec(start))
    assert isinstance(held.message(born), Failed)
    assert held.end(born).code == 13


def test_an_exception_after_the_ack_is_a_crash_and_climbs_into_no_frame_of_ours(
    held: Hands, capfd: pytest.CaptureFixture[str]
) -> None:
    born, _ = held.ready(toy("raises_later"))
    assert held.end(born).code == 1
    assert "it went well for a while" in capfd.readouterr().err


@pytest.mark.parametrize("value", [0, 1, "text", 256])
def test_sys_exit_in_a_child_runs_nothing_of_the_parents_and_never_looks_like_a_good_end(
    held: Hands, value: object
) -> None:
    """sys.exit(256) would read as 0, sys.exit("x") as 1."""
    born, _ = held.ready(toy("exits", **{"with": value}))
    assert held.end(born).code == 1


def test_an_orphan_does_not_outlive_its_supervisor(held: Hands) -> None:
    """case C065, C066: SIGKILL to the parent; the kernel ends the child even while a job blocks its loop."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        inner = Hands()
        pids = [inner.ready(toy(name))[0].pid for name in ("good", "slept", "busy")]
        os.write(write, " ".join(map(str, pids)).encode())
        time.sleep(300)
        os._exit(0)
    pids = [int(word) for word in os.read(read, 1_000).split()]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    killed = time.monotonic()
    eventually(lambda: all(gone(p) for p in pids), within=5)
    assert time.monotonic() - killed < 1
    os.close(read)
    os.close(write)


def test_the_lock_manager_lives_on_and_learns_of_it_by_end_of_file(held: Hands) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        born, _ = Hands().ready(toy("undertaker"), dies_with_parent=False)
        os.write(write, str(born.pid).encode())
        time.sleep(300)
        os._exit(0)
    child = int(os.read(read, 100))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    eventually(lambda: gone(child), within=5)
    _, status = os.waitpid(child, 0)  # we are a subreaper: the orphan came to us
    assert os.waitstatus_to_exitcode(status) == 12
    os.close(write)
    os.close(read)


def test_a_fork_that_fails_is_a_value_with_the_kernels_word(
    held: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """case C043: EAGAIN of the process limit comes as BlockingIOError, ENOMEM as OSError."""
    before = len(descriptors())
    for number, name in ((errno.EAGAIN, "EAGAIN"), (errno.ENOMEM, "ENOMEM")):

        def refuse(number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fork", refuse)
        failed = held.spawner.spawn(toy("good"), 1, 1, held.config)
        assert isinstance(failed, ForkFailed)
        assert failed.errno_name == name
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    assert len(descriptors()) == before


def test_running_out_of_descriptors_is_a_value_and_leaves_no_child(held: Hands) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(descriptors())
    try:
        for spare in (0, 1, 2, 3):
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1 + spare, hard))
            born = held.spawner.spawn(toy("good"), 1, 1, held.config)
            if isinstance(born, ForkFailed):
                assert born.errno_name == "EMFILE"
            else:
                held.children[born.pid] = born
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    held.collect()


def test_we_do_not_fork_beside_another_thread(held: Hands) -> None:
    """case C069, C071: a lock that a thread holds at the fork stays held in the child for ever."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="logger")
    thread.start()
    try:
        failed = held.spawner.spawn(toy("good"), 1, 1, held.config)
        assert isinstance(failed, ForkFailed)
        assert failed.errno_name == "EDEADLK"
    finally:
        stop.set()
        thread.join()
    eventually(lambda: not other_threads())
    held.ready(toy("good"))


def test_a_socket_of_the_parent_is_not_disturbed_by_children_that_come_and_go(held: Hands) -> None:
    """case C073"""
    here, there = socket.socketpair()
    with here, there:
        for _ in range(10):
            held.end(held.start(toy("returns", code=0)))
        here.sendall(b"still open")
        assert there.recv(100) == b"still open"


def test_the_slot_is_cleared_for_its_new_tenant(held: Hands) -> None:
    held.board.beat(2, 99)
    born, _ = held.ready(toy("returns", code=0))
    assert born.slot == 2
    held.end(born)
    assert held.board.beat_ms(2) == 0


@pytest.mark.parametrize("deaths", [100, pytest.param(1_000, marks=pytest.mark.soak)])
def test_a_thousand_deaths_leak_neither_descriptors_nor_memory(held: Hands, deaths: int) -> None:
    def bury_one() -> None:
        held.last_words.clear()
        held.ends.clear()
        held.end(held.start(toy("returns", code=3)))

    for _ in range(20):
        bury_one()
    before, memory = len(descriptors()), psutil.Process().memory_info().rss
    for _ in range(deaths):
        bury_one()
    assert len(descriptors()) == before
    assert psutil.Process().memory_info().rss - memory < 2_000_000


def test_the_limit_of_open_files_grows_with_the_pool() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        Hands(slots=300).close()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(300 * 3 + 64, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_titles_tell_pool_slot_and_queues(held: Hands) -> None:
    """case C065"""
    pytest.importorskip("setproctitle")
    group = WorkersConfig("orders", ("orders", "mail"), "a:b")
    held.config = PoolConfig(name="web", workers=(group,))
    assert title(held.config, "orders-3", {"group": "orders"}) == "echomq: web orders-3 [orders,mail]"
    seen = facts(held, held.start(toy("surroundings", group="orders")))
    assert seen["cmdline"] == "echomq: web toy [orders,mail]"


@pytest.mark.parametrize("broken", ["raise ImportError('gone')", "raise RuntimeError('no title for you')"])
def test_a_title_library_that_is_missing_or_raises_costs_only_the_name(
    held: Hands, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, broken: str
) -> None:
    """case C077"""
    (tmp_path / "setproctitle.py").write_text(broken)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "setproctitle", raising=False)
    born, ready = held.ready(toy("good"))
    assert isinstance(ready, Ready)
    assert held.stop(born).code == 0


def test_forking_raises_no_deprecation_warning() -> None:
    """case C075: also where newer interpreters warn about threads at a fork."""
    program = (
        "from tests.support.toy import hands, toy\n"
        "with hands() as held:\n"
        "    for _ in range(3):\n"
        "        born, _ = held.ready(toy('good'))\n"
        "        assert held.stop(born).code == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_supervisors_modules_import_nothing_heavy() -> None:
    """law 8"""
    program = (
        "import importlib, pkgutil, sys\n"
        "import echomq_pool.supervisor as here\n"
        "for module in pkgutil.iter_modules(here.__path__):\n"
        "    importlib.import_module(f'echomq_pool.supervisor.{module.name}')\n"
        "heavy = {'redis', 'hiredis', 'asyncio', 'pydantic', 'aiohttp', 'click', 'rich', 'multiprocessing'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
