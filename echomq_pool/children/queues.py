# SPDX-License-Identifier: MIT
"""The links and planes of a worker: one link for its scripts, one more per queue to block on.

In a cluster a link goes to the node of one slot, so there every queue has a link of its own for its scripts too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from echomq_pool.children.base import EXIT_BROKEN
from echomq_pool.children.run import Source
from echomq_pool.clock import Clock
from echomq_pool.config.schema import PoolConfig, WorkersConfig
from echomq_pool.plane.base import PlaneOptions
from echomq_pool.plane.factory import greet, keys_of, make_plane
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.slack import Slack
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import ScriptLibrary
from echomq_pool.redisio.state import DESCRIPTOR_GONE, LinkState

log = logging.getLogger("echomq.worker")


@dataclass(frozen=True, slots=True)
class Wiring:
    """How a worker's links are made, and whom they tell."""

    config: PoolConfig
    group: WorkersConfig
    worker_name: str
    library: ScriptLibrary
    clock: Clock
    on_connect: Callable[[Link], None]  # before any command of ours on a new connection
    on_state: Callable[[LinkState], None]


def open_sources(wiring: Wiring) -> tuple[list[Link], list[Source]]:
    """All links (not yet started) and the queues of the worker's group, in the order of the configuration."""
    names = wiring.config.queues()
    slack = Slack(wiring.clock)
    links: list[Link] = []
    sources: list[Source] = []
    for queue in wiring.group.queues:
        keys = keys_of(wiring.config, queue)
        if not links or wiring.config.redis.cluster:
            links.append(_link(wiring, keys, blocking=False))
        link = links[-1]
        options = PlaneOptions.from_workers(wiring.group, worker_name=wiring.worker_name)
        options = replace(options, cluster=wiring.config.redis.cluster)
        plane = make_plane(link, keys, wiring.library, options, wiring.clock, slack)
        source = Source(queue, names.index(queue), plane, link, _link(wiring, keys, blocking=True))
        if plane.kind == "lease":
            source.batch = wiring.group.batch
        sources.append(source)
    return links + [source.blocking for source in sources], sources


def _link(wiring: Wiring, keys: QueueKeys, *, blocking: bool) -> Link:
    # Dashboards find workers by the names of their blocking connections; the others must not look like one.
    name = keys.worker_client_name(wiring.worker_name) if blocking else f"echomq:{wiring.worker_name}"

    def on_connect(link: Link) -> Awaitable[None] | None:
        wiring.on_connect(link)
        return None if blocking else greet(link, wiring.group.plane, wiring.config.redis)

    return Link(
        wiring.config.redis,
        name=name,
        clock=wiring.clock,
        scripts=None if blocking else wiring.library,
        on_connect=on_connect,
        on_state=lambda state: _told(wiring, state),
        blocking=blocking,
        slot_key=keys.key("marker") if wiring.config.redis.cluster else None,
    )


def _told(wiring: Wiring, state: LinkState) -> None:
    """A job that closes descriptors which are not its own may have closed any: the loop's, the supervisor's, or one
    that is somebody else's by now. Such a process can go deaf without a sign, and its jobs with it; it ends.
    """
    if state.detail == DESCRIPTOR_GONE:
        log.critical("%s: this process cannot be trusted any more and ends", DESCRIPTOR_GONE)
        os._exit(EXIT_BROKEN)
    wiring.on_state(state)
