# SPDX-License-Identifier: MIT
"""The bytes of one connection: what was sent waits in a queue for its answer, in order."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol, cast

import hiredis

from echomq_pool.errors import LinkDown, LinkError, LinkRefused
from echomq_pool.redisio.replies import ErrorReply, classify, to_error
from echomq_pool.redisio.scripts import Script
from echomq_pool.redisio.state import DESCRIPTOR_GONE

Arg = bytes | str | int | float

# hiredis' stub speaks of tuples of one; any length is meant.
pack = cast(Callable[[tuple[Arg, ...]], bytes], hiredis.pack_command)

NOTHING = object()  # hiredis' word for "no whole reply yet"; nil is None, so None cannot serve


class Kind(Enum):
    """How a call is treated when something goes wrong."""

    NORMAL = auto()
    EARLY = (
        auto()
    )  # made by the on_connect callback: goes out before the callers' calls, dies with its connection
    RAW = auto()  # the link's own: error replies are handed over as values
    BLOCKED = auto()  # waits in the server: never repeated by itself


class Call:
    """One command on its way. Times are CLOCK_MONOTONIC ms.

    `deadline` is when the caller gives up, `limit` when a missing answer means that the connection is dead: a
    caller with little patience must not cost its neighbours their connection.
    """

    __slots__ = ("attempts", "code", "data", "deadline", "future", "kind", "limit", "script")

    def __init__(
        self,
        future: asyncio.Future[Any],
        data: bytes,
        deadline: int,
        limit: int,
        script: Script | None = None,
        kind: Kind = Kind.NORMAL,
    ) -> None:
        self.future = future
        self.data = data
        self.deadline = deadline
        self.limit = limit
        self.script = script
        self.kind = kind
        self.attempts = 0
        self.code = ""  # the last refusal, when it was repeated because of one


class Owner(Protocol):
    """Whom the wire tells."""

    def on_error_reply(self, wire: Wire, call: Call, reply: ErrorReply) -> None: ...

    def on_answer(self, call: Call) -> None: ...

    def on_lost(self, wire: Wire) -> None: ...

    def on_writable(self) -> None: ...


class Wire(asyncio.Protocol):
    """One connection from its opening to its loss. It never comes back; the link makes a new one."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(
            protocolError=hiredis.ProtocolError, replyError=ErrorReply, notEnoughData=NOTHING
        )
        self.in_flight: deque[Call] = deque()
        self.watched = False  # the owner wants to hear of good answers too
        self.paused = False
        self.heard = False  # any byte came in
        self.on_push: Callable[[Any], None] | None = (
            None  # hears replies that nobody asked for (subscriptions)
        )
        self.lost: LinkError | None = None
        self.leaving: LinkError | None = None  # to be ended as soon as everything sent is answered

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            _keep_alive(sock)

    def data_received(self, data: bytes) -> None:
        # Hot: runs once per read, its body once per reply.
        self.heard = True
        reader, next_call = self._reader, self.in_flight.popleft
        try:
            reader.feed(data)
            reply = reader.gets()
            while reply is not NOTHING:
                call = next_call()
                if reply.__class__ is ErrorReply:
                    self._owner.on_error_reply(self, call, reply)
                else:
                    if self.watched:
                        self._owner.on_answer(call)
                    if not call.future.done():
                        call.future.set_result(reply)
                reply = reader.gets()
        except hiredis.ProtocolError as error:
            self.abort(_wrong_protocol(data, error))
        except IndexError:
            if self.on_push is not None:
                self._pushed(reply)
            elif self.lost is None:
                self.abort(_unasked(reply))
        if self.leaving is not None and not self.in_flight:
            self.abort(self.leaving)

    def _pushed(self, reply: Any) -> None:
        """Everything left in the reader: calls are answered before, since nothing was in flight."""
        assert self.on_push is not None
        while reply is not NOTHING:
            self.on_push(reply)
            reply = self._reader.gets()

    def eof_received(self) -> None:
        return None  # the transport closes itself

    def connection_lost(self, exc: Exception | None) -> None:
        why = "the server closed the connection" if exc is None else f"connection lost: {exc}"
        if isinstance(exc, OSError) and exc.errno == errno.EBADF:
            self.abort(LinkDown(DESCRIPTOR_GONE, sent=True))
            return
        if (
            not self.heard
            and self._transport is not None
            and not self._transport.get_extra_info("ssl_object")
        ):
            why += " before its first answer; if that port speaks TLS, use rediss://"
        self.abort(LinkDown(why, sent=True))

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._owner.on_writable()

    # --- for the owner ----------------------------------------------------------------------------

    def send(self, calls: list[Call]) -> None:
        """Writes all calls at once. The wire must not be lost."""
        assert self._transport is not None
        self.in_flight.extend(calls)
        if len(calls) == 1:
            self._transport.write(calls[0].data)
        else:
            self._transport.write(b"".join([call.data for call in calls]))

    def abort(self, error: LinkError) -> None:
        """Ends the connection now, whatever is buffered, and fails what waits for an answer. Only once."""
        if self.lost is not None:
            return
        self.lost = error
        if self._transport is not None:
            self._transport.abort()
        waiting = list(self.in_flight)
        self.in_flight.clear()
        if isinstance(error, LinkDown):
            error = LinkDown(str(error), sent=True)
        for call in waiting:
            fail(call.future, error)
        self._owner.on_lost(self)


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Gives the caller its own copy of the error (a shared one would collect everybody's traceback).

    The future is marked as looked at: an outage must not print one traceback per abandoned call.
    """
    if future.done():
        return
    if isinstance(error, LinkDown):
        error = LinkDown(str(error), sent=error.sent)
    elif isinstance(error, LinkRefused):
        error = LinkRefused(str(error))
    future.set_exception(error)
    future.exception()


def _keep_alive(sock: Any) -> None:
    """Lets the kernel notice a peer that vanished while nothing was asked: after 30 s + 3 × 5 s."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _wrong_protocol(data: bytes, error: Exception) -> LinkError:
    """What speaks there? A TLS alert or handshake record starts with 0x15 or 0x16, then version 3."""
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":
        return LinkRefused("the port speaks TLS: use rediss:// (or set redis.tls)")
    if data[:5] == b"HTTP/":
        return LinkRefused("the port speaks HTTP: it is not a Redis or Valkey server")
    return LinkDown(f"the answer is not in the Redis protocol: {error}", sent=True)


def _unasked(reply: object) -> LinkError:
    """A reply that nobody waits for: the greeting of a server that turns us away, or a stream out of step."""
    if isinstance(reply, ErrorReply):
        return to_error(classify(reply))
    return LinkDown(f"an answer without a question: {reply!r:.200}", sent=True)
