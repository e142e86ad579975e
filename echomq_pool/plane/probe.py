# SPDX-License-Identifier: MIT
"""Which active jobs have no lock: a look that writes nothing and asks in few and bounded commands."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from echomq_pool.plane import codec
from echomq_pool.plane.keys import QueueKeys

# nearly all are alive: a few big questions, small ones only where one is missing
SLICES = (1_000, 32, 1)
MOST_IN_A_WRITE = 10_000


class Asking(Protocol):
    """The part of a link that is used here."""

    def call(
        self, *args: bytes | str | int | float, timeout_ms: int | None = None
    ) -> asyncio.Future[Any]: ...


async def lockless(link: Asking, keys: QueueKeys) -> list[str]:
    """Ids of active jobs whose lock key does not exist at this moment."""
    ids = await link.call("LRANGE", keys.key("active"), 0, -1)
    suspects = [codec.to_text(i) for i in ids]
    asked = len(suspects) + 1  # a slice as big as the last one would ask the same again
    for size in SLICES:
        if size == 1 or min(size, len(suspects)) < asked:
            suspects = await _incomplete(link, keys, suspects, size)
            asked = min(size, len(suspects))
    return suspects


async def _incomplete(link: Asking, keys: QueueKeys, ids: list[str], size: int) -> list[str]:
    """The ids of those slices of `size` of which not every lock exists; a slice is one variadic EXISTS."""
    slices = [ids[start : start + size] for start in range(0, len(ids), size)]
    found: list[str] = []
    step = max(1, MOST_IN_A_WRITE // size)  # a write is bounded, so that others get their turn in between
    for start in range(0, len(slices), step):
        some = slices[start : start + step]
        counts = await asyncio.gather(*(link.call("EXISTS", *map(keys.lock, s)) for s in some))
        found += [i for s, count in zip(some, counts, strict=True) if count < len(s) for i in s]
    return found
