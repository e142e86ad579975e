# SPDX-License-Identifier: MIT
"""How full the queues are, read from the server when somebody asks, and at most once a second."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from echomq_pool.clock import Clock
from echomq_pool.errors import LinkError
from echomq_pool.plane import branded
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lease_keys import LeaseKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import Script, load_library

FRESH_MS = 1_000
PATIENCE_S = 2.0
LISTS = ("wait", "paused", "active")
LEASE_STATES = ("wait", "active", "delayed", "failed")  # in the order of the script's answer
SETS = ("prioritized", "delayed", "waiting-children", "completed", "failed")


@dataclass(frozen=True, slots=True)
class Depths:
    """One queue at one moment. `oldest_ms` is the age of the job that is next in line, never negative."""

    counts: dict[str, int]
    oldest_ms: int
    paused: bool


class DepthReader:
    """Reads all queues in one write; remembers the last answer."""

    def __init__(self, link: Link, queues: dict[str, QueueKeys], clock: Clock) -> None:
        self.link = link
        self.queues = queues
        self.clock = clock
        self.depths: dict[str, Depths] = {}
        self.read_ms = 0
        self.reached = False
        self._script: Script | None = None

    async def refresh(self) -> None:
        """Brings `depths` up to date; when the server cannot be asked the old figures stay and `reached` is false."""
        if self.read_ms and self.clock.mono_ms() - self.read_ms < FRESH_MS:
            return
        self.read_ms = self.clock.mono_ms()
        if not self.link.connected:
            self.reached = False
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                rows = await asyncio.gather(*(self._read(keys) for keys in self.queues.values()))
        except (LinkError, TimeoutError):
            self.reached = False
            return
        self.depths = dict(zip(self.queues, rows, strict=True))
        self.reached = True

    async def _read(self, keys: QueueKeys) -> Depths:
        if isinstance(keys, LeaseKeys):
            return await self._read_lease(keys)
        calls = [self.link.call("LLEN", keys.key(name)) for name in LISTS]
        calls += [self.link.call("ZCARD", keys.key(name)) for name in SETS]
        calls += [
            self.link.call("HEXISTS", keys.key("meta"), "paused"),
            self.link.call("LINDEX", keys.key("wait"), -1),
        ]
        *numbers, paused, first = await asyncio.gather(*calls)
        return Depths(
            dict(zip(LISTS + SETS, numbers, strict=True)), await self._age(keys, first), bool(paused)
        )

    async def _read_lease(self, keys: LeaseKeys) -> Depths:
        """The same of a lease-plane queue, which keeps no completed jobs; those in lanes wait, too."""
        *numbers, oldest, paused = await self.link.script(self._lease_script(), (keys.base,), ())
        counts = dict.fromkeys(LISTS + SETS, 0)
        counts |= dict(zip(LEASE_STATES, numbers, strict=True))
        age = self.clock.now_ms() - branded.parse(oldest.decode()).unix_ms if oldest else 0
        return Depths(counts, max(0, age), bool(paused))

    def _lease_script(self) -> Script:
        """Read when the first lease-plane queue is asked for: most pools have none."""
        if self._script is None:
            self._script = load_library("lease")["lease/depths"]
        return self._script

    async def _age(self, keys: QueueKeys, job_id: bytes | None) -> int:
        if job_id is None:
            return 0
        stamp = await self.link.call("HGET", keys.job(job_id.decode()), "timestamp")
        return max(0, self.clock.now_ms() - int(float(stamp))) if stamp else 0
