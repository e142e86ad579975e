# SPDX-License-Identifier: MIT
"""The pool of the demo as a subprocess, and the questions asked of it over its control socket."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from echomq_pool.config.control import embedded_socket
from echomq_pool.errors import PoolError
from echomq_pool.supervisor.control import call

HERE = Path(__file__).resolve().parent
START_WITHIN_S = 30.0
STOP_WITHIN_S = 40.0


class DemoError(PoolError):
    """The demo cannot go on; the message says why."""


class Program:
    """`echomq-pool --config demo.toml` with its sockets and its log in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.control = str(folder / "pool.sock")
        self.server_url = f"unix://{embedded_socket(self.control)}"
        self.log = folder / "pool.log"
        environ = {**os.environ, "DEMO_CONTROL": self.control}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "echomq_pool", "--config", str(config_path())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                start_new_session=True,  # a Ctrl-C at the demo reaches the pool through us, in order
            )

    async def ready(self) -> None:
        """Returns once every process of the tree is up.

        Raises:
            DemoError: it ended, or takes too long.
        """
        deadline = asyncio.get_running_loop().time() + START_WITHIN_S
        while asyncio.get_running_loop().time() < deadline:
            if self.process.poll() is not None:
                raise DemoError(f"the pool ended with exit code {self.process.returncode}:\n{self.tail()}")
            children = self.children()
            if children and all(child.get("state") == "running" for child in children):
                return
            await asyncio.sleep(0.02)
        raise DemoError(f"the pool was not ready within {START_WITHIN_S:.0f} s:\n{self.tail()}")

    def children(self) -> list[dict[str, Any]]:
        """The processes of the tree as `status` shows them; none while nobody answers."""
        try:
            row = call(self.control, "status", timeout_s=5.0)
        except PoolError:
            return []
        status = row.get("value")
        children = status.get("children", []) if isinstance(status, dict) else []
        return [child for child in children if isinstance(child, dict)]

    def stop(self) -> int:
        """TERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # its children end with it
            return self.process.wait()

    def tail(self) -> str:
        """The end of the pool's own log."""
        return self.log.read_text(errors="replace")[-3_000:]


def config_path() -> Path:
    """demo.toml: beside this file in an installed wheel, in config/ of a checkout."""
    places = [HERE / "demo.toml", HERE.parents[1] / "config" / "demo.toml"]
    for place in places:
        if place.exists():
            return place
    raise DemoError(f"demo.toml is in neither {places[0].parent} nor {places[1].parent}")
