# SPDX-License-Identifier: MIT
"""What the lease plane lacks of the verbs of a queue and of a job, by name, each with the reason told to who asks.

The table in ARCHITECTURE.md names the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from echomq_pool.errors import WrongPlane

_NO_PRIORITY = "jobs run in the order of their ids; use a lane with a weight"
_NO_STREAM = "its events are published to who listens, and kept nowhere"
_NO_CHILDREN = "a parent knows how many of its children are outstanding, not which"
_NO_COMPLETED = "a completed job leaves a count and nothing else"

QUEUE_GAPS = {
    "get_prioritized": _NO_PRIORITY,
    "get_counts_per_priority": _NO_PRIORITY,
    "get_completed": _NO_COMPLETED,
    "get_waiting_children": "parents wait in no list; they are found by their ids",
    "get_blocked_parents": "every end of a child reaches its parent, so none waits in vain",
    "get_queue_events": _NO_STREAM,
    "trim_events": _NO_STREAM,
    "clean": f"{_NO_COMPLETED}, and dead jobs bear no time of their end; remove them by id",
    "repair_job_scheduler": "a repeat makes each job when it is due, so none can be missing",
}

JOB_GAPS = {
    "change_priority": _NO_PRIORITY,
    "get_dependencies": f"{_NO_CHILDREN}; see get_dependencies_count and get_dependencies_page",
    "remove_unprocessed_children": _NO_CHILDREN,
    "remove_child_dependency": "remove the child: that frees its parent",
    "move_to_waiting_children": "a parent runs after its children; add them together, by `flows`",
}

# States that other planes list, and how the refusal of each is told.
STATE_GAPS = {
    "prioritized": QUEUE_GAPS["get_prioritized"],
    "completed": QUEUE_GAPS["get_completed"],
    "waiting-children": QUEUE_GAPS["get_waiting_children"],
}

# Options of a schedule.
SCHEDULE_GAPS = {
    "limit": "remove the schedule when it has run often enough",
    "offset": "periods begin when the schedule is made",
    "start": "it begins when it is made",
    "end": "remove the schedule when it is over",
}

Lacking = TypeVar("Lacking")


def refusal(verb: str, queue: str, reason: str) -> WrongPlane:
    """The error for a verb that the plane lacks."""
    return WrongPlane(f"{verb}: queue {queue} is on the lease plane, which has no such verb: {reason}")


def lacking(gaps: Mapping[str, str]) -> Callable[[type[Lacking]], type[Lacking]]:
    """Makes the verbs of `gaps` refuse, whatever their arguments. The class says its queue as `_queue_name()`."""

    def fill(kind: type[Lacking]) -> type[Lacking]:
        for verb, reason in gaps.items():
            setattr(kind, verb, _refusing(verb, reason))
        return kind

    return fill


def _refusing(verb: str, reason: str) -> Callable[..., Any]:
    async def refuse(self: Any, *args: Any, **options: Any) -> Any:
        raise refusal(verb, self._queue_name(), reason)

    refuse.__name__ = verb
    refuse.__doc__ = f"Raises:\n    WrongPlane: {reason}."
    return refuse
