# SPDX-License-Identifier: MIT
"""What USR2 writes can be read: whose stacks they are, and one process after the other."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually

BODY = """
[[workers]]
name = "load"
queues = ["QUEUE"]
processor = "tests.support.soak_jobs:work_sync"
processes = 3
"""


def test_a_dump_names_each_process_before_its_stacks_and_mixes_none(
    tmp_path: Path, valkey_server: Server, queue_name: str
) -> None:
    """issue: USR2 dumps states and stacks"""
    pool = PoolProcess(tmp_path, valkey_server.url, BODY.replace("QUEUE", queue_name), log_level="info")
    try:
        pool.start()
        children = pool.children()
        pool.signal(signal.SIGUSR2)
        last = f"{children[-1]['id']} (pid {children[-1]['pid']}): its stacks follow"
        eventually(lambda: pool.log().partition(last)[2].rstrip().endswith("in _run_module_as_main"))
        parts = re.split(r"(\S+) \(pid (\d+)\): its stacks follow\n", pool.log())
        assert [(name, int(pid)) for name, pid in zip(parts[1::3], parts[2::3], strict=True)] == [
            (child["id"], child["pid"]) for child in children
        ]
        for stacks in parts[3::3]:
            lines = [line for line in stacks.splitlines() if line.startswith("  ")]
            assert lines
            assert all(re.fullmatch(r'  File "[^"]+", line \d+ in \S+', line) for line in lines)
        assert pool.stop() == 0
    finally:
        pool.destroy()
