# SPDX-License-Identifier: MIT
"""Serves /livez, /readyz and /metrics from figures it is sent, and from the queues' lengths when asked.

It watches; nothing depends on it. A port that is taken costs the page, not the pool (case C157).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

from echomq_pool.children.base import Child
from echomq_pool.children.depths import DepthReader
from echomq_pool.children.exposition import families
from echomq_pool.children.health import TakingWatch, liveness, readiness
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Events, Linked, Message, Ready, Stop, Tree
from echomq_pool.plane.factory import keys_of
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.state import LinkState

log = logging.getLogger("echomq.observer")

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Observer(Child):
    """The HTTP side of the pool."""

    def __init__(self, context: ChildContext) -> None:
        super().__init__(context)
        self.status: dict[str, Any] = {}
        self.events: dict[str, dict[str, int]] = {}
        self.watch = TakingWatch()
        self.stopped = asyncio.Event()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Collector(self))
        self.runner: web.AppRunner | None = None

    async def setup(self) -> Ready:
        config = self.config
        self.link = Link(config.redis, name=f"echomq-pool:{config.name}:observer", on_state=self._link_state)
        queues = {queue: keys_of(config, queue) for queue in config.queues()}
        self.depths = DepthReader(self.link, queues, self.clock)
        await self.link.start()
        return Ready(info=await self._listen())

    async def run(self) -> None:
        await self.stopped.wait()

    def on_message(self, message: Message) -> None:
        if isinstance(message, Tree):
            self.status = message.status
        elif isinstance(message, Events):
            for queue, names in message.counts.items():
                row = self.events.setdefault(queue, {})
                for name, n in names.items():
                    row[name] = row.get(name, 0) + n

    async def stop(self, stop: Stop) -> Bye:
        if self.runner is not None:
            await self.runner.cleanup()
        await self.link.close()
        self.stopped.set()
        return Bye("shutdown")

    async def _listen(self) -> str:
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self.runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self.runner.setup()
        host, _, port = self.config.observer.bind.rpartition(":")
        try:
            await web.TCPSite(self.runner, host.strip("[]") or "127.0.0.1", int(port)).start()
        except OSError as error:
            log.warning(
                "observer cannot listen on %s (%s): the pool works without it",
                self.config.observer.bind,
                error,
            )
            return f"not listening: {error}"
        address = self.runner.addresses[0]
        log.info("observer listens on http://%s:%d", address[0], address[1])
        return f"http://{address[0]}:{address[1]}"

    async def _livez(self, request: web.Request) -> web.Response:
        beat = self.board.beat_ms(0)
        problem = liveness(self.clock.mono_ms(), beat, self.config.supervisor.hang_timeout_ms)
        return _answer([problem] if problem else [])

    async def _readyz(self, request: web.Request) -> web.Response:
        await self.depths.refresh()
        problems = readiness(self.status)
        if not self.depths.reached:
            problems.append(f"the server cannot be reached: {self.link_detail or 'no connection'}")
        elif self._takes_nothing():
            problems.append("jobs wait, slots are free, and none was taken for 10 s")
        return _answer(problems)

    async def _metrics(self, request: web.Request) -> web.Response:
        await self.depths.refresh()
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": METRICS_TYPE})

    def beats(self) -> dict[str, int]:
        """Age of the oldest beat in each group that has a process, and of the supervisor's, in ms."""
        now_ms = self.clock.mono_ms()
        ages = {"supervisor": max(0, now_ms - self.board.beat_ms(0))}
        for child in self.status.get("children", []):
            slot = child.get("slot", -1)  # a supervisor that was started before an upgrade does not tell it
            if slot >= 0 and (beat_ms := self.board.beat_ms(slot)):
                ages[child["group"]] = max(ages.get(child["group"], 0), now_ms - beat_ms)
        return ages

    def _takes_nothing(self) -> bool:
        depths = [depth for depth in self.depths.depths.values() if not depth.paused]
        waiting = sum(depth.counts["wait"] + depth.counts["prioritized"] for depth in depths)
        counters = self.status.get("totals", {}).get("counters", {})
        taken = sum(n for name, n in counters.items() if name.startswith("taken"))
        slots = sum(w.concurrency * w.processes for w in self.config.workers)
        limited = any(w.limiter for w in self.config.workers)
        busy = sum(child.get("busy", 0) for child in self.status.get("children", []))
        return self.watch.look(
            self.clock.mono_ms(), taken=taken, waiting=waiting, free=busy < slots and not limited
        )

    link_detail = ""

    def _link_state(self, state: LinkState) -> None:
        self.link_detail = state.detail
        ids = [] if state.client_id is None else [state.client_id]
        self.send(Linked(state.connected, ids, state.detail, state.server))


class _Collector:
    """Hands the current figures to prometheus_client at each scrape; keeps nothing."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def collect(self) -> list[Metric]:
        observer = self.observer
        return list(families(observer.status, observer.depths.depths, observer.events, observer.beats()))


def _answer(problems: list[str]) -> web.Response:
    body = orjson.dumps({"ok": not problems, "problems": problems})
    return web.Response(status=503 if problems else 200, body=body, content_type="application/json")
