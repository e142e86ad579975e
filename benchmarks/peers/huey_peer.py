# SPDX-License-Identifier: MIT
"""Huey: blocking pops, processes for short work and greenlets for work that waits, no results."""

from __future__ import annotations

import sys
import time
from typing import Any

from gevent import monkey
from huey import RedisHuey

from benchmarks.peers import common
from benchmarks.peers.common import Load

if "greenlet" in sys.argv:  # its guide: patch first, in the application
    monkey.patch_all()
huey = RedisHuey("bench", url=common.url(), results=False)


@huey.task()
def noop(n: int = 0) -> None:
    common.tick()


@huey.task()
def io(n: int = 0) -> None:
    time.sleep(common.IO_S)
    common.tick()


@huey.task()
def cpu(n: int = 0) -> None:
    common.burn()
    common.tick()


@huey.task()
def mark(at: int) -> None:
    common.mark(at)


@huey.task()
def hold(key: str, seconds: float) -> None:
    common.started(key)
    time.sleep(seconds)


TASKS: dict[str, Any] = {"noop": noop, "io": io, "cpu": cpu}


class Huey:
    def describe(self, load: Load) -> dict[str, Any]:
        io_bound = load.kind == "io"
        options = (
            ["-k", "greenlet", "-w", "100"] if io_bound else ["-k", "process", "-w", str(load.processes)]
        )
        health = ["-c", "1"] if common.quickest() else []
        command = common.tool("huey_consumer", "benchmarks.peers.huey_peer.huey", "-q", *options, *health)
        return {"commands": [command], "settings": " ".join([*options, *health])}

    def bulk(self, kind: str, count: int) -> None:
        for n in range(count):  # it has no call for many
            TASKS[kind](n)

    one = bulk

    def mark(self) -> None:
        mark(time.time_ns())

    def hold(self, key: str, seconds: float) -> None:
        hold(key, seconds)


if __name__ == "__main__":
    from benchmarks.peers import huey_peer  # tasks are named by their module

    common.run(huey_peer.Huey())
