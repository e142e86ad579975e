# SPDX-License-Identifier: MIT
"""echomq-pool on the lease plane: claims and settles by the batch."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.peers import common
from benchmarks.peers.common import Load
from benchmarks.peers.ours_peer import BODY
from benchmarks.support.lease_jobs import Producer


class OursLease:
    def __init__(self) -> None:
        self._producer: Producer | None = None

    def _add(self, kind: str, rows: list[Any], in_flight: int) -> None:
        if self._producer is None:
            self._producer = Producer(int(common.url().rpartition(":")[2].partition("/")[0]))
        self._producer.add(kind, rows, in_flight)

    def describe(self, load: Load) -> dict[str, Any]:
        path = common.folder() / "pool.toml"
        values = {"processes": load.processes, "concurrency": load.concurrency}
        body = BODY.format(url=common.url(), folder=common.folder(), **values)
        path.write_text(body + 'plane = "lease"\n')
        settings = f"{load.processes} × {load.concurrency}, lease plane, everything else at its default"
        return {"commands": [common.python("-m", "echomq_pool", "--config", str(path))], "settings": settings}

    def bulk(self, kind: str, count: int) -> None:
        self._add(kind, [{"n": n} for n in range(count)], 200)

    def one(self, kind: str, count: int) -> None:
        self._add(kind, [{"n": n} for n in range(count)], 1)

    def mark(self) -> None:
        self._add("mark", [{"at": time.time_ns()}], 1)

    def hold(self, key: str, seconds: float) -> None:
        self._add("hold", [{"key": key, "s": seconds}], 1)


if __name__ == "__main__":
    common.run(OursLease())
