# SPDX-License-Identifier: MIT
"""The table of moves, walked on real servers: each ends where it says, and tells of it."""

from __future__ import annotations

from typing import Any

import pytest

from echomq_pool.plane.base import Taken
from echomq_pool.states import MOVES, JobState, Move, allowed
from tests.support.planes import LIBRARY, Bench
from tests.support.wire import Wire

PLACES: dict[JobState, dict[str, Any]] = {
    JobState.WAITING: {},
    JobState.PRIORITIZED: {"priority": 3},
    JobState.DELAYED: {"delay": 1},
    JobState.WAITING_CHILDREN: {"children": True},
}


async def walk(bench: Bench, wire: Wire, move: Move) -> None:
    """Makes the move with the one job of the queue, which is called j."""
    if move.source is JobState.UNKNOWN:
        wire.add("j", **PLACES[move.target])
        return
    start = move.source if move.source is not JobState.ACTIVE else move.target
    wire.add("j", attempts=3, **(PLACES.get(start, {}) if start is not JobState.DELAYED else {"delay": 1}))
    taken = await bench.taken()
    if move.script == "moveToActive":
        return
    await _from_active(bench, taken, move)


async def _from_active(bench: Bench, taken: Taken, move: Move) -> None:
    plane, job, token = bench.plane, taken.job, taken.token
    if move.script == "moveToFinished":
        done = move.target is JobState.COMPLETED
        await (plane.complete(job, token, b"1") if done else plane.fail(job, token, "no", []))
    elif move.script == "retryJob":
        await plane.retry(job, token, "no", [])
    elif move.script == "moveToDelayed":
        await plane.delay(job, token, 60_000)
    elif move.script == "moveJobFromActiveToWait":
        await plane.release(job, token)
    elif move.script == "moveStalledJobsToWait":
        bench.lose_lock(job.id)
        await plane.sweep()
        bench.client.delete(bench.keys.key("stalled-check"))
        await plane.sweep()
    else:
        await plane.recover(bench.owner, planned=move.target is JobState.PRIORITIZED)


@pytest.mark.parametrize("move", MOVES, ids=lambda m: f"{m.script}: {m.source} to {m.target}")
async def test_each_move_ends_where_it_says_and_tells_of_it(bench: Bench, wire: Wire, move: Move) -> None:
    """promise 4.20"""
    await walk(bench, wire, move)
    assert await bench.plane.state("j") == move.target
    assert any(event.startswith(f"{move.event} jobId=j") for event in bench.get("events"))
    assert move.script in LIBRARY


def test_a_final_state_is_left_by_none_of_our_moves() -> None:
    for state in JobState:
        if state.final:
            assert not any(allowed(state, target) for target in JobState)
    assert allowed(JobState.ACTIVE, JobState.COMPLETED)
    assert not allowed(JobState.WAITING, JobState.COMPLETED)
