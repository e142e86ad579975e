# SPDX-License-Identifier: MIT
"""The fields of a job, as its producer and its processor see them. No verbs: those are in `job.py`."""

from __future__ import annotations

from typing import Any, Protocol

from echomq_pool.errors import InputError
from echomq_pool.plane import codec
from echomq_pool.plane.base import JobRecord

_UNREAD = object()


class Recorded(Protocol):
    """Who shows a job: by what is stored of it."""

    @property
    def record(self) -> JobRecord: ...

    @property
    def data(self) -> Any: ...


class JobFields:
    """The fields of a job, of whichever class. Times are wall ms."""

    @property
    def id(self: Recorded) -> str:
        """Unique in its queue."""
        return self.record.id

    @property
    def name(self: Recorded) -> str:
        """What kind of job it is: tasks are found by it."""
        return self.record.name

    @property
    def opts(self: Recorded) -> dict[str, Any]:
        """The options under BullMQ's long names."""
        return self.record.opts

    @property
    def attempts_made(self: Recorded) -> int:
        """Runs that ended."""
        return self.record.atm

    @property
    def attempts_started(self: Recorded) -> int:
        """Runs that began, this one included."""
        return self.record.ats

    @property
    def fencing_token(self: Recorded) -> int:
        """A number that grows with every take: pass it to outside systems, which refuse smaller ones."""
        return self.record.ats

    @property
    def timestamp(self: Recorded) -> int:
        """When it was added, as wall ms."""
        return self.record.timestamp

    @property
    def processed_on(self: Recorded) -> int | None:
        """When its latest run began, as wall ms; None before the first."""
        return self.record.processed_on

    @property
    def finished_on(self: Recorded) -> int | None:
        """When it completed or failed, as wall ms; None until then."""
        return self.record.finished_on

    @property
    def priority(self: Recorded) -> int:
        """1 runs first, 2 097 151 last; 0 = none, and before them all."""
        return self.record.priority

    @property
    def delay(self: Recorded) -> float:
        """How long it was put off when it was added or moved, in ms."""
        return self.record.delay

    @property
    def progress(self: Recorded) -> Any:
        """What its processor has told last; 0 at first."""
        return self.record.progress

    @property
    def returnvalue(self: Recorded) -> Any:
        """The result of a completed job, decoded."""
        return decoded(self.record.returnvalue)

    @property
    def failed_reason(self: Recorded) -> str | None:
        """The message of what failed it last; None when nothing did."""
        return self.record.failed_reason

    @property
    def stacktrace(self: Recorded) -> list[str]:
        """Traces of its failed runs, the oldest first."""
        return self.record.stacktrace

    @property
    def stalled_counter(self: Recorded) -> int:
        """How often it was lost with its worker."""
        return self.record.stc

    @property
    def parent_key(self: Recorded) -> str | None:
        """Key of the parent's hash, when the job is a child in a flow."""
        return self.record.parent_key

    @property
    def parent(self: Recorded) -> dict[str, Any] | None:
        """`{id, queueKey}` of the parent, and how a failure of this job concerns it."""
        return self.record.parent

    @property
    def deduplication_id(self: Recorded) -> str | None:
        """The deduplication id that it was added with."""
        return self.record.deid

    @property
    def repeat_job_key(self: Recorded) -> str | None:
        """Id of the job scheduler that made this job."""
        return self.record.rjk

    @property
    def processed_by(self: Recorded) -> str | None:
        """Name of the worker that took it last."""
        return self.record.processed_by

    @property
    def deferred_failure(self: Recorded) -> str | None:
        """The text with which whoever takes this job must fail it without running it."""
        return self.record.defa

    def as_dict(self: Recorded) -> dict[str, Any]:
        """All fields under BullMQ's names, data and return value decoded (Node: `job.asJSON`)."""
        record = self.record
        return {
            "id": record.id,
            "name": record.name,
            "data": self.data,
            "opts": record.opts,
            "timestamp": record.timestamp,
            "delay": record.delay,
            "priority": record.priority,
            "progress": record.progress,
            "attemptsMade": record.atm,
            "attemptsStarted": record.ats,
            "stalledCounter": record.stc,
            "processedOn": record.processed_on,
            "processedBy": record.processed_by,
            "finishedOn": record.finished_on,
            "failedReason": record.failed_reason,
            "stacktrace": record.stacktrace,
            "returnvalue": decoded(record.returnvalue),
            "parent": record.parent,
            "parentKey": record.parent_key,
            "repeatJobKey": record.rjk,
            "deduplicationId": record.deid,
        }

    def __repr__(self: Recorded) -> str:
        return f"{type(self).__name__}(id={self.record.id!r}, name={self.record.name!r})"


class JobView(JobFields):
    """A job and what its worker knows of it."""

    def __init__(self, record: JobRecord, token: str = "", queue_name: str = "", queue_key: str = "") -> None:
        self.record = record
        self.token = token
        self.queue_name = queue_name
        self.queue_key = (
            queue_key  # the queue's qualified name, `emq:{orders}`: what children of this job name
        )
        self.lease_lost = (
            False  # True: another worker may run this job now; it is settled only if we get it back
        )
        self.cancelled = False  # True: somebody asked for its end, or its time is up
        self.cancel_reason = ""
        self.moved = ""  # where its own processor has put it: delayed | wait | waiting-children
        self._data: Any = _UNREAD

    @property
    def data(self) -> Any:
        """The payload, decoded at the first look.

        Raises:
            InputError: it is no JSON.
        """
        if self._data is _UNREAD:
            try:
                self._data = codec.decode(self.record.data)
            except (ValueError, RecursionError) as error:
                raise InputError(f"the data of job {self.id} is no JSON: {error}") from None
        return self._data

    def show(self, record: JobRecord) -> None:
        """Shows another state of the same job."""
        self.record, self._data = record, _UNREAD

    def mark_lease_lost(self, lost: bool = True) -> None:
        """Told by the worker."""
        self.lease_lost = lost

    def mark_cancelled(self, reason: str) -> None:
        """Told by the worker."""
        self.cancelled, self.cancel_reason = True, reason


def decoded(raw: bytes | None) -> Any:
    """A stored return value; as text where it is no JSON."""
    if raw is None:
        return None
    try:
        return codec.decode(raw)
    except ValueError:
        return codec.to_text(raw)
