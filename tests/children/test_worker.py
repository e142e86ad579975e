# SPDX-License-Identifier: MIT
"""The worker at its daily work: one real process, a real server, the test in the supervisor's place."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from echomq_pool.config.schema import LimiterConfig
from echomq_pool.ipc.messages import Held, Linked, Ready, Relearn, Settled, Stats
from echomq_pool.plane.keys import QueueKeys
from tests.support.hub import Hub, Jobs, config_for
from tests.support.processors import notes
from tests.support.servers import Server
from tests.support.waiting import eventually


def test_jobs_are_done_and_their_results_are_json(server: Server, queue_name: str) -> None:
    """case C104: what a processor returns is read back by any JSON parser."""
    jobs = Jobs(server, queue_name)
    gives = ["foo", ["a"], None, True, 0, "", {"k": 1}]
    ids = [jobs.put(give=give) for give in gives]
    with Hub(config_for(server, (queue_name,), "processors:work")):
        jobs.done(len(ids))
    assert [jobs.result(i) for i in ids] == gives
    assert jobs.field(ids[2], "returnvalue") == "null"
    assert {jobs.field(i, "atm") for i in ids} == {"1"}
    assert jobs.idle()


def test_links_are_told_before_the_first_take_and_jobs_before_they_start(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """law 9: whoever dies in between leaves enough behind to be given back."""
    jobs = Jobs(valkey_server, queue_name)
    for _ in range(6):
        jobs.put(notes=str(tmp_path / "notes"), ms=300)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", concurrency=8)) as hub:
        eventually(lambda: len(hub.held) == 6)
        kinds = [type(message) for message in hub.heard]
        assert kinds.index(Ready) < kinds.index(Linked) < kinds.index(Held)
        told = [m for m in hub.heard[: kinds.index(Held)] if isinstance(m, Linked)]
        main = {
            c["id"]
            for c in jobs.client.client_list()
            if c["name"] == f"echomq:test/main-1.{hub.worker_id[:6]}"
        }
        assert {int(i) for i in main} <= set(told[-1].client_ids)
        assert hub.board.busy(1) == 6
        jobs.done(6)
        eventually(lambda: not hub.held)
        eventually(lambda: hub.board.busy(1) == 0)
        held, settled = hub.of(Held), hub.of(Settled)
        assert len(held) <= 4, "jobs taken in one turn are told in one record"
        assert sum(len(h.jobs) for h in held) == sum(len(s.jobs) for s in settled) == 6
        assert {h.worker_id for h in held} == {hub.worker_id}
        assert all(j.token.startswith(hub.worker_id + ":") for h in held for j in h.jobs)


def test_a_new_lock_manager_is_told_everything_held(valkey_server: Server, queue_name: str) -> None:
    """law 9: a restarted lock manager knows every lease after one question."""
    jobs = Jobs(valkey_server, queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
        hub.send(Relearn(7))
        empty = eventually(lambda: hub.of(Held))[-1]
        assert (empty.jobs, empty.full, empty.end) == ([], True, True)
        ids = {jobs.put(ms=1500) for _ in range(5)}
        eventually(lambda: len(hub.held) == 5)
        before = len(hub.of(Held))
        hub.send(Relearn(8))
        full = eventually(lambda: hub.of(Held)[before:])
        assert {j.id for m in full for j in m.jobs} == ids
        assert full[-1].end
        assert all(m.full for m in full)


@pytest.mark.parametrize("processor", ["processors:work", "processors:work_sync"])
def test_concurrency_jobs_run_at_once_in_one_process(
    valkey_server: Server, queue_name: str, tmp_path: Path, processor: str
) -> None:
    """case C135, C024: five at a time, async or not, and what waits is not taken."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    for _ in range(8):
        jobs.put(notes=str(path), ms=1_500)
    with Hub(config_for(valkey_server, (queue_name,), processor, concurrency=5)):
        eventually(lambda: len(notes(path)) == 5)
        assert (jobs.count("active"), jobs.count("wait")) == (5, 3)
        jobs.done(8)
    starts = sorted(row[3] for row in notes(path) if row[0] == "start")
    assert starts[4] - starts[0] < 1_300
    assert starts[5] - starts[0] >= 1_400


def test_one_slot_means_one_active_job(valkey_server: Server, queue_name: str) -> None:
    """case C024: nothing is reserved behind a running job."""
    jobs = Jobs(valkey_server, queue_name)
    first, second = jobs.put(ms=800), jobs.put()
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", concurrency=1)):
        eventually(lambda: jobs.count("active") == 1)
        assert jobs.get("active") == [first]
        assert jobs.get("wait") == [second]
        jobs.done(2)


def test_several_queues_are_served_in_turn(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """A long queue does not starve its neighbour."""
    long, short = Jobs(valkey_server, queue_name), Jobs(valkey_server, queue_name + "b")
    path = tmp_path / "notes"
    for _ in range(60):
        long.put(notes=str(path), ms=5, job_id="")
    for n in range(10):
        short.put(notes=str(path), ms=5, job_id=f"s-{n}")
    queues = (queue_name, queue_name + "b")
    with Hub(config_for(valkey_server, queues, "processors:work", concurrency=2)):
        long.done(60)
        short.done(10)
    order = [row[1] for row in notes(path) if row[0] == "start"]
    last_of_short = max(i for i, job_id in enumerate(order) if job_id.startswith("s-"))
    assert last_of_short < 40, order


def test_a_queue_that_was_empty_is_heard_while_its_neighbour_keeps_every_slot_busy(
    valkey_server: Server, queue_name: str
) -> None:
    """Fetching as one settles must not deafen a process for its other queues."""
    long, quiet = Jobs(valkey_server, queue_name), Jobs(valkey_server, queue_name + "b")
    for _ in range(150):
        long.put(ms=20)
    with Hub(config_for(valkey_server, (queue_name, queue_name + "b"), "processors:work", concurrency=1)):
        eventually(lambda: long.count("completed") > 10)
        job_id = quiet.put(give=1)
        quiet.ended(job_id, "completed", within=2)
        assert long.count("completed") < 100


def test_a_burst_uses_every_slot_and_delayed_jobs_start_in_time(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """case C084, C092: due jobs start within 150 ms, also after silence; a far one does not hide a burst."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", concurrency=50)):
        due: dict[str, int] = {}
        far = jobs.put(opts={"delay": 40 * 86_400_000}, notes=str(path))
        for delay in (*range(5, 405, 8), 1500):
            job_id = jobs.put(opts={"delay": delay}, notes=str(path))
            due[job_id] = int(jobs.field(job_id, "timestamp") or 0) + delay
        jobs.done(len(due))
        late = {i: int(jobs.field(i, "processedOn") or 0) - at for i, at in due.items()}
        assert sorted(late.values())[len(late) // 2] <= 150, late
        assert max(late.values()) <= 500, "one busy machine is no fetch that sleeps for 10 s"
        assert min(late.values()) >= 0
        burst = [jobs.put(ms=3_000) for _ in range(40)]
        eventually(lambda: jobs.count("active") == 40, within=2.5)
        for job_id in burst:
            jobs.ended(job_id, "completed")
        assert jobs.get("delayed").keys() == {far}


def test_very_long_delays_are_kept(valkey_server: Server, queue_name: str) -> None:
    """case C088: 40 days and 10 years stay delayed, and no block is longer than 10 s."""
    jobs = Jobs(valkey_server, queue_name)
    ids = {jobs.put(opts={"delay": days * 86_400_000}) for days in (40, 3650)}
    with jobs.client.monitor() as monitor, Hub(config_for(valkey_server, (queue_name,), "processors:work")):
        for command in monitor.listen():
            if command["command"].startswith(f"BZPOPMIN {jobs.key('marker')}"):
                assert 0 < float(command["command"].rpartition(" ")[2]) <= 10
                break
        assert jobs.get("delayed").keys() == ids


def test_odd_markers_do_not_stop_the_fetch(valkey_server: Server, queue_name: str) -> None:
    """case C085: a fractional score and a nonsense member wake the worker and harm nothing."""
    jobs = Jobs(valkey_server, queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")):
        jobs.client.zadd(jobs.key("marker"), {"1": 1_696_233_644_865.1})
        jobs.client.zadd(jobs.key("marker"), {"nonsense": 5})
        job_id = jobs.put(give=1)
        jobs.ended(job_id, "completed", within=3)


def test_an_idle_worker_sends_one_command_per_drain_delay(valkey_server: Server, queue_name: str) -> None:
    """law 11: idle costs nothing: it blocks, and looks once per block."""
    jobs = Jobs(valkey_server, queue_name)
    config = config_for(valkey_server, (queue_name,), "processors:work", drain_delay_ms=1_000)
    with jobs.client.monitor() as monitor, Hub(config):
        seen: list[str] = []
        for command in monitor.listen():
            if jobs.key("") in command["command"] and command["client_type"] != "lua":
                seen.append(command["command"].split()[0])
                if seen.count("BZPOPMIN") == 4:
                    break
        assert seen.count("EVALSHA") <= 5  # one more at the start: whose queue is it
        assert set(seen) == {"EVALSHA", "BZPOPMIN"}


def test_the_blocking_connection_bears_the_name_that_dashboards_look_for(
    valkey_server: Server, queue_name: str
) -> None:
    """law 12, case C159: one connection per process and queue is named as Node names its workers."""
    jobs = Jobs(valkey_server, queue_name)
    keys = QueueKeys("emq", queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
        prefix = keys.worker_client_name()
        names = eventually(
            lambda: [n for c in jobs.client.client_list() if (n := c["name"]).startswith(prefix)]
        )
        assert names == [f"{prefix}:w:test/main-1.{hub.worker_id[:6]}"]
        job_id = jobs.put()
        jobs.ended(job_id, "completed")
        assert jobs.field(job_id, "pb") == f"test/main-1.{hub.worker_id[:6]}"


def test_a_prefix_without_braces_is_served_too(valkey_server: Server, queue_name: str) -> None:
    """law 12: prefix bull, no hash tag."""
    jobs = Jobs(valkey_server, queue_name, "bull")
    jobs.base = f"bull:{queue_name}:"
    config = config_for(valkey_server, (queue_name,), "processors:work", prefix="bull", hash_tag=False)
    with Hub(config):
        job_id = jobs.put(give=5)
        jobs.ended(job_id, "completed")
        assert jobs.result(job_id) == 5


def test_a_paused_queue_is_left_alone_and_resumes(valkey_server: Server, queue_name: str) -> None:
    """law 12: pause is the queue's own state, not the worker's."""
    jobs = Jobs(valkey_server, queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", drain_delay_ms=500)) as hub:
        eventually(lambda: any(m.connected for m in hub.of(Linked)))
        jobs.pause()
        first = jobs.put()
        eventually(lambda: jobs.count("wait") == 1)
        jobs.resume()
        jobs.ended(first, "completed")


def test_a_limited_queue_goes_on_at_its_rate(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """case C129: a backlog under a limiter with concurrency never comes to rest."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    for _ in range(50):
        jobs.put(notes=str(path), ms=20)
    limiter = LimiterConfig(10, 500)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", concurrency=5, limiter=limiter)):
        jobs.done(50, within=15)
    starts = sorted(row[3] for row in notes(path) if row[0] == "start")
    assert 1_900 <= starts[-1] - starts[0] <= 8_000
    assert max(b - a for a, b in itertools.pairwise(starts)) < 2_000


def test_a_job_of_a_scheduler_makes_its_successor_before_it_runs(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """case C093: the series advances, every run has a name and data, one delayed job at a time."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")):
        data = json.dumps({"notes": str(path)})
        jobs.upsert_scheduler("tick", {"name": "ticker", "every": 200}, data=data, template={})
        eventually(lambda: len([row for row in notes(path) if row[0] == "start"]) >= 10, within=6)
        assert jobs.count("delayed") == 1
        assert jobs.count("failed") == 0
    starts = sorted(row[3] for row in notes(path) if row[0] == "start")
    gaps = [b - a for a, b in itertools.pairwise(starts[1:])]
    assert 170 <= sorted(gaps)[len(gaps) // 2] <= 230, gaps
    for key in jobs.client.scan_iter(match=jobs.key("repeat:tick:*")):
        if jobs.client.type(key) == b"hash":
            assert jobs.client.hget(key, "name") == b"ticker"


def test_a_job_may_upsert_its_own_scheduler_while_it_runs(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """case C098: no ghost occurrence: every run has its name and data, no hash is half written."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    data = json.dumps({"notes": str(path), "url": valkey_server.url})
    with Hub(config_for(valkey_server, (queue_name,), "processors:reschedules")):
        jobs.upsert_scheduler("own", {"name": "ticker", "every": 300}, data=data, template={})
        eventually(lambda: len(notes(path)) >= 8)
    assert {row[0] for row in notes(path)} == {"run:ticker"}
    assert jobs.count("failed") == 0
    for key in jobs.client.scan_iter(match=jobs.key("repeat:own:*")):
        if jobs.client.type(key) == b"hash":
            assert jobs.client.hget(key, "name") == b"ticker"
            assert json.loads(jobs.client.hget(key, "data"))["url"] == valkey_server.url


def test_a_deferred_failure_fails_with_exactly_that_text_unrun(
    valkey_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """case C027: what the sweep gave up is failed by whoever takes it."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    job_id = jobs.put(notes=str(path), opts={"attempts": 5})
    jobs.client.hset(jobs.key(job_id), mapping={"defa": "job stalled more than allowable limit", "stc": 2})
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")):
        jobs.ended(job_id, "failed")
    assert jobs.field(job_id, "failedReason") == "job stalled more than allowable limit"
    assert jobs.field(job_id, "defa") is None
    assert notes(path) == []


def test_a_job_that_stalled_once_runs_alone(valkey_server: Server, queue_name: str, tmp_path: Path) -> None:
    """law 9 (poison jobs): the next death convicts nobody else."""
    jobs = Jobs(valkey_server, queue_name)
    path = tmp_path / "notes"
    before = [jobs.put(notes=str(path), ms=300) for _ in range(2)]
    suspect = jobs.put(notes=str(path), ms=300)
    jobs.client.hset(jobs.key(suspect), "stc", 1)
    after = [jobs.put(notes=str(path), ms=100) for _ in range(6)]
    with Hub(config_for(valkey_server, (queue_name,), "processors:work", concurrency=8)):
        jobs.done(9)
    rows = notes(path)
    start = next(i for i, row in enumerate(rows) if row[:2] == ("start", suspect))
    assert rows[start + 1][:2] == ("end", suspect), rows
    assert {row[1] for row in rows} == {*before, suspect, *after}


def test_numbers_are_told_once_a_second_and_only_after_a_change(
    valkey_server: Server, queue_name: str
) -> None:
    """law 11: counters of what was done, by queue."""
    jobs = Jobs(valkey_server, queue_name)
    with Hub(config_for(valkey_server, (queue_name,), "processors:work")) as hub:
        for _ in range(5):
            jobs.put()
        jobs.done(5)
        stats = eventually(lambda: [s for s in hub.of(Stats) if f"completed|{queue_name}" in s.counters])[-1]
        assert stats.counters[f"completed|{queue_name}"] == 5
        assert sum(stats.histograms[f"duration|{queue_name}"][:-1]) == 5
        assert len(hub.of(Stats)) <= 3
