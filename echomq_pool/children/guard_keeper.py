# SPDX-License-Identifier: MIT
"""Users' leases that jobs of this worker hold (`job.lease`), and the word about them to the lock manager.

The lock manager renews them; this process is the second string, by the same call, should its word on the board grow
old. What a job has not given back when it ends is given back here, and by the lock manager when this process dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from echomq_pool.api.job_view import JobView
from echomq_pool.children.guard_link import GuardLink
from echomq_pool.children.run import Run
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkError
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.messages import Guards, GuardsLost, Message
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import Guard, GuardKeys, renewing

log = logging.getLogger("echomq.lease")

AT_ONCE = 100  # leases per record: their names may be long
CLOSE_S = 1.0
NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Kept:
    """A lease, and the run of the job that took it."""

    guard: Guard
    run: asyncio.Future[Any]


class GuardKeeper:
    """All leases of the worker's jobs, by token.

    Args:
        runs: the jobs that are held here.
        send: to the lock manager.
    """

    def __init__(
        self,
        worker_id: str,
        slot: int,
        keys: GuardKeys,
        link: GuardLink,
        runs: Iterable[Run],
        board: Board,
        clock: Clock,
        send: Callable[[Message], None],
    ) -> None:
        self.keys = keys
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self._worker_id = worker_id
        self._slot = slot
        self._link = link
        self._runs = runs
        self._board = board
        self._send = send
        self._kept: dict[str, Kept] = {}
        self._watched: set[asyncio.Future[Any]] = set()  # runs at whose end we look
        self._told = clock.mono_ms() << 20  # above whatever a former tenant of this slot has told
        self._timer: asyncio.TimerHandle | None = None
        self._asked_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # --- for the leases -------------------------------------------------------------------------------

    async def ask(self, call: Call) -> int:
        return int(await self._link.ask(call))

    def runs(self, job: JobView) -> bool:
        return self._future_of(job) is not None

    def word(self, guard: Guard) -> int:
        """By the board: read from where it was written, it is new however long this loop has been blocked."""
        number, renewed_ms = self._board.guards(self._slot)
        return renewed_ms if 0 < guard.number <= number else 0

    def keep(self, guard: Guard, job: JobView) -> None:
        run = self._future_of(job)
        assert run is not None  # it has just asked for it
        if run not in self._watched:
            self._watched.add(run)
            run.add_done_callback(self._ended)
        self._kept[guard.token] = Kept(guard, run)
        guard.number = self._tell([guard], [])
        self._arm()

    def drop(self, token: str) -> None:
        if self._kept.pop(token, None) is not None:
            self._tell([], [token])

    # --- for the worker -------------------------------------------------------------------------------

    def lost(self, message: GuardsLost) -> None:
        """The server refused to renew these. One that was given back meanwhile is none of ours."""
        if message.worker_id == self._worker_id:
            self._refused(message.tokens)

    def retell(self) -> None:
        """Tells all to a lock manager that has just started; only with the last word does it know them all."""
        rows = self._guards()
        for start in range(0, len(rows), AT_ONCE):
            self._tell(rows[start : start + AT_ONCE], [], more=start + AT_ONCE < len(rows))

    async def close(self) -> None:
        """What is being given back has a moment for it; the rest is the lock manager's."""
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        await self._link.close()

    # --- how it is done -------------------------------------------------------------------------------

    def _future_of(self, job: JobView) -> asyncio.Future[Any] | None:
        """What ends when the job's processor does; None when it is not running here."""
        for run in self._runs:
            if run.job is job:
                return None if run.future is None or run.future.done() else run.future
        return None

    def _guards(self) -> list[Guard]:
        return [kept.guard for kept in self._kept.values()]

    def _tell(self, held: Iterable[Guard], freed: list[str], *, more: bool = False) -> int:
        rows = [[guard.name, guard.token, guard.ttl_ms, guard.stamp_ms] for guard in held]
        self._told += 1
        self._send(Guards(self._worker_id, 0 if more else self._told, rows, freed))
        return self._told

    def _ended(self, run: asyncio.Future[Any]) -> None:
        self._watched.discard(run)
        for kept in list(self._kept.values()):
            if kept.run is run:
                log.info("lease %s was still held at the end of its job", kept.guard.name)
                self._spawn(self._give_back(kept.guard))

    async def _give_back(self, guard: Guard) -> None:
        call, token = guard.releasing(), guard.token
        guard.forget()
        try:
            await self.ask(call)
        except LinkError as error:
            log.warning("lease %s was not given back and ends by itself: %s", guard.name, error)
        finally:
            self.drop(token)

    def _refused(self, tokens: Iterable[str]) -> None:
        for token in tokens:
            kept = self._kept.get(token)
            if kept is not None:
                log.warning("lease %s is lost: it is gone or another's", kept.guard.name)
                kept.guard.gone = True
                self.drop(token)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the second string ----------------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer, for the lease that would be late first. In order, they are renewed before they are late."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_ms = min((self._next_of(guard) for guard in self._guards()), default=NEVER)
        if at_ms < NEVER:
            delay_s = max(0, at_ms - self.clock.mono_ms()) / 1000
            self._timer = self.loop.call_later(delay_s, self._look)

    def _next_of(self, guard: Guard) -> int:
        return max(guard.stamp_ms + guard.ttl_ms * 5 // 8, self._asked_ms + guard.ttl_ms // 8)

    def _look(self) -> None:
        self._timer = None
        now = self.clock.mono_ms()
        if any(self._next_of(guard) <= now for guard in self._guards()):
            self._asked_ms = now
            self._spawn(self._renew(self._guards(), now))
        self._arm()

    async def _renew(self, guards: list[Guard], sent_ms: int) -> None:
        tokens = [guard.token for guard in guards]
        rows = [(guard.name, guard.token, guard.ttl_ms) for guard in guards]
        try:
            async with asyncio.timeout(min(guard.ttl_ms for guard in guards) / 1000):
                refused = {token.decode() for token in await self._link.ask(renewing(self.keys, rows))}
        except (LinkError, TimeoutError) as error:
            log.info("%d leases of jobs were not renewed: %s", len(guards), error or "no answer")
            return
        for guard, token in zip(guards, tokens, strict=True):
            if token not in refused and guard.token == token:
                guard.extended(True, sent_ms)
        self._refused(refused)
        self._arm()
