# SPDX-License-Identifier: MIT
"""What QueueEvents hears of the lease-plane queues: cancel requests always, all events when somebody wants them.

Events are published, not stored. Those that come while nobody listens, or faster than the hooks can follow, are lost;
the latter are counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from echomq_pool.children.hooks import Hooks
from echomq_pool.config.schema import PoolConfig
from echomq_pool.metrics import Metrics
from echomq_pool.plane import codec
from echomq_pool.plane.events import Event
from echomq_pool.plane.lease_events import Subscriber
from echomq_pool.plane.lease_keys import LeaseKeys

log = logging.getLogger("echomq.queue_events")

AHEAD = 10_000  # events kept for slow hooks
# As the lock plane calls them: one hook serves both planes.
NAMES = {"scheduled": "delayed"}
FIELDS = {"result": "returnvalue", "reason": "failedReason", "progress": "data"}
JSON_FIELDS = ("result", "progress")


class LeaseEar:
    """The subscriber of a pool's lease-plane queues, and the hooks on their events.

    Args:
        note: told every event, at once: it counts them and forwards cancel requests.
    """

    def __init__(
        self, config: PoolConfig, hooks: Hooks, note: Callable[[list[Event]], None], metrics: Metrics
    ) -> None:
        self.queues = [queue for queue in config.queues() if config.plane_of(queue) == "lease"]
        self._hooks = hooks
        self._note = note
        self._metrics = metrics
        self._ahead: asyncio.Queue[Event] = asyncio.Queue(AHEAD)
        self._running: asyncio.Task[None] | None = None
        wanted = bool(hooks) or bool(config.observer.bind)
        self._subscriber = Subscriber(
            config.redis,
            [LeaseKeys(queue, config.prefix) for queue in self.queues],
            self._hear,
            channels=("control", "events") if wanted else ("control",),
            name=f"echomq-pool:{config.name}:queue_events",
        )

    async def start(self) -> None:
        if self.queues:
            await self._subscriber.start()
            self._running = asyncio.create_task(self._deliver(), name="hooks of the lease plane")

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await self._subscriber.close()

    def _hear(self, event: Event) -> None:
        self._note([event])
        if not self._hooks.wants(replace(event, name=NAMES.get(event.name, event.name))):
            return
        if self._ahead.full():
            self._metrics.count("hooks_missed")
            return
        self._ahead.put_nowait(translated(event))

    async def _deliver(self) -> None:
        while True:
            event = await self._ahead.get()
            done = await self._hooks.run(event)
            self._metrics.count(f"hooks_{'run' if done else 'failed'}|{event.name}")


def translated(event: Event) -> Event:
    """The event as a hook of the lock plane would get it."""
    data = {FIELDS.get(key, key): _value(key, value) for key, value in event.data.items()}
    return replace(event, name=NAMES.get(event.name, event.name), data=data)


def _value(key: str, value: object) -> object:
    if key not in JSON_FIELDS or not isinstance(value, str):
        return value
    try:
        return codec.decode(value)
    except (ValueError, RecursionError):
        return value
