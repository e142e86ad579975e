# SPDX-License-Identifier: MIT
"""Recovery of dead workers: what comes back, where it goes, what it costs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import pytest

from echomq_pool.children.undertaker import describe, evidence_of
from echomq_pool.ipc.messages import Down, Lost, Recovered, Stop
from tests.children.holders import HOLDER, process
from tests.children.stage import LEASE, Stage, group, now_ms, stage_on
from tests.support.servers import Server
from tests.support.waiting import eventually_async


@pytest.fixture
async def stage(server: Server, queue_name: str) -> AsyncIterator[Stage]:
    async with stage_on(server, group(queue_name, lease=30_000)) as stage:
        yield stage


# --- a worker dies --------------------------------------------------------------------------------------------


async def test_the_jobs_of_a_killed_process_wait_again_within_tens_of_milliseconds(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """law 1, 2; promise 0.18, 0.19, 4.15; case C027, C028: at a lock of 30 s."""
    caplog.set_level(logging.INFO, "echomq")
    ids = stage.add(3)
    with process(HOLDER, str(stage.server.port)) as holder:
        assert holder.stdout is not None
        client_id, _ = map(int, holder.stdout.readline().split())
        worker = stage.worker(holder.pid)
        worker.up([client_id])
        await worker.take(3)
        holder.kill()
        holder.wait()
        died = time.monotonic()
        worker.down(client_ids=[client_id])
        recovered = await stage.hears(Recovered)
        took_ms = (time.monotonic() - died) * 1000
    assert took_ms < 150
    assert recovered.worker_id == worker.id
    assert [(row[1], row[3]) for row in sorted(recovered.jobs, key=lambda row: ids.index(row[1]))] == [
        (job_id, "wait") for job_id in ids
    ]
    assert stage.waiting() == ids
    assert stage.active() == []
    assert [stage.field(job_id, "stc") for job_id in ids] == ["1", "1", "1"]
    assert [stage.field(job_id, "atm") for job_id in ids] == [None] * 3
    assert [stage.lock_ttl(job_id) for job_id in ids] == [-2] * 3
    (line,) = [
        r.getMessage()
        for r in caplog.records
        if worker.id in r.getMessage() and "given back" in r.getMessage()
    ]
    assert all(job_id in line for job_id in ids)
    assert "signal SIGKILL" in line


async def test_recovered_jobs_go_before_those_that_wait(stage: Stage) -> None:
    """promise 2.16, 2.22"""
    held = stage.add(2)
    worker = stage.worker()
    await worker.take(2)
    later = stage.add(2)
    worker.down()
    await stage.hears(Recovered)
    assert stage.waiting() == [*held, *later]


async def test_a_claim_that_nobody_was_told_of_is_found_by_its_lock(stage: Stage) -> None:
    """law 1, 9: killed between a take and its `held`; it does not wait for the stalled sweep."""
    stage.add(2)
    worker = stage.worker()
    (told,) = await worker.take()
    (untold,) = await worker.take(tell=False)
    worker.down()
    recovered = await stage.hears(Recovered)
    assert {row[1] for row in recovered.jobs} == {told.id, untold.id}
    assert len(stage.waiting()) == 2


async def test_a_lock_that_lapsed_before_the_death_is_no_hostage(stage: Stage) -> None:
    """law 3: a worker that was stopped longer than its lease; its held list names the job."""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    stage.client.delete(stage.keys[job.queue].lock(job.id))
    worker.down(reason="hang")
    recovered = await stage.hears(Recovered)
    assert [row[1] for row in recovered.jobs] == [job.id]


async def test_jobs_of_other_workers_are_left_alone(stage: Stage) -> None:
    """law 2, 5; promise 0.24, 2.4"""
    stage.add(4)
    dead, alive = stage.worker(), stage.worker()
    await dead.take(2)
    kept = await alive.take(2)
    dead.down()
    await stage.hears(Recovered)
    assert sorted(stage.active()) == sorted(job.id for job in kept)
    assert all(stage.lock_ttl(job.id) > 0 for job in kept)
    assert not stage.heard(Lost)


async def test_a_job_that_was_taken_by_somebody_else_stays_with_them(stage: Stage) -> None:
    """law 5; case C020"""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    stage.client.set(stage.keys[job.queue].lock(job.id), "another:1", px=60_000)
    worker.down()
    recovered = await stage.hears(Recovered)
    assert recovered.jobs == []
    assert stage.active() == [job.id]
    assert stage.field(job.id, "stc") is None


async def test_a_finished_job_is_not_relabelled_by_the_death_that_follows(stage: Stage) -> None:
    """case C036"""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    record = await stage.planes[job.queue].load(job.id)
    assert record is not None
    await stage.planes[job.queue].complete(record, job.token, b"42")
    worker.down()  # before `settled` was sent
    recovered = await stage.hears(Recovered)
    assert recovered.jobs == []
    assert stage.waiting() == []
    assert stage.field(job.id, "returnvalue") == "42"


async def test_a_down_told_twice_is_answered_twice_and_done_once(stage: Stage) -> None:
    """law 9; promise 2.20, 2.21"""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take()
    worker.down()
    worker.down()
    await stage.hears(Recovered)
    worker.down()
    await eventually_async(lambda: len(stage.heard(Recovered)) == 2)
    first, second = stage.heard(Recovered)
    assert first == second
    assert stage.waiting() == [job.id]
    assert stage.field(job.id, "stc") == "1"


async def test_what_a_dead_worker_seems_to_say_afterwards_is_not_believed(stage: Stage) -> None:
    """law 2"""
    stage.add()
    worker = stage.worker()
    (job,) = await worker.take(tell=False)
    worker.down()
    worker.retell()
    worker.settle(job)
    await stage.hears(Recovered)
    assert len(stage.child.book) == 0
    assert worker.id not in stage.child.book.holders


async def test_a_new_lock_manager_recovers_a_death_that_its_predecessor_left(stage: Stage) -> None:
    """law 9: the supervisor keeps Down until Recovered comes; no held list is needed."""
    stage.add(2)
    worker = stage.worker()
    jobs = await worker.take(2)
    await stage.crash()
    await stage.start()
    worker.down()
    recovered = await stage.hears(Recovered)
    assert {row[1] for row in recovered.jobs} == {job.id for job in jobs}


async def test_a_death_during_an_outage_is_dealt_with_as_soon_as_the_server_is_back(
    own_server: Server, queue_name: str
) -> None:
    """law 9"""
    async with stage_on(own_server, group(queue_name, lease=30_000)) as stage:
        stage.add(2)
        worker = stage.worker()
        await worker.take(2)
        own_server.stop(kill=True)
        await eventually_async(lambda: not stage.child.links.links[0].connected)
        worker.down(client_ids=[7])
        own_server.start()
        recovered = await stage.hears(Recovered)
        assert len(recovered.jobs) == 2
        assert len(stage.waiting()) == 2


async def test_other_leases_are_renewed_while_a_death_cannot_be_dealt_with(
    valkey_server: Server, queue_name: str
) -> None:
    """law 1"""
    async with stage_on(valkey_server, group(queue_name)) as stage:
        stage.add(2)
        dead, alive = stage.worker(), stage.worker()
        await dead.take()
        (job,) = await alive.take()

        async def refuses(*args: object, **kwargs: object) -> None:
            raise RuntimeError("recovery is broken in this test")

        stage.child.planes[queue_name].recover = refuses
        dead.down()
        await asyncio.sleep(2 * LEASE / 1000)
        assert stage.lock_ttl(job.id) > 0
        assert not stage.heard(Recovered)
        del stage.child.planes[queue_name].recover
        assert len((await stage.hears(Recovered)).jobs) == 1


# --- how jobs are settled ---------------------------------------------------------------------------------------


async def test_neighbours_of_a_job_that_we_ended_go_back_without_cost(stage: Stage) -> None:
    """case C061; design section 4: no attempt, no stall, front of the line."""
    stage.add(2)
    worker = stage.worker()
    jobs = await worker.take(2)
    stage.add(1)
    worker.down(planned=True, reason="timeout of a neighbour")
    recovered = await stage.hears(Recovered)
    assert {row[3] for row in recovered.jobs} == {"wait"}
    assert stage.waiting()[:2] == [job.id for job in jobs]
    assert [stage.field(job.id, "stc") for job in jobs] == [None, None]
    assert [stage.field(job.id, "atm") for job in jobs] == [None, None]


@pytest.mark.parametrize(
    ("opts", "how", "where"),
    [
        ('{"attempts":3}', "timeout", "wait"),
        ('{"attempts":3,"backoff":{"type":"fixed","delay":60000}}', "timeout", "delayed"),
        ('{"attempts":1}', "timeout", "failed"),
        ('{"attempts":3}', "cancel", "failed"),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
async def test_an_expired_job_is_settled_by_its_own_retry_policy(
    stage: Stage, opts: str, how: str, where: str, restarted: bool
) -> None:
    """design section 4: a timeout is an attempt, a cancelled job fails with its text; neighbours are handed back."""
    stage.add(opts=opts)
    stage.add()
    worker = stage.worker()
    expired, neighbour = await worker.take(2)
    if restarted:  # the one that knew the held list is gone
        await stage.crash()
        await stage.start()
    row = [expired.queue, expired.id, how, f"{how} of 5 s"]
    worker.down(planned=True, reason=how, expired=[row])
    recovered = await stage.hears(Recovered)
    places = {row[1]: row[3] for row in recovered.jobs}
    assert places == {expired.id: where, neighbour.id: "wait"}
    assert stage.field(expired.id, "atm") == "1"
    assert stage.field(expired.id, "failedReason") == f"{how} of 5 s"
    assert stage.field(expired.id, "stc") is None
    assert stage.field(neighbour.id, "atm") is None
    assert stage.active() == []


async def test_a_poison_job_fails_past_its_limit_with_the_standard_reason_and_its_evidence(
    stage: Stage,
) -> None:
    """promise 2.17, 2.18, 4.14; case C030, C032, C152: one stall is allowed, the second convicts."""
    (job_id,) = stage.add()
    for _ in range(2):
        worker = stage.worker()
        await worker.take()
        worker.down(reason="signal SIGSEGV", peak_bytes=300 << 20)
        await eventually_async(lambda: not stage.active())
    recovered = await eventually_async(lambda: len(stage.heard(Recovered)) == 2 and stage.heard(Recovered)[1])
    assert recovered.jobs[0][3] == "failed"
    assert stage.field(job_id, "defa") == "job stalled more than allowable limit"
    logs = stage.client.lrange(stage.keys[stage.queues[0]].logs(job_id), 0, -1)
    assert len(logs) == 2
    trace = stage.field(job_id, "stacktrace") or ""
    for text in ("signal SIGSEGV", "peak memory 300 MB", "had run for"):
        assert text in trace
        assert text in logs[0].decode()


async def test_a_job_of_a_living_scheduler_never_fails_for_stalls_and_of_a_removed_one_does(
    stage: Stage,
) -> None:
    """case C033"""
    (job_id,) = stage.add(rjk="nightly")
    scheduler = stage.keys[stage.queues[0]].scheduler("nightly")
    stage.client.hset(scheduler, "ic", "1")
    for deaths in range(1, 5):
        if deaths == 4:
            stage.client.delete(scheduler)
        worker = stage.worker()
        await worker.take()
        worker.down()
        while len(stage.heard(Recovered)) < deaths:
            await asyncio.sleep(0.01)
        assert stage.heard(Recovered)[-1].jobs[0][3] == ("failed" if deaths == 4 else "wait")
    assert stage.field(job_id, "stc") == "4"


async def test_thousands_of_jobs_of_one_worker_all_come_back(valkey_server: Server, queue_name: str) -> None:
    """case C035: in bounded batches."""
    async with stage_on(valkey_server, group(queue_name, lease=30_000)) as stage:
        ids = stage.add(3_000)
        worker = stage.worker()
        keys = stage.keys[queue_name]
        pipe = stage.client.pipeline()
        for job_id in ids:
            pipe.rpoplpush(keys.key("wait"), keys.key("active"))
            pipe.set(keys.lock(job_id), f"{worker.id}:1", px=30_000)
        pipe.execute()
        worker.down()
        recovered = await stage.hears(Recovered)
        await eventually_async(lambda: sum(len(part.jobs) for part in stage.heard(Recovered)) == 3_000)
        assert recovered.worker_id == worker.id
        assert sorted(stage.waiting()) == sorted(ids)


async def test_a_stop_waits_for_the_recovery_under_way(stage: Stage) -> None:
    """case C062: the last deaths of a shutdown are dealt with before the lock manager leaves."""
    stage.add(2)
    worker = stage.worker()
    await worker.take(2)
    worker.down(planned=True)
    await stage.child.stop(Stop(now_ms() + 5_000))
    assert len(stage.waiting()) == 2
    assert len(stage.heard(Recovered)) == 1


# --- words ------------------------------------------------------------------------------------------------------------


def test_the_evidence_names_the_reason_the_age_and_the_memory() -> None:
    """case C030"""
    down = Down("w", 1, ["q"], [], False, "exit code 3", [], peak_bytes=10 << 20)
    assert evidence_of(down, [], 5) == "worker process ended: exit code 3; peak memory 10 MB"


def test_a_long_list_of_jobs_is_one_line() -> None:
    """promise 2.5"""
    assert describe([]) == "it held no jobs"
    assert describe([["q", "7", 5, "wait"]]) == "1 job given back: q/7 (5 ms) to wait"
    text = describe([["q", str(i), 5, "wait"] for i in range(30)])
    assert text.startswith("30 jobs given back: q/0 (5 ms) to wait, ")
    assert text.endswith(" and 10 more")
