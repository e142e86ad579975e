# SPDX-License-Identifier: MIT
"""Several pipelined connections behind one face, used in turn."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from echomq_pool.errors import InputError
from echomq_pool.plane.lease_desk import Arg, Asking
from echomq_pool.redisio.scripts import Script

SIZE = 4


class RoundRobin:
    """Deals calls out over links of one server. Answers of different links have no order among them.

    Raises:
        InputError: there are no links.
    """

    def __init__(self, links: Sequence[Asking]) -> None:
        if not links:
            raise InputError("a pool of links needs at least one")
        self._links = list(links)
        self._turns = itertools.cycle(self._links)

    @property
    def connected(self) -> bool:
        return all(link.connected for link in self._links)

    def call(self, *args: Arg, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        return next(self._turns).call(*args, timeout_ms=timeout_ms)

    def script(self, script: Script, keys: Sequence[bytes | str], args: Sequence[Arg]) -> asyncio.Future[Any]:
        return next(self._turns).script(script, keys, args)

    async def ready(self) -> None:
        await asyncio.gather(*(link.ready() for link in self._links))
