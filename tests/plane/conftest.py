# SPDX-License-Identifier: MIT
"""Fixtures of the plane tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from tests.support.planes import Bench, bench_on
from tests.support.servers import Server
from tests.support.wire import Wire


@pytest.fixture
def wire(client: redis.Redis, queue_name: str) -> Wire:
    """A queue of this test's own, spoken to by scripts, on each supported server in turn."""
    return Wire(client, queue_name)


@pytest.fixture
async def bench(server: Server, queue_name: str) -> AsyncIterator[Bench]:
    """The same queue through a lock plane with default options."""
    async with bench_on(server, queue_name) as bench:
        yield bench
