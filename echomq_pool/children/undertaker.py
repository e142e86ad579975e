# SPDX-License-Identifier: MIT
"""Deals with the dead: what a worker held at its end is settled or given back, once, whatever the link does.

For each dead worker, in this order:

1. CLIENT KILL on its connections, so that nothing it sent can still be executed;
2. jobs that ran out of time or were cancelled are settled by their own retry policy;
3. everything else under its tokens goes back: a stall when it died, without cost when we ended it;
4. the supervisor is told, and one log line names the jobs, their ages and where they went.

Every step may be repeated: tokens are compared in the scripts, so a second round finds nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from echomq_pool.children.leases import Lease
from echomq_pool.children.queue_links import QueueLinks
from echomq_pool.clock import Clock
from echomq_pool.errors import LinkError
from echomq_pool.ipc.messages import Down, HeldJob, Recovered
from echomq_pool.metrics import Metrics
from echomq_pool.plane.base import HeldRow, Plane

log = logging.getLogger("echomq.undertaker")

REMEMBERED = 256  # the dead whose recovery is told again when their Down is
PAUSES_MS = (20, 50, 100, 250, 500, 1_000, 2_000)  # between rounds that failed
ROUNDS = 20  # of answers that are no matter of the link; then the queue is left to the stalled sweep
SHOWN = 20  # jobs named in the log line


@dataclass(slots=True)
class Funeral:
    """One dead worker: what is known of it, and how far its recovery has come."""

    down: Down
    leases: list[Lease]
    told_ms: int
    client_id: int | None = None  # our own connection's id when the first round began
    killed: bool = False
    expired: list[list[str]] = field(default_factory=list)  # still to be settled
    queues: list[str] = field(default_factory=list)  # still to be scanned
    jobs: list[list[Any]] = field(default_factory=list)  # [queue, id, held ms, where]


class Undertaker:
    """Runs one funeral per dead worker, side by side."""

    def __init__(
        self,
        links: QueueLinks,
        planes: Mapping[str, Plane],
        clock: Clock,
        metrics: Metrics,
        report: Callable[[Recovered], None],
    ) -> None:
        self._links = links
        self._planes = planes
        self._clock = clock
        self._metrics = metrics
        self._report = report
        self._running: dict[str, asyncio.Task[None]] = {}
        self._done: OrderedDict[str, Recovered] = OrderedDict()

    def knows(self, worker_id: str) -> bool:
        """Whether this worker's death was told before; nothing it seems to say afterwards counts."""
        return worker_id in self._running or worker_id in self._done

    def bury(self, down: Down, leases: Iterable[Lease]) -> None:
        """Starts the recovery of a dead worker. A Down told twice is answered, not repeated."""
        if down.worker_id in self._running:
            return
        if down.worker_id in self._done:
            self._report(self._done[down.worker_id])
            return
        now = self._clock.mono_ms()
        queues = [queue for queue in dict.fromkeys(down.queues) if queue in self._planes]
        known = list(leases)
        expired = list(down.expired) or overdue(down, known, now)
        funeral = Funeral(down, known, now, expired=expired, queues=queues)
        task = asyncio.get_running_loop().create_task(self._hold(funeral), name=f"bury {down.worker_id}")
        self._running[down.worker_id] = task

    async def finish(self) -> None:
        """Waits for every funeral under way."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def cancel(self) -> None:
        """Gives up what is under way: its jobs are left to the stalled sweep, and to whoever is told next."""
        for task in self._running.values():
            task.cancel()

    async def _hold(self, funeral: Funeral) -> None:
        worker_id = funeral.down.worker_id
        try:
            await self._until_done(funeral)
            self._close(funeral)
        finally:
            self._running.pop(worker_id, None)

    async def _until_done(self, funeral: Funeral) -> None:
        failures = rounds = 0
        while True:
            try:
                await self._round(funeral)
                return
            except LinkError as error:
                # An error that belongs to the command itself comes as a LinkError too, with the link up.
                failures += all(link.connected for link in self._links.links_of(funeral.down.queues))
                problem: Exception = error
            except Exception as error:
                failures += 1
                problem = error
            log.warning("recovery of worker %s goes on: %s", funeral.down.worker_id, problem)
            if failures >= ROUNDS:
                self._give_up(funeral, problem)
                return
            await asyncio.sleep(PAUSES_MS[min(rounds, len(PAUSES_MS) - 1)] / 1000)
            rounds += 1

    async def _round(self, funeral: Funeral) -> None:
        """One try at all that is left to do."""
        for link in self._links.links_of(funeral.down.queues):
            await link.ready()
        await self._kill_clients(funeral)
        while funeral.expired:
            await self._settle_expired(funeral, *funeral.expired[0])
            funeral.expired.pop(0)
        while funeral.queues:
            await self._give_back(funeral, funeral.queues[0])
            funeral.queues.pop(0)

    async def _kill_clients(self, funeral: Funeral) -> None:
        """Cuts the dead worker's connections. Without permission, token check and sweep are the net."""
        if self._links.cluster:
            return  # the ids do not say on which node
        link = self._links.links_of(funeral.down.queues)[0]
        if funeral.client_id is None:
            funeral.client_id = link.client_id
        elif (link.client_id or 0) < (funeral.client_id or 0):
            return  # ids only grow within one run of the server: it was restarted, they may be anyone's
        if funeral.killed or not funeral.down.client_ids:
            return
        calls = [link.call("CLIENT", "KILL", "ID", client_id) for client_id in funeral.down.client_ids]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                if not link.connected:
                    raise outcome
                log.warning("CLIENT KILL for worker %s was refused: %s", funeral.down.worker_id, outcome)
                self._metrics.count("client_kills_refused")
        funeral.killed = True

    async def _settle_expired(self, funeral: Funeral, queue: str, job_id: str, how: str, text: str) -> None:
        """One job over its time, or cancelled: settled as its worker would have done it."""
        plane = self._planes.get(queue)
        if plane is None:
            return
        held = self._held(funeral, queue, job_id)
        if held is None:
            held = await self._held_by_the_server(plane, funeral.down.worker_id, queue, job_id)
        if held is None:
            return
        where = await plane.settle_for(held, how, text)
        if where != "gone":
            self._note(funeral, queue, job_id, where)

    async def _give_back(self, funeral: Funeral, queue: str) -> None:
        down = funeral.down
        rows = [
            HeldRow(lease.job.id, lease.job.token, lease.job.ats)
            for lease in funeral.leases
            if lease.job.queue == queue
        ]
        evidence = evidence_of(down, funeral.leases, funeral.told_ms)
        recovered = await self._planes[queue].recover(
            down.worker_id, rows, planned=down.planned, evidence=evidence
        )
        for recovery in recovered:
            self._note(funeral, queue, recovery.id, recovery.where)

    def _held(self, funeral: Funeral, queue: str, job_id: str) -> HeldJob | None:
        found = [lease.job for lease in funeral.leases if (lease.job.queue, lease.job.id) == (queue, job_id)]
        return found[-1] if found else None

    async def _held_by_the_server(
        self, plane: Plane, worker_id: str, queue: str, job_id: str
    ) -> HeldJob | None:
        """The same from Redis, for a job whose `held` died with an earlier LockManager."""
        found = await plane.claimed_by(worker_id, job_id)
        if found is None:
            return None
        job = found.job
        # fmt: off
        return HeldJob(
            queue, job_id, found.token, job.ats, job.atm, job.attempts, job.backoff, job.lifo,
            taken_ms=0, deadline_ms=0, name=job.name,
        )
        # fmt: on

    def _note(self, funeral: Funeral, queue: str, job_id: str, where: str) -> None:
        held = self._held(funeral, queue, job_id)
        age = funeral.told_ms - held.taken_ms if held is not None else 0
        funeral.jobs.append([queue, job_id, age, where])

    def _give_up(self, funeral: Funeral, problem: Exception) -> None:
        log.error(
            "recovery of worker %s is incomplete after %d rounds, the sweep must do the rest of %s: %s",
            funeral.down.worker_id, ROUNDS, funeral.queues, problem,
        )  # fmt: skip
        self._metrics.count("recoveries_incomplete")

    def _close(self, funeral: Funeral) -> None:
        took = self._clock.mono_ms() - funeral.told_ms
        recovered = Recovered(funeral.down.worker_id, funeral.jobs)
        self._done[recovered.worker_id] = recovered
        while len(self._done) > REMEMBERED:
            self._done.popitem(last=False)
        self._metrics.count("recoveries")
        self._metrics.count("recovered_jobs", len(funeral.jobs))
        self._metrics.observe("recovery", took / 1000)
        level = logging.WARNING if funeral.jobs and not funeral.down.planned else logging.INFO
        log.log(
            level, "worker %s ended (%s): %s, dealt with in %d ms",
            recovered.worker_id, funeral.down.reason, describe(funeral.jobs), took,
        )  # fmt: skip
        self._report(recovered)


def overdue(down: Down, leases: Iterable[Lease], now_ms: int) -> list[list[str]]:
    """The jobs for which a worker with a stuck loop was ended: nobody named them, their time limits do."""
    if not down.reason.startswith("timeout"):
        return []
    late = [lease.job for lease in leases if 0 < lease.job.deadline_ms <= now_ms]
    text = "job exceeded its time limit, and its process had to be killed"
    return [[job.queue, job.id, "timeout", text] for job in late]


def evidence_of(down: Down, leases: Sequence[Lease], now_ms: int) -> str:
    """What is known of a death, for the stacktrace and the log of the jobs that it took along."""
    parts = [f"worker process ended: {down.reason}"]
    if leases:
        oldest = now_ms - min(lease.job.taken_ms for lease in leases)
        alone = "the job had run" if len(leases) == 1 else f"oldest of {len(leases)} jobs had run"
        parts.append(f"{alone} for {oldest} ms")
    if down.peak_bytes:
        parts.append(f"peak memory {down.peak_bytes / 2**20:.0f} MB")
    return "; ".join(parts)


def describe(jobs: Sequence[Sequence[Any]]) -> str:
    """Jobs, ages and whereabouts for one log line."""
    if not jobs:
        return "it held no jobs"
    named = ", ".join(f"{queue}/{job_id} ({age} ms) to {where}" for queue, job_id, age, where in jobs[:SHOWN])
    more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    return f"{count} given back: {named}{more}"
