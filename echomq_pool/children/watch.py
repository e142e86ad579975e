# SPDX-License-Identifier: MIT
"""The worker's one timer: time limits of jobs, and the age of their leases.

The lock manager renews; this is the second string. A lease is good for `lock_duration` from the moment before its
take or its last renewal was sent (law 4). What looks too old to have been renewed in time is renewed from here by
the same script. Past the whole duration the job is told that its lease may be lost, and goes on: settling it asks
the server first (`Plane`), and a refusal cancels it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from echomq_pool.children.leases import good_since
from echomq_pool.children.ledger import Ledger
from echomq_pool.children.run import Run, Source
from echomq_pool.clock import Clock
from echomq_pool.config.schema import WorkersConfig
from echomq_pool.errors import LinkError
from echomq_pool.ipc.board import Board
from echomq_pool.plane.base import HeldRow

log = logging.getLogger("echomq.worker")

NEVER = 1 << 62
OBEY_MS = 1_000  # how long a cancelled job may take to end before its process is replaced


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the watch asks the worker to do."""

    expire: Callable[[Run], None]  # past its time limit
    condemn: Callable[[Run], None]  # cancelled, and it does not end
    doubt: Callable[[Run], None]  # its lease may be lost
    trust: Callable[[Run], None]  # … and was renewed after all
    lose: Callable[[Run], None]  # its lease is lost


class Watch:
    """Looks at all runs whenever the earliest of their moments has come."""

    def __init__(
        self,
        config: WorkersConfig,
        ledger: Ledger,
        board: Board,
        slot: int,
        clock: Clock,
        verdicts: Verdicts,
    ) -> None:
        self._duration_ms = config.lock_duration_ms
        self._tick_ms = config.tick_ms
        # In order, the lock manager renews a lease before it is two ticks old.
        grace_ms = config.lock_duration_ms // 8
        late_ms = max(config.lock_duration_ms // 2, 2 * config.tick_ms) + grace_ms
        self._late_ms = min(late_ms, config.lock_duration_ms * 3 // 4)
        self._again_ms = max(10, grace_ms)
        self._ledger = ledger
        self._board = board
        self._slot = slot
        self._clock = clock
        self._verdicts = verdicts
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = NEVER
        self._renewing: set[asyncio.Task[None]] = set()

    def stamp(self, run: Run) -> int:
        """The moment from which this run's lease counts."""
        word = self._board.renewed_ms(self._slot, run.source.index)
        return max(good_since(run.taken_ms, word, self._tick_ms), run.renewed_ms)

    def add(self, run: Run) -> None:
        """A run has started, or one of its moments has changed."""
        if not run.deadline_ms and not run.ended_ms and self._at_ms <= run.taken_ms + self._late_ms:
            return  # the timer looks at everything before this lease can be late
        self._arm(self._next_of(run, self._clock.mono_ms()))

    def look(self) -> None:
        """Judges every run now, and sets the timer for the next moment."""
        self._cancel()
        now = self._clock.mono_ms()
        late = {run.source.index: run.source for run in list(self._ledger) if self._judge(run, now)}
        for source in late.values():
            self._renew(source, now)
        self._arm(min((self._next_of(run, now) for run in self._ledger), default=NEVER))

    def close(self) -> None:
        self._cancel()
        for task in self._renewing:
            task.cancel()

    def _judge(self, run: Run, now: int) -> bool:
        """Acts on what has come to pass for `run`; True when its lease is to be renewed from here."""
        if not self._ours(run):
            return False
        limit = self._limit_of(run)
        if now >= limit:
            (self._verdicts.condemn if run.ended_ms else self._verdicts.expire)(run)
        age = now - self.stamp(run)
        if age >= self._duration_ms:
            self._verdicts.doubt(run)
        return age >= self._late_ms and now >= run.asked_ms + self._again_ms

    @staticmethod
    def _ours(run: Run) -> bool:
        """Whether its lease and its time are still this timer's business."""
        return not (run.condemned or run.settling or run.ended_by == "lost")

    def _next_of(self, run: Run, now: int) -> int:
        """The next moment at which `run` must be looked at."""
        if not self._ours(run):
            return NEVER
        stamp = self.stamp(run)
        moments = [max(stamp + self._late_ms, run.asked_ms + self._again_ms)]
        if now < stamp + self._duration_ms:
            moments.append(stamp + self._duration_ms)
        moments.append(self._limit_of(run))
        return max(min(moments), now + 1)

    @staticmethod
    def _limit_of(run: Run) -> int:
        """When a run in progress has used its time, or, once cancelled for that, its time to obey."""
        if run.future is None:
            return NEVER
        if run.ended_ms:
            return run.ended_ms + OBEY_MS if run.ended_by in ("timeout", "cancel") else NEVER
        return run.deadline_ms or NEVER

    def _renew(self, source: Source, now: int) -> None:
        """Renews what is late, and in the same call all that is a tick old."""
        runs = [
            run
            for run in self._ledger
            if run.source is source and self._ours(run) and now - self.stamp(run) >= self._tick_ms
        ]
        for run in runs:
            run.asked_ms = now
        task = asyncio.get_running_loop().create_task(self._renew_now(source, runs, now))
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    async def _renew_now(self, source: Source, runs: list[Run], sent_ms: int) -> None:
        try:
            async with asyncio.timeout(self._duration_ms / 1000):  # what comes later proves nothing
                failed = set(await source.plane.extend([(r.record.id, r.token) for r in runs]))
                rows = [HeldRow(r.record.id, r.token, r.record.ats) for r in runs if r.record.id in failed]
                refused = set(await source.plane.reacquire(rows)) if rows else set()
        except (LinkError, TimeoutError) as exc:
            log.info("%d leases of %s not renewed: %s", len(runs), source.name, exc or "no answer")
            return
        self._renewed((r for r in runs if r.record.id not in refused), sent_ms)
        for run in runs:
            if run.record.id in refused and not run.settling:
                self._verdicts.lose(run)

    def _renewed(self, runs: Iterable[Run], sent_ms: int) -> None:
        for run in runs:
            run.renewed_ms = sent_ms
            self._verdicts.trust(run)

    def _arm(self, at_ms: int) -> None:
        if at_ms >= self._at_ms:
            return
        self._cancel()
        self._at_ms = at_ms
        delay = max(0, at_ms - self._clock.mono_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self.look)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._at_ms = NEVER
