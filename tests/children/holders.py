# SPDX-License-Identifier: MIT
"""Real processes that hold connections and have children of their own, to be killed by tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.children.stage import Stage

SLEEPER = "import time; time.sleep(600)"
# A worker as the server sees it: a connection with a command under way, and a process group with a child in it.
HOLDER = """
import socket, subprocess, sys, time
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(b"CLIENT ID\\r\\n")
client = sock.recv(100).decode().strip().lstrip(":")
child = subprocess.Popen(["sleep", "600"])
print(client, child.pid, flush=True)
time.sleep(600)
"""


@contextmanager
def process(code: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process in a group of its own; killed with its group and reaped at the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield child
    finally:
        child.kill()
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def runs(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def clients(stage: Stage) -> set[int]:
    return {int(row["id"]) for row in stage.client.client_list()}
