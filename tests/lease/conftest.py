# SPDX-License-Identifier: MIT
"""Fixtures of the lease plane's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.lease import LeaseBench, consistent, lease_on
from tests.support.servers import Server


@pytest.fixture
async def bench(server: Server, queue_name: str) -> AsyncIterator[LeaseBench]:
    """A queue of this test's own, on each supported server in turn; whole at the end."""
    async with lease_on(server, queue_name) as bench:
        yield bench
        consistent(bench.dump())


@pytest.fixture
async def valkey_bench(valkey_server: Server, queue_name: str) -> AsyncIterator[LeaseBench]:
    """The same on Valkey 9 alone: for fields with a life of their own."""
    async with lease_on(valkey_server, queue_name) as bench:
        yield bench
        consistent(bench.dump())
