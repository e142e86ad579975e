# SPDX-License-Identifier: MIT
"""Jobs of the lease plane: as state to start from, and added through the plane itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.support.seed import LEASE_MS, MISSING_EVERY
from benchmarks.support.wire import Wire, slices
from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane.factory import greet, make_keys
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import load_library
from tests.support.servers import Server

LIBRARY = load_library()
TOKEN = "1"
IN_FLIGHT = 200
_numbers = itertools.count(time.time_ns() // 1_000_000 << 12)


def keys_of(queue: str) -> LeaseKeys:
    keys = make_keys("lease", queue)
    assert isinstance(keys, LeaseKeys)
    return keys


def ids(count: int) -> list[str]:
    """Well-formed ids that nobody else has minted: digits are letters of base 62 too."""
    return [f"JOB{next(_numbers) % 10**11:011d}" for _ in range(count)]


def active_leases(
    server: Server, keys: LeaseKeys, count: int, lapsed_every: int = MISSING_EVERY
) -> list[str]:
    """`count` rows in `active` with an hour to go; the first of every `lapsed_every` is over (0 = none)."""
    minted = ids(count)
    now = int(time.time() * 1000)
    wire = Wire(server.port)
    for at, part in enumerate(slices(minted, 1_000)):
        pairs: list[Any] = []
        for n, job_id in enumerate(part):
            over = lapsed_every and (at * 1_000 + n) % lapsed_every == 0
            pairs += [now - 1_000 if over else now + LEASE_MS, job_id]
        wire.call("ZADD", keys.key("active"), *pairs)
        rows = (("HSET", keys.job(i), "state", "active", "attempts", TOKEN, "payload", "{}") for i in part)
        wire.pipeline(rows)
    wire.close()
    return minted


class Producer:
    """Adds jobs with a name, which a pool's processor sees; many in flight on one connection."""

    def __init__(self, port: int, queue: str = "bench") -> None:
        self._runner = asyncio.Runner()
        config = RedisConfig(port=port)
        self._link = Link(config, scripts=LIBRARY, on_connect=lambda link: greet(link, "lease", config))
        self._plane = LeasePlane(self._link, keys_of(queue), LIBRARY)
        self._runner.run(self._open())

    async def _open(self) -> None:
        await self._link.start()
        await self._link.ready()
        await self._plane.open()

    def add(self, name: str, rows: Sequence[Any], in_flight: int = IN_FLIGHT) -> None:
        self._runner.run(self._add(name, rows, in_flight))

    async def _add(self, name: str, rows: Sequence[Any], in_flight: int) -> None:
        left = iter(zip(ids(len(rows)), rows, strict=True))

        async def lane() -> None:
            for job_id, data in left:
                await self._plane.queue.enqueue(job_id, json.dumps(data), name=name)

        await asyncio.gather(*(lane() for _ in range(in_flight)))

    def close(self) -> None:
        self._runner.run(self._link.close())
        self._runner.close()
