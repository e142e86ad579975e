# SPDX-License-Identifier: MIT
"""How a worker leaves: in order, in time, and without a job being lost, doubled or charged for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from echomq_pool.ipc.messages import Quiet, Resume, Wish
from tests.support.hub import Hub, Jobs, config_for
from tests.support.processors import notes
from tests.support.servers import Server
from tests.support.waiting import eventually


def test_an_idle_worker_leaves_at_once(server: Server, queue_name: str) -> None:
    """case C058: the blocked call is interrupted, not waited for."""
    jobs = Jobs(server, queue_name)
    with Hub(config_for(server, (queue_name,), "processors:work")) as hub:
        eventually(lambda: jobs.blocked())
        before = time.monotonic()
        assert hub.stop() == 0
        assert time.monotonic() - before < 1
        assert (hub.bye.reason, hub.bye.handed_back) == ("shutdown", 0)
    assert "WARNING" not in hub.log()
    assert jobs.get("marker") is None, "no marker was popped, so none is put back"


def test_jobs_added_at_the_very_stop_keep_a_marker(valkey_server: Server, queue_name: str) -> None:
    """case C060: a marker that a leaving worker has consumed does not strand the job behind it."""
    jobs = Jobs(valkey_server, queue_name)
    for _ in range(15):
        with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
            eventually(lambda: jobs.blocked())
            hub.ask_stop()
            job_id = jobs.put()
            assert hub.exit_code() == 0
        if jobs.client.zscore(jobs.key("completed"), job_id) is None:
            assert jobs.count("wait") == 1
            assert jobs.get("marker") == {"0": 0.0}
            jobs.client.delete(jobs.key("wait"))


@pytest.mark.parametrize("processor", ["processors:work", "processors:work_sync"])
def test_what_runs_at_a_stop_is_finished_and_written(
    valkey_server: Server, queue_name: str, processor: str
) -> None:
    """case C057: results are written before the connections close; nothing new is taken meanwhile."""
    jobs = Jobs(valkey_server, queue_name)
    running, waiting = jobs.put(ms=600, give="r"), jobs.put(give="w")
    with Hub(config_for(valkey_server, (queue_name,), processor, concurrency=1)) as hub:
        eventually(lambda: jobs.count("active") == 1)
        assert hub.stop() == 0
        assert not hub.held
    assert jobs.result(running) == "r"
    assert jobs.get("wait") == [waiting]
    assert jobs.count("active") == 0


def test_a_failure_during_the_stop_is_stored(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """case C062: a job that raises while its worker leaves is failed, or delayed for its next attempt."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    last = jobs.put("failing", notes=str(path))
    again = jobs.put(
        "failing", notes=str(path), opts={"attempts": 2, "backoff": {"type": "fixed", "delay": 60_000}}
    )
    with Hub(config_for(valkey_server, (queue_name,), "processors:fails_late")) as hub:
        eventually(lambda: len(notes(path)) == 2)
        assert hub.stop() == 0
    assert jobs.field(last, "failedReason") == "too late"
    assert jobs.get("delayed").keys() == {again}


def test_jobs_still_running_near_the_deadline_are_handed_back_at_no_cost(
    valkey_server: Server, queue_name: str
) -> None:
    """case C061, C056: five stops with a short grace cost no attempt; then the job completes."""
    jobs = Jobs(valkey_server, queue_name)
    job_id = jobs.put(ms=700, opts={"attempts": 2})
    config = config_for(valkey_server, (queue_name,), "processors:work")
    for _ in range(5):
        with Hub(config) as hub:
            eventually(lambda: jobs.count("active") == 1)
            before = time.monotonic()
            assert hub.stop(200) == 0
            assert time.monotonic() - before < 2
            assert hub.bye.handed_back == 1
        assert jobs.get("wait") == [job_id]
        assert jobs.get("marker") == {"0": 0.0}
    with Hub(config):
        jobs.ended(job_id, "completed")
    assert (jobs.field(job_id, "atm"), jobs.field(job_id, "stc")) == ("1", None)


def test_a_fast_stop_hands_back_at_once(valkey_server: Server, queue_name: str) -> None:
    """case C064: the second signal waits for nobody."""
    jobs = Jobs(valkey_server, queue_name)
    ids = [jobs.put(ms=20_000) for _ in range(5)]
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
        eventually(lambda: jobs.count("active") == 5)
        hub.ask_stop(20_000)
        before = time.monotonic()
        assert hub.stop(20_000, fast=True) == 0
        assert time.monotonic() - before < 3
        assert hub.bye.handed_back == 5
    assert sorted(jobs.get("wait")) == sorted(ids)


def test_threads_that_outlive_the_grace_are_left_to_be_killed(valkey_server: Server, queue_name: str) -> None:
    """law 2: a job that cannot be stopped is not given back while it may still run."""
    jobs = Jobs(valkey_server, queue_name)
    job_id = jobs.put(ms=20_000)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work_sync")) as hub:
        eventually(lambda: jobs.count("active") == 1)
        hub.ask_stop(300)
        time.sleep(0.8)  # well past the deadline: it is the supervisor's turn
        assert hub.process.poll() is None
        assert jobs.get("active") == [job_id]
        assert jobs.client.exists(jobs.key(f"{job_id}:lock"))


def test_a_thread_may_look_whether_it_is_to_stop(valkey_server: Server, queue_name: str) -> None:
    """case C061: a plain function that obeys `job.cancelled` is handed back like an async one."""
    jobs = Jobs(valkey_server, queue_name)
    job_id = jobs.put(ms=20_000)
    with Hub(config_for(valkey_server, (queue_name,), "processors:obedient_sync")) as hub:
        eventually(lambda: jobs.count("active") == 1)
        assert hub.stop(400) == 0
        assert hub.bye.handed_back == 1
    assert jobs.get("wait") == [job_id]
    assert jobs.field(job_id, "atm") is None


def test_a_quiet_worker_takes_nothing_until_it_resumes(valkey_server: Server, queue_name: str) -> None:
    """case C058: quiet interrupts the block; what runs goes on."""
    jobs = Jobs(valkey_server, queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
        running = jobs.put(ms=500, give=1)
        eventually(lambda: jobs.count("active") == 1 and jobs.blocked())
        hub.send(Quiet())
        eventually(lambda: not jobs.blocked())
        waiting = jobs.put()
        jobs.ended(running, "completed")
        assert jobs.get("wait") == [waiting]
        hub.send(Resume())
        jobs.ended(waiting, "completed")


def test_a_worker_whose_supervisor_is_gone_leaves(valkey_server: Server, queue_name: str) -> None:
    """law 9: end of file on the channel ends the child with code 12."""
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
        hub.channel.sock.shutdown(2)
        assert hub.exit_code() == 12


def test_a_stop_without_a_server_does_not_wait_for_it(own_server: Server, queue_name: str) -> None:
    """case C058: an idle worker leaves at once during an outage, too."""
    with Hub(config_for(own_server, (queue_name,), "processors:work")) as hub:
        jobs = Jobs(own_server, queue_name)
        eventually(lambda: jobs.blocked())
        own_server.stop(kill=True)
        before = time.monotonic()
        assert hub.stop() == 0
        assert time.monotonic() - before < 3


# --- recycling ----------------------------------------------------------------------------------


def test_after_max_jobs_it_wishes_once_and_works_on_until_stopped(
    valkey_server: Server, queue_name: str
) -> None:
    """case C079, C080: a recycling child takes no job that it does not run."""
    jobs = Jobs(valkey_server, queue_name)
    ids = [jobs.put() for _ in range(50)]
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", max_jobs=10)) as hub:
        jobs.done(50)
        wishes = eventually(lambda: hub.of(Wish))
        assert [w.reason for w in wishes] == ["max_jobs"]
        assert hub.stop(reason="recycle") == 11
        assert hub.bye.reason == "recycle"
    assert jobs.idle()
    assert {jobs.field(i, "atm") for i in ids} == {"1"}
    assert {jobs.field(i, "stc") for i in ids} == {None}


def test_a_stop_in_full_swing_loses_and_doubles_nothing(valkey_server: Server, queue_name: str) -> None:
    """case C080, C055: stops under load, several slots; every job ends once."""
    jobs = Jobs(valkey_server, queue_name)
    ids = [jobs.put(ms=5) for _ in range(2_000)]
    config = config_for(valkey_server, (queue_name,), "processors:work", concurrency=5)
    for _ in range(4):
        with Hub(config) as hub:
            eventually(lambda: len(hub.heard) > 40)
            assert hub.stop(reason="recycle") == 11
        assert jobs.count("active") == 0
    with Hub(config):
        jobs.done(2_000, within=60)
    assert {(jobs.field(i, "atm"), jobs.field(i, "stc")) for i in ids} == {("1", None)}
    assert jobs.idle()


def test_no_limit_means_no_wish(valkey_server: Server, queue_name: str) -> None:
    """case C082: zero is off, whatever the jitter."""
    jobs = Jobs(valkey_server, queue_name)
    for _ in range(100):
        jobs.put()
    with Hub(
        config_for(valkey_server, (queue_name,), "processors:work", max_jobs=0, max_jobs_jitter=10.0)
    ) as hub:
        jobs.done(100)
        assert hub.stop() == 0
        assert not hub.of(Wish)


def test_too_much_private_memory_and_old_age_make_it_wish(valkey_server: Server, queue_name: str) -> None:
    """case C078: a leaking process asks for its heir; so does an old one."""
    jobs = Jobs(valkey_server, queue_name)
    config = config_for(valkey_server, (queue_name,), "processors:grow", max_memory=150 << 20, concurrency=1)
    with Hub(config) as hub:
        for _ in range(5):
            jobs.put(mb=50)
        jobs.done(5)
        eventually(lambda: jobs.put(mb=0) and hub.of(Wish), within=10)
        assert hub.of(Wish)[0].reason == "max_memory"
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", max_age_ms=300)) as hub:
        assert eventually(lambda: hub.of(Wish))[0].reason == "max_age"
        assert os.path.exists(f"/proc/{hub.pid}")  # noqa: PTH110
