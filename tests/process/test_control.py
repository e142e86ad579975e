# SPDX-License-Identifier: MIT
"""The control socket: who may speak, what is answered, who is hung up on."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from echomq_pool.clock import FakeClock
from echomq_pool.supervisor.control import (
    ASK_MS,
    MAX_CLIENTS,
    REPLY_MS,
    REQUEST_CAP,
    Asked,
    ControlError,
    ControlServer,
    Conversation,
    PoolRunning,
    call,
)
from tests.support.waiting import eventually


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "pool.sock"


@pytest.fixture
def server(path: Path, clock: FakeClock) -> Iterator[ControlServer]:
    server = ControlServer(path, clock)
    yield server
    server.close()


def dial(server: ControlServer) -> tuple[socket.socket, Conversation]:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(str(server.path))
    (conversation,) = eventually(server.accept)
    return client, conversation


def asked(conversation: Conversation) -> Asked | None:
    assert select.select([conversation], [], [], 20)[0]
    return conversation.read()


def answering(path: Path, answer: Callable[[Conversation, Asked], None]) -> int:
    """A process that answers one request; its pid."""
    pid = os.fork()
    if pid:
        eventually(path.exists)
        return pid
    server = ControlServer(path)
    select.select([server], [], [])
    (conversation,) = server.accept()
    request = asked(conversation)
    assert request is not None
    answer(conversation, request)
    while not conversation.done:
        conversation.write()
    os._exit(0)


def test_a_question_and_its_answer(path: Path) -> None:
    pid = answering(path, lambda c, a: c.reply({"verb": a.verb, "args": a.args}))
    assert call(path, "scale", {"group": "orders", "n": 6}) == {
        "ok": True,
        "value": {"verb": "scale", "args": {"group": "orders", "n": 6}},
    }
    os.waitpid(pid, 0)


def test_an_error_is_an_answer_too(path: Path) -> None:
    pid = answering(path, lambda c, a: c.reply(error="not_found", detail="no child x"))
    assert call(path, "restart", {"child": "x"}) == {
        "ok": False,
        "error": "not_found",
        "detail": "no child x",
    }
    os.waitpid(pid, 0)


def test_a_long_answer_goes_out_in_pieces_without_blocking(path: Path) -> None:
    pid = answering(path, lambda c, a: c.reply("x" * 3_000_000))
    assert len(call(path, "status")["value"]) == 3_000_000
    os.waitpid(pid, 0)


def test_a_request_may_come_in_pieces(server: ControlServer) -> None:
    client, conversation = dial(server)
    with client:
        client.sendall(b'{"verb": ')
        assert asked(conversation) is None
        client.sendall(b'"status"}\n')
        assert asked(conversation) == Asked("status", {})
        assert not conversation.asking
        conversation.reply(7)
        assert json.loads(client.recv(1_000)) == {"ok": True, "value": 7}
        assert conversation.done


def test_a_client_that_shuts_its_side_after_asking_is_answered(server: ControlServer) -> None:
    client, conversation = dial(server)
    with client:
        client.sendall(b'{"verb": "status"}')
        client.shutdown(socket.SHUT_WR)
        assert asked(conversation) is None
        assert asked(conversation) == Asked("status", {})


@pytest.mark.parametrize(
    "line", [b"hello\n", b"[]\n", b"{}\n", b'{"verb": 3}\n', b'{"verb": "x", "args": [1]}\n', b"\xff\n"]
)
def test_a_request_that_is_none_gets_a_clear_no(server: ControlServer, line: bytes) -> None:
    client, conversation = dial(server)
    with client:
        client.sendall(line)
        assert asked(conversation) is None
        assert json.loads(client.recv(1_000))["error"] == "bad_request"
        assert conversation.done


def test_an_endless_request_is_refused(server: ControlServer) -> None:
    client, conversation = dial(server)
    with client:
        client.setblocking(False)
        sent = 0
        while sent <= REQUEST_CAP and not conversation.done:
            try:
                sent += client.send(b"x" * 16_384)
            except BlockingIOError:
                conversation.read()
        while not conversation.done:
            conversation.read()
        assert json.loads(client.recv(1_000))["error"] == "too_long"


def test_a_client_that_leaves_is_forgotten(server: ControlServer) -> None:
    client, conversation = dial(server)
    client.close()
    assert asked(conversation) is None
    assert conversation.done
    assert server.overdue(0) == [conversation]
    server.drop(conversation)
    assert not server.conversations


def test_a_client_that_leaves_before_its_answer_harms_nobody(server: ControlServer) -> None:
    client, conversation = dial(server)
    client.sendall(b'{"verb": "status"}\n')
    assert asked(conversation) is not None
    client.close()
    conversation.reply("x" * 1_000_000)
    assert conversation.done


def test_silence_and_deafness_have_a_limit_but_our_own_work_has_none(
    server: ControlServer, clock: FakeClock
) -> None:
    client, conversation = dial(server)
    with client:
        assert server.next_deadline() == clock.mono_ms() + ASK_MS
        clock.advance(ASK_MS - 1)
        assert server.overdue(clock.mono_ms()) == []
        clock.advance(1)
        assert server.overdue(clock.mono_ms()) == [conversation]
        client.sendall(b'{"verb": "stop"}\n')
        assert asked(conversation) is not None
        clock.advance(10 * ASK_MS)
        assert server.overdue(clock.mono_ms()) == []
        conversation.reply("x" * 3_000_000, now_ms=clock.mono_ms())
        assert conversation.replying
        clock.advance(REPLY_MS)
        assert server.overdue(clock.mono_ms()) == [conversation]


def test_too_many_clients_are_hung_up_on(server: ControlServer) -> None:
    clients = [dial(server)[0] for _ in range(MAX_CLIENTS)]
    with socket.socket(socket.AF_UNIX) as extra:
        extra.settimeout(20)
        extra.connect(str(server.path))
        assert server.accept() == []
        assert extra.recv(10) == b""
    for client in clients:
        client.close()


def test_only_its_owner_may_open_the_socket(server: ControlServer, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_user_is_hung_up_on_even_where_file_modes_do_not_help() -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = ControlServer(Path(folder) / "pool.sock")
        server.path.chmod(0o666)
        pid = os.fork()
        if pid == 0:
            os.setuid(65_534)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(server.path))
                os._exit(0 if client.recv(10) == b"" else 1)

        def ended() -> tuple[int, int] | None:
            assert server.accept() == []
            found = os.waitpid(pid, os.WNOHANG)
            return found if found[0] else None

        assert eventually(ended) == (pid, 0)
        server.close()


def test_a_second_pool_on_the_same_socket_is_refused(server: ControlServer, path: Path) -> None:
    with pytest.raises(PoolRunning, match="running already"):
        ControlServer(path)
    assert path.exists()


def test_a_frozen_pool_still_counts_as_running(path: Path) -> None:
    program = (
        f"import sys, time\nfrom echomq_pool.supervisor.control import ControlServer\n"
        f"server = ControlServer({str(path)!r})\nprint('up', flush=True)\ntime.sleep(300)\n"
    )
    pool = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert pool.stdout is not None
    assert pool.stdout.readline() == "up\n"
    pool.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(PoolRunning):
            ControlServer(path)
        with pytest.raises(ControlError, match="did not answer within"):
            call(path, "status", timeout_s=0.2)
    finally:
        pool.kill()
        pool.wait()
        pool.stdout.close()
    ControlServer(path).close()  # killed, it left its file behind: nobody answers, so it is replaced


def test_of_two_pools_that_start_at_once_over_a_stale_file_one_wins(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    read, write = os.pipe()
    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                server = ControlServer(path)
                os.write(write, b"W")
                signal.pause()
                server.close()
            except PoolRunning:
                os.write(write, b"L")
            os._exit(0)
        pids.append(pid)
    said = b""
    while len(said) < 4:
        said += os.read(read, 4)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    assert sorted(said) == sorted(b"WLLL")


def test_a_file_that_is_no_socket_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("precious")
    with pytest.raises(ControlError, match="no socket"):
        ControlServer(path)
    assert path.read_text() == "precious"


def test_a_path_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="107 bytes"):
        ControlServer(tmp_path / ("x" * 120))


def test_closing_removes_the_file_unless_it_is_somebody_elses(path: Path) -> None:
    first = ControlServer(path)
    path.unlink()
    second = ControlServer(path)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


def test_a_forked_child_closes_without_removing_the_file(server: ControlServer, path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        server.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert path.exists()


@pytest.mark.parametrize("stale", [True, False])
def test_asking_a_pool_that_does_not_run_says_so(path: Path, stale: bool) -> None:
    if stale:
        path.parent.mkdir()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    with pytest.raises(ControlError, match="is it running"):
        call(path, "status")


def test_a_pool_that_hangs_up_without_an_answer_is_an_error(path: Path) -> None:
    def hang_up(conversation: Conversation, request: Any) -> None:
        conversation.close()

    pid = answering(path, hang_up)
    with pytest.raises(ControlError, match="without an answer"):
        call(path, "status")
    os.waitpid(pid, 0)
