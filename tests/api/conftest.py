# SPDX-License-Identifier: MIT
"""A queue as its producers see it, and a worker's hand on the other side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from echomq_pool import Queue, SyncQueue
from tests.support.planes import Bench, bench_on
from tests.support.servers import Server


@pytest.fixture
async def bench(server: Server, queue_name: str) -> AsyncIterator[Bench]:
    """The worker's side of the queue, on each supported server in turn."""
    async with bench_on(server, queue_name) as bench:
        yield bench


@pytest.fixture
async def queue(server: Server, queue_name: str) -> AsyncIterator[Queue]:
    """The asynchronous producer."""
    async with Queue(queue_name, url=server.url) as queue:
        yield queue


@pytest.fixture
def sync_queue(server: Server, queue_name: str) -> Iterator[SyncQueue]:
    """The synchronous producer."""
    with SyncQueue(queue_name, url=server.url) as queue:
        yield queue
