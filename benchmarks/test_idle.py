# SPDX-License-Identifier: MIT
"""What a pool costs while there is nothing to do: requests, CPU, wake-ups, connections, memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support import pools
from benchmarks.support.meter import context_switches, cpu_seconds, pss_mb
from tests.support.monitor import requests
from tests.support.servers import Server

TITLE = "Idle: a pool with nothing to do"
METHOD = (
    "One queue, default settings, all workers ready for two seconds. Requests: MONITOR, without commands inside "
    "scripts. CPU: of all processes of the pool, in per cent of one core. Wake-ups: voluntary context switches of all "
    "of them. PSS: shared pages are counted by their share."
)


@pytest.mark.benchmark(group="idle")
@pytest.mark.sizes("workers", smoke=[2], quick=[1, 8], full=[1, 8, 32, 100, 200])
def test_idle_pool(benchmark: Any, server: Server, row: Row, pick: Any, tmp_path: Path, workers: int) -> None:
    seconds = pick(1.0, 15.0, 60.0)
    with pools.pool(tmp_path, server, processes=workers) as pool:
        time.sleep(pick(0.1, 2.0, 2.0))  # boot is over; nothing to wait for
        tree = pool.tree()
        cpu, switches = cpu_seconds(tree), context_switches(tree)
        asked = benchmark.pedantic(lambda: requests(server, seconds), rounds=1)
        cpu, switches = cpu_seconds(tree) - cpu, context_switches(tree) - switches
        with server.client() as client:
            connections = len(client.client_list()) - 1
        row(
            TITLE,
            METHOD,
            workers=workers,
            processes=len(tree),
            requests_per_s=asked.total() / seconds,
            cpu_percent=cpu / seconds * 100,
            wake_ups_per_s=switches / seconds,
            connections=connections,
            PSS_MB=pss_mb(p.pid for p in tree),
        )
