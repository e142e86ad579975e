# SPDX-License-Identifier: MIT
"""Carries out the watchdog's verdicts: warn, wake, replace, abort, kill."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable

from echomq_pool.config.schema import PoolConfig, WorkersConfig
from echomq_pool.ipc.board import Board
from echomq_pool.supervisor.family import Member
from echomq_pool.supervisor.reaper import signal_child
from echomq_pool.supervisor.reason import Why
from echomq_pool.supervisor.switchboard import LOCK_MANAGER
from echomq_pool.supervisor.watchdog import State, Verdict, Watchdog, Watched

log = logging.getLogger("echomq.watchdog")

ABORT_TO_KILL_MS = 2_000  # the dump of all stacks takes milliseconds; a process that hangs in it gets no more

End = Callable[[Member, Why, str], None]


class Guard:
    """Shows the watchdog those children that have acked. While a child drains under a deadline, only that deadline
    rules (case C063); one that drains without (scaled away, recycled, reloaded) is watched like any other, or a stuck
    one would keep its jobs for ever (law 3).

    Args:
        end: ends a child for a reason of ours ("kill" or "abort").
        replace: starts an heir and lets the child go.
    """

    def __init__(self, board: Board, end: End, replace: Callable[[Member, str], None]) -> None:
        self._board = board
        self._end = end
        self._replace = replace
        self._watchdog = Watchdog()

    def next_ms(self) -> int | None:
        """When `look` has something to do (monotonic ms)."""
        return self._watchdog.next_look_ms or None

    def look(self, now_ms: int, config: PoolConfig, family: Iterable[Member]) -> None:
        """Judges all and acts."""
        everybody = list(family)
        for member in everybody:
            self._look_at_unborn(member, now_ms, config)
        members = {m.handle: m for m in everybody if m.ready is not None and (not m.asked or m.unhurried_ms)}
        for member in members.values():
            if member.abort_ms and now_ms - member.abort_ms >= ABORT_TO_KILL_MS and not member.killed:
                self._end(member, Why.HANG, "kill")
        if now_ms < self._watchdog.next_look_ms and not any(m.abort_ms for m in members.values()):
            return
        watched = [self._watched(member, config) for member in members.values()]
        for verdict in self._watchdog.look(now_ms, watched):
            self._act(members[verdict.handle], verdict)

    def _look_at_unborn(self, member: Member, now_ms: int, config: PoolConfig) -> None:
        """One that was sent away while it booted, and neither acks nor leaves: nobody waits for it any more."""
        waits = member.ready is None and member.unhurried_ms and not member.killed
        if waits and now_ms - member.unhurried_ms >= config.supervisor.hang_timeout_ms:
            log.error("%s (pid %d): neither ready nor gone; killed", member.id, member.pid)
            self._end(member, Why.HANG, "kill")

    def look_again(self) -> None:
        """A child was born or acked: it must be watched from now on."""
        self._watchdog.next_look_ms = 0

    def _watched(self, member: Member, config: PoolConfig) -> Watched:
        workers = _workers_of(member, config)
        limit = config.supervisor.hang_timeout_ms
        if member.id == LOCK_MANAGER:
            # Leases wait for it: it must be missed while they still live.
            limit = min([limit, *(w.lock_duration_ms // 4 for w in config.workers)])
        return Watched(
            member.handle,
            member.pid,
            self._board.beat_ms(member.slot),
            limit,
            self._board.deadline_ms(member.slot),
            timed=workers is not None and workers.timeout_ms > 0,
            warn_ms=workers.lock_duration_ms if workers is not None else 30_000,
        )

    def _act(self, member: Member, verdict: Verdict) -> None:
        if verdict.act == "none" or (verdict.act == "recycle" and member.asked):
            return
        level = logging.WARNING if verdict.act in ("warn", "cont", "recycle") else logging.ERROR
        log.log(level, "%s (pid %d): %s; %s", member.id, member.pid, verdict.text, _DEEDS[verdict.act])
        if verdict.act == "warn":
            signal_child(member.pidfd, signal.SIGUSR2)  # prints its stacks
        elif verdict.act == "cont":
            signal_child(member.pidfd, signal.SIGCONT)
        elif verdict.act == "recycle":
            self._replace(member, "recycle")
        else:
            overdue = verdict.state is State.OVERDUE
            self._end(member, Why.TIMEOUT if overdue else Why.HANG, verdict.act)


_DEEDS = {
    "warn": "left alone, its stacks follow",
    "cont": "woken",
    "recycle": "replaced",
    "abort": "its stacks follow, then it is killed",
    "kill": "killed",
}


def _workers_of(member: Member, config: PoolConfig) -> WorkersConfig | None:
    return next((w for w in config.workers if member.worker_id and w.name == member.group), None)
