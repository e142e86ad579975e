# SPDX-License-Identifier: MIT
"""What both clients do to the same queues: a release of BullMQ and a layout of keys at a time, on one server."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from echomq_pool import SyncFlowProducer, SyncJob, SyncQueue
from echomq_pool.plane.base import JobRecord, PlaneOptions
from echomq_pool.plane.calls import Calls
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.worker import Worker
from tests.support.node import Node
from tests.support.planes import LIBRARY
from tests.support.servers import Server
from tests.support.wire import dump
from tests.wire.fleet import Layout
from tests.wire.jobs import play

# Each release and each layout at least once, not every one with every other: a test costs what its Node calls cost.
COVER = {
    "6.2-emq-braces": ("bullmq-620", Layout("emq", True)),
    "6.7-bull-plain": ("bullmq-6", Layout("bull", False)),
    "5.81-emq-plain": ("bullmq-5", Layout("emq", False)),
    "6.7-bull-braces": ("bullmq-6", Layout("bull", True)),
}


@dataclass
class Ground:
    """One release of BullMQ, one layout, one server; `used` tells which sides have acted."""

    server: Server
    node: Node
    layout: Layout
    used: set[str] = field(default_factory=set)

    def side(self, queue: str) -> Side:
        return Side(self, queue, QueueKeys(self.layout.prefix, queue, self.layout.hash_tag))

    def check_both_acted(self) -> None:
        """A row in which only one side did anything shows nothing.

        Raises:
            AssertionError: so it was.
        """
        assert self.used == {"ours", "node"}, f"only {sorted(self.used)} acted"

    @property
    def five(self) -> bool:
        """Whether this is release 5."""
        version: str = self.node("version")
        return version.startswith("5.")


@dataclass
class Side:
    """One queue, as both clients open it."""

    ground: Ground
    queue: str
    keys: QueueKeys

    @property
    def at(self) -> dict[str, str]:
        """How `peer.js` opens it."""
        return {"prefix": self.keys.prefix, "name": self.keys.wire_name}

    @property
    def where(self) -> dict[str, Any]:
        """How we open it."""
        return self.ground.layout.ours(self.ground.server)

    def ours(self, **options: Any) -> SyncQueue:
        self.ground.used.add("ours")
        return SyncQueue(self.queue, **self.where, **options)

    def flows(self) -> SyncFlowProducer:
        self.ground.used.add("ours")
        return SyncFlowProducer(**self.where)

    def theirs(self, verb: str, **args: Any) -> Any:
        self.ground.used.add("node")
        return self.ground.node(verb, **self.at, **args)

    def of_queue(self, method: str, *args: Any) -> Any:
        return self.theirs("queueCall", method=method, args=list(args))

    def of_job(self, job_id: str, method: str, *args: Any) -> Any:
        return self.theirs("jobCall", id=job_id, method=method, args=list(args))

    def node_worker(self, behaviour: str = "play", **opts: Any) -> int:
        """A worker of Node's; ended with the test."""
        number: int = self.theirs("startWorker", behaviour=behaviour, opts=opts)
        return number

    @contextmanager
    def worker(self, processor: Any = play, **options: Any) -> Iterator[Ours]:
        """A worker of ours, in a thread of its own; None as processor: jobs are taken by hand."""
        self.ground.used.add("ours")
        with running_loop() as wait:
            worker = Worker(self.queue, processor, **self.where, **options)
            wait(worker.start())
            try:
                yield Ours(worker, wait)
            finally:
                wait(worker.close(force=True))

    def client(self) -> redis.Redis:
        return self.ground.server.client()

    def dump(self) -> dict[str, Any]:
        """Every key, with times and the queue's own name made equal, and without what Node notes of itself."""
        with self.client() as client:
            found = _alike(dump(client, self.keys.base), self.keys.wire_name)
        meta = found.get("meta", {})
        for field_name in [f for f in meta if f in NODES_OWN or f.startswith("echomq-pool:")]:
            meta.pop(field_name)
        return {key: value for key, value in found.items() if value}


NODES_OWN = ("version", "opts.maxLenEvents")


@dataclass
class Ours:
    """A worker of ours, for plain tests."""

    worker: Worker
    wait: Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def running_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A loop in a thread, and how to wait for what it is given."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _alike(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {_alike(key, name): _alike(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [_alike(item, name) for item in value]
    if isinstance(value, float):
        return "time" if value > 1e12 else value
    if isinstance(value, str):
        return re.sub(r"\b\d{10,}\b", "time", value.replace(name, "queue"))
    return value


FATES: list[dict[str, Any]] = [{}, {"fail_parent_on_failure": True}, {"delay": 10_000_000}]


def fill(side: Side) -> None:
    """Jobs in every state, a family, a series, a deduplication id, logs and metrics."""
    with side.ours() as queue, side.flows() as flows, side.client() as client:
        queue.add_bulk([("done", {"n": n}, {"job_id": f"done{n}"}) for n in range(4)])
        for n in range(4):
            finish(side, client, f"done{n}", n % 2 == 0)
        queue.add_bulk([("n", None, {"job_id": f"w{n}"}) for n in range(3)])
        queue.add_bulk([("n", None, {"job_id": f"p{n}", "priority": n}) for n in (1, 3, 5)])
        queue.add_bulk([("n", None, {"job_id": f"d{n}", "delay": 3_600_000 + 60_000 * n}) for n in range(2)])
        queue.add("n", job_id="dp", delay=7_200_000, priority=4)
        queue.add("n", job_id="dd", deduplication={"id": "D"})
        for row in ("one", "two", "three"):
            queue.add_job_log("w0", row)
        flows.add(
            {
                "name": "parent",
                "queue": side.queue,
                "opts": {"job_id": "P"},
                "children": [
                    {"name": "c", "queue": side.queue, "opts": {"job_id": f"c{n}", **fate}}
                    for n, fate in enumerate(FATES)
                ],
            }
        )
        queue.upsert_job_scheduler("s", pattern="0 0 29 2 *", tz="UTC", name="tick", data={"x": 1})
        client.hset(side.keys.job("orphan"), mapping={"name": "n", "data": "{}", "opts": "{}"})
        queue.set_global_concurrency(50)
        queue.set_global_rate_limit(1_000, 60_000)


def finish(side: Side, client: Any, job_id: str, good: bool) -> None:
    """Takes the next job and ends it, by a worker's own calls."""
    calls, now = Calls(side.keys, PlaneOptions()), 1_700_000_000_000
    job = JobRecord(job_id)
    end = (
        calls.complete(job, "t:1", b'{"ok":true}', now, False)
        if good
        else calls.fail(job, "t:1", "no luck", ["trace"], now, False)
    )
    for call in (calls.take("t:1", now), end):
        client.eval(LIBRARY[call.script].text, len(call.keys), *call.keys, *call.args)


def ids(jobs: Any) -> list[str]:
    return [job["id"] if isinstance(job, dict) else job.id for job in jobs]


def job(queue: SyncQueue, job_id: str) -> SyncJob:
    """A job that is there."""
    found = queue.get_job(job_id)
    assert found is not None, job_id
    return found
