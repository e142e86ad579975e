# SPDX-License-Identifier: MIT
"""Reads the event streams of all queues: forwards cancel requests, feeds user hooks, counts for the observer.

Two positions per stream: how far was read (here) and how far was dealt with (on the board). A successor goes
on from the board, so hooks run at least once; cancel requests are forwarded as they are read and never wait
for a slow hook.

Lease-plane queues have no stream: what is published while nobody listens is gone (`lease_ear.py`).
"""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
from collections import Counter, defaultdict
from typing import Any

from echomq_pool.children.base import Child
from echomq_pool.children.hooks import Hooks
from echomq_pool.children.lease_ear import LeaseEar
from echomq_pool.errors import LinkError
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Cancel, Events, Linked, Message, Ready, Stats, Stop
from echomq_pool.metrics import Metrics
from echomq_pool.plane.events import CANCEL_EVENT, Event, decode, name_of, parse_id
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.state import LinkState

log = logging.getLogger("echomq.queue_events")

BLOCK_MS = 10_000
GATHER_S = 0.05  # before the next read: events of a busy queue come by the batch, not one by one
BATCH = 1_000  # entries per stream and read
UNDELIVERED_BATCHES = 64  # read ahead of slow hooks; then reading waits, and the server keeps the rest
TELL_AFTER_S = 1.0
RETRY_S = 0.1
GC_THRESHOLD = 20_000
UNREAD = (0, 0)
EMPTY = (0, 1)  # an empty stream: all that will ever be in it is new; differs from UNREAD


class QueueEvents(Child):
    """One reader for all queues of the pool."""

    def __init__(self, context: ChildContext) -> None:
        super().__init__(context)
        config = context.config
        every = config.queues()
        self.queues = [queue for queue in every if config.plane_of(queue) == "lock"]
        self.places = [every.index(queue) for queue in self.queues]  # on the board
        self.keys = [QueueKeys(config.prefix, queue, config.hash_tag) for queue in self.queues]
        self.streams = [keys.key("events") for keys in self.keys]
        self.index_of = {stream.encode(): index for index, stream in enumerate(self.streams)}
        self.read_to = [self.board.position(place) for place in self.places]
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.metrics = Metrics()
        self.undelivered: asyncio.Queue[tuple[int, list[Event], tuple[int, int]]] = asyncio.Queue(
            UNDELIVERED_BATCHES
        )
        self.stopping = False
        self.telling: asyncio.TimerHandle | None = None
        self.stopped = asyncio.Event()

    async def setup(self) -> Ready:
        # A read is some thousand lists that all live until it is counted; by default the collector looks at them
        # six times meanwhile, which is a sixth of what this process needs on a busy queue.
        gc.set_threshold(GC_THRESHOLD)
        self.hooks = Hooks(self.config.hooks)
        self.link = Link(self.config.redis, name=self._name(), on_state=self._link_state, blocking=True)
        self.ear = LeaseEar(self.config, self.hooks, self._take_note, self.metrics)
        if self.queues:
            await self.link.start()
        heard = f"{len(self.queues)} streams, {len(self.ear.queues)} channels"
        return Ready(info=f"{heard}, {len(self.config.hooks)} hooks")

    async def run(self) -> None:
        delivering = asyncio.create_task(self._deliver_for_ever(), name="hooks")
        await self.ear.start()
        try:
            while self.queues and not self.stopping:
                await self._read_once()
            await self.stopped.wait()
        finally:
            delivering.cancel()

    def on_message(self, message: Message) -> None:
        """Nothing is asked of this child but to stop."""

    async def stop(self, stop: Stop) -> Bye:
        self.stopping = True
        self.stopped.set()
        self._tell_counts()
        await self.ear.close()
        await self.link.close()
        return Bye("shutdown")

    async def _read_once(self) -> None:
        """One read of all streams. A lost link is waited out: the positions stay, so nothing is skipped."""
        try:
            await self.link.ready()
            await self._fix_positions()
            reply = await self.link.blocking_call(*self._xread(), block_ms=BLOCK_MS)
        except LinkError as error:
            log.debug("reading events: %s", error)
            if not self.stopping:
                await asyncio.sleep(RETRY_S)
            return
        for stream, entries in reply or ():
            index = self.index_of[bytes(stream)]
            self.read_to[index] = position = parse_id(entries[-1][0])
            await self.undelivered.put((index, self._sift(self.queues[index], entries), position))
        if reply and not any(len(entries) >= BATCH for _, entries in reply):  # else there is more already
            await asyncio.sleep(GATHER_S)

    def _xread(self) -> list[str | int]:
        ids = [f"{ms}-{seq}" for ms, seq in self.read_to]
        return ["XREAD", "COUNT", BATCH, "BLOCK", BLOCK_MS, "STREAMS", *self.streams, *ids]

    async def _fix_positions(self) -> None:
        """A stream that was never read starts at its present end; from here on that is a number, not "$"."""
        unread = [index for index, position in enumerate(self.read_to) if position == UNREAD]
        ends = [self.link.call("XREVRANGE", self.streams[index], "+", "-", "COUNT", 1) for index in unread]
        for index, last in zip(unread, await asyncio.gather(*ends), strict=True):
            self.read_to[index] = parse_id(last[0][0]) if last else EMPTY
            self.board.set_position(self.places[index], *self.read_to[index])

    def _sift(self, queue: str, entries: list[Any]) -> list[Event]:
        """Counts all, and decodes those that somebody waits for: most of a busy queue's are only counted.

        A busy queue writes three for each job, so they are counted as they came, and a name is read once per batch.
        """
        raw_names = [
            flat[1] if flat and flat[0] == b"event" else name_of(flat).encode() for _, flat in entries
        ]
        tally = Counter(raw_names)
        names = {raw: raw.decode(errors="replace") for raw in tally}
        heard = {raw for raw, name in names.items() if name == CANCEL_EVENT or self.hooks.wants_name(name)}
        counts = self.counts[queue]
        for raw in names.keys() - heard:
            counts[names[raw]] += tally[raw]
        wanted = [
            decode(queue, *entry) for raw, entry in zip(raw_names, entries, strict=True) if raw in heard
        ]
        self._take_note(wanted)
        return wanted

    def _take_note(self, events: list[Event]) -> None:
        for event in events:
            self.counts[event.queue][event.name] += 1
            if event.name == CANCEL_EVENT and event.job_id:
                reason = str(event.data.get("reason") or "cancelled")
                self.send(Cancel(event.queue, event.job_id, reason))
        if self.telling is None:
            self.telling = asyncio.get_running_loop().call_later(TELL_AFTER_S, self._tell_counts)

    async def _deliver_for_ever(self) -> None:
        while True:
            index, events, position = await self.undelivered.get()
            for event in events:
                if self.hooks.wants(event):
                    done = await self.hooks.run(event)
                    self.metrics.count(f"hooks_{'run' if done else 'failed'}|{event.name}")
                    self.board.set_position(self.places[index], *parse_id(event.id))
            self.board.set_position(self.places[index], *position)

    def _tell_counts(self) -> None:
        if self.telling is not None:
            self.telling.cancel()
            self.telling = None
        if self.counts:
            self.send(Events({queue: dict(names) for queue, names in self.counts.items()}))
            self.counts.clear()
        if self.metrics.changed:
            self.send(Stats(*self.metrics.snapshot()))

    def _name(self) -> str:
        """The name by which BullMQ's tools know a reader; one connection reads all, under the first queue's name."""
        first = self.keys[0].wire_name.encode() if self.keys else b""
        return f"{self.config.prefix}:{base64.b64encode(first).decode()}:qe"

    def _link_state(self, state: LinkState) -> None:
        ids = [] if state.client_id is None else [state.client_id]
        self.send(Linked(state.connected, ids, state.detail, state.server))
