# SPDX-License-Identifier: MIT
"""A bare connection that counts: what a form of a call costs on the wire, without a client library's share in it."""

from __future__ import annotations

import itertools
import select
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hiredis

Arg = bytes | str | int | float
# Its own types know tuples of one only.
_pack: Callable[[tuple[Arg, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]

AT_ONCE = 500  # commands packed before something is written


class Wire:
    """One blocking connection. `trips`: times it waited for the server. `sent`, `received`: bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self.trips = self.sent = self.received = 0

    def call(self, *args: Arg) -> Any:
        """One command, one round trip."""
        return self.pipeline([args])[0]

    def pipeline(self, commands: Iterable[Sequence[Arg]]) -> list[Any]:
        """All commands in one go. Replies are read while the rest is still being written.

        Raises:
            hiredis.ReplyError: the first error among the replies.
        """
        replies = self._exchange(commands)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise reply
        return replies

    def _exchange(self, commands: Iterable[Sequence[Arg]]) -> list[Any]:
        """Packs some while the server works on those before: two cores are busy, not one after the other."""
        replies: list[Any] = []
        rest, asked = iter(commands), 0
        view = memoryview(b"")
        self.trips += 1
        self._socket.setblocking(False)
        while True:
            if not view:
                packed = [_pack(tuple(command)) for command in itertools.islice(rest, AT_ONCE)]
                asked += len(packed)
                view = memoryview(b"".join(packed))
                self.sent += len(view)
            if not view and len(replies) == asked:
                return replies
            readable, writable, _ = select.select([self._socket], [self._socket] if view else [], [])
            if writable:
                view = view[self._socket.send(view) :]
            if readable:
                self._feed(replies)

    def _feed(self, replies: list[Any]) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        self.received += len(data)
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            replies.append(reply)

    def close(self) -> None:
        self._socket.close()


def slices(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    """`items` in pieces of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))
