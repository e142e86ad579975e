# SPDX-License-Identifier: MIT
"""The connection over which users' leases are asked for: one that the process has anyway, in a cluster their own.

They all live in one slot, so in a cluster one more link serves them; it is made when the first is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from echomq_pool.api.ask import over_link
from echomq_pool.api.guard_view import asked
from echomq_pool.clock import Clock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import SCRIPTS, GuardKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import ScriptLibrary


class GuardLink:
    """Asks; a call whose reply was lost is repeated, as the table of law 6 allows.

    Args:
        shared: the process's own links; the first of them is used unless the server is a cluster.
    """

    def __init__(
        self,
        shared: Sequence[Link],
        redis: RedisConfig,
        keys: GuardKeys,
        library: ScriptLibrary,
        clock: Clock,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._library = library
        self._clock = clock
        self._link = None if redis.cluster else shared[0]
        self._own: Link | None = None

    async def ask(self, call: Call) -> Any:
        """The answer to one call.

        Raises:
            LinkError: the server could not be asked.
        """
        link = self._link or await self._opened()
        return await over_link(link, self._library).run(asked(call))

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    async def _opened(self) -> Link:
        if self._own is None:
            self._own = Link(
                self._redis,
                name="echomq-pool:leases",
                clock=self._clock,
                scripts=ScriptLibrary({name: self._library[name] for name in SCRIPTS}),
                slot_key=self._keys.fence,
            )
            await self._own.start()
        return self._own
