# SPDX-License-Identifier: MIT
"""BullMQ under Node on a server of its own, in each release that the wire is judged by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.node import Node
from tests.support.servers import Server


@dataclass(frozen=True)
class Layout:
    """How a queue is named on each side: ours by prefix and hash tag, Node's by prefix and full name."""

    prefix: str
    hash_tag: bool

    def node(self, queue: str) -> dict[str, str]:
        """The arguments by which `peer.js` opens the queue."""
        return {"prefix": self.prefix, "name": f"{{{queue}}}" if self.hash_tag else queue}

    def toml(self) -> str:
        return f'prefix = "{self.prefix}"\nhash_tag = {str(self.hash_tag).lower()}'


@pytest.fixture(params=["emq-braces", "bull-plain"])
def layout(request: pytest.FixtureRequest) -> Layout:
    return Layout("emq", True) if request.param == "emq-braces" else Layout("bull", False)


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
