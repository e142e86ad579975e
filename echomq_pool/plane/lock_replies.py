# SPDX-License-Identifier: MIT
"""What the taking scripts of the lock plane answer, as values."""

from __future__ import annotations

from typing import Any

from echomq_pool.plane import codec
from echomq_pool.plane.base import Nothing, Taken
from echomq_pool.plane.job_record import JobRecord


def taken(job_id: Any, token: str, flat: Any, then: Nothing | None = None) -> Taken:
    """The job of a flat hash, held under `token`."""
    return Taken(JobRecord.from_flat(codec.to_text(job_id), flat), token, then)


def decode(reply: Any, token: str) -> Taken | Nothing:
    """The 4-array of the taking scripts, with a fifth for the last job; or 0 where nothing at all was found."""
    if not isinstance(reply, list) or len(reply) < 4:
        return Nothing()
    flat, job_id, limited, due, *last = reply
    nothing = Nothing(max(0, int(limited)), max(0, int(due)))
    if job_id and flat:
        return taken(job_id, token, flat, nothing if last else None)
    return nothing


def fetched(reply: Any, token: str, fetch: bool) -> Taken | Nothing | None:
    """The answer of a settlement: what it fetched, None when it was not asked to."""
    if isinstance(reply, Taken):
        return reply
    return decode(reply, token) if fetch else None
