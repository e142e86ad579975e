# SPDX-License-Identifier: MIT
"""The start functions that child specs name by dotted path, one per kind of child.

Each imports its module inside the function, after the fork: the supervisor imports no child, and an import
error is the failure of that one child alone. It is the one place where a late import is the design.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib import import_module

from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Failed

EXIT_BOOT_FAILED = 13


def worker(context: ChildContext) -> int:
    """Takes jobs from the queues of one `[[workers]]` entry and runs them."""
    return _run("worker", "Worker", context)


def lock_manager(context: ChildContext) -> int:
    """Renews every lease of the pool and gives back what dead workers held."""
    return _run("lock_manager", "LockManager", context)


def stalled_checker(context: ChildContext) -> int:
    """Recovers what other pools lost."""
    return _run("stalled_checker", "StalledChecker", context)


def job_scheduler(context: ChildContext) -> int:
    """Keeps declared schedules, and repairs series."""
    return _run("job_scheduler", "JobScheduler", context)


def queue_events(context: ChildContext) -> int:
    """Reads the event streams: cancel requests, hooks, counts."""
    return _run("queue_events", "QueueEvents", context)


def observer(context: ChildContext) -> int:
    """Serves /livez, /readyz and /metrics."""
    return _run("observer", "Observer", context)


def embedded_server(context: ChildContext) -> int:
    """Runs the pool's own Valkey."""
    return _run("embedded_server", "EmbeddedServer", context)


def _run(module: str, class_name: str, context: ChildContext) -> int:
    """Imports `children.<module>` and runs its class; what goes wrong is told to the supervisor."""
    try:
        run_child: Callable[[object, ChildContext], int] = import_module(
            "echomq_pool.children.base"
        ).run_child
        child_class = getattr(import_module(f"echomq_pool.children.{module}"), class_name)
    except Exception as exc:
        failed = Failed(error=f"{type(exc).__name__}: {exc}", trace=traceback.format_exc())
        context.channel.send(failed)
        context.channel.flush()
        return EXIT_BOOT_FAILED
    return run_child(child_class, context)
