# SPDX-License-Identifier: MIT
"""An application of some 60 MB, as web frameworks and their friends make them."""

from __future__ import annotations

from typing import Any

BALLAST = [bytearray(b"x" * 1_000_000) for _ in range(50)]
TEXTS = {f"key {n}": f"value {n}" for n in range(60_000)}


async def work(job: Any) -> int:
    """Uses nothing of it."""
    return len(BALLAST)
