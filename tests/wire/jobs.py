# SPDX-License-Identifier: MIT
"""What jobs of the wire tests do in our pool; `deeds` in peer.js does the same under Node."""

from __future__ import annotations

import asyncio
from typing import Any

from echomq_pool.errors import DelayedError, RateLimitError, UnrecoverableError, WaitingError


async def play(job: Any) -> Any:
    """Does what the data's `do` says; gives back `give` when it says nothing."""
    return await DEEDS[job.data.get("do", "give")](job)


async def _give(job: Any) -> Any:
    await asyncio.sleep(job.data.get("ms", 0) / 1000)
    return job.data.get("give")


async def _fail(job: Any) -> Any:
    """The first `fail_times` runs fail."""
    await asyncio.sleep(job.data.get("ms", 0) / 1000)
    if job.attempts_made < job.data.get("fail_times", 99):
        raise RuntimeError(f"planned failure of {job.name}")
    return {"n": job.data.get("n")}


async def _talk(job: Any) -> str:
    await job.update_progress(job.data["progress"])
    await job.log(job.data["row"])
    await job.update_data({**job.data, "updated": True})
    return "talked"


async def _limit(job: Any) -> str:
    if job.attempts_started > 1:
        return "limited once"
    await job.rate_limit(job.data["limit_ms"])
    raise RateLimitError


async def _later(job: Any) -> str:
    if job.attempts_started > 1:
        return "later"
    await job.move_to_delayed(delay_ms=job.data["delay"])
    raise DelayedError


async def _again(job: Any) -> str:
    if job.attempts_started > 1:
        return "again"
    await job.move_to_wait()
    raise WaitingError


async def _never(job: Any) -> None:
    raise UnrecoverableError("never")


async def _until(job: Any) -> None:
    await asyncio.Event().wait()


async def _nan(job: Any) -> Any:
    return {"a": [1, float(job.data["text"])]}


async def _nan_progress(job: Any) -> None:
    await job.update_progress(float(job.data["text"]))


async def _cry(job: Any) -> None:
    raise ValueError(job.data["text"])


DEEDS = {
    "give": _give,
    "fail": _fail,
    "talk": _talk,
    "limit": _limit,
    "later": _later,
    "again": _again,
    "never": _never,
    "until": _until,
    "nan": _nan,
    "nan_progress": _nan_progress,
    "cry": _cry,
}


def _odd(attempt: int, job: Any, error: BaseException) -> float:
    """What the tests' Node workers answer for a type that is neither fixed nor exponential."""
    return 3 * 3_600_000


backoff_strategies = {"odd": _odd}
