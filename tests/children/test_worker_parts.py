# SPDX-License-Identifier: MIT
"""Parts of the worker by themselves, and replies that are lost at the worst moment."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from echomq_pool.children.gate import Gate
from echomq_pool.children.recycle import Recycle
from echomq_pool.clock import FakeClock
from echomq_pool.config.schema import WorkersConfig
from tests.support.hub import Hub, Jobs, config_for
from tests.support.processors import notes
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import eventually


class Takes:
    """What a gate does to the fetching."""

    def __init__(self) -> None:
        self.held = 0
        self.gate = Gate(self.hold_back, self.let_go)

    def hold_back(self) -> None:
        self.held += 1

    def let_go(self) -> None:
        self.held -= 1


def test_a_run_that_must_be_alone_goes_back_while_others_are_inside_and_takes_stop_until_they_are_out() -> (
    None
):
    """law 9 (poison jobs): a death convicts all that the process holds, so a suspect is not held beside others."""
    takes = Takes()
    assert takes.gate.enter(False)
    assert takes.gate.enter(False)
    assert not takes.gate.enter(True)
    assert not takes.gate.enter(True)
    assert takes.held == 1
    takes.gate.leave(False)
    assert takes.held == 1
    takes.gate.leave(False)
    assert takes.held == 0


def test_beside_a_run_that_is_alone_nobody_is_held() -> None:
    """law 9 (poison jobs)"""
    takes = Takes()
    assert takes.gate.enter(True)
    assert takes.held == 1
    assert not takes.gate.enter(False)
    assert not takes.gate.enter(True)
    takes.gate.leave(True)
    assert takes.held == 0
    assert takes.gate.enter(False)
    assert takes.held == 0


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
    """Whatever can be called with a job."""
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


def test_a_suspect_taken_beside_a_running_job_goes_back_at_no_cost_and_runs_after_it(
    valkey_server: Server, queue_name: str
) -> None:
    """law 9 (poison jobs)"""
    jobs = Jobs(valkey_server, queue_name)
    first, suspect = jobs.put(ms=1_000, give=1), jobs.put(ms=10)
    jobs.client.hset(jobs.key(suspect), "stc", 1)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")):
        jobs.ended(first, "completed")
        jobs.ended(suspect, "completed")
    assert (jobs.field(suspect, "atm"), jobs.field(suspect, "stc")) == ("1", "1")
    assert int(jobs.field(suspect, "ats")) > 1, "it had been taken, and had gone back"


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
