# SPDX-License-Identifier: MIT
"""What a pool's singletons do for a lease-plane queue, inside a `Worker`: lapsed leases, due jobs, repeats.

It has a task of its own, so a queue that is never empty starves nobody whose time has come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from echomq_pool.children.lease_due import BEAT_MS, IDLE_BEAT_MS, LEAST_PAUSE_MS, Agenda, DueEar
from echomq_pool.children.maintenance import Maintenance
from echomq_pool.clock import Clock
from echomq_pool.config.schema import PoolConfig
from echomq_pool.errors import LinkDown, PoolError
from echomq_pool.metrics import Metrics
from echomq_pool.plane.events import Event
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.redisio.link import Link

log = logging.getLogger("echomq.worker")


class Upkeep:
    """The upkeep of one queue.

    Args:
        plane, link: the queue, and its connection.
        may_sweep: asked before lapsed leases are touched.
        cancelled: told job and reason of each request to cancel; None = they are not listened to.
    """

    def __init__(
        self,
        config: PoolConfig,
        plane: LeasePlane,
        link: Link,
        clock: Clock,
        may_sweep: Callable[[], bool],
        cancelled: Callable[[str, str], None] | None,
    ) -> None:
        self._plane = plane
        self._link = link
        self._clock = clock
        self._may_sweep = may_sweep
        self._cancelled = cancelled
        self._metrics = Metrics()
        queues = [plane.keys.queue]
        channels = ["due", "due:repeat", *(["control"] if cancelled else [])]
        self._ear = DueEar(config, queues, "worker", channels, self._heard, self._asked)
        self._repeats = Agenda(queues, clock)
        self._maintenance = Maintenance(
            {plane.keys.queue: plane}, self, clock, self._metrics, self._safe, lambda: self._ear.hears, self._tell
        )  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []

    def connected(self, queue: str) -> bool:
        """Whether the queue can be asked."""
        return self._link.connected

    async def start(self) -> None:
        await self._ear.start()
        self._tasks = [asyncio.create_task(self._maintenance.run()), asyncio.create_task(self._fire())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ear.close()

    async def _fire(self) -> None:
        """Fires repeats until it is cancelled."""
        while True:
            for queue in self._repeats.take():
                pause = await self._turn()
                self._repeats.put(queue, self._clock.mono_ms() + pause)
            await self._repeats.sleep()

    async def _turn(self) -> int:
        """Fires what is due. Returns ms until the next look."""
        if not self._link.connected:
            return BEAT_MS
        try:
            _, next_in_ms = await self._plane.repeats.turn()
        except LinkDown as error:
            log.debug("repeats of %s: %s", self._plane.keys.queue, error)
            return BEAT_MS
        except PoolError as error:
            log.error("repeats of %s: %s", self._plane.keys.queue, error)
            return BEAT_MS
        longest = IDLE_BEAT_MS if self._ear.hears else BEAT_MS
        return longest if next_in_ms is None else max(LEAST_PAUSE_MS, min(longest, next_in_ms))

    async def _safe(self, queue: str) -> bool:
        return self._may_sweep()

    def _heard(self, queue: str, at_ms: int) -> None:
        self._maintenance.heard(queue, at_ms)
        self._repeats.put(queue, 0)

    def _asked(self, event: Event) -> None:
        if event.name == "cancel" and self._cancelled is not None:
            self._cancelled(event.job_id, str(event.data.get("reason") or "cancelled"))

    def _tell(self) -> None:
        """Nobody collects the numbers of a worker that is no child of a pool."""
        self._metrics.snapshot()
