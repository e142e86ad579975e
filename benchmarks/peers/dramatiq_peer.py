# SPDX-License-Identifier: MIT
"""Dramatiq: its own processes and threads, messages over the Redis broker, no results."""

from __future__ import annotations

import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers import common
from benchmarks.peers.common import Load

_recovery: dict[str, Any] = {"heartbeat_timeout": 1_000, "maintenance_chance": 1_000_000}
broker = RedisBroker(url=common.url(), **(_recovery if common.quickest() else {}))
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(n: int = 0) -> None:
    common.tick()


@dramatiq.actor
def io(n: int = 0) -> None:
    time.sleep(common.IO_S)
    common.tick()


@dramatiq.actor
def cpu(n: int = 0) -> None:
    common.burn()
    common.tick()


@dramatiq.actor
def mark(at: int) -> None:
    common.mark(at)


@dramatiq.actor
def hold(key: str, seconds: float) -> None:
    common.started(key)
    time.sleep(seconds)


TASKS = {"noop": noop, "io": io, "cpu": cpu}


class Dramatiq:
    def describe(self, load: Load) -> dict[str, Any]:
        threads = {"io": 100, "cpu": 1, "noop": 8}.get(load.kind, 8)
        options = ["-p", str(load.processes), "-t", str(threads)]
        extra = ", heartbeat timeout 1 s, maintenance always" if common.quickest() else ""
        command = common.tool("dramatiq", "benchmarks.peers.dramatiq_peer", *options)
        return {"commands": [command], "settings": f"{' '.join(options)}{extra}"}

    def bulk(self, kind: str, count: int) -> None:
        for n in range(count):  # it has no call for many
            TASKS[kind].send(n)

    one = bulk

    def mark(self) -> None:
        mark.send(time.time_ns())

    def hold(self, key: str, seconds: float) -> None:
        hold.send(key, seconds)


if __name__ == "__main__":
    common.run(Dramatiq())
