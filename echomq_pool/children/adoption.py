# SPDX-License-Identifier: MIT
"""Leases of a worker that cannot tell of them: its loop is blocked, and the lock manager that knew them is dead.

The server knows them all the same, by their tokens. Whoever comes later tells everything anew, and what it does not
name is forgotten then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from echomq_pool.children.leases import LeaseBook
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkError
from echomq_pool.ipc.messages import HeldJob, Up
from echomq_pool.plane.base import Plane, Taken

log = logging.getLogger("echomq.lock_manager")


class Adoption:
    """Enters into the book what the server knows of a worker that was never heard.

    Args:
        book: of the leases.
        planes: the queues.
        workers: those that live.
        found: told the queue when leases were entered that must be renewed now.
    """

    def __init__(
        self,
        book: LeaseBook,
        planes: Mapping[str, Plane],
        workers: Mapping[str, Up],
        clock: Clock,
        found: Callable[[str], None],
    ) -> None:
        self._book = book
        self._planes = planes
        self._workers = workers
        self._clock = clock
        self._found = found
        self._asked: dict[tuple[str, str], asyncio.Task[None]] = {}

    def look(self, worker: Up, queue: str) -> None:
        """Asks the server, unless it is being asked."""
        key = worker.worker_id, queue
        if key not in self._asked:
            task = asyncio.get_running_loop().create_task(self._adopt(*key), name=f"adopt leases of {queue}")
            self._asked[key] = task
            task.add_done_callback(lambda _: self._asked.pop(key))

    def cancel(self) -> None:
        for task in self._asked.values():
            task.cancel()

    async def _adopt(self, worker_id: str, queue: str) -> None:
        known = [key[1:] for key in self._book.holders[worker_id].leases if key[0] == queue]
        try:
            claims = await self._planes[queue].unknown_claims(worker_id, known)
        except LinkError as error:
            log.debug("leases of a silent worker on %s: %s", queue, error)
            return  # asked again at the next tick
        if not claims or worker_id not in self._workers or self._book.was_heard(worker_id):
            return  # it spoke meanwhile, or is dead
        log.info("%d leases of worker %s on %s, which is silent, are kept", len(claims), worker_id, queue)
        self._book.adopt(worker_id, [self._held(queue, claim) for claim in claims])
        self._found(queue)

    def _held(self, queue: str, claim: Taken) -> HeldJob:
        job = claim.job
        now = self._clock.now_ms()
        taken_ms = self._clock.mono_ms() - max(0, now - (job.processed_on or now))
        return HeldJob(
            queue, job.id, claim.token, job.ats, job.atm, job.attempts, job.backoff, job.lifo, taken_ms, 0, job.name
        )  # fmt: skip
