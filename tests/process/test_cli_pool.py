# SPDX-License-Identifier: MIT
"""The command line against a running pool: what it says, and what then happens."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

BODY = """
[[workers]]
name = "main"
queues = ["QUEUE"]
processor = "tests.support.soak_jobs:work"
processes = 2
"""


@pytest.fixture
def pool(valkey_server: Server, queue_name: str) -> Iterator[PoolProcess]:
    with tempfile.TemporaryDirectory(prefix="emq-") as folder:
        process = PoolProcess(Path(folder), valkey_server.url, BODY.replace("QUEUE", queue_name)).start()
        yield process
        process.destroy()


def echomq_pool(pool: PoolProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "echomq_pool", *words, "--config", str(pool.config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def done(pool: PoolProcess, *words: str) -> str:
    """The output of a command that must succeed."""
    result = echomq_pool(pool, *words)
    assert result.returncode == 0, result.stderr
    return result.stdout


def healthy(pool: PoolProcess) -> bool:
    return echomq_pool(pool, "health").returncode == 0


def test_a_pool_is_looked_at_scaled_and_stopped_from_the_command_line(pool: PoolProcess) -> None:
    """case C154; section E: status, health, scale, restart, quiet, stop"""
    eventually(lambda: healthy(pool), why="health")
    shown = done(pool, "status")
    assert f"pid {pool.pid}, running" in shown
    assert "lock_manager" in shown
    done(pool, "scale", "main", "3")
    assert len(json.loads(done(pool, "status", "--json"))["children"]) == len(pool.children())
    assert len(pool.children("main-")) == 3
    before = pool.pids("lock_manager")
    done(pool, "restart", "lock_manager")
    eventually(lambda: pool.is_ready() and pool.pids("lock_manager") != before, why="lock_manager replaced")
    done(pool, "quiet")
    done(pool, "resume")
    refused = echomq_pool(pool, "scale", "nobody", "3")
    assert refused.returncode == 1
    assert "not_found" in refused.stderr
    done(pool, "stop")
    assert pool.wait() == 0
    gone = echomq_pool(pool, "health")
    assert gone.returncode == 1
    assert "is it running?" in gone.stderr


def test_a_reload_of_a_wrong_configuration_changes_nothing(pool: PoolProcess) -> None:
    """HUP: what cannot be used leaves the old ones running"""
    before = pool.pids()
    text = pool.config.read_text()
    pool.config.write_text(text.replace("processes = 2", 'processes = "two"'))
    refused = echomq_pool(pool, "reload")
    assert refused.returncode == 1
    assert "workers[0].processes: expected a whole number" in refused.stderr
    assert pool.pids() == before
    pool.config.write_text(text.replace("processes = 2", "processes = 3"))
    done(pool, "reload")
    eventually(lambda: len(pool.pids("main-")) == 3 and pool.is_ready(), why="three workers after the reload")
    assert not set(pool.pids("main-")) & set(before)


def test_a_second_pool_on_the_same_control_socket_is_refused(pool: PoolProcess) -> None:
    """case C159: two pools of one name on one host do not mix"""
    second = echomq_pool(pool)
    assert second.returncode == 13
    assert "a pool is running already" in second.stderr
    assert pool.is_ready()
