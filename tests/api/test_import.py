# SPDX-License-Identifier: MIT
"""Importing the package does nothing."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import sys, threading, os
before = threading.active_count()
import echomq_pool
assert threading.active_count() == before
loaded = {"redis", "asyncio", "pydantic", "hiredis", "msgpack", "orjson", "click", "rich", "aiohttp"} & set(sys.modules)
assert not loaded, loaded
from echomq_pool import Queue, Job, UnrecoverableError
assert "redis" not in sys.modules and "pydantic" not in sys.modules
assert threading.active_count() == before
children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
assert not children, children
from echomq_pool import SyncQueue
assert "redis" in sys.modules
print(sorted(set(dir(echomq_pool)) - {"__version__"}))
"""


def test_importing_starts_no_thread_and_no_process_and_loads_no_client() -> None:
    """promise 4.2"""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'Queue'" in done.stdout
