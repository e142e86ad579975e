# SPDX-License-Identifier: MIT
"""Schedules of the lease-plane queues: declared here as repeats, and fired here, each once, on the server's clock.

Nobody else makes their jobs (on the lock plane the worker that takes one makes the next). Two pools may fire side by
side: the script admits a job only from the time that its caller has read.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import orjson

from echomq_pool.children.lease_due import BEAT_MS, IDLE_BEAT_MS, LEAST_PAUSE_MS, Agenda, DueEar
from echomq_pool.children.queue_links import QueueLinks
from echomq_pool.children.series import declared_field
from echomq_pool.clock import Clock
from echomq_pool.config.schema import PoolConfig, SchedulerConfig
from echomq_pool.errors import LinkDown, PoolError
from echomq_pool.metrics import Metrics
from echomq_pool.plane import lease_row
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.redisio.scripts import ScriptLibrary
from echomq_pool.redisio.state import LinkState

log = logging.getLogger("echomq.job_scheduler")


class LeaseSeries:
    """The repeats of all lease-plane queues of a pool.

    Args:
        config: of the pool.
    """

    def __init__(self, config: PoolConfig, clock: Clock, library: ScriptLibrary, metrics: Metrics) -> None:
        self._config = lease_part(config)
        self._clock = clock
        self._metrics = metrics
        self._links = QueueLinks(self._config, "job_scheduler", clock, library, self._link_state)
        self._declared: set[str] = set()
        self._troubled: dict[str, str] = {}
        self._quiet = False
        self._agenda = Agenda(self.queues, clock)
        self._ear = DueEar(self._config, self.queues, "job_scheduler", ["due:repeat"], self._heard)

    @property
    def quiet(self) -> bool:
        """Whether nothing is fired for the time being."""
        return self._quiet

    @quiet.setter
    def quiet(self, quiet: bool) -> None:
        self._quiet = quiet
        self._agenda.put_all()

    @property
    def queues(self) -> tuple[str, ...]:
        return self._config.queues()

    async def run(self) -> None:
        """Declares and fires until it is cancelled."""
        await self._links.start()
        await self._ear.start()
        while True:
            for queue in self._agenda.take():
                pause = BEAT_MS if self.quiet else await self._queue(queue)
                self._agenda.put(queue, self._clock.mono_ms() + pause)
            await self._agenda.sleep()

    async def close(self) -> None:
        if self.queues:
            await self._ear.close()
        await self._links.close()

    def _heard(self, queue: str, at_ms: int) -> None:
        """A repeat was made: rare enough to look at once."""
        self._agenda.put(queue, 0)

    def _link_state(self, queues: list[str], state: LinkState) -> None:
        if not state.connected:
            self._declared.difference_update(queues)
            return
        for queue in queues:
            self._agenda.put(queue, 0)

    async def _queue(self, queue: str) -> int:
        """One look at one queue. Returns ms until the next."""
        if not self._links.connected(queue):
            return BEAT_MS
        plane = self._links.planes[queue]
        assert isinstance(plane, LeasePlane)
        try:
            if queue not in self._declared:
                await plane.open()
                await self._declare(queue, plane)
                self._declared.add(queue)
            fired, next_in_ms = await plane.repeats.turn()
        except LinkDown as error:
            log.debug("schedules of %s: %s", queue, error)
            return BEAT_MS
        except PoolError as error:
            self._trouble(queue, str(error))
            return BEAT_MS
        if fired:
            self._metrics.count(f"repeats_fired|{queue}", fired)
        longest = IDLE_BEAT_MS if self._ear.hears else BEAT_MS
        return longest if next_in_ms is None else max(LEAST_PAUSE_MS, min(longest, next_in_ms))

    async def _declare(self, queue: str, plane: LeasePlane) -> None:
        """Makes the server agree with the configuration; repeats that others registered are left alone."""
        wanted = [s for s in self._config.schedulers if s.queue == queue]
        meta, field = plane.keys.key("meta"), declared_field(self._config.name)
        listed = await plane.command("HGET", meta, field)
        ids = [schedule.id for schedule in wanted]
        for name in orjson.loads(listed) if listed else []:
            if name not in ids:
                await plane.repeats.cancel(name)
                log.info("schedule %s of queue %s is no longer declared: removed", name, queue)
        for schedule in wanted:
            await self._register(plane, schedule)
        if ids:
            await plane.command("HSET", meta, field, orjson.dumps(ids))
        elif listed:
            await plane.command("HDEL", meta, field)

    async def _register(self, plane: LeasePlane, schedule: SchedulerConfig) -> None:
        record = await plane.repeats.record(schedule.id)
        if record is not None:
            if record == as_record(schedule):
                return  # unchanged: its next time stays
            await plane.repeats.cancel(schedule.id)
        template = schedule.data.encode()
        if schedule.pattern:
            now = self._clock.now_ms()
            await plane.repeats.register_cron(
                schedule.id, schedule.pattern, template,
                now_ms=now, tz=schedule.tz, job_name=schedule.name, opts=schedule.opts,
            )  # fmt: skip
        else:
            await plane.repeats.register(
                schedule.id, schedule.every_ms, template, job_name=schedule.name, opts=schedule.opts
            )
        log.info("schedule %s of queue %s is registered", schedule.id, schedule.queue)

    def _trouble(self, queue: str, text: str) -> None:
        self._metrics.count("scheduler_errors")
        if self._troubled.get(queue) != text:
            log.error("schedules of queue %s: %s", queue, text)
        self._troubled[queue] = text


def lease_part(config: PoolConfig) -> PoolConfig:
    """The configuration as far as it concerns lease-plane queues."""
    return part_of(config, "lease")


def part_of(config: PoolConfig, kind: str) -> PoolConfig:
    """The entries of one plane; places on the board do not hold in it."""
    return replace(
        config,
        workers=tuple(w for w in config.workers if w.plane == kind),
        schedulers=tuple(
            replace(s, plane=kind) for s in config.schedulers if config.plane_of(s.queue) == kind
        ),
        queue_order=(),
    )


def as_record(schedule: SchedulerConfig) -> dict[str, bytes]:
    """The record that registering a schedule writes."""
    extra = lease_row.extra_fields(schedule.name, schedule.opts)
    names = {"name": "job_name", "opts": "job_opts"}
    fields = {names[str(k)]: _bytes(v) for k, v in zip(extra[::2], extra[1::2], strict=True)}
    fields |= {"every_ms": str(schedule.every_ms).encode(), "template": schedule.data.encode()}
    if schedule.pattern:
        fields["pattern"] = schedule.pattern.encode()
    if schedule.tz:
        fields["tz"] = schedule.tz.encode()
    return fields


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
