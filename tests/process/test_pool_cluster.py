# SPDX-License-Identifier: MIT
"""A pool on a cluster: its queues live on different nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from echomq_pool import SyncQueue
from echomq_pool.config.schema import RedisConfig
from tests.redisio.test_topology import two_nodes  # noqa: F401 - a fixture
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

BODY = """
[[workers]]
name = "work"
queues = ["a", "b"]
plane = "lease"
processor = "tests.support.soak_jobs:work"
processes = 2
concurrency = 4
"""


@pytest.mark.timeout(120)
def test_lease_plane_queues_on_two_nodes_are_served_by_one_pool(
    tmp_path: Path,
    two_nodes: tuple[Server, Server],  # noqa: F811
) -> None:
    """lease-plane section 2.3: all keys of a queue in one slot; the version fence has a slot of its own"""
    nodes = {node.port for node in two_nodes}
    pool = PoolProcess(tmp_path, two_nodes[0].url, BODY)
    pool.config.write_text(pool.config.read_text().replace("[log]", "cluster = true\n[log]", 1))
    cluster = RedisConfig(url=two_nodes[0].url, port=two_nodes[0].port, cluster=True)
    try:
        pool.start()
        held = set()
        for name in ("a", "b"):
            with SyncQueue(name, plane="lease", redis=cluster) as queue:
                data = {"ms": 1, "folder": str(tmp_path)}
                queue.add_bulk([("job", data, {}) for _ in range(20)])
                queue.add("job", data, delay=300)
                eventually(
                    lambda queue=queue: queue.get_job_counts("completed") == {"completed": 21}, why=pool.log()
                )
            for node in two_nodes:
                with node.client() as client:
                    held |= {node.port for _ in client.scan_iter(f"emq:{{{name}}}:*")}
        assert held == nodes, "each queue at its node"
        assert pool.stop() == 0
    finally:
        pool.destroy()
