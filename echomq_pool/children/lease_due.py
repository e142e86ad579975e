# SPDX-License-Identifier: MIT
"""When the lease-plane queues want to be looked at: an agenda, and an ear for what falls due sooner than it says.

Who schedules a job that is due before all others, or makes a repeat, says so on a channel of its queue (`due`,
`due:repeat`). A child that hears it may sleep as long as nothing is due; one that is deaf, and what is written by a
program that says nothing, gets a look per beat. Nothing depends on a message: it only brings a look forward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from echomq_pool.children.pause import pause
from echomq_pool.clock import Clock
from echomq_pool.config.schema import PoolConfig
from echomq_pool.plane.events import Event
from echomq_pool.plane.lease_events import Subscriber
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.redisio.state import LinkState

BEAT_MS = 1_000  # between looks of who is deaf
IDLE_BEAT_MS = 10_000  # between looks of who hears: for programs that schedule and say nothing
LEAST_PAUSE_MS = 5
_NEVER = 1 << 62


class DueEar:
    """Hears that something of a queue is due at a time.

    Args:
        queues: whose.
        part: name of the child, shown in the server's client list.
        channels: `due`, `due:repeat`, or others whose events `also` is told.
        heard: told the queue and the server's ms, 0 = now. After every connect it is told 0 for all queues: something
            may have been said while nobody listened.
    """

    def __init__(
        self,
        config: PoolConfig,
        queues: Iterable[str],
        part: str,
        channels: Sequence[str],
        heard: Callable[[str, int], None],
        also: Callable[[Event], None] | None = None,
    ) -> None:
        self._queues = list(queues)
        self._heard = heard
        self._also = also
        self._subscriber = Subscriber(
            config.redis,
            [LeaseKeys(queue, config.prefix) for queue in self._queues],
            self._event,
            channels=channels,
            name=f"echomq-pool:{config.name}:{part}:due",
            on_state=self._state,
        )

    @property
    def hears(self) -> bool:
        """Whether what is said now is heard."""
        return self._subscriber.connected

    async def start(self) -> None:
        await self._subscriber.start()

    async def close(self) -> None:
        await self._subscriber.close()

    def _event(self, event: Event) -> None:
        if event.name == "due":
            at = str(event.data.get("at", "0"))
            self._heard(event.queue, int(at) if at.isdecimal() else 0)
        elif self._also is not None:
            self._also(event)

    def _state(self, state: LinkState) -> None:
        if state.connected:
            for queue in self._queues:
                self._heard(queue, 0)


class Agenda:
    """When each queue is to be looked at next, on the monotonic clock; at first at once."""

    def __init__(self, queues: Iterable[str], clock: Clock) -> None:
        self._clock = clock
        self._next = dict.fromkeys(queues, 0)
        self._earlier = asyncio.Event()

    def take(self) -> list[str]:
        """The queues that are due. Each is off the agenda until it is put there again."""
        now = self._clock.mono_ms()
        due = [queue for queue, at in self._next.items() if at <= now]
        self._next |= dict.fromkeys(due, _NEVER)
        return due

    def put(self, queue: str, at_ms: int) -> None:
        """A look at `at_ms`, or earlier if somebody asked for that meanwhile."""
        if at_ms < self._next[queue]:
            self._next[queue] = at_ms
            self._earlier.set()

    def put_all(self) -> None:
        """A look at every queue, now."""
        for queue in self._next:
            self.put(queue, 0)

    async def sleep(self, most_ms: int = _NEVER) -> None:
        """Until the first look is due, or `most_ms`."""
        pause_ms = min(most_ms, min(self._next.values(), default=_NEVER) - self._clock.mono_ms())
        await pause(self._earlier, max(0, pause_ms) / 1000)
