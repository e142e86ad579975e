# SPDX-License-Identifier: MIT
"""The command line as a person or a probe meets it: words in, sentences and exit codes out."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from echomq_pool import launch
from echomq_pool.supervisor.control import Asked, ControlServer

GOOD = '[[workers]]\nname = "orders"\nqueues = ["orders"]\nprocessor = "shop.orders:handle"\n'


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`echomq-pool` with these words, in its own process."""
    env = {key: value for key, value in os.environ.items() if key != "ECHOMQ_CONFIG"} | environ
    command = [sys.executable, "-m", "echomq_pool", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=60, stdin=subprocess.DEVNULL
    )


class Listener:
    """A control socket that answers as it is told to and remembers what it was asked."""

    def __init__(self, path: Path, answer: Callable[[Asked], dict[str, Any]]) -> None:
        self.asked: list[Asked] = []
        self.answer = answer
        self.server = ControlServer(path)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.leave, self.left = os.pipe()

    def __enter__(self) -> Listener:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        os.write(self.left, b"x")
        self.thread.join(10)
        self.server.close()
        os.close(self.leave)
        os.close(self.left)

    def _serve(self) -> None:
        while True:
            watched: list[Any] = [self.server, self.leave, *self.server.conversations]
            for ready in select.select(watched, [], [], 10)[0]:
                if ready == self.leave:
                    return
                if ready is self.server:
                    self.server.accept()
                else:
                    self._converse(ready)

    def _converse(self, conversation: Any) -> None:
        asked = conversation.read()
        if asked is not None:
            self.asked.append(asked)
            conversation.reply(**self.answer(asked))
        if conversation.done:
            self.server.drop(conversation)


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path: a unix socket's has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="emq-") as folder:
        yield Path(folder)


@pytest.fixture
def config(place: Path) -> Path:
    path = place / "pool.toml"
    path.write_text(f'[supervisor]\ncontrol = "{place}/c"\n{GOOD}')
    return path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "no configuration: give --config PATH or set ECHOMQ_CONFIG"),
        (["--confg", "x"], "Did you mean '--config'?"),
        (["--concurency", "5"], "Did you mean the key 'concurrency' of the configuration?"),
        (["chek"], "Did you mean 'check'?"),
        (["scale", "orders"], "Missing argument 'N'"),
        (["scale", "orders", "many"], "'many' is not a valid integer"),
        (["check"], "no configuration"),
        (["health", "--nonsense"], "usage: echomq-pool health"),
    ],
)
def test_a_mistyped_command_line_exits_64_and_says_what_was_meant(words: list[str], sentence: str) -> None:
    """case C147; exit codes as in design, section 2"""
    result = run(*words)
    assert result.returncode == 64
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", [["--config"], ["check", "--config"]], ids=["run", "check"])
def test_a_wrong_configuration_exits_78_with_a_sentence_per_key(words: list[str], place: Path) -> None:
    """law 13; case C143, C148"""
    path = place / "pool.toml"
    path.write_text(GOOD.replace('["orders"]', '["a:b"]') + "concurency = 5\n")
    result = run(*words, str(path))
    assert result.returncode == 78
    assert result.stderr.count(f"{path}:") == 2
    assert f"{path}:5: workers[0].concurency: unknown key" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_prints_what_is_in_force_and_hides_secrets(place: Path) -> None:
    """the effective configuration can be printed (K19)"""
    path = place / "pool.toml"
    path.write_text('redis.url = "redis://me:hunter2@server"\n' + GOOD)
    result = run("check", "--config", str(path))
    assert (result.returncode, result.stderr) == (0, "")
    assert 'url = "redis://me:***@server"' in result.stdout
    assert "hunter2" not in result.stdout
    assert 'lock_duration = "30s"' in result.stdout


def test_the_configuration_may_come_from_the_environment(config: Path) -> None:
    """--config also from ECHOMQ_CONFIG"""
    assert 'name = "orders"' in run("check", ECHOMQ_CONFIG=str(config)).stdout


def test_commands_to_a_pool_that_is_not_there_say_so(config: Path) -> None:
    """no traceback, exit 1"""
    for words in (["status"], ["health"], ["stop"]):
        result = run(*words, "--config", str(config))
        assert result.returncode == 1
        assert result.stderr == f"no pool answers on {config.parent}/c: is it running?\n"


def test_each_command_asks_for_its_verb_with_its_arguments(config: Path) -> None:
    """the control socket has the verbs of the command line"""
    with Listener(config.parent / "c", lambda asked: {"value": None}) as pool:
        for words in (
            ["quiet"],
            ["resume"],
            ["scale", "orders", "6"],
            ["restart", "lock_manager"],
            ["stop"],
            ["stop", "--fast"],
            ["reload"],
            ["cancel", "orders", "17", "--reason", "refunded"],
        ):
            result = run(*words, "--control", str(config.parent / "c"))
            assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr
    assert [(asked.verb, asked.args) for asked in pool.asked] == [
        ("quiet", {}),
        ("resume", {}),
        ("scale", {"group": "orders", "n": 6}),
        ("restart", {"child": "lock_manager"}),
        ("stop", {}),
        ("stop", {"fast": True}),
        ("reload", {}),
        ("cancel", {"queue": "orders", "id": "17", "reason": "refunded"}),
    ]


def test_what_the_pool_refuses_is_told(config: Path) -> None:
    """exit 1 and the pool's own words"""
    with Listener(config.parent / "c", lambda asked: {"error": "not_found", "detail": "no group 'x'"}):
        result = run("scale", "x", "1", "--config", str(config))
    assert (result.returncode, result.stderr) == (1, "scale: not_found: no group 'x'\n")


def test_status_shows_a_line_per_process(config: Path) -> None:
    """the tree with pids, state, restarts, jobs"""
    answer = {
        "pool": "shop",
        "pid": 40,
        "state": "running",
        "server": "valkey 9.1.2",
        "uptime_s": 90_061,
        "groups": [{"id": "orders", "dynamic": True, "target": 2, "restarts": 3, "state": "up"}],
        "children": [
            {
                "id": "orders-1",
                "pid": 41,
                "state": "running",
                "restarts": 2,
                "busy": 7,
                "age_s": 65,
                "connected": True,
            },
            {
                "id": "lock_manager",
                "pid": 0,
                "state": "restarting",
                "restarts": 1,
                "busy": 0,
                "connected": False,
            },
        ],
        "totals": {"counters": {"completed|orders": 12.0, "completed|mail": 1.0, "taken|mail": 2.0}},
    }
    with Listener(config.parent / "c", lambda asked: {"value": answer}):
        shown = run("status", "--config", str(config))
        raw = run("status", "--json", "--config", str(config))
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert lines[:5] == [
        "pool shop, pid 40, running",
        "server valkey 9.1.2",
        "uptime 1d 1h",
        "group orders: 2 workers, 3 restarts",
        "jobs 13 completed",
    ]
    assert "orders-1 41 running 2 7 1m 5s up" in lines
    assert "lock_manager restarting 1" in lines
    assert json.loads(raw.stdout) == answer


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"value": {"ok": True}}, 0),
        ({"value": {"ok": False, "reasons": ["no worker is ready"]}}, 1),
        ({"error": "internal", "detail": "x"}, 1),
    ],
)
def test_health_is_an_exit_code(config: Path, answer: dict[str, Any], code: int) -> None:
    """case C154"""
    with Listener(config.parent / "c", lambda asked: answer):
        result = run("health", "--config", str(config))
    assert result.returncode == code
    assert ("unhealthy" in result.stderr) == bool(code)


def test_a_pool_says_that_it_needs_linux(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """case C070: nothing is forked where a fork without exec is not safe; not run on macOS itself"""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert launch.run(config) == 78
    assert capsys.readouterr().err == (
        "a pool runs on Linux only, and this is 'darwin'; producers run anywhere\n"
    )


def test_a_probe_and_a_run_import_nothing_heavy(config: Path) -> None:
    """case C154; law 8: the supervisor keeps what is imported before it starts"""
    code = (
        "import sys, echomq_pool.cli, echomq_pool.launch as launch\n"
        f"assert launch.health(['--config', {str(config)!r}]) == 1\n"
        f"assert launch.plain_run(['--config={config}']) is not None\n"
        "print([m for m in ('click', 'rich', 'pydantic', 'redis', 'asyncio', 'aiohttp') if m in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr
