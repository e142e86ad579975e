# SPDX-License-Identifier: MIT
"""Parts of the worker by themselves, and replies that are lost at the worst moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from echomq_pool.children.gate import Gate
from echomq_pool.children.recycle import Recycle
from echomq_pool.clock import FakeClock
from echomq_pool.config.schema import WorkersConfig
from echomq_pool.ipc.messages import Cancel
from tests.support.hub import Hub, Jobs, config_for
from tests.support.processors import notes
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import eventually, eventually_async


class Visitors:
    """Runs that pass the gate and stay inside until they are let go."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.inside: list[str] = []
        self.turned_away: list[str] = []
        self.go: dict[str, asyncio.Event] = {}
        self.runs: dict[str, Any] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def send(self, name: str, *, alone: bool = False) -> None:
        self.go[name], self.runs[name] = asyncio.Event(), SimpleNamespace(waits=None)
        self.tasks[name] = asyncio.create_task(self._visit(name, alone))

    async def leave(self, name: str) -> None:
        self.go[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)

    async def _visit(self, name: str, alone: bool) -> None:
        if not self.gate.enter(alone) and not await self.gate.wait(self.runs[name], alone):
            self.turned_away.append(name)
            return
        self.inside.append(name)
        await self.go[name].wait()
        self.inside.remove(name)
        self.gate.leave(alone)


async def test_a_lonely_run_waits_for_the_others_and_they_for_it() -> None:
    """law 9 (poison jobs): nobody beside a run that is alone, and nobody starves."""
    visitors = Visitors()
    visitors.send("a")
    visitors.send("b")
    visitors.send("suspect", alone=True)
    visitors.send("c")
    await eventually_async(lambda: visitors.inside == ["a", "b", "c"])
    await visitors.leave("a")
    await visitors.leave("b")
    assert visitors.inside == ["c"]
    await visitors.leave("c")
    assert visitors.inside == ["suspect"]
    visitors.send("second", alone=True)
    visitors.send("d")
    await asyncio.sleep(0)
    assert visitors.inside == ["suspect"]
    await visitors.leave("suspect")
    assert visitors.inside == ["d"]
    await visitors.leave("d")
    assert visitors.inside == ["second"]
    await visitors.leave("second")
    assert visitors.inside == []


async def test_a_run_that_is_ended_while_it_waits_is_turned_away_and_counts_for_nothing() -> None:
    """case C166: a cancelled job does not keep its place in the line."""
    visitors = Visitors()
    visitors.send("a")
    visitors.send("suspect", alone=True)
    await eventually_async(lambda: visitors.runs["suspect"].waits is not None)
    visitors.runs["suspect"].waits.set()
    await eventually_async(lambda: visitors.turned_away == ["suspect"])
    visitors.send("b")
    await eventually_async(lambda: visitors.inside == ["a", "b"])
    for name in "ab":
        await visitors.leave(name)


async def test_recycling_limits_carry_a_jitter_and_zero_is_none() -> None:
    """case C081, C082: equal load does not recycle all at once; memory is sampled once a second."""
    wishes: list[str] = []
    limits = {
        Recycle(WorkersConfig("w", ("q",), "m:f", max_jobs=100), FakeClock(), wishes.append).max_jobs
        for _ in range(60)
    }
    assert len(limits) > 5
    assert all(90 <= limit <= 110 for limit in limits)
    clock, samples = FakeClock(), []
    config = WorkersConfig("w", ("q",), "m:f", max_memory=100)
    recycle = Recycle(config, clock, wishes.append, lambda: samples.append(1) or 50)  # type: ignore[func-returns-value]
    for _ in range(1_000):
        recycle.job_ended()
    assert (recycle.max_jobs, len(samples), wishes) == (0, 1, [])


@pytest.mark.parametrize(
    ("processor", "result"), [("processors:instance", "called {}"), ("processors:partial", "hello {}")]
)
def test_instances_and_partials_run_as_processors(
    valkey_server: Server, queue_name: str, processor: str, result: str
) -> None:
    """promise of the issue: whatever can be called with a job."""
    jobs = Jobs(valkey_server, queue_name)
    job_id = jobs.put()
    with Hub(config_for(valkey_server, (queue_name,), processor)):
        jobs.ended(job_id, "completed")
    assert jobs.result(job_id) == result.format(job_id)


def test_a_plain_function_that_hands_out_a_coroutine_is_told_so(
    valkey_server: Server, queue_name: str
) -> None:
    """law 13: a careless decorator fails its jobs with a reason, not with `null`."""
    jobs = Jobs(valkey_server, queue_name)
    job_id = jobs.put()
    with Hub(config_for(valkey_server, (queue_name,), "processors:disguised")):
        jobs.ended(job_id, "failed")
    assert "returned a coroutine" in (jobs.field(job_id, "failedReason") or "")


def test_a_waiting_suspect_can_be_cancelled(valkey_server: Server, queue_name: str) -> None:
    """case C166: a job that waits to run alone has not started, and ends at once."""
    jobs = Jobs(valkey_server, queue_name)
    first, suspect = jobs.put(ms=2_000, give=1), jobs.put(ms=10)
    jobs.client.hset(jobs.key(suspect), "stc", 1)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
        eventually(lambda: len(hub.held) == 2)
        hub.send(Cancel(queue_name, suspect, "not needed"))
        jobs.ended(suspect, "failed", within=1.8)
        jobs.ended(first, "completed")
    assert jobs.field(suspect, "failedReason") == "not needed"


def test_a_take_whose_reply_is_lost_is_found_and_run(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """law 6: a claim nobody heard of does not wait for the stalled sweep."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    with Proxy(valkey_server.port) as proxy:
        near: Any = SimpleNamespace(url=f"redis://127.0.0.1:{proxy.port}/0", port=proxy.port)
        with Hub(config_for(near, (queue_name,), "processors:work")):
            eventually(jobs.blocked)
            for _ in range(5):
                proxy.lose_reply_to(b"EVALSHA")
                job_id = jobs.put(notes=str(path), give=1)
                jobs.ended(job_id, "completed", within=5)
                assert (jobs.field(job_id, "ats"), jobs.field(job_id, "atm")) == ("1", "1")
    assert len([row for row in notes(path) if row[0] == "start"]) == 5


def test_a_settlement_whose_reply_is_lost_is_written_once(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """law 6: a completion, a retry and a final failure, each cut off after it ran."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    with Proxy(valkey_server.port) as proxy:
        near: Any = SimpleNamespace(url=f"redis://127.0.0.1:{proxy.port}/0", port=proxy.port)
        with Hub(config_for(near, (queue_name,), "processors:flaky_slowly")):
            for fails, attempts, state in [(0, 1, "completed"), (1, 2, "completed"), (1, 1, "failed")]:
                begun = len(notes(path))
                job_id = jobs.put(notes=str(path), fails=fails, opts={"attempts": attempts})
                eventually(lambda n=begun: len(notes(path)) > n)  # type: ignore[misc]
                proxy.lose_reply_to(b"EVALSHA")
                jobs.ended(job_id, state, within=8)
                assert jobs.field(job_id, "atm") == str(attempts)
                events = [e for e in jobs.events() if e.startswith(f"{state} jobId={job_id} ")]
                assert len(events) == 1
