# SPDX-License-Identifier: MIT
"""Gathers the completions of one loop turn of one queue into one script call.

Only plain ones: no parent, no deduplication id, no limiter, finished jobs gone at once, kept for good or within the
limits of the group. The script looks again and leaves alone what is not plain; that, a lone completion and whatever
went wrong is finished by itself, as if there were no batches (`LockPlane.complete`). In a process with time to spare
the calls are smaller and go one at a time (`slack.py`).

Instructions of the server per job, finish and take of the next, of what BullMQ's scripts need (Valkey 9, not kept):
0.68 by itself, 0.64 in twos, 0.55 in fours, 0.49 in eights, 0.46 in sixteens, 0.44 in thirty-twos. All that the server
does in a drain by two processes of 32 slots, jobs kept: 0.86 one by one, 0.52 so (sixteens: 0.55).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from echomq_pool.clock import Clock
from echomq_pool.plane.base import Nothing, Taken
from echomq_pool.plane.calls import Call, Calls, keep_map
from echomq_pool.plane.codec import to_wire
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.plane.lock_replies import taken
from echomq_pool.plane.slack import NEXT_MS, Pace, Valve

# In one call: the server does nothing else for some 20 µs a job, less than it would for as many calls in one write.
# Twice as many would save 3 % more.
MOST_JOBS = 32
# Bytes of a result. A longer one goes by itself: to copy it costs more than a call, the server does nothing else for a
# whole batch, and 32 of 20 MB are more than it takes in one text (512 MB), for which it drops the connection.
LONGEST = 65_536
LIMITS_MS = 1_000  # a queue with limits of its own is not asked for a batch again for so long

GONE, KEPT, LIMITED = 0, 2, 4  # the kinds of the script; 1 more to take the next job

NOTHING: Final = Nothing()


class Alone(Enum):
    """Nothing was done about this one: it has to be finished by itself."""

    ALONE = "alone"


Answer = Taken | Nothing | Alone | None


@dataclass(slots=True)
class Turn:
    """The completions of one turn, row by row: `rows` is flat, as the script takes it."""

    rows: list[Any] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    waiters: list[tuple[asyncio.Future[Answer], str, bool]] = field(default_factory=list)


class Gatherer:
    """The completing side of one queue.

    Args:
        ask: sends a call; the future of its reply.
        calls: builds it.
        clock: wall time for the wire, monotonic time for `LIMITS_MS`.
        pace: how much a call is to carry.
    """

    def __init__(
        self, ask: Callable[[Call], asyncio.Future[Any]], calls: Calls, clock: Clock, pace: Pace
    ) -> None:
        self._ask = ask
        self._calls = calls
        self._clock = clock
        self._keep = calls.options.keep_completed
        self._limits = keep_map(None, self._keep)
        self._kind = kind_within(self._limits, self._limits)
        self._valve = Valve(pace, clock)
        self._turn: Turn | None = None
        self._full: deque[Turn] = deque()  # wait for the valve
        self._later: asyncio.TimerHandle | None = None  # when it is looked at again
        self._seen = 0  # completions of this turn
        self._several = False  # the last turn with any had more than one
        self._alone_until_ms = 0

    def add(self, job: JobRecord, token: str, value: bytes, fetch: bool) -> asyncio.Future[Answer] | None:
        """Completes `job` with the others of this turn. None: it has to be finished by itself, now.

        After a turn with one completion the next one does not wait for others either, so that a worker with little
        to do answers at once. The future fails as the call does, and then it is not known what was done.
        """
        if not self._seen:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._seen += 1
        if not self._several:
            return None
        kind = self._kind_of(job) if len(value) <= LONGEST else None
        turn = self._turn
        if kind is None or (turn is not None and job.id in turn.ids):
            return None
        if turn is None:
            turn = self._turn = Turn()
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        turn.ids.add(job.id)
        turn.rows += (to_wire(job.id), to_wire(token), value, kind + fetch)
        turn.waiters.append((waiter, token, fetch))
        if len(turn.waiters) >= min(self._valve.most, MOST_JOBS):
            self._full.append(turn)
            self._turn = None
            self._send_due()
        return waiter

    def _kind_of(self, job: JobRecord) -> int | None:
        """The kind of a job that is plain as far as can be seen from here, else None."""
        if job.parent_key is not None or job.deid is not None or self._calls.options.limiter is not None:
            return None
        option = job.opts.get("removeOnComplete")
        if option is None:
            return self._kind
        if option is True:
            return GONE
        return kind_within(keep_map(option, self._keep), self._limits)

    def _end_turn(self) -> None:
        several, self._seen = self._seen > 1, 0
        self._send_due()
        self._several = several and self._clock.mono_ms() >= self._alone_until_ms

    def _send_due(self) -> None:
        """Sends what is full, and at the end of a turn the rest, as far as the valve lets it."""
        while self._full or (self._turn is not None and not self._seen):
            if not self._valve.open:
                loop = asyncio.get_running_loop()
                self._later = self._later or loop.call_later(NEXT_MS / 1_000, self._look_again)
                return
            if self._full:
                self._send(self._full.popleft())
            elif self._turn is not None:
                turn, self._turn = self._turn, None
                self._send(turn)

    def _look_again(self) -> None:
        self._later = None
        self._send_due()

    def _send(self, turn: Turn) -> None:
        if len(turn.waiters) == 1:
            _tell(turn.waiters[0][0], Alone.ALONE)
            return
        try:
            reply = self._ask(self._calls.complete_all(turn.rows, self._clock.now_ms()))
        except Exception as error:  # every caller of the turn hears it, nobody else can
            _fail(turn, error)
            return
        self._valve.sent()
        reply.add_done_callback(lambda done: self._answered(turn, done))

    def _answered(self, turn: Turn, done: asyncio.Future[Any]) -> None:
        self._valve.answered()
        self._send_due()  # before its jobs go on: the server ends the next ones meanwhile
        try:
            self._deliver(turn, *done.result())
        except Exception as error:  # the call's own, or an answer that is none
            _fail(turn, error)

    def _deliver(self, turn: Turn, due: int, *answers: Any) -> None:
        if due < 0:
            self._alone_until_ms = self._clock.mono_ms() + LIMITS_MS
            self._several = False
            answers = (1,) * len(turn.waiters)
        nothing = Nothing(next_due_ms=due) if due > 0 else NOTHING
        for (waiter, token, fetch), answer in zip(turn.waiters, answers, strict=True):
            if answer == 1:
                _tell(waiter, Alone.ALONE)
            elif answer:
                _tell(waiter, taken(answer[1], token, answer[0]))
            else:
                _tell(waiter, nothing if fetch else None)


def kind_within(keep: dict[str, Any], limits: dict[str, Any]) -> int | None:
    """The kind of a job with this `keepJobs`; None for one that is neither plain nor the group's own, `limits`."""
    count = keep.get("count", -1)
    if not isinstance(count, int):
        return None
    if count == 0:
        return GONE
    if count < 0 and "age" not in keep:
        return KEPT
    return LIMITED if keep == limits else None


def _tell(waiter: asyncio.Future[Answer], answer: Answer) -> None:
    if (
        not waiter.done()
    ):  # its caller gave up; what was taken for it is found by its token, as after a lost reply
        waiter.set_result(answer)


def _fail(turn: Turn, error: Exception) -> None:
    for waiter, _, _ in turn.waiters:
        if not waiter.done():
            waiter.set_exception(error)
