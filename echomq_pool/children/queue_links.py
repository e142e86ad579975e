# SPDX-License-Identifier: MIT
"""The links and planes of a singleton that serves every queue: one link per plane, in a cluster one per queue.

A queue lives in one slot, so in a cluster its link stays at the node of that slot. The planes do not share a link:
a server that the lease plane refuses (its version fence) must not take the lock plane's queues along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from echomq_pool.clock import Clock
from echomq_pool.config.schema import PoolConfig, WorkersConfig
from echomq_pool.ipc.messages import Linked
from echomq_pool.plane.base import Plane, PlaneOptions
from echomq_pool.plane.factory import greet, keys_of, make_plane
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import ScriptLibrary
from echomq_pool.redisio.state import LinkState

MARKER_LEASES = 2  # how long a lease-plane job's presence marker lasts after a renewal, in leases


class QueueLinks:
    """Links by queue, and the planes over them.

    Args:
        part: name of the child, shown in the server's client list.
        on_state: told the queues of a link and its new state; must not block.
    """

    def __init__(
        self,
        config: PoolConfig,
        part: str,
        clock: Clock,
        library: ScriptLibrary,
        on_state: Callable[[list[str], LinkState], None],
    ) -> None:
        self.cluster = config.redis.cluster
        self.links: list[Link] = []
        self.planes: dict[str, Plane] = {}
        self._of: dict[str, Link] = {}
        for shared in shares(config):
            keys = {queue: keys_of(config, queue) for queue in shared}
            kind = config.plane_of(shared[0]) if shared else "lock"
            link = Link(
                config.redis,
                name=f"echomq-pool:{config.name}:{part}",
                clock=clock,
                scripts=library,
                on_connect=lambda link, kind=kind: greet(link, kind, config.redis),  # type: ignore[misc]
                on_state=lambda state, shared=shared: on_state(shared, state),  # type: ignore[misc]
                slot_key=keys[shared[0]].key("meta") if self.cluster else None,
            )
            self.links.append(link)
            for queue in shared:
                self._of[queue] = link
                self.planes[queue] = make_plane(
                    link, keys[queue], library, queue_options(config, queue), clock
                )
        self.planes = {queue: self.planes[queue] for queue in config.queues()}

    async def start(self) -> None:
        for link in self.links:
            await link.start()

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self.links))

    def of(self, queue: str) -> Link:
        """The link of one queue."""
        return self._of[queue]

    def links_of(self, queues: Iterable[str]) -> list[Link]:
        """The links of these queues, each once; of all when none of them is ours."""
        found = dict.fromkeys(self._of[queue] for queue in queues if queue in self._of)
        return list(found) or self.links

    def connected(self, queue: str) -> bool:
        return self._of[queue].connected

    def linked(self) -> Linked:
        """All links in one word to the supervisor."""
        states = [link.state for link in self.links]
        worst = next((state for state in states if not state.connected), states[0])
        ids = [state.client_id for state in states if state.client_id is not None]
        return Linked(worst.connected, ids, worst.detail, worst.server)


def shares(config: PoolConfig) -> list[list[str]]:
    """Which queues share a link."""
    queues = list(config.queues())
    if config.redis.cluster:
        return [[queue] for queue in queues]
    kinds = dict.fromkeys(config.plane_of(queue) for queue in queues)
    return [[queue for queue in queues if config.plane_of(queue) == kind] for kind in kinds] or [[]]


def queue_options(config: PoolConfig, queue: str) -> PlaneOptions:
    """What holds for a queue whichever group works it.

    Renewals of all groups share one call, so all get the longest lock: a shorter one could lapse before its
    worker expects it to. For the sweep the most patient stall limit and the shortest interval count.
    """
    groups = groups_of(config, queue)
    if not groups:
        return PlaneOptions()
    return PlaneOptions(
        lock_duration_ms=max(w.lock_duration_ms for w in groups),
        keep_completed=groups[0].remove_on_complete,
        keep_failed=groups[0].remove_on_fail,
        max_stalled_count=max(w.max_stalled_count for w in groups),
        stalled_interval_ms=min(w.stalled_interval_ms for w in groups),
        recovery=groups[0].recovery,
        marker_ms=MARKER_LEASES * max(w.lock_duration_ms for w in groups),
    )


def groups_of(config: PoolConfig, queue: str) -> list[WorkersConfig]:
    """The `[[workers]]` entries that work a queue."""
    return [workers for workers in config.workers if queue in workers.queues]
