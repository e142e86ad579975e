# SPDX-License-Identifier: MIT
"""Who is compared: the packages that each environment gets, and the file that speaks for it.

Every adapter has the same verbs on its command line (`common.run`), so that the driver needs to import none of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """One contestant. `packages`: for pip; none = this repository's own environment, or Node's."""

    name: str
    adapter: str
    packages: tuple[str, ...] = ()

    @property
    def node(self) -> bool:
        return self.adapter.endswith(".js")


OURS = "echomq-pool"
OURS_LEASE = "echomq-pool, lease plane"
NODE = "BullMQ (Node)"

PEERS = (
    Peer(OURS, "ours_peer"),
    Peer(OURS_LEASE, "ours_lease_peer"),
    Peer(NODE, "bullmq_node.js"),
    Peer("bullmq (Python)", "bullmq_peer", ("bullmq",)),
    Peer("Celery", "celery_peer", ("celery[redis]", "gevent")),
    Peer("RQ", "rq_peer", ("rq",)),
    Peer("Dramatiq", "dramatiq_peer", ("dramatiq[redis]",)),
    Peer("arq", "arq_peer", ("arq",)),
    Peer("SAQ", "saq_peer", ("saq[redis,hiredis]", "typing_extensions")),
    Peer("taskiq", "taskiq_peer", ("taskiq", "taskiq-redis", "uvloop")),
    Peer("Huey", "huey_peer", ("huey", "redis", "gevent")),
    Peer("streaQ", "streaq_peer", ("streaq[web]",)),
)
