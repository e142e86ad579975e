# SPDX-License-Identifier: MIT
"""The same jobs on both sides: made by us and worked by our pool, or made and worked by BullMQ under Node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from echomq_pool import SyncFlowProducer, SyncQueue
from tests.support.node import Node
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, story

# Fields of a job that hold times or texts of a language; that they are there is compared.
LOCAL = {"timestamp", "processedOn", "finishedOn", "stacktrace", "pb"}


class Side:
    """Each topic is a queue of its own on each side; it is looked at through our API on both."""

    def __init__(self, label: str, server: Server) -> None:
        self.label = label
        self.server = server
        self.store = server.client()

    def name(self, topic: str) -> str:
        """The queue's name as Python has it."""
        return f"{topic}-{self.label}"

    def shown(self, topic: str) -> str:
        """The queue's name as the board and Node have it."""
        return EMQ.node(self.name(topic))["name"]

    def queue(self, topic: str) -> SyncQueue:
        return SyncQueue(self.name(topic), **EMQ.ours(self.server))

    def add(self, topic: str, job_id: str, data: Any, **options: Any) -> None:
        raise NotImplementedError

    def add_flow(self, flow: Mapping[str, Any]) -> None:
        """`flow` as BullMQ has it, with topics for queue names."""
        raise NotImplementedError

    def schedule(self, topic: str, scheduler: str, every_ms: int, name: str, data: Any) -> None:
        raise NotImplementedError

    def state(self, topic: str, job_id: str) -> str:
        with self.queue(topic) as queue:
            return queue.get_state(job_id)

    def reaches(self, topic: str, **states: str) -> None:
        """Waits until each of the jobs is in its state; `unknown` is gone."""

        def differing() -> dict[str, str]:
            found = {job_id: self.state(topic, job_id) for job_id in states}
            return {job_id: state for job_id, state in found.items() if state != states[job_id]}

        eventually(lambda: not differing(), why=f"{states} on the side of {self.label}")

    def runs(self, topic: str, total: int) -> None:
        """Waits until so many runs have completed."""
        base = EMQ.base(self.name(topic))
        eventually(lambda: len(story(self.store, base, "completed")) == total, why=f"{total} runs of {topic}")

    def planless(self, topic: str) -> None:
        """Waits until the queue has neither schedulers nor jobs for later."""
        with self.queue(topic) as queue:
            eventually(lambda: not queue.get_job_schedulers_count() and not queue.get_delayed())

    def paused(self, topic: str) -> None:
        """Waits until the queue is paused."""
        with self.queue(topic) as queue:
            eventually(queue.is_paused)

    def ending(self, topic: str) -> dict[str, Any]:
        """Everything of a queue that can be compared: each job's events in their order and its fields at last."""
        base = EMQ.base(self.name(topic))
        told: dict[str, Any] = {}
        for event, job_id in story(self.store, base):
            told.setdefault(job_id, []).append(event)
        told.pop("", None)
        return {job_id: (events, self._fields(f"{base}{job_id}")) for job_id, events in told.items()}

    def _fields(self, key: str) -> dict[str, Any]:
        with self.server.client(decode_responses=True) as client:
            row: dict[str, str] = client.hgetall(key)
        return {name: "" if name in LOCAL else self._plain(value) for name, value in row.items()}

    def _plain(self, value: str) -> Any:
        """Without the side's label; the order of a JSON object's keys is arbitrary."""
        value = value.replace(f"-{self.label}", "")
        return json.loads(value) if value.startswith("{") else value

    def _named(self, flow: Mapping[str, Any]) -> dict[str, Any]:
        children = [self._named(child) for child in flow.get("children", [])]
        return {**flow, "queueName": self._flow_name(flow["queueName"]), "children": children}

    def _flow_name(self, topic: str) -> str:
        raise NotImplementedError

    def close(self) -> None:
        self.store.close()


class PoolSide(Side):
    """Jobs made with our API; a pool works them."""

    def add(self, topic: str, job_id: str, data: Any, **options: Any) -> None:
        with self.queue(topic) as queue:
            queue.add(job_id, data, job_id=job_id, **options)

    def add_flow(self, flow: Mapping[str, Any]) -> None:
        with SyncFlowProducer(**EMQ.ours(self.server)) as producer:
            producer.add(self._named(flow))

    def schedule(self, topic: str, scheduler: str, every_ms: int, name: str, data: Any) -> None:
        with self.queue(topic) as queue:
            queue.upsert_job_scheduler(scheduler, every=every_ms, name=name, data=data)

    def _flow_name(self, topic: str) -> str:
        return self.name(topic)


class NodeSide(Side):
    """Jobs made and worked by BullMQ."""

    def __init__(self, label: str, server: Server, node: Node, topics: list[str]) -> None:
        super().__init__(label, server)
        self.node = node
        for topic in topics:
            options = {"name": "board", "concurrency": 5}
            node("startWorker", **self._at(topic), behaviour="play", opts=options)

    def add(self, topic: str, job_id: str, data: Any, **options: Any) -> None:
        self.node("add", **self._at(topic), job=job_id, data=data, opts={"jobId": job_id, **options})

    def add_flow(self, flow: Mapping[str, Any]) -> None:
        self.node("addFlow", prefix=EMQ.prefix, flow=self._named(flow))

    def schedule(self, topic: str, scheduler: str, every_ms: int, name: str, data: Any) -> None:
        template = {"name": name, "data": data}
        self.node(
            "upsertScheduler", **self._at(topic), id=scheduler, repeat={"every": every_ms}, template=template
        )

    def _flow_name(self, topic: str) -> str:
        return self.shown(topic)

    def _at(self, topic: str) -> dict[str, str]:
        return EMQ.node(self.name(topic))
