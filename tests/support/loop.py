# SPDX-License-Identifier: MIT
"""The supervisor's loop as a program of its own, with toy children: a tree in a JSON file, signals, a control socket.

python -m tests.support.loop <folder>
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from echomq_pool import log
from echomq_pool.config.schema import BackoffConfig, PoolConfig, SupervisorConfig, WorkersConfig
from echomq_pool.errors import ConfigError
from echomq_pool.ipc.board import Board
from echomq_pool.supervisor.control import ControlError, call
from echomq_pool.supervisor.core import Supervisor
from echomq_pool.supervisor.loader import Loader
from echomq_pool.supervisor.spec import GroupSpec, group_spec
from tests.support.waiting import eventually

REPOSITORY = Path(__file__).resolve().parents[2]
CHILDREN = "tests.support.loop_children:"


class Loop:
    """One such program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_path = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *children: dict[str, Any], ready: bool = True, **options: Any) -> Loop:
        """Starts it. `options` are fields of SupervisorConfig."""
        self.write(*children)
        (self.folder / "options.json").write_text(json.dumps(options))
        with self.log_path.open("ab") as out:
            command = [sys.executable, "-m", "tests.support.loop", str(self.folder)]
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        if ready:
            eventually(self.is_ready, why=f"all children ready:\n{self.log()}")
        return self

    def write(self, *children: dict[str, Any], **root: Any) -> None:
        """The tree that the start, or the next reload, finds."""
        tree = {"id": "root", "strategy": "one_for_one", "max_restarts": 3, "period_ms": 5_000, **root}
        written = self.folder / "tree.json.new"
        written.write_text(json.dumps(tree | {"children": children}))
        written.replace(self.folder / "tree.json")  # never seen half written by a reload that goes on

    # --- asking ---

    def ask(self, verb: str, **args: Any) -> Any:
        row = call(self.folder / "control", verb, args)
        assert row["ok"], row
        return row["value"]

    def refused(self, verb: str, **args: Any) -> str:
        """The error of a request that must not succeed."""
        row = call(self.folder / "control", verb, args)
        assert not row["ok"], row
        return f"{row['error']}: {row['detail']}"

    def children(self, prefix: str = "") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.ask("status")["children"]
        return [row for row in rows if row["id"].startswith(prefix)]

    def pids(self, prefix: str = "") -> list[int]:
        return [c["pid"] for c in self.children(prefix) if c["pid"]]

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            children = self.children()
        except ControlError:
            return False
        return (
            all(c["state"] in ("running", "ignored") for c in children)
            and self.ask("status")["state"] != "starting"
        )

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def lines(self, *words: str) -> list[str]:
        """Log lines that contain all the words."""
        return [line for line in self.log().splitlines() if all(word in line for word in words)]

    def diary(self, child: str) -> list[list[Any]]:
        """What a child has written down: [what, pid, *fields]."""
        path = self.folder / f"{child}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def heard(self, child: str, what: str) -> list[list[Any]]:
        return [entry for entry in self.diary(child) if entry[0] == what]

    # --- doing ---

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, within: float = 20.0) -> int:
        assert self.process is not None
        return self.process.wait(timeout=within)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def family(self) -> list[psutil.Process]:
        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def destroy(self) -> None:
        family = self.family()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=20)
        for process in family:
            try:
                process.wait(timeout=10)
            except psutil.TimeoutExpired:
                process.kill()
            except psutil.NoSuchProcess:
                pass


def child(name: str, start: str = "plain", folder: Path | None = None, **more: Any) -> dict[str, Any]:
    """A child as it stands in the tree file."""
    args = more.pop("args", {}) | ({"diary": str(folder)} if folder is not None else {})
    backoff = more.pop("backoff", {"initial_ms": 10, "max_ms": 100, "jitter": 0})
    return {
        "id": name,
        "start": CHILDREN + start,
        "args": args,
        "shutdown": 2_000,
        "backoff": backoff,
        **more,
    }


def pool(name: str, count: int, template: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A pool as it stands in the tree file."""
    body = {"id": name, "strategy": "dynamic", "template": template, "count": count, "max_restarts": 5}
    return body | {"period_ms": 60_000, "stop_first": True} | more


def main(folder: Path) -> int:
    """The program."""
    log.setup("debug", "console", process="supervisor", own_fd=True)
    board = Board.create(64, 2)
    config = load(str(folder))
    return Supervisor(
        config,
        lambda config, generation: tree(folder, generation),
        board,
        reload=lambda: Loader("tests.support.loop:load", [str(folder)]),
        control=config.supervisor.control,
    ).run()


def load(folder: str) -> PoolConfig:
    """The configuration of the program; an unreadable tree file is its configuration error."""
    path = Path(folder)
    try:
        json.loads((path / "tree.json").read_text())
    except ValueError as error:
        raise ConfigError([f"tree.json: {error}"]) from error
    options = json.loads((path / "options.json").read_text())
    defaults = SupervisorConfig(control=str(path / "control"), backoff=BackoffConfig(10, 100, 0))
    first = WorkersConfig("w", ("toys",), "never:imported")  # what TTIN and TTOU change the size of
    return PoolConfig(name="toys", supervisor=replace(defaults, **options), workers=(first,))


def tree(folder: Path, generation: int) -> GroupSpec:
    """The tree of that file, every process of that generation."""
    return _aged(group_spec(json.loads((folder / "tree.json").read_text())), generation)


def _aged(spec: GroupSpec, generation: int) -> GroupSpec:
    children = [
        _aged(c, generation) if isinstance(c, GroupSpec) else replace(c, generation=generation)
        for c in spec.children
    ]
    template = replace(spec.template, generation=generation) if spec.template else None
    return replace(spec, children=tuple(children), template=template)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
