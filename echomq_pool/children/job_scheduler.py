# SPDX-License-Identifier: MIT
"""Keeps the declared schedules on the server, and every series alive.

The next job of a series is made by the worker that takes the current one (as BullMQ does). What is done here is
what no worker can do: declare, withdraw, and repair a series whose next job is nowhere. One timer: the next
due time of any series, or the stalled interval, whichever comes first.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import orjson

from echomq_pool.children.base import Child
from echomq_pool.children.lease_series import LeaseSeries
from echomq_pool.children.pause import pause
from echomq_pool.children.series import changes, declared_field, upsert_call
from echomq_pool.errors import LinkDown, PoolError, WrongPlane
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Linked, Message, Quiet, Ready, Resume, Stats, Stop
from echomq_pool.metrics import Metrics
from echomq_pool.plane import scheduling
from echomq_pool.plane.calls import Call
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.lease_desk import claim_plane
from echomq_pool.plane.schedule import SchedulerRecord
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import load_library
from echomq_pool.redisio.state import LinkState

log = logging.getLogger("echomq.job_scheduler")

GRACE_MS = 1_000  # after a due time: the worker that takes the job is given time to make the next one
LEAST_PAUSE_MS = 1_000


class JobScheduler(Child):
    """One timer over all series of the pool's queues."""

    def __init__(self, context: ChildContext) -> None:
        super().__init__(context)
        config = self.config
        self.keys = [
            QueueKeys(config.prefix, queue, config.hash_tag)
            for queue in config.queues()
            if config.plane_of(queue) == "lock"
        ]
        self.interval_ms = min((w.stalled_interval_ms for w in config.workers), default=30_000)
        self.library = load_library()
        self.metrics = Metrics()
        self.opened: set[str] = set()
        self.wake = asyncio.Event()
        self.stopping = False
        self.quiet = False
        self.declared = False  # since the last connect
        self.policy_known = False

    async def setup(self) -> Ready:
        name = f"echomq-pool:{self.config.name}:job_scheduler"
        self.link = Link(self.config.redis, name=name, scripts=self.library, on_state=self._link_state)
        await self.link.start()
        self.lease_series = LeaseSeries(self.config, self.clock, self.library, self.metrics)
        return Ready(info=f"{len(self.config.schedulers)} schedules declared")

    async def run(self) -> None:
        firing = asyncio.create_task(self.lease_series.run()) if self.lease_series.queues else None
        try:
            await self._run()
        finally:
            if firing is not None:
                firing.cancel()

    async def _run(self) -> None:
        while not self.stopping:
            pause_ms = await self._round() if self.link.connected and not self.quiet else None
            await self._sleep(pause_ms)
            self._tell()

    def on_message(self, message: Message) -> None:
        if isinstance(message, Quiet | Resume):
            self.quiet = self.lease_series.quiet = isinstance(message, Quiet)
            self.wake.set()

    async def stop(self, stop: Stop) -> Bye:
        self.stopping = True
        self.wake.set()
        self._tell()
        await self.lease_series.close()
        await self.link.close()
        return Bye("shutdown")

    async def _round(self) -> int:
        """Declares where that is to do, looks at every series; for how many ms nothing is to be done then."""
        next_due: list[int] = []
        try:
            await self._look_at_policy()
            for keys in self.keys:
                if not await self._open(keys):
                    continue
                if not self.declared or await self._was_wiped(keys):
                    await self._declare(keys)
                next_due += await self._check(keys)
            self.declared = True
        except LinkDown as error:
            log.debug("schedules: %s", error)
        except PoolError as error:
            log.error("schedules: %s", error)
            self.metrics.count("scheduler_errors")
        now = self.clock.now_ms()
        soonest = min((due + GRACE_MS - now for due in next_due if due > now), default=self.interval_ms)
        return max(LEAST_PAUSE_MS, min(soonest, self.interval_ms))

    async def _look_at_policy(self) -> None:
        """Warns once, loudly, of a server that may throw our keys away: locks carry a TTL and go first (case C015)."""
        if self.policy_known:
            return
        told = await self.link.call("INFO", "memory")
        policy = next(
            (line[17:] for line in told.decode().split() if line.startswith("maxmemory_policy:")), ""
        )
        self.policy_known = True
        if policy not in ("", "noeviction"):
            log.warning(
                "the server's maxmemory-policy is %s: under memory pressure it evicts jobs and locks, and jobs are "
                "lost or run twice; set it to noeviction",
                policy,
            )

    async def _open(self, keys: QueueKeys) -> bool:
        """False, said once per connection: the queue is the other plane's, and nothing is written there."""
        if keys.queue not in self.opened:
            try:
                await claim_plane(self.link, keys.base, keys.key("meta"), self.library, "lock")
            except WrongPlane as error:
                if not self.declared:
                    log.error("schedules: %s", error)
                return False
            self.opened.add(keys.queue)
        return True

    async def _declare(self, keys: QueueKeys) -> None:
        """Makes the server agree with the configuration; series that others made are left alone."""
        wanted = [s for s in self.config.schedulers if s.queue == keys.queue]
        field = declared_field(self.config.name)
        listed = await self.link.call("HGET", keys.key("meta"), field)
        before: list[str] = orjson.loads(listed) if listed else []
        stored = {config.id: await self._record(keys, config.id) for config in wanted}
        todo = changes(wanted, stored, before)
        for config in todo.upsert:
            call = upsert_call(keys, config, self.clock.now_ms())
            if call is not None:
                self._said(keys, config.id, await self._ask(call))
        for scheduler_id in todo.remove:
            await self._ask(scheduling.remove(keys, scheduler_id))
            log.info("schedule %s of queue %s is no longer declared: removed", scheduler_id, keys.queue)
        ids = [config.id for config in wanted]
        if ids:
            await self.link.call("HSET", keys.key("meta"), field, orjson.dumps(ids))
        elif before:
            await self.link.call("HDEL", keys.key("meta"), field)

    async def _was_wiped(self, keys: QueueKeys) -> bool:
        """Whether our list is gone, and with it the series: the server was flushed, or the queue obliterated."""
        if all(config.queue != keys.queue for config in self.config.schedulers):
            return False
        return not await self.link.call("HEXISTS", keys.key("meta"), declared_field(self.config.name))

    async def _check(self, keys: QueueKeys) -> list[int]:
        """Repairs each series whose next job is missing; returns when each is due (wall ms)."""
        members = await self.link.call("ZRANGE", keys.key("repeat"), 0, -1)
        due = []
        for member in members:
            record = await self._record(keys, member.decode())
            if record is None or not record.iterations:
                continue  # gone meanwhile, or a repeatable of an older BullMQ, which is left alone
            due.append(record.next_ms)
            await self._repair(keys, record)
        return due

    async def _repair(self, keys: QueueKeys, record: SchedulerRecord) -> None:
        call = scheduling.repair(keys, record, self.clock.now_ms())
        if call is None:
            return
        outcome, job_id = await self._ask(call)
        if outcome == b"made":
            self.metrics.count(f"series_repaired|{keys.queue}")
            log.warning(
                "schedule %s of queue %s had no next job: made %s", record.id, keys.queue, job_id.decode()
            )

    async def _record(self, keys: QueueKeys, scheduler_id: str) -> SchedulerRecord | None:
        reply = await self._ask(scheduling.get(keys, scheduler_id))
        return SchedulerRecord.from_reply(scheduler_id, reply)

    def _ask(self, call: Call) -> asyncio.Future[Any]:
        return self.link.script(self.library[call.script], call.keys, call.args)

    def _said(self, keys: QueueKeys, scheduler_id: str, reply: Any) -> None:
        if isinstance(reply, int):  # -10, -11: a finished job sits in the slot; the next check tries again
            log.error("schedule %s of queue %s was refused with code %d", scheduler_id, keys.queue, reply)
            self.metrics.count("scheduler_errors")
        else:
            log.info("schedule %s of queue %s: next job %s", scheduler_id, keys.queue, reply[0].decode())

    async def _sleep(self, pause_ms: int | None) -> None:
        await pause(self.wake, None if pause_ms is None else pause_ms / 1000)

    def _tell(self) -> None:
        if self.metrics.changed:
            self.send(Stats(*self.metrics.snapshot()))

    def _link_state(self, state: LinkState) -> None:
        ids = [] if state.client_id is None else [state.client_id]
        self.send(Linked(state.connected, ids, state.detail, state.server))
        if state.connected:
            self.declared = False
            self.wake.set()
