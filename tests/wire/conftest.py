# SPDX-License-Identifier: MIT
"""BullMQ under Node on a server of its own, in each release that the wire is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.support.node import Node
from tests.support.servers import Server
from tests.wire.fleet import BULL, EMQ, Layout
from tests.wire.ground import COVER, Ground, Side, fill


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


@pytest.fixture(params=COVER)
def ground(
    request: pytest.FixtureRequest, wire_server: Server, releases: Callable[[str], Node]
) -> Iterator[Ground]:
    """Each release and each layout in turn; in a test that uses it both sides must act."""
    package, layout = COVER[request.param]
    ground = Ground(wire_server, releases(package), layout)
    yield ground
    ground.node("reset")
    ground.check_both_acted()


@pytest.fixture
def side(ground: Ground, queue_name: str) -> Side:
    """An empty queue."""
    return ground.side(queue_name)


@pytest.fixture
def twins(ground: Ground, queue_name: str) -> tuple[Side, Side]:
    """Two empty queues, to do the same to."""
    return ground.side(f"{queue_name}x"), ground.side(f"{queue_name}y")


@pytest.fixture
def sides(twins: tuple[Side, Side]) -> tuple[Side, Side]:
    """Two queues filled alike: jobs in every state, a family, a series, logs, limits."""
    for side in twins:
        fill(side)
    assert twins[0].dump() == twins[1].dump()
    twins[0].ground.used.clear()
    return twins
