# SPDX-License-Identifier: MIT
"""One tree of errors: what went wrong, and what a job may raise to steer its own fate."""

from __future__ import annotations


class PoolError(Exception):
    """Root of every error this package raises on its own account."""


class ConfigError(PoolError):
    """The configuration cannot be used. `problems` holds one sentence per key."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SpecError(PoolError):
    """A child or group specification that no supervisor can start."""


class InputError(PoolError, ValueError):
    """An argument refused before anything was written."""


# --- the link to the server -------------------------------------------------------------------


class LinkError(PoolError):
    """The server could not be asked, or could not answer."""


class LinkDown(LinkError):
    """No connection. `sent` tells whether the command may have been executed."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class ServerUnready(LinkError):
    """The server answers but cannot serve now: LOADING, BUSY, READONLY, OOM, MASTERDOWN, CLUSTERDOWN.

    The command was not executed; it may be repeated.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LinkRefused(LinkError):
    """Trying again will not help: wrong password, wrong protocol, missing permission, missing hash tag."""


class ReplyError(LinkError):
    """An error reply that belongs to the command itself (WRONGTYPE, a script's own error …)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


# --- jobs ---------------------------------------------------------------------------------------


class JobError(PoolError):
    """A transition that the server refused. See `plane/codes.py` for the code table.

    `expected` and `found` are states where a state was the reason, and empty otherwise.
    """

    def __init__(self, message: str, *, job_id: str, code: int, expected: str = "", found: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id
        self.code = code
        self.expected = expected
        self.found = found


class JobMissing(JobError):
    """No such job (-1)."""


class LeaseLost(JobError):
    """The lock is gone (-2) or belongs to another worker (-6): whoever holds a stale token changes nothing."""


class WrongState(JobError):
    """The job is not in the state that the transition starts from (-3)."""


class DependenciesPending(JobError):
    """The job still waits for children (-4)."""


class ParentMissing(JobError):
    """The parent job does not exist (-5), or the job already belongs to another parent (-7)."""


class SchedulerOwned(JobError):
    """The job is the current occurrence of a job scheduler (-8)."""


class ChildrenFailed(JobError):
    """Completion refused: a child failed and the job was to fail with it (-9)."""


class SlotTaken(JobError):
    """The scheduler's next slot is occupied by a finished job (-10, -11)."""


class WrongKind(JobError):
    """The id is not in the namespace of jobs (EMQKIND)."""


class RateReached(JobError):
    """As many jobs are active as the queue allows (EMQRATE)."""


# --- planes ---------------------------------------------------------------------------------------


class WrongPlane(PoolError):
    """The queue belongs to the other plane, or the verb exists on the other plane only."""


class VersionFence(LinkRefused):
    """The server's keys were written by another version of the lease plane; `found` is what it says."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"the lease plane on this server speaks {found!r}, this program {expected!r}")
        self.found = found


class JobLocked(JobError):
    """The job, or a child that was to go with it, is being processed and cannot be removed (0)."""


class QueueInUse(PoolError):
    """The queue cannot be thrown away: it is not paused (-1), or it has active jobs (-2)."""

    def __init__(self, message: str, *, queue: str, code: int) -> None:
        super().__init__(message)
        self.queue = queue
        self.code = code


# --- locks of the user's own ------------------------------------------------------------------------


class LeaseTaken(PoolError):
    """Somebody else has the lease, and still had it when the wait was over."""


class LeaseExpired(PoolError):
    """The lease may be another's: it was not renewed in time, or the server says that it is gone."""


# --- what a processor raises to steer its own job -------------------------------------------------


class JobSignal(Exception):
    """Root of the exceptions by which a processor says what becomes of its job."""


class UnrecoverableError(JobSignal):
    """Fail the job now, whatever attempts are left."""


class DelayedError(JobSignal):
    """The job was moved to delayed by its own processor; it is not finished a second time."""


class WaitingError(JobSignal):
    """The job was moved back to wait by its own processor."""


class WaitingChildrenError(JobSignal):
    """The job was moved to waiting-children by its own processor."""


class RateLimitError(JobSignal):
    """The queue was rate limited by the processor; the job goes back to the front of wait."""


class JobCancelled(JobSignal):
    """Raised inside a job whose cancellation was asked for, or whose time limit ran out."""


# --- what a producer hears ------------------------------------------------------------------------


class JobFailed(PoolError):
    """The job that was waited for failed; the message is its failed reason."""

    def __init__(self, reason: str, *, job_id: str) -> None:
        super().__init__(reason)
        self.job_id = job_id


class WaitTimeout(PoolError, TimeoutError):
    """The job that was waited for is not finished yet."""
