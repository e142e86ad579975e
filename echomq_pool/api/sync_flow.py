# SPDX-License-Identifier: MIT
"""The synchronous producer of flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from echomq_pool.api.ask import library
from echomq_pool.api.flow import flow_script, flow_span, queue_key
from echomq_pool.api.operations import Operations
from echomq_pool.api.ops_flow import FlowOps, Found
from echomq_pool.api.queue import server_of
from echomq_pool.api.sync import SyncQueue
from echomq_pool.api.sync_driver import SyncDriver, client_of, shared
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.api.telemetry import ProducerTelemetry
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import RedisConfig


@dataclass(slots=True)
class SyncJobNode:
    """A job of a flow and its children."""

    job: SyncJob
    children: list[SyncJobNode] = field(default_factory=list)


class SyncFlowProducer:
    """Arguments and methods are those of `FlowProducer`; `client` as in `SyncQueue`."""

    def __init__(
        self,
        *,
        url: str = "",
        prefix: str = "emq",
        hash_tag: bool = True,
        redis: RedisConfig | None = None,
        telemetry: ProducerTelemetry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        client: Any = None,
    ) -> None:
        self._prefix = prefix
        self._hash_tag = hash_tag
        self._clock = clock
        self._telemetry = telemetry
        self._own_client = client is None
        self._client = client_of(redis or server_of(url)) if client is None else shared(client)
        self._driver = SyncDriver(self._client, library())
        self._queues: dict[tuple[str, str, bool], SyncQueue] = {}
        self._ops = FlowOps(flow_script(), self._ops_of, clock.now_ms)

    def __enter__(self) -> SyncFlowProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        if self._own_client:
            self._client.close()

    def add(self, flow: Mapping[str, Any], *, queues_options: Mapping[str, Any] | None = None) -> SyncJobNode:
        """See `FlowProducer.add`."""
        (root,) = self.add_bulk([flow], queues_options=queues_options)
        return root

    def add_bulk(
        self, flows: Sequence[Mapping[str, Any]], *, queues_options: Mapping[str, Any] | None = None
    ) -> list[SyncJobNode]:
        """See `FlowProducer.add_bulk`."""
        with flow_span(self._telemetry, flows) as span:
            roots = self._driver.run(self._ops.add(flows, queues_options or {}, span.told))
        return [self._node(root) for root in roots]

    def get_flow(
        self, job_id: str, queue: str, *, prefix: str = "", depth: int = 10, max_children: int = 20
    ) -> SyncJobNode | None:
        """See `FlowProducer.get_flow`."""
        found = self._driver.run(self._ops.get(queue, prefix, job_id, depth, max_children))
        return None if found is None else self._node(found)

    def _node(self, found: Found) -> SyncJobNode:
        queue = self._queue(found.queue, found.prefix, found.wire)
        return SyncJobNode(queue._job(found.record), [self._node(child) for child in found.children])

    def _queue(self, name: str, prefix: str, wire: bool) -> SyncQueue:
        key = queue_key(name, prefix or self._prefix, self._hash_tag, wire)
        if key not in self._queues:
            self._queues[key] = SyncQueue(
                key[0], prefix=key[1], hash_tag=key[2], clock=self._clock, client=self._client
            )
        return self._queues[key]

    def _ops_of(self, name: str, prefix: str, wire: bool) -> Operations:
        return self._queue(name, prefix, wire)._ops
