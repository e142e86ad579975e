# SPDX-License-Identifier: MIT
"""The states of a job and the table of allowed moves.

A job has no state field: its state is where its id sits. The scripts alone move ids; this table says which
moves they make, for tests and for error texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """States under the names that `getState` answers."""

    WAITING = "waiting"
    PRIORITIZED = "prioritized"
    DELAYED = "delayed"
    WAITING_CHILDREN = "waiting-children"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """True when nothing moves the job on by itself."""
        return self in (JobState.COMPLETED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class Move:
    """One move: who makes it, from where, to where, and the event that tells of it."""

    script: str
    source: JobState
    target: JobState
    event: str


_S = JobState

MOVES: tuple[Move, ...] = (
    Move("addStandardJob", _S.UNKNOWN, _S.WAITING, "waiting"),
    Move("addPrioritizedJob", _S.UNKNOWN, _S.PRIORITIZED, "waiting"),
    Move("addDelayedJob", _S.UNKNOWN, _S.DELAYED, "delayed"),
    Move("addParentJob", _S.UNKNOWN, _S.WAITING_CHILDREN, "waiting-children"),
    Move("moveToActive", _S.WAITING, _S.ACTIVE, "active"),
    Move("moveToActive", _S.PRIORITIZED, _S.ACTIVE, "active"),
    Move("moveToActive", _S.DELAYED, _S.ACTIVE, "active"),
    Move("moveToFinished", _S.ACTIVE, _S.COMPLETED, "completed"),
    Move("moveToFinished", _S.ACTIVE, _S.FAILED, "failed"),
    Move("retryJob", _S.ACTIVE, _S.WAITING, "waiting"),
    Move("retryJob", _S.ACTIVE, _S.PRIORITIZED, "waiting"),
    Move("moveToDelayed", _S.ACTIVE, _S.DELAYED, "delayed"),
    Move("moveJobFromActiveToWait", _S.ACTIVE, _S.WAITING, "waiting"),
    Move("moveJobFromActiveToWait", _S.ACTIVE, _S.PRIORITIZED, "waiting"),
    Move("moveStalledJobsToWait", _S.ACTIVE, _S.WAITING, "stalled"),
    Move("recoverOwner", _S.ACTIVE, _S.WAITING, "stalled"),
    Move("recoverOwner", _S.ACTIVE, _S.PRIORITIZED, "waiting"),
)


def allowed(source: JobState, target: JobState) -> bool:
    """True when some script moves a job from `source` to `target`."""
    return any(move.source is source and move.target is target for move in MOVES)
