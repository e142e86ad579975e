# SPDX-License-Identifier: MIT
"""Lanes of the lease plane: one line per group, served in turn, with a ceiling and a weight each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from echomq_pool.errors import InputError
from echomq_pool.plane import codec, lease_row
from echomq_pool.plane.lease_codes import gone
from echomq_pool.plane.lease_desk import Desk
from echomq_pool.plane.lease_keys import check_dedup_id, check_id
from echomq_pool.plane.lease_telemetry import admitted

LaneJob = tuple[str, bytes, int, str]

_MOVED = {1: "moved", 0: "noop", -2: "not_pending"}


class Lanes:
    """The lanes of one queue. A group is a branded id of any namespace."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._keys = desk.keys
        self._base = desk.keys.base

    async def enqueue(
        self,
        group: str,
        job_id: str,
        payload: bytes | str,
        *,
        name: str = "",
        opts: Mapping[str, Any] | None = None,
        dedup_id: str = "",
        dedup_ms: int = 0,
    ) -> str:
        """Adds a job to a lane. Returns `enqueued`, `duplicate`, or the holder of the deduplication id."""
        keys = [self._keys.job(check_id(job_id)), self._keys.lane(check_id(group))]
        keys += [self._keys.key(part) for part in ("ring", "paused", "glimit", "gactive", "wake")]
        if dedup_id:
            check_dedup_id(dedup_id)
        extra = lease_row.extra_fields(name, opts)
        args = (job_id, payload, group, self._base, dedup_id, dedup_ms or "", *extra)
        reply = await self._desk.ask("laneEnqueue", keys, args, job_id=job_id, action="enqueue")
        return admitted(reply, "enqueued", self._keys.queue, job_id)

    # --- claiming ---------------------------------------------------------------------------------------

    async def claim(self, lease_ms: int = 30_000, owner: str = "") -> LaneJob | None:
        """The next job of the next lane: (id, payload, token, group)."""
        return next(iter(await self._claim("one", lease_ms, owner)), None)

    async def claim_weighted(self, lease_ms: int = 30_000, owner: str = "") -> list[LaneJob]:
        """As many jobs of the next lane as it weighs."""
        return await self._claim("weight", lease_ms, owner)

    async def claim_batch(self, lease_ms: int = 30_000, owner: str = "") -> list[LaneJob]:
        """All that the next lane has and may run."""
        return await self._claim("batch", lease_ms, owner)

    async def _claim(self, mode: str, lease_ms: int, owner: str) -> list[LaneJob]:
        if lease_ms < 1:
            raise InputError(f"lease_ms: expected a whole number from 1, got {lease_ms}")
        keys = [self._keys.key(part) for part in ("ring", "active", "meta")]
        rows = await self._desk.ask("laneClaim", keys, (self._base, lease_ms, mode, owner))
        return [(codec.to_text(i), payload, int(token), codec.to_text(g)) for i, payload, token, g in rows]

    # --- control ----------------------------------------------------------------------------------------

    async def pause(self, group: str) -> None:
        """Parks a lane; its backlog and its jobs in flight stay."""
        await self._control("pause", group)

    async def resume(self, group: str) -> None:
        await self._control("resume", group)

    async def limit(self, group: str, ceiling: int) -> None:
        """At most `ceiling` jobs of the group in flight; 0 = as many as there are."""
        await self._control("limit", group, ceiling)

    async def weight(self, group: str, weight: int) -> None:
        """How many jobs the lane gives per turn of the ring; 0 = one, as without a weight."""
        await self._control("weight", group, weight)

    async def _control(self, verb: str, group: str, number: int = 0) -> None:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InputError(f"{verb}: expected a whole number from 0, got {number!r}")
        args = (self._base, verb, check_id(group), number)
        await self._desk.ask("laneControl", (self._keys.key("ring"),), args)

    async def reassign(self, job_id: str, group: str) -> str:
        """Moves a waiting job to another lane. Returns `moved`, `noop` or `not_pending`.

        Raises:
            JobMissing: there is no such job.
        """
        keys = (self._keys.job(check_id(job_id)), self._keys.lane(check_id(group)))
        reply = int(await self._desk.ask("laneReassign", keys, (job_id, group, self._base), job_id=job_id))
        if reply == -1:
            raise gone(job_id, "reassign")
        return _MOVED[reply]

    async def drain(self, group: str) -> int:
        """Deletes the waiting jobs of a lane. Returns how many."""
        return int(
            await self._desk.ask("laneDrain", (self._keys.lane(check_id(group)),), (self._base, group))
        )

    async def reap(self, group: str, limit: int = 100) -> int:
        """Gives back the lapsed jobs of one group only. Returns how many."""
        keys = (self._keys.key("active"), self._keys.lane(check_id(group)))
        return int(await self._desk.ask("reapGroup", keys, (self._base, group, limit)))

    # --- reading ----------------------------------------------------------------------------------------

    async def depth(self, group: str) -> int:
        """How many jobs wait in a lane."""
        return int(await self._desk.link.call("ZCARD", self._keys.lane(check_id(group))))

    async def depths(self, groups: Sequence[str]) -> dict[str, int]:
        sizes = await asyncio.gather(*(self.depth(group) for group in groups))
        return dict(zip(groups, sizes, strict=True))
