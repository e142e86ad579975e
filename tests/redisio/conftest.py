# SPDX-License-Identifier: MIT
"""Links that are closed after each test, whatever becomes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import pytest

from echomq_pool.config.schema import RedisConfig
from echomq_pool.redisio.link import Link
from tests.support.proxy import Proxy
from tests.support.servers import Server


class MakeLink(Protocol):
    """Makes and starts a link to a loopback port; options of RedisConfig go in `redis`."""

    async def __call__(self, port: int, *, redis: dict[str, Any] | None = None, **options: Any) -> Link: ...


@pytest.fixture
async def make_link() -> AsyncIterator[MakeLink]:
    made: list[Link] = []

    async def make(port: int, *, redis: dict[str, Any] | None = None, **options: Any) -> Link:
        link = Link(RedisConfig(**{"host": "127.0.0.1", "port": port, **(redis or {})}), **options)
        made.append(link)
        await link.start()
        return link

    yield make
    for link in made:
        await link.close()


@pytest.fixture
def proxy(valkey_server: Server) -> Iterator[Proxy]:
    """A relay in front of the session's Valkey."""
    with Proxy(valkey_server.port) as proxy:
        yield proxy
