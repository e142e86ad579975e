# SPDX-License-Identifier: MIT
"""The lease plane's error words and sentinels, and the exceptions they become, in one place.

A script refuses with an error reply whose first word is the class. Words that are not in the table pass through as
they are: new ones may come, and a program that does not know them must not misread them.
"""

from __future__ import annotations

from echomq_pool.errors import (
    JobError,
    JobLocked,
    JobMissing,
    LeaseLost,
    RateReached,
    ReplyError,
    WrongKind,
    WrongState,
)
from echomq_pool.plane.codes import Code

WORDS: dict[str, type[JobError]] = {
    "EMQKIND": WrongKind,
    "EMQSTALE": LeaseLost,
    "EMQLOCK": JobLocked,
    "EMQSTATE": WrongState,
    "EMQRATE": RateReached,
}
_CODES = {JobMissing: Code.MISSING, LeaseLost: Code.OTHER_LOCK, WrongState: Code.NOT_IN_STATE}


def translate(error: ReplyError, job_id: str, action: str) -> ReplyError | JobError:
    """The exception for an error reply; the same one when its word is not ours."""
    kind = WORDS.get(error.code)
    if kind is None:
        return error
    reason = str(error).partition(" ")[2]
    if kind is LeaseLost and reason == "gone":
        return gone(job_id, action)
    return refusal(kind, job_id, action, reason)


def refusal(kind: type[JobError], job_id: str, action: str, reason: str) -> JobError:
    """A refusal as the lock plane words it."""
    what = f"cannot {action} job {job_id}" if job_id else f"cannot {action}"
    return kind(f"{what}: {reason}", job_id=job_id, code=int(_CODES.get(kind, 0)))


def gone(job_id: str, action: str) -> JobError:
    """There is no such row."""
    return refusal(JobMissing, job_id, action, "there is no such job")


def unsettled(word: str, job_id: str, action: str) -> JobError:
    """The exception for `stale` or `gone` among the words of a batch."""
    if word == "gone":
        return gone(job_id, action)
    return refusal(LeaseLost, job_id, action, "the token no longer holds it")
