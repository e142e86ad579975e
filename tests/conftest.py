# SPDX-License-Identifier: MIT
"""Fixtures of all tests: private servers and queue names that nobody else uses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import redis

from tests.support.servers import Server

_names = itertools.count(1)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server]:
    """One Valkey 9 for the session. Tests that stop, freeze or flush a server make their own."""
    server = Server("valkey").start()
    yield server
    server.destroy()


@pytest.fixture(scope="session")
def redis7_server() -> Iterator[Server]:
    """One Redis 7 for the session."""
    server = Server("redis").start()
    yield server
    server.destroy()


@pytest.fixture(params=["valkey", "redis7"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each supported server in turn, for what depends on the server."""
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that this test alone may stop, freeze, flush and restart."""
    server = Server("valkey", "--appendonly", "yes", "--appendfsync", "always").start()
    yield server
    server.destroy()


@pytest.fixture
def queue_name() -> str:
    """A queue name that no other test uses."""
    return f"q{next(_names)}"


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """A redis-py client (bytes) of the parametrised server."""
    with server.client() as client:
        yield client
