# SPDX-License-Identifier: MIT
"""The jobs that this process holds, and the word about them to the lock manager.

`held` leaves before any user code of that turn starts: the flush is put into the loop's queue when the first job
of a turn comes in, and the runs are put behind it. `settled` may lag by 5 ms; it always goes before a later `held`,
since a job may come back under the same token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from echomq_pool.children.run import Key, Run
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.messages import Held, Message, Settled

SETTLED_AFTER_S = 0.005
RETOLD_AT_ONCE = 200  # jobs per record of a full re-telling
TOLD_TOGETHER = 200  # settled jobs in a record of held ones, which is cut by the latter when it is too big


class Ledger:
    """All runs of the process, by queue, id and token."""

    def __init__(self, worker_id: str, slot: int, board: Board, send: Callable[[Message], None]) -> None:
        self._worker_id = worker_id
        self._slot = slot
        self._board = board
        self._send = send
        self._runs: dict[Key, Run] = {}
        self._held: list[Run] = []
        self._settled: list[Key] = []
        self._flush_soon: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def get(self, key: Key) -> Run | None:
        """The run under this queue, id and token."""
        return self._runs.get(key)

    def of_job(self, queue: str, job_id: str) -> list[Run]:
        """Every run of this job; two only when a lost one still runs in its thread."""
        return [r for r in self._runs.values() if r.record.id == job_id and r.source.name == queue]

    def hold(self, run: Run) -> None:
        """A job is ours from now on; told in this turn, before anything started after this call."""
        self._runs[run.key] = run
        if not self._held:
            if self._flush_soon is not None:
                self._flush_soon.cancel()
            self._flush_soon = asyncio.get_running_loop().call_soon(self.flush)
        self._held.append(run)

    def drop(self, run: Run) -> None:
        """A job is ours no longer."""
        del self._runs[run.key]
        self._settled.append(run.key)
        if self._flush_soon is None:
            self._flush_soon = asyncio.get_running_loop().call_later(SETTLED_AFTER_S, self.flush)

    def flush(self) -> None:
        """Tells what is not yet told, on the board how many jobs run."""
        self._board.set_busy(self._slot, len(self._runs))
        if self._flush_soon is not None:
            self._flush_soon.cancel()
            self._flush_soon = None
        settled, self._settled = self._settled, []
        held, self._held = self._held, []
        if settled and (not held or len(settled) > TOLD_TOGETHER):
            self._send(Settled(self._worker_id, settled))
            settled = []
        if held:
            self._send(Held(self._worker_id, [run.held() for run in held], settled=settled))

    def retell(self) -> None:
        """Tells everything from the beginning, to a lock manager that has just started."""
        self._settled.clear()  # the new one has never heard of them
        self._held.clear()
        jobs = [run.held() for run in self._runs.values()]
        parts = [jobs[i : i + RETOLD_AT_ONCE] for i in range(0, len(jobs), RETOLD_AT_ONCE)] or [[]]
        for part in parts[:-1]:
            self._send(Held(self._worker_id, part, full=True))
        self._send(Held(self._worker_id, parts[-1], full=True, end=True))

    def mark_deadline(self) -> None:
        """Puts the earliest time limit on the board: the supervisor's net when this loop is stuck."""
        limits = [run.deadline_ms for run in self._runs.values() if run.deadline_ms and not run.settling]
        self._board.set_deadline(self._slot, min(limits, default=0))
