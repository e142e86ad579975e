# SPDX-License-Identifier: MIT
"""A deduplication id lives as long as its job: whatever ends the job frees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from echomq_pool import Queue
from tests.support.planes import Bench

End = Callable[[Queue, Bench], Awaitable[object]]


async def complete(queue: Queue, bench: Bench) -> None:
    taken = await bench.taken()
    await bench.plane.complete(taken.job, taken.token, b"1")


async def fail(queue: Queue, bench: Bench) -> None:
    taken = await bench.taken()
    await bench.plane.fail(taken.job, taken.token, "boom", [])


async def stall(queue: Queue, bench: Bench) -> None:
    """Its worker is lost and it may not stall: the sweep judges it, the next taker fails it."""
    taken = await bench.taken()
    for _ in range(2):
        bench.client.delete(bench.keys.lock(taken.job.id), bench.keys.key("stalled-check"))
        await bench.plane.sweep(max_stalled=0)
    again = await bench.taken()
    assert again.job.defa
    await bench.plane.fail(again.job, again.token, again.job.defa, [])


ENDS: dict[str, End] = {
    "completed": complete,
    "failed": fail,
    "stalled": stall,
    "removed": lambda queue, bench: queue.remove("j"),
    "cleaned": lambda queue, bench: queue.clean(0, 0, "wait"),
    "drained": lambda queue, bench: queue.drain(),
    "obliterated": lambda queue, bench: queue.obliterate(),
}


@pytest.mark.parametrize("end", ENDS)
async def test_whatever_ends_a_job_frees_its_deduplication_id(queue: Queue, bench: Bench, end: str) -> None:
    """case C138"""
    await queue.add("n", job_id="j", deduplication={"id": "D"})
    assert await queue.get_deduplication_job_id("D") == "j"
    await ENDS[end](queue, bench)
    assert await queue.get_deduplication_job_id("D") is None
    assert not bench.client.keys(bench.keys.key("de:*"))
    assert (await queue.add("n", job_id="k", deduplication={"id": "D"})).id == "k"
