# SPDX-License-Identifier: MIT
"""Memory of workers that load a 60 MB application, each for itself or forked from one that has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support import pools
from benchmarks.support.meter import pss_mb
from tests.support.servers import Server

TITLE = "Memory: workers of a 60 MB application"
METHOD = (
    "PSS of the workers (and of the zygote), idle. Preloaded workers share the pages that nobody has written."
)
APP = "benchmarks.support.heavy_app:work"


def measure(server: Server, folder: Path, workers: int, preload: bool) -> dict[str, float]:
    """PSS in MB of the workers together and of everything."""
    more = f"preload = {str(preload).lower()}"
    with pools.pool(folder, server, APP, processes=workers, concurrency=4, more=more) as pool:
        ours = pool.pids("bench") + pool.pids("zygote")
        return {"workers_PSS_MB": pss_mb(ours), "pool_PSS_MB": pss_mb(p.pid for p in pool.tree())}


@pytest.mark.benchmark(group="memory")
@pytest.mark.parametrize("preload", [False, True], ids=["each", "preload"])
@pytest.mark.sizes("workers", smoke=[2], quick=[1, 8], full=[1, 4, 8, 16])
def test_memory(
    benchmark: Any, server: Server, row: Row, tmp_path: Path, workers: int, preload: bool
) -> None:
    sizes = benchmark.pedantic(lambda: measure(server, tmp_path, workers, preload), rounds=1)
    row(TITLE, METHOD, workers=workers, preload="yes" if preload else "no", **sizes)
