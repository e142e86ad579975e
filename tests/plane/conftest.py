# SPDX-License-Identifier: MIT
"""Fixtures of the plane tests."""

from __future__ import annotations

import pytest
import redis

from tests.support.wire import Wire


@pytest.fixture
def wire(client: redis.Redis, queue_name: str) -> Wire:
    """A queue of this test's own, spoken to by scripts, on each supported server in turn."""
    return Wire(client, queue_name)
