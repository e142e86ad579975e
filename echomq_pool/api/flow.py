# SPDX-License-Identifier: MIT
"""FlowProducer: trees of jobs, whose parents run when their children are done."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from echomq_pool.api.ask import library, over_link
from echomq_pool.api.job import Job
from echomq_pool.api.operations import Operations
from echomq_pool.api.ops_flow import FlowOps, Found
from echomq_pool.api.queue import Queue, server_of
from echomq_pool.api.telemetry import ProducerSpan, ProducerTelemetry, span_of
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane import adding
from echomq_pool.plane.keys import tagged
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import Script


@functools.cache
def flow_script() -> Script:
    """The script that adds flows, put together once per process."""
    return adding.flow_script(library())


@dataclass(slots=True)
class JobNode:
    """A job of a flow and its children. BullMQ: `JobNode`."""

    job: Job
    children: list[JobNode] = field(default_factory=list)


class FlowProducer:
    """Adds and reads flows, as an asynchronous context manager. BullMQ: `FlowProducer`.

    A flow is a dict: `{"name": …, "queue": …, "data": …, "opts": {…}, "children": [flow, …]}`; BullMQ's `queueName`
    and `prefix` are taken too. A node's options are those of `Queue.add`; what a child's failure means to its parent
    is the child's: fail_parent_on_failure, continue_parent_on_failure, ignore_dependency_on_failure or
    remove_dependency_on_failure. Without one the parent waits until the child has been retried with success.

    On a cluster all queues of a flow must share one hash tag.

    Args:
        url: address of the server; or `redis`, a whole configuration.
        prefix: first part of every key, of nodes that name none.
        hash_tag: write queue names in braces; False for existing BullMQ queues.
        telemetry: as for `Queue`.
    """

    def __init__(
        self,
        *,
        url: str = "",
        prefix: str = "emq",
        hash_tag: bool = True,
        redis: RedisConfig | None = None,
        telemetry: ProducerTelemetry | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config = redis or server_of(url)
        self._prefix = prefix
        self._hash_tag = hash_tag
        self._clock = clock
        self._telemetry = telemetry
        self._library = library()
        self._link = Link(self._config, name=f"{prefix}:flow-producer", clock=clock, scripts=self._library)
        self._queues: dict[tuple[str, str, bool], Queue] = {}
        self._ops = FlowOps(flow_script(), self._ops_of, clock.now_ms)
        self._started = False

    async def __aenter__(self) -> FlowProducer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begins to connect."""
        if not self._started:
            self._started = True
            await self._link.start()

    async def close(self) -> None:
        """Ends what its jobs wait for, and the connection."""
        for queue in self._queues.values():
            await queue.close()
        if self._started:
            await self._link.close()

    async def add(
        self, flow: Mapping[str, Any], *, queues_options: Mapping[str, Any] | None = None
    ) -> JobNode:
        """Adds a whole tree in one step. BullMQ: `add`.

        Args:
            flow: the root.
            queues_options: options of the jobs by queue, `{"orders": {"job_options": {"attempts": 3}}}`.

        Raises:
            InputError: a node that cannot be added; nothing was written.
            ParentMissing: the root has a parent, and that does not exist.
            LinkDown: `sent=True`: it may have been added.
        """
        (root,) = await self.add_bulk([flow], queues_options=queues_options)
        return root

    async def add_bulk(
        self, flows: Sequence[Mapping[str, Any]], *, queues_options: Mapping[str, Any] | None = None
    ) -> list[JobNode]:
        """Adds many trees in one step. BullMQ: `addBulk`."""
        await self.start()
        with flow_span(self._telemetry, flows) as span:
            operation = self._ops.add(flows, queues_options or {}, span.told)
            roots = await over_link(self._link, self._library).run(operation)
        return [self._node(root) for root in roots]

    async def get_flow(
        self, job_id: str, queue: str, *, prefix: str = "", depth: int = 10, max_children: int = 20
    ) -> JobNode | None:
        """A job and its children below it; None when there is no such job. BullMQ: `getFlow`.

        Args:
            depth: levels to read, the job's own included.
            max_children: about how many children of each kind to read per job.
        """
        await self.start()
        operation = self._ops.get(queue, prefix, job_id, depth, max_children)
        found = await over_link(self._link, self._library).run(operation)
        return None if found is None else self._node(found)

    def _node(self, found: Found) -> JobNode:
        queue = self._queue(found.queue, found.prefix, found.wire)
        return JobNode(queue._job(found.record), [self._node(child) for child in found.children])

    def _queue(self, name: str, prefix: str, wire: bool) -> Queue:
        key = queue_key(name, prefix or self._prefix, self._hash_tag, wire)
        if key not in self._queues:
            self._queues[key] = Queue(
                key[0], redis=self._config, prefix=key[1], hash_tag=key[2], clock=self._clock, link=self._link
            )
        return self._queues[key]

    def _ops_of(self, name: str, prefix: str, wire: bool) -> Operations:
        return self._queue(name, prefix, wire)._ops


def flow_span(
    telemetry: ProducerTelemetry | None, flows: Sequence[Any]
) -> AbstractContextManager[ProducerSpan]:
    """The span under which flows are added."""
    first = flows[0] if flows and isinstance(flows[0], Mapping) else {}
    queue = str(first.get("queue") or first.get("queueName") or first.get("queue_name") or "")
    return span_of(telemetry, "addFlow" if len(flows) == 1 else "addBulkFlows", queue, queue)


def queue_key(name: str, prefix: str, hash_tag: bool, wire: bool) -> tuple[str, str, bool]:
    """(name, prefix, hash tag) of a queue; one named as it stands in keys has its braces already, or none."""
    if wire and hash_tag and tagged(name) == name:
        return name[1:-1], prefix, True
    return name, prefix, hash_tag and not wire
