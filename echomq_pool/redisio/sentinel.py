# SPDX-License-Identifier: MIT
"""Asks the sentinels where the master is. They are asked again at every connect: so we follow a failover."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis

from echomq_pool.errors import LinkDown
from echomq_pool.redisio.address import split_host_port
from echomq_pool.redisio.protocol import NOTHING, pack
from echomq_pool.redisio.replies import ErrorReply, as_int, as_text

SENTINEL_PORT = 26_379


async def find_master(sentinels: tuple[str, ...], master: str, timeout_ms: int) -> tuple[str, int]:
    """Host and port of `master`, from the first sentinel that knows it.

    Raises:
        LinkDown: none of them does; the message holds what each one said.
    """
    said: list[str] = []
    for sentinel in sentinels:
        host, port = split_host_port(sentinel, SENTINEL_PORT)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                reply = await _ask(host, port, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", master))
        except (OSError, TimeoutError, hiredis.ProtocolError) as error:
            said.append(f"{sentinel}: {error or type(error).__name__}")
            continue
        if isinstance(reply, list) and len(reply) == 2:
            return as_text(reply[0]), as_int(reply[1])
        said.append(f"{sentinel}: {reply if isinstance(reply, ErrorReply) else 'does not know it'}")
    raise LinkDown(f"no sentinel names the master {master!r} ({'; '.join(said)})", sent=False)


async def _ask(host: str, port: int, command: tuple[str, ...]) -> Any:
    """One question on a connection of its own. Raises OSError when it breaks off."""
    stream, writer = await asyncio.open_connection(host, port)
    reader = hiredis.Reader(replyError=ErrorReply, notEnoughData=NOTHING)
    try:
        writer.write(pack(command))
        while (reply := reader.gets()) is NOTHING:
            data = await stream.read(4096)
            if not data:
                raise ConnectionError("closed the connection")
            reader.feed(data)
        return reply
    finally:
        writer.transport.abort()
