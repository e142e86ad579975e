# SPDX-License-Identifier: MIT
"""Settling in the name of a worker that was ended, by its job's retry policy."""

from __future__ import annotations

from typing import Any

import pytest

from echomq_pool.ipc.messages import HeldJob
from echomq_pool.plane.base import Taken
from tests.support.planes import Bench
from tests.support.wire import Wire


def held(bench: Bench, taken: Taken) -> HeldJob:
    job = taken.job
    return HeldJob(
        bench.keys.queue,
        job.id,
        taken.token,
        job.ats,
        job.atm,
        job.attempts,
        job.backoff,
        job.lifo,
        0,
        0,
        job.name,
    )


TABLE: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, "timeout", "failed", "failed"),
    ({"attempts": 3}, "timeout", "wait", "waiting"),
    ({"attempts": 3, "backoff": {"type": "fixed", "delay": 60_000}}, "timeout", "delayed", "delayed"),
    ({"attempts": 3, "backoff": {"type": "mine", "delay": 0}}, "timeout", "wait", "waiting"),
    ({"attempts": 3}, "cancel", "failed", "failed"),
]


@pytest.mark.parametrize(("options", "how", "answer", "state"), TABLE)
async def test_a_timeout_follows_the_retry_policy_and_a_cancellation_fails(
    bench: Bench, wire: Wire, options: dict[str, Any], how: str, answer: str, state: str
) -> None:
    wire.add("slow", **options)
    taken = await bench.taken()
    assert await bench.plane.settle_for(held(bench, taken), how, "ran longer than 5 s") == answer
    assert await bench.plane.state("slow") == state
    job = await bench.plane.load("slow")
    assert job is not None
    assert (job.atm, job.failed_reason, job.stacktrace) == (1, "ran longer than 5 s", ["ran longer than 5 s"])


@pytest.mark.parametrize("loss", ["finished", "stolen", "removed"])
async def test_a_job_that_is_no_longer_that_workers_is_left_alone(
    bench: Bench, wire: Wire, loss: str
) -> None:
    """law 5"""
    wire.add("slow", attempts=3)
    taken = await bench.taken()
    row = held(bench, taken)
    if loss == "finished":
        await bench.plane.complete(taken.job, taken.token, b"1")
    elif loss == "stolen":
        bench.client.set(bench.keys.lock("slow"), "other:1")
    else:
        bench.client.delete(bench.keys.job("slow"))
    before = bench.dump()
    assert await bench.plane.settle_for(row, "timeout", "too long") == "gone"
    assert bench.dump() == before
