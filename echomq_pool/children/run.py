# SPDX-License-Identifier: MIT
"""One job in this process, from its take to its settlement, and the queue it came from."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from echomq_pool.api.job import Job
from echomq_pool.children.outcome import Outcome
from echomq_pool.ipc.messages import HeldJob
from echomq_pool.plane.base import JobRecord, Plane
from echomq_pool.redisio.link import Link

Key = tuple[str, str, str]  # queue, job id, token


@dataclass(eq=False, slots=True)
class Source:
    """One queue as the fetcher sees it."""

    name: str  # as configured, and as the other children know it
    index: int  # its place on the board
    plane: Plane
    link: Link  # its scripts
    blocking: Link  # its marker
    ready: bool = True  # there may be work: a take is worth its round trip
    burst: int = 1  # takes to start at once; grows while they bring jobs
    batch: int = 64  # … up to this; on the lease plane they are one call
    opened: bool = False  # the plane has made sure that the queue is its own
    taking: int = 0  # takes under way
    due_ms: int = 0  # wall time of the next delayed job as last heard; 0 = none
    limited: asyncio.TimerHandle | None = None  # set while the queue is rate limited
    waiter: asyncio.Task[None] | None = None  # blocks on the marker


@dataclass(eq=False, slots=True)
class Run:
    """A held job. Times are monotonic ms."""

    source: Source
    record: JobRecord
    token: str
    job: Job  # as the processor sees it
    taken_ms: int  # before the take was sent
    limit_ms: int = 0  # how long it may run; 0 = for ever
    deadline_ms: int = 0  # when that is over; 0 = never
    renewed_ms: int = 0  # before our own last successful renewal was sent
    asked_ms: int = 0  # when we last tried to renew by ourselves
    future: asyncio.Future[Outcome] | None = None  # the processor at work
    settling: bool = False  # its end is being written
    ended_by: str = ""  # timeout | cancel | lost | stop: what we stopped it for
    end_text: str = ""
    ended_ms: int = 0
    condemned: bool = (
        False  # reported as expired: this process is to die, the job is no longer ours to settle
    )
    started_ms: int = 0
    stopped_ms: int = 0  # when the processor came back; before its settlement is sent
    alone: bool = False  # it has stalled once: nobody may run beside it
    inside: bool = False  # past the gate
    key: Key = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.source.name, self.record.id, self.token)

    def held(self) -> HeldJob:
        """The lease as the lock manager must know it."""
        record, opts = self.record, self.record.opts
        return HeldJob(
            *self.key,
            record.ats,
            record.atm,
            record.attempts if opts else 0,
            record.backoff if "backoff" in opts else None,
            record.lifo if "lifo" in opts else False,
            self.taken_ms,
            self.deadline_ms,
            record.name,
        )
