# SPDX-License-Identifier: MIT
"""Time limits and cancellation: a job is really stopped, or its process is reported for the kill."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.ipc.messages import Cancel, Expired
from tests.support.hub import Hub, Jobs, config_for
from tests.support.processors import notes
from tests.support.servers import Server
from tests.support.waiting import eventually


def test_an_async_job_over_its_limit_is_cancelled_and_retried(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """case C161, C152: settled by its retry policy, with a reason that names the limit."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    slow = jobs.put(ms=20_000, notes=str(path), opts={"attempts": 2})
    quick = jobs.put(ms=100)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", timeout_ms=400)) as hub:
        eventually(lambda: hub.board.deadline_ms(1))
        jobs.done(2)
        assert not hub.of(Expired)
        eventually(lambda: hub.board.deadline_ms(1) == 0)
    assert jobs.field(slow, "failedReason") == "job exceeded its time limit of 400 ms"
    assert jobs.field(slow, "atm") == "2"
    assert "CancelledError" in json.loads(jobs.field(slow, "stacktrace") or "")[0]
    assert jobs.field(quick, "returnvalue") == "null"
    starts = [row[3] for row in notes(path) if row[0] == "start"]
    assert 380 <= starts[1] - starts[0] <= 2_500


def test_a_job_that_ignores_its_cancellation_costs_the_process(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """case C165: reported within a second of the limit, with its leases still held; nothing more is taken."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    job_id = jobs.put(notes=str(path))
    with Hub(config_for(valkey_server, (queue_name,), "processors:stubborn", timeout_ms=300)) as hub:
        began = time.monotonic()
        expired = hub.expired
        assert 1.2 < time.monotonic() - began < 5
        assert (expired.worker_id, expired.queue, expired.job_id) == (hub.worker_id, queue_name, job_id)
        assert (expired.how, expired.text) == ("timeout", "job exceeded its time limit of 300 ms")
        assert any(row[0] == "refused" for row in notes(path))
        later = jobs.put(notes=str(path))
        eventually(lambda: jobs.count("wait") == 1)
        assert jobs.get("wait") == [later]
        assert [job.id for job in hub.held.values()] == [job_id]
        assert jobs.client.exists(jobs.key(f"{job_id}:lock"))


def test_a_sync_job_over_its_limit_is_reported_at_once(valkey_server: Server, queue_name: str) -> None:
    """case C162, C117: a thread cannot be stopped; each over its limit is reported, none is written."""
    jobs = Jobs(valkey_server, queue_name)
    slow, quick = jobs.put(ms=20_000), jobs.put(ms=5_000)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work_sync", timeout_ms=500)) as hub:
        began = time.monotonic()
        expired = hub.expired
        assert time.monotonic() - began < 2
        assert expired.job_id in (slow, quick)
        eventually(lambda: {e.job_id for e in hub.of(Expired)} == {slow, quick})
        assert jobs.count("active") == 2


def test_the_deadline_is_on_the_board_when_the_loop_itself_is_stuck(
    valkey_server: Server, queue_name: str
) -> None:
    """case C163: the supervisor can see a limit that the worker can no longer enforce."""
    jobs = Jobs(valkey_server, queue_name)
    jobs.put(ms=3_000)
    with Hub(config_for(valkey_server, (queue_name,), "processors:burn_loop", timeout_ms=500)) as hub:
        deadline = eventually(lambda: hub.board.deadline_ms(1))
        assert 0 < deadline - SYSTEM_CLOCK.mono_ms() <= 500
        eventually(lambda: SYSTEM_CLOCK.mono_ms() > deadline + 200)
        assert hub.board.deadline_ms(1) == deadline


def test_cancelling_one_async_job_leaves_its_neighbour_alone(valkey_server: Server, queue_name: str) -> None:
    """case C166: failed with the given reason, not retried; the other one completes."""
    jobs = Jobs(valkey_server, queue_name)
    one, other = jobs.put(ms=20_000, opts={"attempts": 5}), jobs.put(ms=700, give="ok")
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
        eventually(lambda: jobs.count("active") == 2)
        hub.send(Cancel("another-queue", one, "not this one"))
        hub.send(Cancel(queue_name, one, "the customer changed her mind"))
        jobs.ended(one, "failed", within=3)
        jobs.ended(other, "completed")
    assert jobs.field(one, "failedReason") == "the customer changed her mind"
    assert jobs.field(one, "atm") == "1"
    assert jobs.result(other) == "ok"


def test_cancelling_a_sync_job_costs_the_process(valkey_server: Server, queue_name: str) -> None:
    """case C166: the process is reported; the neighbour is held until somebody hands it back."""
    jobs = Jobs(valkey_server, queue_name)
    one, other = jobs.put(ms=20_000), jobs.put(ms=20_000)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work_sync")) as hub:
        eventually(lambda: jobs.count("active") == 2)
        hub.send(Cancel(queue_name, one, "stop it"))
        assert (hub.expired.job_id, hub.expired.how, hub.expired.text) == (one, "cancel", "stop it")
        assert {job.id for job in hub.held.values()} == {one, other}


def test_the_limit_counts_per_run_not_per_id(valkey_server: Server, queue_name: str) -> None:
    """case C117: an id that comes back does not inherit an old start."""
    jobs = Jobs(valkey_server, queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", timeout_ms=400)):
        for _ in range(6):
            jobs.put(job_id="again", ms=150)
            jobs.ended("again", "completed")
            jobs.client.zrem(jobs.key("completed"), "again")
            jobs.client.delete(jobs.key("again"))


@pytest.mark.parametrize("processor", ["processors:work", "processors:work_sync"])
def test_a_job_in_time_is_never_touched(valkey_server: Server, queue_name: str, processor: str) -> None:
    """case C161: many jobs just within their limit."""
    jobs = Jobs(valkey_server, queue_name)
    ids = [jobs.put(ms=100) for _ in range(30)]
    with Hub(config_for(valkey_server, (queue_name,), processor, timeout_ms=1_500)) as hub:
        jobs.done(30)
        assert not hub.of(Expired)
    assert {jobs.field(i, "returnvalue") for i in ids} == {"null"}
