# SPDX-License-Identifier: MIT
"""BullMQ under Node, driven from Python: `tests/wire/peer.js` behind a pipe."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

WIRE = Path(__file__).resolve().parents[1] / "wire"


class NodeError(Exception):
    """The call failed on Node's side."""


class Node:
    """One Node process with one release of BullMQ: `bullmq-5`, `bullmq-620` or `bullmq-6`.

    Args:
        scripts: a JSON file of replacements for its scripts, by name.
    """

    def __init__(self, package: str, port: int, scripts: Path | None = None) -> None:
        node = shutil.which("node")
        if node is None or not (WIRE / "node_modules" / package).is_dir():
            raise FileNotFoundError("node or its packages are missing: run `npm ci` in tests/wire")
        self._ids = itertools.count(1)
        self._process = subprocess.Popen(
            [node, "peer.js", package, str(port), *([str(scripts)] if scripts else [])],
            cwd=WIRE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, verb: str, **args: Any) -> Any:
        """Calls one verb of `peer.js` and returns its answer.

        Raises:
            NodeError: BullMQ threw.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        number = next(self._ids)
        self._process.stdin.write(json.dumps({"id": number, "verb": verb, "args": args}) + "\n")
        self._process.stdin.flush()
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise NodeError(f"node ended with {self._process.wait(timeout=10)}")
            reply = json.loads(line)
            if reply["id"] == number:
                break
        if "error" in reply:
            raise NodeError(reply["error"])
        return reply["ok"]

    def kill(self) -> None:
        """SIGKILL: nothing is closed, nothing is handed back."""
        self._process.kill()
        self._process.wait(timeout=10)

    def close(self) -> None:
        """Ends the process; its queues and workers are closed first."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)
