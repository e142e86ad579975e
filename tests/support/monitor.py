# SPDX-License-Identifier: MIT
"""Counts what clients ask of a server: MONITOR tells requests from the commands that scripts run."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Callable

from tests.support.servers import Server

_LINE = re.compile(rb'^\+[\d.]+ \[\d+ (?P<who>[^\]]+)\] "(?P<command>[^"]+)"')
OURS = {"PING", "INFO", "MONITOR", "CLIENT"}  # what the tests themselves send


def requests(server: Server, seconds: float, until: Callable[[], bool] | None = None) -> Counter[str]:
    """Client requests of the next `seconds` by command, upper case; commands inside scripts are left out.

    Args:
        until: ends it earlier, as soon as this is true.
    """
    seen: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"MONITOR\r\n")
        rest = b""
        while (left := deadline - time.monotonic()) > 0 and not (until is not None and until()):
            sock.settimeout(min(left, 0.1))
            try:
                data = sock.recv(1 << 16)
            except TimeoutError:
                continue
            *lines, rest = (rest + data).split(b"\r\n")
            for line in lines:
                match = _LINE.match(line)
                if match and match["who"] != b"lua":
                    seen[match["command"].decode().upper()] += 1
    for name in OURS:
        seen.pop(name, None)
    return seen
