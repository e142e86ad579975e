# SPDX-License-Identifier: MIT
"""One server, pool, Node worker, board and browser for all tests of the board; each test has a topic of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.board.board import Board
from tests.board.browser import Browser
from tests.board.sides import NodeSide, PoolSide, Side
from tests.support.node import Node
from tests.support.servers import Server
from tests.wire.fleet import EMQ, pool_of, workers

TOPICS = ["show", "parts", "retry", "promote", "remove", "clean", "pause", "empty", "plans", "flow"]


@pytest.fixture(scope="session")
def board_server() -> Iterator[Server]:
    server = Server("valkey").start()
    yield server
    server.destroy()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def pool_side(tmp_path_factory: pytest.TempPathFactory, board_server: Server) -> Iterator[Side]:
    """Our side, worked by a pool of two processes."""
    side = PoolSide("pool", board_server)
    group = workers("board", [side.name(topic) for topic in TOPICS], processes=2)
    with pool_of(tmp_path_factory.mktemp("board"), board_server, group, name="pool"):
        yield side
    side.close()


@pytest.fixture(scope="session")
def node_side(board_server: Server) -> Iterator[Side]:
    """The side that is compared with."""
    node = Node("bullmq-6", board_server.port)
    side = NodeSide("node", board_server, node, TOPICS)
    yield side
    side.close()
    node.close()


@pytest.fixture(scope="session")
def sides(pool_side: Side, node_side: Side) -> list[Side]:
    """Ours first."""
    return [pool_side, node_side]


@pytest.fixture(scope="session")
def board(browser: Browser, board_server: Server, sides: list[Side]) -> Iterator[Board]:
    queues = [side.shown(topic) for side in sides for topic in TOPICS]
    board = Board(browser, board_server.port, EMQ.prefix, queues)
    yield board
    board.close()


@pytest.fixture(autouse=True)
def photo(browser: Browser, tmp_path: Path) -> Iterator[Path]:
    """The folder for screenshots; what was on the screen at the end is kept there."""
    yield tmp_path
    browser.screenshot(tmp_path / "last.png")
