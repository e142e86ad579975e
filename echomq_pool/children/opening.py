# SPDX-License-Identifier: MIT
"""Makes sure that each queue belongs to the plane that the configuration says, before it is worked.

A queue of the other plane is left alone, loudly: working it would mean to write keys that its own workers cannot
read. It is looked at again from time to time, since somebody may clear it away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from echomq_pool.children.run import Source
from echomq_pool.errors import LinkDown, LinkError, PoolError, WrongPlane

log = logging.getLogger("echomq.worker")

AGAIN_S = 10.0
AFTER_ERROR_S = 0.1


class Opening:
    """Opens the sources of a worker, each as soon as its link stands.

    Args:
        opened: called when a source may be worked.
        refused: called with the reason when it may not.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        opened: Callable[[Source], None],
        refused: Callable[[Source, str], None],
    ) -> None:
        self._sources = sources
        self._opened = opened
        self._refused = refused
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._open(source)) for source in self._sources]

    def again(self, source: Source) -> None:
        """Its keys have turned out to be the other plane's: a queue that was empty when both opened it."""
        if source.opened:
            source.opened = False
            self._tasks.append(asyncio.get_running_loop().create_task(self._open(source)))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _open(self, source: Source) -> None:
        while not source.opened:
            try:
                await source.link.ready()
                await source.plane.open()
            except WrongPlane as error:
                self._refused(source, str(error))
                await asyncio.sleep(AGAIN_S)
            except LinkDown as error:
                log.debug("opening %s: %s", source.name, error)
                await asyncio.sleep(AFTER_ERROR_S)
            except (LinkError, PoolError) as error:
                log.warning("opening %s: %s", source.name, error)
                await asyncio.sleep(1.0)
            else:
                source.opened = True
                self._opened(source)
