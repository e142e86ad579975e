# SPDX-License-Identifier: MIT
"""BullMQ under Node on a server of its own, in each release that the wire is judged by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.support.node import Node
from tests.support.servers import Server
from tests.wire.fleet import BULL, EMQ, Layout


@pytest.fixture(params=["emq-braces", "bull-plain"])
def layout(request: pytest.FixtureRequest) -> Layout:
    return EMQ if request.param == "emq-braces" else BULL


@pytest.fixture(scope="session")
def wire_server() -> Iterator[Server]:
    server = Server("valkey").start()
    yield server
    server.destroy()


@pytest.fixture(params=["bullmq-620", "bullmq-6", "bullmq-5"])
def node(request: pytest.FixtureRequest, wire_server: Server) -> Iterator[Node]:
    node = Node(request.param, wire_server.port)
    yield node
    node.close()


@pytest.fixture(scope="session")
def judge(wire_server: Server) -> Iterator[Node]:
    """BullMQ 6.2.0, for what does not depend on the release."""
    node = Node("bullmq-620", wire_server.port)
    yield node
    node.close()


@pytest.fixture
def store(wire_server: Server) -> Iterator[redis.Redis]:
    """The server's keys as bytes."""
    with wire_server.client() as client:
        yield client
