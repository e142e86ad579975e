# SPDX-License-Identifier: MIT
"""Signals as messages: nothing runs inside a handler, so nothing is interrupted halfway.

The interpreter's C handler writes the number into a socket pair (the wakeup fd), which sits in the loop's
selector. Signals merge, so a number read means "look", never "one of them".
"""

from __future__ import annotations

import contextlib
import signal
import socket
from enum import StrEnum
from typing import Any, Final


class Request(StrEnum):
    """What a signal asks of the pool."""

    STOP = "stop"  # graceful
    FAST = "fast"  # hand back, no waiting
    RELOAD = "reload"  # code and configuration, rolling
    REOPEN = "reopen"  # log files; we have none but stderr
    MORE = "more"  # one worker more in the first group
    FEWER = "fewer"
    QUIET = "quiet"  # start nothing new
    RESUME = "resume"
    DUMP = "dump"  # states and stacks to stderr
    DEATHS = "deaths"  # some child may be dead


TABLE: Final[dict[int, Request]] = {
    signal.SIGTERM: Request.STOP,
    signal.SIGINT: Request.STOP,
    signal.SIGQUIT: Request.FAST,
    signal.SIGHUP: Request.RELOAD,
    signal.SIGUSR1: Request.REOPEN,
    signal.SIGTTIN: Request.MORE,
    signal.SIGTTOU: Request.FEWER,
    signal.SIGTSTP: Request.QUIET,
    signal.SIGCONT: Request.RESUME,
    signal.SIGUSR2: Request.DUMP,
    signal.SIGCHLD: Request.DEATHS,
}

ONE_PRESS_MS: Final = 1_000


class StopCounter:
    """Two stop signals within a second are one (init may signal the whole group); a later one is urgent.

    Pure: the time comes with each call.
    """

    def __init__(self) -> None:
        self.first_ms: int | None = None

    def press(self, now_ms: int) -> Request | None:
        """STOP for the first, FAST for one a second or more after it, None for an echo."""
        if self.first_ms is None:
            self.first_ms = now_ms
            return Request.STOP
        return Request.FAST if now_ms - self.first_ms >= ONE_PRESS_MS else None


class Inbox:
    """Installs the handlers and collects what came. Make it before the first child is forked.

    The owner watches `fileno()` for reading and calls `read()`; a child of ours resets all of this itself.
    """

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._before: dict[int, Any] = {n: signal.signal(n, _do_nothing) for n in TABLE}
        # A full pair loses numbers, and that is fine: it is read before each look.
        self._wakeup_before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        # Whoever started us may have blocked them.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TABLE)

    def fileno(self) -> int:
        return self._read.fileno()

    def read(self) -> list[int]:
        """Numbers of the signals since the last call, each once, in order of arrival."""
        numbers = b""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while chunk := self._read.recv(4096):
                numbers += chunk
        return [n for n in dict.fromkeys(numbers) if n in TABLE]

    def close(self) -> None:
        """Puts the former handlers back. In a forked child: only closes (the wakeup fd is reset already)."""
        if signal.set_wakeup_fd(-1) == self._write.fileno():
            signal.set_wakeup_fd(self._wakeup_before)
            for number, handler in self._before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._read.close()
        self._write.close()


def _do_nothing(number: int, frame: object) -> None:
    """Must exist: only signals with a Python handler reach the wakeup fd."""
