# SPDX-License-Identifier: MIT
"""Users' leases in the lock manager: renewed while the worker of their job lives, given back when it has died.

All of them by one call, whenever the first has used a quarter of its time. What was proven is put on the board, with
the number of the last word that was heard from the worker, so a worker knows of which of its leases that is true. A
refused one is told to its worker, and the board says nothing new to that worker until it has answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from echomq_pool.children.guard_link import GuardLink
from echomq_pool.children.leases import CHUNK
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkError
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.messages import Guards, GuardsLost, Message
from echomq_pool.plane.guard import Guard, GuardKeys, renewing

log = logging.getLogger("echomq.lease")

TOLD_AT_ONCE = 1_000  # tokens per record
PAUSE_S = 0.1  # between tries to give back what a dead worker held


@dataclass(slots=True)
class Row:
    """One lease. `stamp_ms`: before the call was sent that last proved it."""

    name: str
    token: str
    ttl_ms: int
    stamp_ms: int


@dataclass(slots=True)
class Holder:
    """One worker: what its jobs hold, and up to which of its words we know that."""

    slot: int | None = None
    number: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # told to be lost, and it has not answered yet


class GuardRenewal:
    """Costs nothing until the first lease is told.

    Args:
        hears: whether the word of a worker's death would reach us; else its leases are not renewed.
        send: to a worker, by its slot.
    """

    def __init__(
        self,
        keys: GuardKeys,
        link: GuardLink,
        board: Board,
        clock: Clock,
        hears: Callable[[], bool],
        send: Callable[[Message, int], None],
    ) -> None:
        self._keys = keys
        self._link = link
        self._board = board
        self._clock = clock
        self._hears = hears
        self._send = send
        self._holders: dict[str, Holder] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._passing: asyncio.Task[None] | None = None
        self._not_before_ms = 0  # after a failure
        self._funerals: set[asyncio.Task[None]] = set()

    def up(self, worker_id: str, slot: int) -> None:
        """A worker lives, with its place on the board."""
        self._holders.setdefault(worker_id, Holder()).slot = slot

    def told(self, message: Guards) -> None:
        """What a worker's jobs have taken and given back."""
        holder = self._holders.setdefault(message.worker_id, Holder())
        for token in message.freed:
            holder.rows.pop(token, None)
            holder.refused.discard(token)
        for name, token, ttl_ms, stamp_ms in message.held:
            holder.rows[token] = Row(name, token, ttl_ms, stamp_ms)
        holder.number = max(holder.number, message.number)
        self._arm()

    def down(self, worker_id: str) -> None:
        """A worker is dead: what it held is given back now."""
        holder = self._holders.pop(worker_id, None)
        for row in holder.rows.values() if holder is not None else ():
            self._spawn(self._give_back(row))

    async def finish(self) -> None:
        """Waits until what the dead held is given back."""
        while self._funerals:
            await asyncio.wait(self._funerals)

    async def close(self) -> None:
        for task in [*self._funerals, self._passing]:
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self._link.close()

    # --- the pass -------------------------------------------------------------------------------------

    def _rows(self) -> list[Row]:
        return [
            row
            for holder in self._holders.values()
            for token, row in holder.rows.items()
            if token not in holder.refused
        ]

    def _arm(self) -> None:
        """One timer, for the lease that is due first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rows = self._rows()
        if rows and (self._passing is None or self._passing.done()):
            at_ms = max(min(row.stamp_ms + row.ttl_ms // 4 for row in rows), self._not_before_ms)
            delay_s = max(0, at_ms - self._clock.mono_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._start)

    def _start(self) -> None:
        self._timer = None
        self._passing = asyncio.get_running_loop().create_task(self._pass(), name="renew users' leases")
        self._passing.add_done_callback(lambda _: self._arm())

    async def _pass(self) -> None:
        rows = self._rows()
        at_ms = self._clock.mono_ms()
        self._not_before_ms = at_ms + min(row.ttl_ms for row in rows) // 12
        if not self._hears():
            return
        known = {worker_id: holder.number for worker_id, holder in self._holders.items()}
        try:
            refused = await self._renew(rows)
        except LinkError as error:
            log.warning("%d leases of jobs could not be renewed: %s", len(rows), error)
            return
        for row in rows:
            row.stamp_ms = max(row.stamp_ms, at_ms)
        for worker_id, number in known.items():
            self._publish(worker_id, refused, number, at_ms)

    async def _renew(self, rows: list[Row]) -> set[str]:
        refused: set[str] = set()
        for start in range(0, len(rows), CHUNK):
            part = [(row.name, row.token, row.ttl_ms) for row in rows[start : start + CHUNK]]
            refused.update(token.decode() for token in await self._link.ask(renewing(self._keys, part)))
        return refused

    def _publish(self, worker_id: str, refused: set[str], number: int, at_ms: int) -> None:
        holder = self._holders.get(worker_id)
        if holder is None or holder.slot is None or not holder.rows:
            return
        lost = refused & holder.rows.keys()
        if lost:
            holder.refused |= lost
            tokens = sorted(lost)
            for start in range(0, len(tokens), TOLD_AT_ONCE):
                self._send(GuardsLost(worker_id, tokens[start : start + TOLD_AT_ONCE]), holder.slot)
        if number and not holder.refused:
            self._board.set_guards(holder.slot, number, at_ms)

    # --- the dead -------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._funerals.add(task)
        task.add_done_callback(self._funerals.discard)

    async def _give_back(self, row: Row) -> None:
        """Until it is done, or the lease has ended by itself."""
        guard = Guard(row.name, row.ttl_ms, self._keys, self._clock)
        guard.token = row.token
        until_ms = self._clock.mono_ms() + row.ttl_ms
        while self._clock.mono_ms() < until_ms:
            try:
                if await self._link.ask(guard.releasing()):
                    log.warning("lease %s of a dead worker was given back", row.name)
                return
            except LinkError as error:
                log.info("lease %s of a dead worker is not given back yet: %s", row.name, error)
                await asyncio.sleep(PAUSE_S)
