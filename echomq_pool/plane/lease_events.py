# SPDX-License-Identifier: MIT
"""Events of the lease plane: flat JSON objects on the channel `<base>events`, heard by whoever listens at the moment.

Nothing is stored: without a subscriber, or over a broken connection, a message is lost. The subscriber's connection
comes back by itself and subscribes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane import codec
from echomq_pool.plane.events import Event
from echomq_pool.plane.lease_desk import Asking
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.redisio.boot import Greeting
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.protocol import Wire
from echomq_pool.redisio.state import LinkState

log = logging.getLogger("echomq.events")

EVENTS = frozenset(
    {
        "active",
        "completed",
        "failed",
        "waiting",
        "scheduled",
        "dead",
        "stalled",
        "progress",
        "extended",
        "lost",
        "cancel",
        "due",
    }
)

Receiver = Callable[[Event], None]


async def publish(link: Asking, keys: LeaseKeys, event: str, job_id: str, **more: str) -> int:
    """Publishes one event by hand. Returns how many heard it."""
    message = codec.encode({"event": event, "job": job_id, **more})
    return int(await link.call("PUBLISH", keys.key("events"), message))


async def request_cancel(link: Asking, keys: LeaseKeys, job_id: str, reason: str) -> int:
    """Asks whoever runs the job to stop it: a message on the queue's `control` channel. Returns how many heard."""
    message = codec.encode({"event": "cancel", "job": job_id, "reason": reason})
    return int(await link.call("PUBLISH", keys.key("control"), message))


def decode(queue: str, message: bytes) -> Event | None:
    """A message as an Event; a name that is not known becomes `unknown`. None: it is no event at all."""
    try:
        fields = codec.decode(message)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    name = str(fields.pop("event", "unknown"))
    job_id = str(fields.pop("job", ""))
    if name not in EVENTS:
        fields["event"], name = name, "unknown"
    return Event(queue, name, job_id, fields, "")


class _Ear(Link):
    """A link whose connection also hears what nobody asked for."""

    def __init__(self, config: RedisConfig, name: str, on_push: Callable[[Any], None], **more: Any) -> None:
        super().__init__(config, name=name, **more)
        self._on_push = on_push

    async def _boot(self, wire: Wire) -> Greeting:
        wire.on_push = self._on_push
        return await super()._boot(wire)


class Subscriber:
    """Hears the events of queues, with a connection of its own.

    Args:
        config: the server.
        queues: whose events.
        receiver: called for each, on the loop; what it raises is logged.
        channels: of each queue: `events`, which is everything, `control`, which is requests alone, `due` or
            `due:repeat`, which is that something falls due sooner than all before.
        name: of the connection.
        on_state: told every change of the connection; while it is connected, all is heard.
    """

    def __init__(
        self,
        config: RedisConfig,
        queues: Iterable[LeaseKeys],
        receiver: Receiver,
        *,
        channels: Sequence[str] = ("events",),
        name: str = "events",
        on_state: Callable[[LinkState], None] | None = None,
    ) -> None:
        self._channels = {keys.key(channel): keys.queue for keys in queues for channel in channels}
        self._receiver = receiver
        self._link = _Ear(config, name, self._pushed, on_connect=self._subscribe, on_state=on_state)

    @property
    def connected(self) -> bool:
        return self._link.connected

    @property
    def client_id(self) -> int | None:
        return self._link.client_id

    async def start(self) -> None:
        """Starts listening in the background."""
        await self._link.start()

    async def ready(self) -> None:
        """Waits until it is subscribed."""
        await self._link.ready()

    async def close(self) -> None:
        await self._link.close()

    async def _subscribe(self, link: Link) -> None:
        # Each channel is confirmed by a reply of its own, so each has its own call.
        await asyncio.gather(*(link.call("SUBSCRIBE", channel) for channel in self._channels))

    def _pushed(self, reply: Any) -> None:
        if not isinstance(reply, list) or len(reply) != 3 or reply[0] != b"message":
            return
        event = decode(self._channels.get(codec.to_text(reply[1]), ""), reply[2])
        if event is None:
            return
        try:
            self._receiver(event)
        except Exception:  # an edge: a receiver is foreign code, and the next event must still be heard
            log.exception("a receiver of %s broke", event.name)
