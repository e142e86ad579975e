# SPDX-License-Identifier: MIT
"""Gathers what a worker settles and claims in one turn of its loop into one script call per worker.

Callers settle and take one job each, as on the lock plane; all of one turn travel as one `settle` (or `take`).
A call whose reply was lost is looked up (`fate`): each operation of it is then known to have happened, is sent
again, or is lost. Claims are found by the owner text, which is used once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from echomq_pool.clock import Clock
from echomq_pool.errors import LinkDown, LinkRefused, ServerUnready
from echomq_pool.plane import codec, lease_row
from echomq_pool.plane.base import Nothing, PlaneOptions, Taken
from echomq_pool.plane.lease_desk import UNREADY_PAUSE_S, Desk
from echomq_pool.plane.repeat import Verdict
from echomq_pool.plane.slack import NEXT_MS, Pace, Valve

Answer = tuple[str, Taken | Nothing | None]

MOST_OPERATIONS = 1_000


@dataclass(slots=True)
class Settlement:
    """One operation of a `settle` call. `rest` follows verb, id and token, as the script's header says."""

    verb: str
    id: str
    token: str
    rest: tuple[Any, ...] = ()
    fetch: bool = False
    word: str = ""  # the state it led to, `stale` or `gone`; empty while it is not known
    waiter: asyncio.Future[Answer] | None = None

    def row(self) -> list[Any]:
        return [self.verb, self.id, self.token, *self.rest]


@dataclass(slots=True)
class Turn:
    """What one worker asked for in one turn of the loop."""

    owner: str  # used once: claims whose reply was lost are found by it
    operations: list[Settlement] = field(default_factory=list)
    takers: deque[asyncio.Future[Taken | Nothing]] = field(default_factory=deque)

    @property
    def wanted(self) -> int:
        """How many jobs are to be claimed."""
        return len(self.takers) + sum(op.fetch for op in self.operations)


def judge(token: str, attempts: str, state: str, spent: str) -> Verdict:
    """What became of an operation under `token`, from the row as it is now (empty texts: no row)."""
    if not attempts or (spent and int(spent) >= int(token)):
        return Verdict.DONE
    if attempts == token and state in ("active", "pending"):
        return Verdict.REPEAT
    return Verdict.LOST


class Gatherer:
    """The settling and claiming side of one queue."""

    def __init__(self, desk: Desk, options: PlaneOptions, clock: Clock, pace: Pace) -> None:
        self._desk = desk
        self._options = options
        self._valve = Valve(pace, clock)
        self._turns: dict[str, Turn] = {}
        self._closed: deque[Turn] = deque()  # wait for the valve
        self._later: asyncio.TimerHandle | None = None  # when it is looked at again
        self._tasks: set[asyncio.Task[None]] = set()
        key = desk.keys.key
        self._base = desk.keys.base.encode()
        self._take_keys = tuple(key(name).encode() for name in ("pending", "active", "ring", "meta"))
        self._settle_keys = (key("active").encode(),)
        self._fate_keys = (key("active").encode(), desk.keys.rows.encode())
        limiter = options.limiter
        self._rate = ("", "") if limiter is None else (limiter.max, limiter.duration_ms)
        self._loud = ("1" if options.cluster else "2") if options.publish else "0"

    # --- for callers ------------------------------------------------------------------------------

    def settle(self, operation: Settlement, owner: str) -> asyncio.Future[Answer]:
        """Settles with the others of this turn. The answer: its word, and the next job when it fetches.

        Args:
            owner: owner text of the job, `<worker id>:…`; the next job belongs to the same worker.
        """
        turn = self._turn(owner, f"{lease_row.owner_of(owner)}:{operation.id}.{operation.token}")
        operation.waiter = asyncio.get_running_loop().create_future()
        turn.operations.append(operation)
        self._full(turn)
        return operation.waiter

    def take(self, token: str) -> asyncio.Future[Taken | Nothing]:
        """Claims one job with the others of this turn. `token` becomes the owner text of what it brings."""
        turn = self._turn(token, token)
        waiter: asyncio.Future[Taken | Nothing] = asyncio.get_running_loop().create_future()
        turn.takers.append(waiter)
        self._full(turn)
        return waiter

    async def run(self, turn: Turn) -> tuple[list[Taken], Nothing]:
        """Sends `turn` until the fate of all of it is known; fills in the words of its operations."""
        taken: list[Taken] = []
        nothing = Nothing()
        doubt = False
        while True:
            open_ones = [op for op in turn.operations if not op.word]
            wanted = turn.wanted - len(taken)
            if not open_ones and (wanted <= 0 or (doubt and taken)):
                return taken, nothing
            try:
                words, rows, nothing = await self._send(turn, open_ones, wanted)
            except ServerUnready:
                await asyncio.sleep(UNREADY_PAUSE_S)
                continue
            except (LinkDown, LinkRefused) as error:
                await self._desk.reconnected(error)
                if isinstance(error, LinkRefused) or not error.sent:
                    continue
                doubt = True
                taken = await self._look(turn, open_ones)
                continue
            for operation, word in zip(open_ones, words, strict=True):
                operation.word = codec.to_text(word)
            return taken + rows, nothing

    # --- one turn ---------------------------------------------------------------------------------

    def _turn(self, owner: str, text: str) -> Turn:
        worker = lease_row.owner_of(owner)
        turn = self._turns.get(worker)
        if turn is None:
            turn = self._turns[worker] = Turn(text)
            asyncio.get_running_loop().call_soon(self._close, worker, turn)
        return turn

    def _full(self, turn: Turn) -> None:
        """A turn that holds as much as one call may is closed at once; the rest makes another."""
        most = min(self._valve.most, MOST_OPERATIONS) if turn.operations else MOST_OPERATIONS
        if len(turn.operations) + len(turn.takers) >= most:
            self._close(lease_row.owner_of(turn.owner), turn)

    def _close(self, worker: str, turn: Turn) -> None:
        if self._turns.get(worker) is turn:
            del self._turns[worker]
            self._closed.append(turn)
            self._start_due()

    def _start_due(self) -> None:
        """Sends what is closed, as far as the valve lets it."""
        loop = asyncio.get_running_loop()
        while self._closed:
            if not self._valve.open:
                self._later = self._later or loop.call_later(NEXT_MS / 1_000, self._look_again)
                return
            self._valve.sent()
            task = loop.create_task(self._finish(self._closed.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _look_again(self) -> None:
        self._later = None
        self._start_due()

    async def _finish(self, turn: Turn) -> None:
        try:
            taken, nothing = await self.run(turn)
        except Exception as error:  # every caller of the turn hears it, nobody else can
            _fail(turn, error)
            return
        finally:
            self._valve.answered()
            self._start_due()
        unwanted = _deliver(turn, taken, nothing)
        if unwanted:
            # Their callers gave up while the call was under way: as if it had not been.
            back = [Settlement("release", found.job.id, found.token) for found in unwanted]
            await self.run(Turn("", back))

    # --- calls ------------------------------------------------------------------------------------

    async def _send(
        self, turn: Turn, operations: Sequence[Settlement], wanted: int
    ) -> tuple[list[bytes], list[Taken], Nothing]:
        lease = self._options.lock_duration_ms
        if not operations:
            args = (self._base, lease, wanted, turn.owner, *self._rate, self._loud)
            return [], *_claims(await self._desk.send("take", self._take_keys, args))
        packed = lease_row.pack([op.row() for op in operations])
        args_ = (self._base, self._loud, packed, wanted, lease, turn.owner, *self._rate)
        reply = await self._desk.send("settle", self._settle_keys, args_)
        return reply[0], *_claims(reply[1] if len(reply) > 1 else None)

    async def _look(self, turn: Turn, operations: Sequence[Settlement]) -> list[Taken]:
        """After a lost reply: the words of what is decided, and what was claimed. Insists on an answer."""
        ids = [op.id for op in operations]
        while True:
            try:
                rows, claimed = await self._desk.send(
                    "fate", self._fate_keys, (self._base, turn.owner if turn.wanted else "", *ids)
                )
                break
            except ServerUnready:
                await asyncio.sleep(UNREADY_PAUSE_S)
            except (LinkDown, LinkRefused) as error:
                await self._desk.reconnected(error)
        for operation, row in zip(operations, rows, strict=True):
            attempts, state, spent = (codec.to_text(value) for value in row)
            verdict = judge(operation.token, attempts, state, spent)
            if verdict is not Verdict.REPEAT:
                operation.word = _word(operation.verb, state) if verdict is Verdict.DONE else "stale"
        return [lease_row.taken(job_id, flat) for job_id, flat in claimed]


def _word(verb: str, state: str) -> str:
    """What the lost reply must have said."""
    if verb == "retry" and state == "dead":
        return "dead"
    return {"complete": "completed", "retry": "scheduled", "delay": "scheduled"}.get(verb, "pending")


def _claims(reply: Any) -> tuple[list[Taken], Nothing]:
    if reply is None:
        return [], Nothing()
    rows, limited, due = reply
    return [lease_row.taken(job_id, flat) for job_id, flat in rows], Nothing(int(limited), int(due))


def _deliver(turn: Turn, taken: list[Taken], nothing: Nothing) -> list[Taken]:
    """Gives the jobs to those who wait: takers first, then who fetched. Returns what nobody waits for any more."""
    found = deque(taken)
    for taker in turn.takers:
        if not taker.done():
            taker.set_result(found.popleft() if found else nothing)
    for operation in turn.operations:
        waiter = operation.waiter
        if waiter is None or waiter.done():
            continue
        following: Taken | Nothing | None = None
        if operation.fetch:
            following = found.popleft() if found else nothing
        waiter.set_result((operation.word, following))
    return list(found)


def _fail(turn: Turn, error: Exception) -> None:
    waiters: list[asyncio.Future[Any]] = [*turn.takers]
    waiters += [op.waiter for op in turn.operations if op.waiter is not None]
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)
