# SPDX-License-Identifier: MIT
"""Flows of the lease plane: a parent waits in no set until its children are done, and then runs.

A flow within one queue is added by one script. Across queues it is added parent first, node by node: what breaks
off leaves the parent waiting, never running too early. The end of a child in another queue travels through the
outbox of the child's queue: it is delivered first and dropped after, so a delivery may come twice and counts once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from echomq_pool.errors import InputError, PoolError, WrongKind, WrongState
from echomq_pool.plane import codec, lease_row
from echomq_pool.plane.lease_codes import refusal
from echomq_pool.plane.lease_desk import Desk
from echomq_pool.plane.lease_keys import LeaseKeys, check_id

log = logging.getLogger("echomq.flows")

MOST_LEVELS = 8
OUTBOX_BATCH = 100


@dataclass(frozen=True, slots=True)
class FlowNode:
    """One job of a flow. `queue` empty = that of the flow. If both failure flags are set, ignoring wins."""

    id: str
    payload: bytes | str
    queue: str = ""
    children: tuple[FlowNode, ...] = ()
    fail_parent_on_failure: bool = True
    ignore_dependency_on_failure: bool = False
    name: str = ""
    opts: Mapping[str, Any] | None = None

    @property
    def policy(self) -> str:
        return "id" if self.ignore_dependency_on_failure or not self.fail_parent_on_failure else "fp"


@dataclass(frozen=True, slots=True)
class FlowAdded:
    """The ids of a flow that was added, in its shape."""

    id: str
    children: list[FlowAdded] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A node with its place: its queue, its parent, and the parent's queue."""

    node: FlowNode
    queue: str
    parent: str
    parent_queue: str

    def row(self) -> list[Any]:
        elsewhere = self.parent_queue if self.parent and self.parent_queue != self.queue else ""
        extra = lease_row.extra_fields(self.node.name, self.node.opts)
        node = self.node
        return [node.id, node.payload, len(node.children), self.parent, elsewhere, node.policy, extra]


class Flows:
    """Adds flows to a queue and carries the signals of its outbox."""

    def __init__(self, desk: Desk, *, publish: bool = False) -> None:
        self._desk = desk
        self._keys = desk.keys
        self._loud = int(publish)

    async def add(self, root: FlowNode) -> FlowAdded:
        """Adds a parent with its children, to any depth of 8.

        Raises:
            InputError: too deep (flow_too_deep), an id twice (flow_cycle) or malformed; nothing was written.
            WrongKind: an id that is no job's; nothing was written.
            WrongState: one of the jobs exists already; nothing was written in its queue.
        """
        nodes = self._place(root)
        if all(placed.queue == nodes[0].queue for placed in nodes):
            await self._write(nodes)
        else:
            for placed in nodes:
                await self._write([placed])
        return _shape(root)

    async def add_bulk(self, roots: Sequence[FlowNode]) -> list[FlowAdded]:
        """Adds each by itself; a flow that is refused is left out of the answer and stops no other."""
        added = []
        for root in roots:
            try:
                added.append(await self.add(root))
            except PoolError as error:
                log.warning("flow %s of %s was not added: %s", root.id, self._keys.queue, error)
        return added

    async def deliver(self) -> int:
        """Carries a batch of the outbox to the parents' queues. Returns how many signals arrived."""
        outbox = self._keys.key("flow:outbox")
        entries = await self._desk.link.call("LRANGE", outbox, 0, OUTBOX_BATCH - 1)
        signals = _readable_prefix(entries)
        if not signals:
            return 0
        results = await asyncio.gather(*(self._carry(*signal) for signal in signals), return_exceptions=True)
        # A signal that did not arrive holds up those behind it; they come once more then, and count once.
        arrived = next((i for i, r in enumerate(results) if isinstance(r, BaseException)), len(results))
        if arrived:
            await self._desk.ask("outboxTrim", (outbox,), entries[:arrived])
        for result in results[arrived:]:
            if isinstance(result, BaseException):
                raise result
        return arrived

    # --- reading ----------------------------------------------------------------------------------------

    async def children_values(self, parent_id: str) -> dict[str, bytes]:
        """Results of the completed children by id (the id itself where a child gave none)."""
        return await self._texts(self._keys.processed(check_id(parent_id)))

    async def ignored_failures(self, parent_id: str) -> dict[str, bytes]:
        """Errors of the dead children that the parent does not die of."""
        return await self._texts(self._keys.unsuccessful(check_id(parent_id)))

    async def failures(self, parent_id: str) -> dict[str, bytes]:
        """Errors of the children that the parent died of."""
        return await self._texts(self._keys.failed(check_id(parent_id)))

    async def dependencies(self, parent_id: str) -> int:
        """How many children are outstanding."""
        return int(await self._desk.link.call("GET", self._keys.dependencies(check_id(parent_id))) or 0)

    # --- adding -----------------------------------------------------------------------------------------

    def _place(self, root: FlowNode) -> list[_Placed]:
        """All nodes, parents first, checked as a whole."""
        nodes = list(self._walk(root, "", self._keys.queue, self._keys.queue, 1))
        seen: set[str] = set()
        for placed in nodes:
            job_id = check_id(placed.node.id)
            if job_id in seen:
                raise InputError(f"flow_cycle: {job_id} appears twice")
            seen.add(job_id)
        for placed in nodes:
            if not placed.node.id.startswith("JOB"):
                raise refusal(WrongKind, placed.node.id, "add", "the id of a job starts with JOB")
            LeaseKeys(placed.queue, self._keys.prefix)
        return nodes

    def _walk(
        self, node: FlowNode, parent: str, parent_queue: str, default: str, level: int
    ) -> Iterator[_Placed]:
        if level > MOST_LEVELS:
            raise InputError(f"flow_too_deep: more than {MOST_LEVELS} levels at {node.id}")
        queue = node.queue or default
        yield _Placed(node, queue, parent, parent_queue)
        for child in node.children:
            yield from self._walk(child, node.id, queue, queue, level + 1)

    async def _write(self, nodes: Sequence[_Placed]) -> None:
        keys = LeaseKeys(nodes[0].queue, self._keys.prefix)
        packed = lease_row.pack([placed.row() for placed in nodes])
        reply = await self._desk.ask("addFlow", (keys.key("pending"),), (keys.base, packed), action="add")
        if not reply[0]:
            raise refusal(WrongState, codec.to_text(reply[1]), "add", "it exists already")

    # --- delivering -------------------------------------------------------------------------------------

    async def _carry(self, queue: str, parent: str, child: bytes, how: bytes, text: bytes) -> None:
        keys = LeaseKeys(queue, self._keys.prefix)
        args = (keys.base, parent, child, how, text, self._loud)
        await self._desk.ask("deliver", (keys.job(parent),), args)

    async def _texts(self, key: str) -> dict[str, bytes]:
        flat = await self._desk.link.call("HGETALL", key)
        return {codec.to_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


Signal = tuple[str, str, bytes, bytes, bytes]


def _readable_prefix(entries: Sequence[bytes]) -> list[Signal]:
    """Signals up to the first that cannot be read: it blocks, and nothing behind it is dropped."""
    signals: list[Signal] = []
    for entry in entries:
        signal = _read(entry)
        if signal is None:
            log.error("the outbox is blocked by a malformed signal: %r", entry[:200])
            break
        signals.append(signal)
    return signals


def _read(entry: bytes) -> Signal | None:
    """(parent's queue, parent, child, `ok` or policy, result or error); the last part may hold any byte."""
    if entry.startswith(b"\0fail\0"):
        parts = entry.split(b"\0", 6)[2:]
    else:
        parts = entry.split(b"\0", 3)
        parts.insert(3, b"ok")
    if len(parts) != 5:
        return None
    try:
        queue, parent = parts[0].decode("ascii"), check_id(parts[1].decode("ascii"))
        LeaseKeys(queue)
    except (UnicodeDecodeError, InputError):
        return None
    return queue, parent, parts[2], parts[3], parts[4]


def _shape(node: FlowNode) -> FlowAdded:
    return FlowAdded(node.id, [_shape(child) for child in node.children])
