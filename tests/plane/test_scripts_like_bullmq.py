# SPDX-License-Identifier: MIT
"""The same random calls by our scripts and by BullMQ 6.2's, key by key, reply by reply, event by event."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support.random_calls import EVERYDAY, Draw, Operation
from tests.support.random_verbs import BY_HAND
from tests.support.servers import Server
from tests.support.twins import Theirs, answer_of, comparable, expiries, load_theirs
from tests.support.wire import Wire

pytestmark = pytest.mark.node

ALL = EVERYDAY | BY_HAND


Scripts = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def loaded() -> dict[int, Scripts]:
    """BullMQ's scripts by the port of the server that has them."""
    return {}


@pytest.fixture
def theirs(server: Server, loaded: dict[int, Scripts]) -> Scripts:
    if server.port not in loaded:
        loaded[server.port] = load_theirs("bullmq-620", server.port)
    return loaded[server.port]


def attempt(operation: Operation, wire: Wire, draw: Draw) -> Any:
    try:
        return answer_of(operation(wire, draw), wire.base)
    except redis.ResponseError:
        return "error"


@pytest.mark.parametrize("seed", range(10))
def test_the_same_calls_leave_the_same_keys(
    server: Server, queue_name: str, theirs: Scripts, seed: int
) -> None:
    """case C031; promise 4.21, 4.22: every reply, every key and the order of events, after each of 150 calls."""
    draw = Draw(seed)
    operations, weights = list(ALL), list(ALL.values())
    with server.client() as client:
        ours, other = Wire(client, queue_name), Theirs(client, queue_name + "x", theirs)
        for step in range(150):
            operation = draw.choices(operations, weights)[0]
            choice = draw.random()
            where = f"seed {seed}, step {step}: {operation.__name__}"
            assert attempt(operation, ours, Draw(choice)) == attempt(operation, other, Draw(choice)), where
            mine, yours = ours.dump(), other.dump()
            assert comparable(mine, ours.base) == comparable(yours, other.base), where
            assert expiries(ours, list(mine)) == expiries(other, list(mine)), where
