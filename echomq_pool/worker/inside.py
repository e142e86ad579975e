# SPDX-License-Identifier: MIT
"""The worker child with nobody above it."""

from __future__ import annotations

import logging

from echomq_pool.children.processor import Processor
from echomq_pool.children.run import Run
from echomq_pool.children.worker import Worker as Child
from echomq_pool.ipc.channel import NO_SLOT
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Message, Stop

log = logging.getLogger("echomq.worker")


class Inside(Child):
    """The worker child with nobody above it: what it would tell the supervisor ends here."""

    def __init__(self, context: ChildContext, processor: Processor) -> None:
        super().__init__(context)
        self._given = processor

    def load(self) -> Processor:
        return self._given

    def send(self, message: Message, *, slot: int = NO_SLOT) -> None:
        """There is no supervisor."""

    def flush(self) -> None:
        """Likewise."""

    def _condemn(self, run: Run) -> None:
        """A pool would end the process. Here the run is waited for; its lease stays, so that it runs only once."""
        run.ended_ms = run.deadline_ms = 0
        text = "job %s of %s cannot be stopped and runs on: %s"
        log.error(text, run.record.id, run.source.name, run.end_text)

    async def leave(self, stop: Stop) -> None:
        """Closes everything; what is still held is found by others when its lease has lapsed."""
        for slot in list(self.fetcher.slots):
            slot.cancel()
        await self._farewell(stop)

    def late(self) -> bool:
        """Whether a lease of ours is older than it should ever be: then a sweep could take our own jobs."""
        now = self.clock.mono_ms()
        limit = self.group.lock_duration_ms * 3 // 4
        return any(now - self.watch.stamp(run) >= limit for run in self.ledger)
