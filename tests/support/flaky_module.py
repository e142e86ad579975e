# SPDX-License-Identifier: MIT
"""A processor's module that fails at its import while a flag file says so."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

_flag = pathlib.Path(os.environ.get("ECHOMQ_TEST_FLAG", "/nonexistent"))
if _flag.exists():
    raise RuntimeError(f"import fails: {_flag.read_text()}")


async def work(job: Any) -> int:
    return os.getpid()


def sleep(job: Any) -> int:
    time.sleep(job.data["ms"] / 1000)
    return os.getpid()
