# SPDX-License-Identifier: MIT
"""Whether a process has time to spare: then few completions go in a call, and one call at a time.

Jobs that end together travel together, and their successors come back and start together: once a hundred jobs of
50 ms have met, each of them waits for all the others, for ever. As many to a call as it carries costs the least, and
where worker or server have no time to spare that is what counts. Where they have, eight to a call, and the next call
when the answer is there: eight jobs run again while the server ends the next eight, and so the crowd dissolves. (Calls
that reach the server together are answered together, after the last of them.)

1 × 100 jobs of 50 ms, between the end of a job and the start of the next in its slot: 6.2 ms by 32 a call, 2.9 ms one
call at a time, then 2.5 ms by sixteens and 1.9 ms by eights. A drain of no-op jobs is a quarter slower by eights.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from echomq_pool.clock import Clock

FEW, UNBOUNDED = 8, 1 << 30  # completions of a call with time to spare, and without
NEXT_MS = 2  # … after which no answer is waited for: the server is far away, and has got the call long since
WINDOW_MS = 25  # is looked at: some calls, and over before anybody notices a change of load


def _process_ms() -> int:
    return time.process_time_ns() // 1_000_000


class Pace:
    """How calls are to be filled. This one never has time to spare."""

    relaxed = False

    def sent(self) -> None:
        """A call is on its way."""

    def answered(self) -> None:
        """… and has come back, with or without an answer."""


class Slack(Pace):
    """Time to spare is what neither this process nor an answer takes; `relaxed` when it is more than half.

    Args:
        clock: its monotonic time.
        spent_ms: CPU time of this process, in ms.
    """

    def __init__(self, clock: Clock, spent_ms: Callable[[], int] = _process_ms) -> None:
        self._clock = clock
        self._spent_ms = spent_ms
        self._flying = 0
        self._since_ms = 0  # when the first of the calls under way left
        self._waited_ms = 0  # in this window, for answers
        self._began_ms = clock.mono_ms()
        self._spent_before_ms = spent_ms()

    def sent(self) -> None:
        now = self._clock.mono_ms()
        if self._flying:
            self._waited_ms += now - self._since_ms
        self._since_ms = now
        self._flying += 1
        if now - self._began_ms >= WINDOW_MS:
            self._judge(now)

    def answered(self) -> None:
        now = self._clock.mono_ms()
        self._waited_ms += now - self._since_ms
        self._since_ms = now
        self._flying -= 1

    def _judge(self, now: int) -> None:
        """Ends the window."""
        length, spent = now - self._began_ms, self._spent_ms()
        self.relaxed = 2 * (self._waited_ms + spent - self._spent_before_ms) < length
        self._began_ms, self._waited_ms, self._spent_before_ms = now, 0, spent


class Valve:
    """Lets the calls of one queue out: at once, or, with time to spare, each after the answer to the one before."""

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self._pace = pace
        self._clock = clock
        self._under_way = 0
        self._sent_ms = 0

    @property
    def most(self) -> int:
        """How many completions a call is to carry at most."""
        return FEW if self._pace.relaxed else UNBOUNDED

    @property
    def open(self) -> bool:
        """Whether a call may leave now."""
        if not self._under_way or not self._pace.relaxed:
            return True
        return self._clock.mono_ms() - self._sent_ms >= NEXT_MS

    def sent(self) -> None:
        """A call is on its way."""
        self._under_way += 1
        self._sent_ms = self._clock.mono_ms()
        self._pace.sent()

    def answered(self) -> None:
        """… and has come back, with or without an answer."""
        self._under_way -= 1
        self._pace.answered()
