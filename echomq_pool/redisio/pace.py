# SPDX-License-Identifier: MIT
"""How often: growing, jittered pauses between attempts, and a limit on log lines."""

from __future__ import annotations

import logging
import random

FIRST_MS = 50
CAP_MS = 2_000


def pause_ms(attempt: int) -> int:
    """Pause before attempt number `attempt` (0 = the first repeat): 50 ms, doubling, at most 2 s,
    minus up to half.

    The jitter keeps the processes of a fleet from coming back in step; the count may grow for ever.
    """
    full = min(CAP_MS, FIRST_MS << min(attempt, 10))
    return int(full * random.uniform(0.5, 1.0))


class QuietLog:
    """Writes at most `burst` lines a minute, then says how many it kept back."""

    def __init__(self, logger: logging.Logger, burst: int = 10) -> None:
        self._logger = logger
        self._burst = burst
        self._window = -60_000
        self._lines = 0
        self._hidden = 0

    def line(self, now_ms: int, level: int, text: str, *args: object, exc_info: bool = False) -> None:
        """Logs `text % args` unless this minute has had its share."""
        if now_ms - self._window >= 60_000:
            self._window, self._lines = now_ms, 0
        if self._lines >= self._burst:
            self._hidden += 1
            return
        self._lines += 1
        if self._hidden:
            text, args, self._hidden = text + " (%d lines left out)", (*args, self._hidden), 0
        self._logger.log(level, text, *args, exc_info=exc_info)
