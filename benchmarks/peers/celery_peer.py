# SPDX-License-Identifier: MIT
"""Celery: prefork for short and for CPU-bound tasks, gevent for tasks that wait; results ignored."""

from __future__ import annotations

import time
from typing import Any

from celery import Celery

from benchmarks.peers import common
from benchmarks.peers.common import Load

app = Celery("bench", broker=common.url())
app.conf.update(
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=64,  # its guide: many, for tasks that are short
)
if common.quickest():
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_transport_options={"visibility_timeout": 2},
    )


@app.task
def noop(n: int = 0) -> None:
    common.tick()


@app.task
def io(n: int = 0) -> None:
    time.sleep(common.IO_S)
    common.tick()


@app.task
def cpu(n: int = 0) -> None:
    common.burn()
    common.tick()


@app.task
def mark(at: int) -> None:
    common.mark(at)


@app.task
def hold(key: str, seconds: float) -> None:
    common.started(key)
    time.sleep(seconds)


TASKS = {"noop": noop, "io": io, "cpu": cpu}


class CeleryPeer:
    def describe(self, load: Load) -> dict[str, Any]:
        io_bound = load.kind == "io"
        pool = ["-P", "gevent", "-c", "100"] if io_bound else ["-P", "prefork", "-c", str(load.processes)]
        quiet = ["--without-gossip", "--without-mingle", "--loglevel", "ERROR"]
        module = "benchmarks.peers.celery_peer"
        extra = ", acks late, reject on worker lost, visibility 2 s" if common.quickest() else ""
        settings = f"{' '.join(pool)}, prefetch multiplier {app.conf.worker_prefetch_multiplier}{extra}"
        return {
            "commands": [common.tool("celery", "-A", module, "worker", *pool, *quiet)],
            "settings": settings,
        }

    def bulk(self, kind: str, count: int) -> None:
        # Messages cannot be sent in bulk; a pool of one connection is what its guide advises.
        with app.producer_or_acquire() as producer:
            for n in range(count):
                TASKS[kind].apply_async((n,), producer=producer)

    def one(self, kind: str, count: int) -> None:
        for n in range(count):
            TASKS[kind].delay(n)

    def mark(self) -> None:
        mark.delay(time.time_ns())

    def hold(self, key: str, seconds: float) -> None:
        hold.delay(key, seconds)


if __name__ == "__main__":
    # As the module that the worker knows, so that the tasks have the same names.
    from benchmarks.peers import celery_peer

    common.run(celery_peer.CeleryPeer())
