# SPDX-License-Identifier: MIT
"""Worker: takes jobs from its queues, runs them, settles them. This file joins the parts and obeys the supervisor.

fetcher   which queue is asked when, and the sleep on the markers
slots     one job after another: take, tell, run, settle
executor  the processor itself, on the loop or in a thread
ledger    what is held, and the word about it to the lock manager
watch     the one timer: time limits and leases
recycle   when this process has done enough
guards    users' own leases that its jobs hold
"""

from __future__ import annotations

import asyncio
import logging
import uuid

from echomq_pool.api.ask import library
from echomq_pool.api.job_guard import kept_by
from echomq_pool.children.base import Child
from echomq_pool.children.executor import Executor
from echomq_pool.children.fetcher import Fetcher
from echomq_pool.children.guard_keeper import GuardKeeper
from echomq_pool.children.guard_link import GuardLink
from echomq_pool.children.ledger import Ledger
from echomq_pool.children.opening import Opening
from echomq_pool.children.processor import Processor
from echomq_pool.children.queues import Wiring, open_sources
from echomq_pool.children.recycle import Recycle
from echomq_pool.children.routing import load_group
from echomq_pool.children.run import Run, Source
from echomq_pool.children.settler import Settler
from echomq_pool.children.slots import Slots
from echomq_pool.children.stats import StatsSender
from echomq_pool.children.watch import Verdicts, Watch
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import (
    Bye,
    Cancel,
    Expired,
    GuardsLost,
    Linked,
    Lost,
    Message,
    Quiet,
    Ready,
    Relearn,
    Resume,
    Stop,
    Wish,
)
from echomq_pool.metrics import Metrics
from echomq_pool.plane.guard import GuardKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import ScriptLibrary
from echomq_pool.redisio.state import LinkState

log = logging.getLogger("echomq.worker")

HAND_BACK_MS = 1_000  # before the stop deadline, what still runs is cancelled and handed back …
HAND_BACK_SHARE = 4  # … but not before three quarters of a shorter time are over


class Worker(Child):
    """One worker process of a `[[workers]]` group."""

    def __init__(self, context: ChildContext) -> None:
        super().__init__(context)
        self.group = self.config.group(context.args["group"])
        self.worker_id = str(uuid.uuid4())
        self.metrics = Metrics()
        self._ended = asyncio.Event()
        self._condemned = False
        self._refusals: dict[str, str] = {}  # queues that belong to the other plane: why
        self._gate_task: asyncio.Task[None] | None = None  # a Quiet that is being carried out

    # --- setup ------------------------------------------------------------------------------------

    async def setup(self) -> Ready:
        processor = self.processor = self.load()
        wiring = self._wiring()
        self.links, self.sources = open_sources(wiring)
        self.executor = Executor(processor, self.group.concurrency)
        self.ledger = Ledger(self.worker_id, self.context.slot, self.board, self._send)
        self.guards = self._keeper(wiring.library)
        self.recycle = Recycle(self.group, self.clock, lambda reason: self.send(Wish(reason)))
        verdicts = Verdicts(self._expire, self._condemn, self._doubt, self._trust, self._lose)
        self.watch = Watch(self.group, self.ledger, self.board, self.context.slot, self.clock, verdicts)
        self.stats = StatsSender(self.metrics, self.send, self._gauges)
        self.slots = Slots(
            worker_id=self.worker_id,
            timeout_ms=self.group.timeout_ms,
            limits=processor.limits,
            clock=self.clock,
            metrics=self.metrics,
            ledger=self.ledger,
            watch=self.watch,
            executor=self.executor,
            settler=Settler(processor.strategies, self.metrics),
            recycle=self.recycle,
        )
        self.fetcher = Fetcher(
            self.sources, self.group.concurrency, self.group.drain_delay_ms, self.clock, self.slots.work
        )
        self.slots.fetcher = self.fetcher
        self.opening = Opening(self.sources, self._opened, self._refuse)
        self.fetcher.doubted = self.opening.again
        return Ready(self.worker_id, tuple(self.group.queues), info=f"processor {processor.path}")

    def load(self) -> Processor:
        """What runs the jobs."""
        return load_group(self.config, self.group)

    def _keeper(self, library: ScriptLibrary) -> GuardKeeper:
        """What looks after the leases that jobs take; without any it does nothing."""
        keys = GuardKeys(self.config.prefix)
        link = GuardLink(self.links, self.config.redis, keys, library, self.clock)
        slot, board, clock = self.context.slot, self.board, self.clock
        keeper = GuardKeeper(self.worker_id, slot, keys, link, self.ledger, board, clock, self._send)
        for source in self.sources:
            kept_by(source.plane, keeper)
        return keeper

    def _name(self) -> str:
        """What dashboards show, and jobs keep as `processed_by`: pools of one name, on however many hosts, are told
        apart by the start of the worker id, which is that of its tokens.
        """
        name = f"{self.config.name}/{self.context.id}.{self.worker_id[:6]}"
        return "".join(c if "!" <= c <= "~" else "-" for c in name)

    def _wiring(self) -> Wiring:
        return Wiring(
            config=self.config,
            group=self.group,
            worker_name=self._name(),
            library=library(),
            clock=self.clock,
            on_connect=self._connected,
            on_state=self._state_changed,
        )

    # --- run --------------------------------------------------------------------------------------

    async def run(self) -> None:
        for link in self.links:
            await link.start()
        self.opening.start()
        self.fetcher.start()
        await self._ended.wait()

    def _send(self, message: Message) -> None:
        """The ledger's way out: carries the slot, by which the others know whose leases these are."""
        self.send(message, slot=self.context.slot)
        self.stats.touch()

    def _connected(self, link: Link) -> None:
        """Tells the ids of all connections, before this one carries its first command."""
        self._tell_links(
            all(other.connected for other in self.links if other is not link), "", str(link.server)
        )

    def _state_changed(self, state: LinkState) -> None:
        connected = not state.condition and all(link.connected for link in self.links)
        self._tell_links(connected, state.condition or state.detail, state.server)
        if state.connected:
            self.watch.look()  # leases that lapsed meanwhile are set again at once, where they are still ours

    def _opened(self, source: Source) -> None:
        self._refusals.pop(source.name, None)
        self._state_changed(source.link.state)
        self.fetcher.pump()

    def _refuse(self, source: Source, reason: str) -> None:
        """The queue is the other plane's: it is not worked, and whoever looks at this worker sees why."""
        if self._refusals.get(source.name) != reason:
            log.error("queue %s is not worked: %s", source.name, reason)
        self._refusals[source.name] = reason
        self._state_changed(source.link.state)

    def _tell_links(self, connected: bool, detail: str, server: str) -> None:
        if self._refusals:
            connected, detail = False, "; ".join(self._refusals.values())
        ids = [link.client_id for link in self.links if link.client_id is not None]
        self.send(Linked(connected, ids, detail, server), slot=self.context.slot)

    def _gauges(self) -> None:
        held: dict[str, int] = dict.fromkeys(self.group.queues, 0)
        for run in self.ledger:
            held[run.source.name] += 1
        for queue, n in held.items():
            self.metrics.gauge(f"active|{queue}", n)
        self.metrics.count("fetch_turns", self.fetcher.turns - self.metrics.counters.get("fetch_turns", 0))

    # --- on_message -------------------------------------------------------------------------------

    def on_message(self, message: Message) -> None:
        if isinstance(message, Lost):
            self._lost(message)
        elif isinstance(message, GuardsLost):
            self.guards.lost(message)
        elif isinstance(message, Cancel):
            for run in self.ledger.of_job(message.queue, message.job_id):
                self._end(run, "cancel", message.reason)
        elif isinstance(message, Relearn):
            self.ledger.retell()
            self.guards.retell()
        elif isinstance(message, Quiet):
            self._gate_task = asyncio.get_running_loop().create_task(self.fetcher.close())
        elif isinstance(message, Resume) and not self._condemned:
            self.fetcher.start()

    def _lost(self, lost: Lost) -> None:
        if lost.worker_id != self.worker_id:
            return  # meant for a former tenant of this slot
        for queue, job_id, token in lost.jobs:
            run = self.ledger.get((queue, job_id, token))
            if run is not None and not run.settling:
                self._lose(run)

    # --- verdicts about single runs ---------------------------------------------------------------

    def _end(self, run: Run, how: str, text: str) -> None:
        """Stops a run for the reason `how`; what cannot be stopped from inside costs the process."""
        if run.ended_by or run.settling:
            return
        if self.executor.stoppable and run.future is not None and not run.future.cancel():
            return  # it has just ended by itself
        run.ended_by, run.end_text, run.ended_ms = how, text, self.clock.mono_ms()
        run.job.mark_cancelled(text)
        if run.future is None:
            return  # not started yet: it ends before it begins
        if self.executor.stoppable:
            self.watch.add(run)
        elif how in ("timeout", "cancel"):
            self._condemn(run)

    def _expire(self, run: Run) -> None:
        self._end(run, "timeout", f"job exceeded its time limit of {run.limit_ms} ms")

    def _condemn(self, run: Run) -> None:
        """Asks for the end of this process, since a job in it does not end; takes nothing more."""
        run.condemned = True
        self._condemned = True
        self._gate_task = asyncio.get_running_loop().create_task(self.fetcher.close())
        self.ledger.flush()
        log.warning("job %s of %s does not end: %s", run.record.id, run.source.name, run.end_text)
        self.send(
            Expired(self.worker_id, run.source.name, run.record.id, run.ended_by, run.end_text),
            slot=self.context.slot,
        )

    def _doubt(self, run: Run) -> None:
        if not run.job.lease_lost:
            run.job.mark_lease_lost()
            log.warning("lease of job %s of %s may be lost; it runs on", run.record.id, run.source.name)

    def _trust(self, run: Run) -> None:
        run.job.mark_lease_lost(False)

    def _lose(self, run: Run) -> None:
        """Somebody else may run this job now: stop it, write nothing."""
        run.job.mark_lease_lost()
        self.metrics.count(f"lost|{run.source.name}")
        log.warning("lease of job %s of %s is lost", run.record.id, run.source.name)
        self._end(run, "lost", "lease lost")

    # --- stop -------------------------------------------------------------------------------------

    async def stop(self, stop: Stop) -> Bye:
        self.recycle.close()
        await self.fetcher.close()
        left_ms = stop.deadline_ms - self.clock.mono_ms()
        margin_ms = min(HAND_BACK_MS, max(left_ms, 0) // HAND_BACK_SHARE)
        self._abandon_takes()
        if not stop.fast:
            await self._slots_done(max(left_ms - margin_ms, 0) / 1000)
        for run in list(self.ledger):
            self._end(run, "stop", "the worker stops")
        for slot in self._taking():
            slot.cancel()
        if stop.fast and not any(link.connected for link in self.links):
            return await self._farewell(stop)  # nothing can be written; what we hold is found by our token
        await self._slots_done(None)  # what does not end here is killed at the deadline, and then given back
        return await self._farewell(stop)

    def _abandon_takes(self) -> None:
        """Without a server a take would wait for it; what it may have claimed is found by our token."""
        for slot, source in self._taking().items():
            if not source.link.connected:
                slot.cancel()

    def _taking(self) -> dict[asyncio.Task[None], Source]:
        return {slot: source for slot, source in self.fetcher.slots.items() if slot not in self.slots.busy}

    async def _slots_done(self, timeout_s: float | None) -> None:
        if self.fetcher.slots:
            await asyncio.wait(set(self.fetcher.slots), timeout=timeout_s)

    async def _farewell(self, stop: Stop) -> Bye:
        self.opening.close()
        await self.guards.close()
        self.watch.close()
        self.executor.close()
        self.processor.close()
        self.ledger.flush()
        self.stats.send_now()
        for link in self.links:
            await link.close()
        self._ended.set()
        recycled = stop.reason.startswith("recycle")
        return Bye("recycle" if recycled else "shutdown", handed_back=self.slots.handed_back)
