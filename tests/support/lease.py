# SPDX-License-Identifier: MIT
"""A lease plane on a real server, with a second client to look and to meddle with."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import redis

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane.base import Nothing, PlaneOptions, Taken
from echomq_pool.plane.branded import Mint
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import ScriptLibrary, load_library
from tests.support.planes import LossyLink
from tests.support.servers import Server
from tests.support.waiting import eventually_async
from tests.support.wire import Dump, dump

LIBRARY: ScriptLibrary = load_library("lease")
GROUPS = ("PRT0NgWEfAEJfs", "PRT0NgWEfAEJft", "PRT0NgWEfAEJfu")


class LeaseBench:
    """One queue of one server: the plane under test, its verbs, and a client of redis-py."""

    def __init__(
        self,
        server: Server,
        link: Link,
        client: redis.Redis,
        queue: str,
        options: PlaneOptions,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.server = server
        self.keys = LeaseKeys(queue)
        self.link = LossyLink(link)
        self.client: Any = client
        self.options = options
        self.plane = LeasePlane(self.link, self.keys, LIBRARY, options, clock)
        self.queue, self.lanes = self.plane.queue, self.plane.lanes
        self.flows, self.repeats = self.plane.flows, self.plane.repeats
        self.owner = str(uuid.uuid4())
        self.mint = Mint()
        self._numbers = itertools.count()

    def other(self, suffix: str = "-b", **changes: Any) -> LeaseBench:
        """Another queue over the same connection (the same queue for an empty suffix)."""
        options = replace(self.options, **changes)
        return LeaseBench(self.server, self.link.link, self.client, self.keys.queue + suffix, options)

    def token(self) -> str:
        return f"{self.owner}:{next(self._numbers)}"

    async def add(self, payload: str = "{}", **more: Any) -> str:
        """A new flat job."""
        job_id = self.mint.new()
        assert await self.queue.enqueue(job_id, payload, **more) == "enqueued"
        return job_id

    async def add_many(self, count: int) -> list[str]:
        ids = [self.mint.new() for _ in range(count)]
        assert set(await self.queue.enqueue_many([(i, "{}") for i in ids])) <= {"enqueued"}
        return ids

    async def add_to(self, group: str, payload: str = "{}") -> str:
        """A new job in a lane."""
        job_id = self.mint.new()
        assert await self.lanes.enqueue(group, job_id, payload) == "enqueued"
        return job_id

    async def claimed(self, lease_ms: int = 30_000) -> tuple[str, int]:
        """Claims a flat job that must be there: id and token."""
        found = await self.queue.claim(lease_ms)
        assert found is not None
        return found[0], found[2]

    async def taken(self, token: str = "") -> Taken:
        found = await self.plane.take(token or self.token())
        assert isinstance(found, Taken), found
        return found

    async def nothing(self) -> Nothing:
        found = await self.plane.take(self.token())
        assert isinstance(found, Nothing), found
        return found

    def lapse(self, *ids: str) -> None:
        """What the end of a lease does, without waiting for it."""
        for job_id in ids:
            assert self.client.zadd(self.keys.key("active"), {job_id: 1}, xx=True, ch=True) == 1

    def score(self, name: str, job_id: str) -> float | None:
        found: float | None = self.client.zscore(self.keys.key(name), job_id)
        return found

    def row(self, job_id: str) -> dict[str, str]:
        found: dict[str, str] = self.dump().get(f"job:{job_id}", {})
        return found

    def dump(self) -> Dump:
        return dump(self.client, self.keys.base)

    def get(self, suffix: str) -> Any:
        return self.dump().get(suffix)

    def now_ms(self) -> int:
        """The server's clock."""
        seconds, micros = self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    async def past(self, at_ms: float) -> None:
        """Waits until the server's clock has passed a moment."""
        await eventually_async(lambda: self.now_ms() > at_ms)

    def flush_scripts(self) -> None:
        self.client.script_flush()


@asynccontextmanager
async def lease_on(
    server: Server, queue: str, options: PlaneOptions | None = None, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[LeaseBench]:
    """A `LeaseBench` whose link is connected; closed at the end."""
    link = Link(RedisConfig(url=server.url, port=server.port), scripts=LIBRARY)
    await link.start()
    await link.ready()
    with server.client() as client:
        try:
            yield LeaseBench(server, link, client, queue, options or PlaneOptions(), clock)
        finally:
            await link.close()


def consistent(found: Dump) -> None:
    """What holds of every queue at every instant.

    Every row is in exactly the set that its state names, every member has a row, the ring and the counts of the
    lanes agree with what is there.
    """
    places: dict[str, list[str]] = {}
    for name, value in found.items():
        if name in ("pending", "active", "schedule", "dead") or name.endswith(":pending"):
            for job_id in value:
                places.setdefault(job_id, []).append("pending" if name.endswith("pending") else name)
    rows = {name[4:]: row for name, row in found.items() if name.startswith("job:") and name.count(":") == 1}
    words = {"pending": ["pending"], "active": ["active"], "scheduled": ["schedule"], "dead": ["dead"]}
    for job_id, row in rows.items():
        assert "payload" in row, f"phantom row {job_id}: {row}"
        assert places.get(job_id, []) == words.get(row["state"], []), (job_id, row, places.get(job_id))
    assert set(places) <= set(rows), f"members without a row: {set(places) - set(rows)}"
    _lanes_agree(found, rows)


def _lanes_agree(found: Dump, rows: dict[str, dict[str, str]]) -> None:
    ring, paused = found.get("ring", []), found.get("paused", [])
    assert len(ring) == len(set(ring)), f"twice in the ring: {ring}"
    groups = {row["group"] for row in rows.values() if "group" in row} | set(ring) | set(paused)
    for group in groups:
        flying = sum(r.get("group") == group and r["state"] == "active" for r in rows.values())
        assert int(found.get("gactive", {}).get(group, 0)) == flying, (group, found.get("gactive"), flying)
        ceiling = int(found.get("glimit", {}).get(group, 10**9))
        servable = bool(found.get(f"g:{group}:pending")) and group not in paused and flying < ceiling
        assert (group in ring) == servable, (group, ring, servable)
