# SPDX-License-Identifier: MIT
"""The real program under test: `echomq-pool --config pool.toml` as a subprocess, and what one may ask about it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from echomq_pool import SyncQueue
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.supervisor.control import ControlError, call
from tests.support.waiting import eventually

PLANES = ("lock", "lease")
REPOSITORY = Path(__file__).resolve().parents[2]


class PoolProcess:
    """One pool with its own folder, configuration, control socket and log."""

    def __init__(
        self,
        folder: Path,
        url: str,
        body: str,
        *,
        name: str = "test",
        top: str = "",
        log_level: str = "debug",
    ) -> None:
        self.folder = folder
        self.name = name
        self.control = folder / f"{name}.sock"
        self.config = folder / f"{name}.toml"
        self.log_path = folder / f"{name}.log"
        self.config.write_text(
            f'name = "{name}"\n{top}\n[redis]\nurl = "{url}"\n[log]\nlevel = "{log_level}"\n{body}'.replace(
                "@CONTROL@", str(self.control)
            )
        )
        if "[supervisor]" not in body:
            with self.config.open("a") as file:
                file.write(f'\n[supervisor]\ncontrol = "{self.control}"\n')
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *prefix: str, ready: bool = True, env: dict[str, str] | None = None) -> PoolProcess:
        """Starts the program (behind `prefix`, say `unshare …`) and waits until every child is ready."""
        log = self.log_path.open("ab")
        command = [*prefix, sys.executable, "-m", "echomq_pool", "--config", str(self.config)]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})}
        self.process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        log.close()
        if ready:
            eventually(self.is_ready, within=40, why=f"pool ready; its log:\n{self.log()[-3000:]}")
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def ask(self, verb: str, **args: Any) -> Any:
        """One request over the control socket."""
        row = call(self.control, verb, args)
        assert row["ok"], f"{verb}: {row}"
        return row["value"]

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.ask("status")
        return status

    def children(self, kind: str = "") -> list[dict[str, Any]]:
        """The children whose id starts with `kind`, as `status` shows them."""
        return [child for child in self.status()["children"] if child["id"].startswith(kind)]

    def pids(self, kind: str = "") -> list[int]:
        return [child["pid"] for child in self.children(kind) if child["pid"]]

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (
            f"the pool ended with {self.process.poll()}:\n{self.log()[-4000:]}"
        )
        try:
            children = self.children()
        except (ControlError, ValueError):
            return False
        return bool(children) and all(c["state"] == "running" for c in children)

    def tree(self) -> list[psutil.Process]:
        """Every live process below the supervisor, itself first."""
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, *, within: float = 40.0) -> int:
        """TERM, and the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait(within=within)

    def wait(self, *, within: float = 40.0) -> int:
        assert self.process is not None
        try:
            return self.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within} s:\n{self.log()[-4000:]}") from None

    def destroy(self) -> None:
        """Ends whatever is left, the supervisor first, so that its children follow."""
        family = self.tree()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=20)
        deadline = time.monotonic() + 10
        for process in family[1:]:
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except psutil.TimeoutExpired:
                process.kill()
            except psutil.NoSuchProcess:
                pass


def plane_of(queue: SyncQueue) -> str:
    """The plane on which a queue was opened."""
    return "lease" if isinstance(queue.keys, LeaseKeys) else "lock"


def is_done(queue: SyncQueue, job_id: str) -> bool:
    """Whether a job is completed; the lease plane keeps nothing of it."""
    return (
        queue.get_job(job_id) is None
        if plane_of(queue) == "lease"
        else queue.get_state(job_id) == "completed"
    )
