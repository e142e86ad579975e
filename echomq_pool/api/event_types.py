# SPDX-License-Identifier: MIT
"""The events of a queue as types. `name` is BullMQ's; `id` is the position in the stream, from which one can resume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from echomq_pool.plane.events import Event


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """Any event. `job_id` is empty for what concerns the queue as a whole."""

    name: ClassVar[str] = ""
    id: str
    queue: str
    job_id: str = ""


@dataclass(frozen=True, slots=True)
class Added(QueueEvent):
    """A job was stored."""

    name: ClassVar[str] = "added"
    job_name: str = ""


@dataclass(frozen=True, slots=True)
class Waiting(QueueEvent):
    """It waits for a worker; `prev` is the state it came from, empty for a new one."""

    name: ClassVar[str] = "waiting"
    prev: str = ""


@dataclass(frozen=True, slots=True)
class Delayed(QueueEvent):
    """It is due at `due_ms`, wall ms."""

    name: ClassVar[str] = "delayed"
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class Active(QueueEvent):
    """A worker has taken it."""

    name: ClassVar[str] = "active"
    prev: str = ""


@dataclass(frozen=True, slots=True)
class Completed(QueueEvent):
    """It is done; `returnvalue` is decoded."""

    name: ClassVar[str] = "completed"
    returnvalue: Any = None
    prev: str = ""


@dataclass(frozen=True, slots=True)
class Failed(QueueEvent):
    """It has failed for good."""

    name: ClassVar[str] = "failed"
    failed_reason: str = ""
    prev: str = ""


@dataclass(frozen=True, slots=True)
class RetriesExhausted(QueueEvent):
    """It has failed for good, and had no attempts left."""

    name: ClassVar[str] = "retries-exhausted"
    attempts_made: int = 0


@dataclass(frozen=True, slots=True)
class Stalled(QueueEvent):
    """Its worker was lost, and it was put back."""

    name: ClassVar[str] = "stalled"


@dataclass(frozen=True, slots=True)
class Progress(QueueEvent):
    """Its processor tells how far it is."""

    name: ClassVar[str] = "progress"
    progress: Any = None


@dataclass(frozen=True, slots=True)
class Removed(QueueEvent):
    """It is gone; `prev` is the state it was in."""

    name: ClassVar[str] = "removed"
    prev: str = ""


@dataclass(frozen=True, slots=True)
class WaitingChildren(QueueEvent):
    """It waits for its children."""

    name: ClassVar[str] = "waiting-children"
    prev: str = ""


@dataclass(frozen=True, slots=True)
class Duplicated(QueueEvent):
    """It was added again under its own id; nothing was stored."""

    name: ClassVar[str] = "duplicated"


@dataclass(frozen=True, slots=True)
class Deduplicated(QueueEvent):
    """Another job, `deduplicated_job_id`, was not stored, or replaced, because of a shared deduplication id."""

    name: ClassVar[str] = "deduplicated"
    deduplication_id: str = ""
    deduplicated_job_id: str = ""


@dataclass(frozen=True, slots=True)
class Drained(QueueEvent):
    """The last waiting job was finished."""

    name: ClassVar[str] = "drained"


@dataclass(frozen=True, slots=True)
class Paused(QueueEvent):
    """Nobody takes jobs any more."""

    name: ClassVar[str] = "paused"


@dataclass(frozen=True, slots=True)
class Resumed(QueueEvent):
    """Jobs are taken again."""

    name: ClassVar[str] = "resumed"


@dataclass(frozen=True, slots=True)
class Cleaned(QueueEvent):
    """`count` jobs were cleaned away."""

    name: ClassVar[str] = "cleaned"
    count: int = 0


@dataclass(frozen=True, slots=True)
class Other(QueueEvent):
    """An event of a user's own, or of another version; `event` is its name and `fields` all it holds."""

    name: ClassVar[str] = "other"
    event: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gap(QueueEvent):
    """Events were trimmed from the stream before this reader came to them.

    They lay between the entries `after` and `before`, and there were `lost` of them; -1 where the server cannot tell
    (it does not count), and then perhaps none. Not an entry of the stream: `id` is that of `after`.
    """

    name: ClassVar[str] = "gap"
    lost: int = 0
    after: str = ""
    before: str = ""


_FIELDS: dict[str, tuple[type[QueueEvent], dict[str, str]]] = {
    "added": (Added, {"name": "job_name"}),
    "waiting": (Waiting, {"prev": "prev"}),
    "delayed": (Delayed, {"delay": "due_ms"}),
    "active": (Active, {"prev": "prev"}),
    "completed": (Completed, {"returnvalue": "returnvalue", "prev": "prev"}),
    "failed": (Failed, {"failedReason": "failed_reason", "prev": "prev"}),
    "retries-exhausted": (RetriesExhausted, {"attemptsMade": "attempts_made"}),
    "stalled": (Stalled, {}),
    "progress": (Progress, {"data": "progress"}),
    "removed": (Removed, {"prev": "prev"}),
    "waiting-children": (WaitingChildren, {"prev": "prev"}),
    "duplicated": (Duplicated, {}),
    "deduplicated": (
        Deduplicated,
        {"deduplicationId": "deduplication_id", "deduplicatedJobId": "deduplicated_job_id"},
    ),
    "drained": (Drained, {}),
    "paused": (Paused, {}),
    "resumed": (Resumed, {}),
    "cleaned": (Cleaned, {"count": "count"}),
}
NAMES = frozenset((*_FIELDS, Gap.name, Other.name))


def typed(event: Event) -> QueueEvent:
    """A decoded entry as its own type; fields that newer versions add are left out, those missing are empty."""
    kind, names = _FIELDS.get(event.name, (None, {}))
    if kind is None:
        return Other(event.id, event.queue, event.job_id, event=event.name, fields=event.data)
    given = {ours: event.data[theirs] for theirs, ours in names.items() if theirs in event.data}
    return kind(event.id, event.queue, event.job_id, **given)
