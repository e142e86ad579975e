# SPDX-License-Identifier: MIT
"""The foreground: a process of its own that sends one GET a millisecond and says how long each took.

It stands for everybody else who uses the server while a sweep or a renewal is under way.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]
EVERY_S = 0.001
REQUEST = b"*2\r\n$3\r\nGET\r\n$10\r\nforeground\r\n"


class Foreground:
    """`with Foreground(port) as foreground: … foreground.window(work)`."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.support.foreground", str(port)]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()  # it is connected

    def __enter__(self) -> Foreground:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)

    def begin(self) -> None:
        """From now on latencies count."""
        self._say("begin")

    def end(self) -> list[float]:
        """Latencies in ms since `begin`."""
        self._say("end")
        values: list[float] = json.loads(self._line())
        return values

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def main(port: int) -> None:
    """The process: until stdin closes."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(json.dumps("connected"), flush=True)
    values: list[float] = []
    while True:
        if select.select([sys.stdin], [], [], EVERY_S)[0]:
            words = os.read(sys.stdin.fileno(), 4096)  # not readline: select does not see what is buffered
            if not words:
                return
            for word in words.split():
                if word == b"end":
                    print(json.dumps(values), flush=True)
                values = []
        started = time.perf_counter()
        sock.sendall(REQUEST)
        sock.recv(64)
        values.append((time.perf_counter() - started) * 1000)


if __name__ == "__main__":
    main(int(sys.argv[1]))
