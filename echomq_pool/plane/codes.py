# SPDX-License-Identifier: MIT
"""Return codes of the scripts and the errors they become, in one place."""

from __future__ import annotations

from enum import IntEnum

from echomq_pool.errors import (
    ChildrenFailed,
    DependenciesPending,
    JobError,
    JobMissing,
    LeaseLost,
    ParentMissing,
    SchedulerOwned,
    SlotTaken,
    WrongState,
)


class Code(IntEnum):
    """What a script answers when it refuses."""

    MISSING = -1
    NO_LOCK = -2
    NOT_IN_STATE = -3
    CHILDREN_PENDING = -4
    NO_PARENT = -5
    OTHER_LOCK = -6
    OTHER_PARENT = -7
    SCHEDULER_JOB = -8
    CHILDREN_FAILED = -9
    SLOT_EXISTS = -10
    SLOTS_FULL = -11


_ERRORS: dict[Code, tuple[type[JobError], str]] = {
    Code.MISSING: (JobMissing, "there is no such job"),
    Code.NO_LOCK: (LeaseLost, "its lock is gone"),
    Code.NOT_IN_STATE: (WrongState, "it is not in the state this starts from"),
    Code.CHILDREN_PENDING: (DependenciesPending, "it still waits for children"),
    Code.NO_PARENT: (ParentMissing, "its parent does not exist"),
    Code.OTHER_LOCK: (LeaseLost, "its lock belongs to another worker"),
    Code.OTHER_PARENT: (ParentMissing, "it already belongs to another parent"),
    Code.SCHEDULER_JOB: (SchedulerOwned, "it is the current occurrence of a job scheduler"),
    Code.CHILDREN_FAILED: (ChildrenFailed, "a child failed, and it fails with it"),
    Code.SLOT_EXISTS: (SlotTaken, "the scheduler's next occurrence already exists"),
    Code.SLOTS_FULL: (SlotTaken, "the scheduler's next 32 slots are occupied"),
}


def error_of(code: int, job_id: str, action: str, *, expected: str = "", found: str = "") -> JobError:
    """The exception for a negative reply.

    Args:
        code: the reply.
        job_id: the job (or scheduler) concerned.
        action: what was tried, as in "complete".
        expected: state the action starts from, when that is what failed.
        found: state the job was seen in.
    """
    try:
        kind, reason = _ERRORS[Code(code)]
    except ValueError:
        kind, reason = JobError, f"unknown code {code}"
    text = f"cannot {action} job {job_id}: {reason}"
    details = [f"expected {expected}"] if expected else []
    details += [f"found {found}"] if found else []
    if details:
        text += f" ({', '.join(details)})"
    return kind(text, job_id=job_id, code=int(code), expected=expected, found=found)


def check(reply: object, job_id: str, action: str, *, expected: str = "", found: str = "") -> None:
    """Raises for a negative integer reply, passes anything else.

    Raises:
        JobError: the subclass that the code stands for.
    """
    if isinstance(reply, int) and reply < 0:
        raise error_of(reply, job_id, action, expected=expected, found=found)
