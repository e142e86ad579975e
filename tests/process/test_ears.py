# SPDX-License-Identifier: MIT
"""What the supervisor hears at once, and what it lets gather."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.supervisor.ears import FORWARDED, GATHER_MS, Ears
from echomq_pool.supervisor.family import Member

LONG_MS = 60_000


@pytest.fixture
def ears() -> Iterator[Ears]:
    made = Ears(SYSTEM_CLOCK)
    yield made
    made.close()


class Talker:
    """A child's channel from which there is always something to read."""

    def __init__(self, ears: Ears, answer: Any) -> None:
        self.calls = 0
        self._answer = answer
        ours, self._theirs = pair()
        self.channel = Channel(ours)
        self.member = cast(Member, SimpleNamespace(channel=self.channel, writing=False))
        self._theirs.send(b"never read")
        ears.listen(self.member, self._heard)

    def _heard(self, events: int) -> Any:
        self.calls += 1
        return self._answer

    def close(self) -> None:
        self._theirs.close()
        self.channel.close()


@pytest.fixture
def talker(ears: Ears) -> Iterator[Talker]:
    made = Talker(ears, FORWARDED)
    yield made
    made.close()


def test_frames_that_are_only_passed_on_are_let_gather(ears: Ears, talker: Talker) -> None:
    """law 8: however much the children say to each other, the supervisor wakes a hundred times a second for it."""
    ears.serve(SYSTEM_CLOCK.mono_ms() + 30 * GATHER_MS)
    assert 2 <= talker.calls <= 31


def test_what_cannot_wait_is_heard_while_frames_gather(ears: Ears, talker: Talker) -> None:
    """A death, a signal, an order: `serve` comes back for it although a busy pool talks all the time."""
    reading, writing = os.pipe()
    heard: list[int] = []
    ears.urgent.register(reading, 1, lambda events: heard.append(os.read(reading, 10)[0]))
    os.write(writing, b"!")
    ears.serve(SYSTEM_CLOCK.mono_ms() + LONG_MS)
    assert heard == [ord("!")]
    for fd in (reading, writing):
        os.close(fd)


def test_a_frame_for_the_supervisor_itself_ends_the_waiting(ears: Ears) -> None:
    talker = Talker(ears, None)
    ears.serve(SYSTEM_CLOCK.mono_ms() + LONG_MS)
    assert talker.calls == 1
    talker.close()


def test_who_is_no_longer_watched_is_not_heard(ears: Ears, talker: Talker) -> None:
    ears.unwatch(talker.member)
    ears.unwatch(talker.member)
    ears.serve(SYSTEM_CLOCK.mono_ms() + 1)
    assert talker.calls == 0


def test_a_socket_is_watched_for_writing_while_something_waits_for_it(ears: Ears) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = cast(Channel, SimpleNamespace(fileno=ours.fileno, pending=1))
    member = cast(Member, SimpleNamespace(channel=channel, writing=False))
    heard: list[int] = []
    ears.listen(member, heard.append)
    ears.watch_writable(member)
    ears.serve(SYSTEM_CLOCK.mono_ms() + LONG_MS)
    assert heard == [2]
    cast(Any, channel).pending = 0
    ears.watch_writable(member)
    ears.serve(SYSTEM_CLOCK.mono_ms() + 1)
    assert heard == [2]
    ours.close()
    theirs.close()
