# SPDX-License-Identifier: MIT
"""Renewal for a program that runs lease-plane jobs without a pool: one call per beat for all jobs in hand.

It is opt-in: a consumer without it holds its lease for `lease_ms` and no longer. It must live in the process that
runs the jobs. A renewer elsewhere would keep a dead process's jobs alive for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from echomq_pool.errors import InputError, LinkError
from echomq_pool.plane.lease_queue import LeaseQueue

log = logging.getLogger("echomq.leases")


@dataclass(frozen=True, slots=True)
class Cadence:
    """How long a lease is, when it is renewed, and how long its marker lasts; all in ms.

    Args:
        lease_ms: the lease; the claim must use the same.
        extend_ms: a fixed beat; 0 = by `extend_ratio`.
        extend_ratio: beat as a share of the lease.
        marker_multiple: marker's life in leases.

    Raises:
        InputError: a lease that is no whole number from 1.
    """

    lease_ms: int = 30_000
    extend_ms: int = 0
    extend_ratio: float = 0.5
    marker_multiple: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.lease_ms, bool) or not isinstance(self.lease_ms, int) or self.lease_ms < 1:
            raise InputError(f"lease_ms: expected a whole number from 1, got {self.lease_ms!r}")

    @property
    def beat_ms(self) -> int:
        """Always shorter than the lease."""
        wanted = self.extend_ms or int(self.lease_ms * self.extend_ratio)
        return max(1, min(wanted, self.lease_ms - 1))

    @property
    def marker_ms(self) -> int:
        return self.lease_ms * self.marker_multiple


class Locks:
    """Keeps the leases of tracked jobs.

    Args:
        queue: where the jobs are.
        cadence: the figures.
        on_lease_lost: told the id of each job whose lease could not be renewed; it is not tracked any more.
        native: writes the marker as an expiring field of the row, too (Valkey 9, Redis 7.4 and newer).
    """

    def __init__(
        self,
        queue: LeaseQueue,
        cadence: Cadence | None = None,
        on_lease_lost: Callable[[str], None] | None = None,
        *,
        native: bool = False,
    ) -> None:
        self.cadence = cadence or Cadence()
        self._queue = queue
        self._on_lost = on_lease_lost
        self._native = native
        self._held: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    async def track_job(self, job_id: str, token: int | str) -> None:
        """Takes care of a job from now on; the same id again replaces its token. Extends nothing by itself."""
        self._held[job_id] = str(token)
        await self._queue.mark([(job_id, token)], self.cadence.marker_ms, native=self._native)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def untrack_job(self, job_id: str) -> None:
        """Forgets a job and takes its marker away, if the marker is still ours."""
        token = self._held.pop(job_id, None)
        if token is not None:
            await self._queue.unmark([(job_id, token)])

    def get_active_job_count(self) -> int:
        return len(self._held)

    def get_tracked_job_ids(self) -> list[str]:
        return list(self._held)

    def is_tracked(self, job_id: str) -> bool:
        return job_id in self._held

    async def extend(self) -> list[str]:
        """One pass: a call for all leases, another for the markers. Returns the ids that were lost."""
        pairs = list(self._held.items())
        if not pairs:
            return []
        lost = await self._queue.extend_locks(pairs, self.cadence.lease_ms)
        kept = [pair for pair in pairs if pair[0] not in set(lost)]
        if kept:
            await self._queue.mark(kept, self.cadence.marker_ms, native=self._native)
        for job_id in lost:
            if self._held.pop(job_id, None) is not None and self._on_lost is not None:
                self._on_lost(job_id)
        return lost

    async def stop(self) -> None:
        """Renews nothing more; the leases end by themselves."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.cadence.beat_ms / 1000)
            try:
                await self.extend()
            except LinkError as error:
                log.warning("leases could not be renewed: %s", error)
