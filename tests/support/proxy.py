# SPDX-License-Identifier: MIT
"""A TCP relay between a pool and its server that can delay, swallow, cut, lose a reply, or answer by itself.

It runs in a thread with a loop of its own, so tests of processes and tests inside a loop use it alike. Switches
are plain attributes, looked at for every chunk; set them from any thread.

    with Proxy(server.port) as proxy:
        proxy.swallow = True          # both ways, without closing: a half-open connection
        proxy.delay_ms = 400          # each way
        proxy.answer = b"-LOADING\\r\\n"  # every command gets this, the server gets none
        proxy.refuse = True           # new connections are reset
        proxy.cut()                   # reset all connections now
        proxy.lose_reply_to(b"EVALSHA")  # the next such command runs, then the connection is cut
        proxy.edit = lambda chunk: …  # rewrites what the server sends
        proxy.commands                # every command that came from the clients, as lists of bytes
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import hiredis

NOTHING = object()


class _Relay:
    """One client's connection."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.reader = reader
        self.writer = writer
        self.upstream: asyncio.StreamWriter | None = None
        self.parser = hiredis.Reader(notEnoughData=NOTHING)
        self.lose_next = False

    async def run(self) -> None:
        try:
            up_reader, self.upstream = await asyncio.open_connection("127.0.0.1", self.proxy.target)
            await asyncio.gather(self._up(), self._down(up_reader))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.cut()

    async def _up(self) -> None:
        assert self.upstream is not None
        while data := await self.reader.read(65_536):
            count = self._look(data)
            if self.proxy.swallow:
                continue
            if self.proxy.answer is not None:
                self.writer.write(self.proxy.answer * count)
                continue
            await self._send(self.upstream, data)
        raise ConnectionError("client left")

    async def _down(self, up_reader: asyncio.StreamReader) -> None:
        while data := await up_reader.read(65_536):
            if self.lose_next:
                raise ConnectionError("reply lost on purpose")
            if not self.proxy.swallow:
                await self._send(self.writer, self.proxy.edit(data) if self.proxy.edit else data)
        raise ConnectionError("server left")

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self.proxy.delay_ms:
            # Later chunks are read meanwhile but keep their order: call_later of equal delays is first come,
            # first served.
            asyncio.get_running_loop().call_later(self.proxy.delay_ms / 1_000, self._write, writer, data)
        else:
            self._write(writer, data)

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not writer.transport.is_closing():
            writer.write(data)

    def _look(self, data: bytes) -> int:
        """Notes the commands in `data`; returns how many ended in it."""
        count = 0
        try:
            self.parser.feed(data)
            while (command := self.parser.gets()) is not NOTHING:
                count += 1
                self.proxy.commands.append(command)
                wanted = self.proxy.losing
                if wanted is not None and command[0].upper() == wanted:
                    self.proxy.losing, self.lose_next = None, True
        except hiredis.ProtocolError:
            self.parser = hiredis.Reader(notEnoughData=NOTHING)
        return count

    def cut(self) -> None:
        """Resets the client's socket and leaves the server's."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        if self.upstream is not None:
            self.upstream.transport.abort()


class Proxy:
    """See the module's text."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.delay_ms = 0
        self.swallow = False
        self.refuse = False
        self.answer: bytes | None = None
        self.edit: Callable[[bytes], bytes] | None = None
        self.losing: bytes | None = None
        self.commands: list[list[bytes]] = []
        self.accepted = 0
        self._relays: set[_Relay] = set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def start(self) -> Proxy:
        self._thread.start()
        self._do(self._listen())
        return self

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self) -> None:
        """Resets every connection that is open now."""
        self._do(self._cut())

    def lose_reply_to(self, command: bytes) -> None:
        """The next `command` reaches the server; instead of its reply the client sees a reset."""
        self.losing = command.upper()

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._relays)

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = _Relay(self, reader, writer)
        self.accepted += 1
        if self.refuse:
            relay.cut()
            return
        self._relays.add(relay)
        try:
            await relay.run()
        finally:
            self._relays.discard(relay)

    async def _cut(self) -> None:
        for relay in list(self._relays):
            relay.cut()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if others:  # relays end by themselves once they are cut
            await asyncio.wait(others, timeout=5)
