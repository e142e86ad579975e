# SPDX-License-Identifier: MIT
"""Fills a server quickly with the state that a benchmark starts from."""

from __future__ import annotations

from benchmarks.support.wire import Wire, slices
from echomq_pool.plane.keys import QueueKeys
from tests.support.servers import Server

MISSING_EVERY = 1_000
LEASE_MS = 3_600_000


def active_jobs(server: Server, keys: QueueKeys, count: int, missing_every: int = MISSING_EVERY) -> list[str]:
    """`count` ids in `active`, with a lock each except the first of every `missing_every` (0 = none missing)."""
    ids = [str(n) for n in range(1, count + 1)]
    wire = Wire(server.port)
    for part in slices(ids, 1_000):
        wire.call("RPUSH", keys.key("active"), *part)
    locked = [i for n, i in enumerate(ids) if not missing_every or n % missing_every]
    for part in slices(locked, 10_000):
        wire.pipeline(("SET", keys.lock(i), token_of(i), "PX", LEASE_MS) for i in part)
    wire.close()
    return ids


def token_of(job_id: str, owner: str = "0b7e8c9a-4f1d-4a57-9d0c-2a1f6f1f9b11") -> str:
    """A token of the length that workers use."""
    return f"{owner}:{job_id}"
