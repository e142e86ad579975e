# SPDX-License-Identifier: MIT
"""What the supervisor listens to: the frames of its children on one side, all that cannot wait on the other.

Most frames are passed on and change nothing here. After some of those the next are left to gather for a moment, while
deaths, signals and orders are heard as ever. With one slot and no-op jobs supervisor and lock manager need some 25 µs
for a job so, together; woken for every turn of the worker's loop they needed 90.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from echomq_pool.clock import Clock
from echomq_pool.ipc.channel import Channel
from echomq_pool.supervisor.family import Member

GATHER_MS = 10
FORWARDED = object()  # what a callback returns that has passed frames on and done nothing else


class Ears:
    """Three kernel sets. Callbacks are the data of their keys; they are called with the events.

    `urgent` is for everybody to register with; channels come by `listen`.
    """

    def __init__(self, clock: Clock) -> None:
        self.urgent = selectors.EpollSelector()
        self._channels = selectors.EpollSelector()
        self._all = selectors.EpollSelector()
        self._clock = clock
        for part in (self.urgent, self._channels):
            self._all.register(part.fileno(), EVENT_READ, part)

    def parts(self) -> tuple[selectors.BaseSelector, ...]:
        """What is held open, to be closed in a fork."""
        return self._all, self._channels, self.urgent

    def close(self) -> None:
        for part in self.parts():
            part.close()

    def serve(self, due_ms: int) -> None:
        """Waits and serves until something is due, or may be: forwarded frames alone change nothing."""
        while True:
            ready = self._all.select(self._seconds_to(due_ms))
            acted = [self._hear(key.data, 0) for key, _ in ready]
            if any(acted) or self._clock.mono_ms() >= due_ms:
                return
            if self._hear(self.urgent, self._seconds_to(min(due_ms, self._clock.mono_ms() + GATHER_MS))):
                return

    def listen(self, member: Member, heard: Callable[[int], Any]) -> None:
        """The frames of a child, from now on."""
        self._channels.register(member.channel, EVENT_READ, heard)

    def watch_writable(self, member: Member) -> None:
        """The socket is watched for writing exactly while something waits in its outbox."""
        if bool(member.channel.pending) is member.writing:
            return  # as nearly always: the kernel need not be asked
        key = self._key(member.channel)
        if key is not None:
            member.writing = not member.writing
            wanted = EVENT_READ | (EVENT_WRITE if member.writing else 0)
            self._channels.modify(member.channel, wanted, key.data)

    def unwatch(self, member: Member) -> None:
        """Nothing more is to be heard from that child, or is being said to it."""
        if self._key(member.channel) is not None:
            self._channels.unregister(member.channel)

    def _key(self, channel: Channel) -> selectors.SelectorKey | None:
        fd = channel.fileno()
        return self._channels.get_map().get(fd) if fd >= 0 else None

    def _hear(self, part: selectors.BaseSelector, seconds: float) -> bool:
        """Serves what is ready there. False: nothing but frames that were passed on."""
        acted = [key.data(events) is not FORWARDED for key, events in part.select(seconds)]
        return any(acted)

    def _seconds_to(self, due_ms: int) -> float:
        return max(0, due_ms - self._clock.mono_ms()) / 1000
