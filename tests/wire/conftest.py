# SPDX-License-Identifier: MIT
"""BullMQ under Node on a server of its own, in each release that the wire is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


@pytest.fixture(scope="session")
def releases(wire_server: Server) -> Iterator[Callable[[str], Node]]:
    """One Node process a release for the whole session, started when it is first asked for."""
    running: dict[str, Node] = {}

    def release(package: str) -> Node:
        if package not in running:
            running[package] = Node(package, wire_server.port)
        return running[package]

    yield release
    for node in running.values():
        node.close()


@pytest.fixture(params=["bullmq-620", "bullmq-6", "bullmq-5"])
def node(request: pytest.FixtureRequest, releases: Callable[[str], Node]) -> Iterator[Node]:
    """Each release in turn. Its workers and readers are closed after the test."""
    node = releases(request.param)
    yield node
    node("reset")


@pytest.fixture
def judge(releases: Callable[[str], Node]) -> Iterator[Node]:
    """BullMQ 6.2.0, for what does not depend on the release."""
    node = releases("bullmq-620")
    yield node
    node("reset")


@pytest.fixture
def store(wire_server: Server) -> Iterator[redis.Redis]:
    """The server's keys as bytes."""
    with wire_server.client() as client:
        yield client
