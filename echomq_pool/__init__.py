# SPDX-License-Identifier: MIT
"""echomq-pool: a supervised pool of Python processes for BullMQ-compatible queues.

The names below are what users may lean on; the rest may change. They are loaded at first use, because every
process of a pool imports this package and most of them need none of it.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "FlowProducer": "echomq_pool.api.flow",
    "Job": "echomq_pool.api.job",
    "Lease": "echomq_pool.api.guard",
    "Queue": "echomq_pool.api.lease_queue",
    "QueueEvents": "echomq_pool.api.events",
    "SyncFlowProducer": "echomq_pool.api.sync_flow",
    "SyncJob": "echomq_pool.api.job",
    "SyncLease": "echomq_pool.api.sync_guard",
    "SyncQueue": "echomq_pool.api.sync_lease",
    "Task": "echomq_pool.api.tasks",
    "Worker": "echomq_pool.worker",
    "connect": "echomq_pool.api.producers",
    "task": "echomq_pool.api.tasks",
    "DelayedError": "echomq_pool.errors",
    "InputError": "echomq_pool.errors",
    "JobCancelled": "echomq_pool.errors",
    "JobFailed": "echomq_pool.errors",
    "LeaseExpired": "echomq_pool.errors",
    "LeaseTaken": "echomq_pool.errors",
    "PoolError": "echomq_pool.errors",
    "RateLimitError": "echomq_pool.errors",
    "UnrecoverableError": "echomq_pool.errors",
    "WaitTimeout": "echomq_pool.errors",
    "WaitingChildrenError": "echomq_pool.errors",
    "WaitingError": "echomq_pool.errors",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
