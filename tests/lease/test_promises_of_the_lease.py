# SPDX-License-Identifier: MIT
"""The promises of the two texts about leases, as far as scripts and plane show them."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import textwrap
from collections import Counter
from typing import Any

import pytest

from echomq_pool.clock import FakeClock
from echomq_pool.errors import JobError, LeaseLost
from echomq_pool.plane.base import PlaneOptions
from echomq_pool.plane.lease import LeasePlane
from echomq_pool.plane.lease_keys import slot
from tests.support.lease import LIBRARY, LeaseBench, lease_on
from tests.support.servers import Server

DAY_MS = 86_400_000


class Recording:
    """Keeps the script calls of a bench's link whole."""

    def __init__(self, bench: LeaseBench) -> None:
        self.calls: list[tuple[str, list[Any], list[Any]]] = []
        link, plain = bench.link, bench.link.script

        def script(script: Any, keys: Any, args: Any) -> Any:
            self.calls.append((script.name, list(keys), list(args)))
            return plain(script, keys, args)

        link.script = script  # type: ignore[method-assign]


async def test_nothing_pending_is_empty(bench: LeaseBench) -> None:
    """promise 1.2"""
    assert await bench.queue.claim() is None
    assert bench.dump() == {}


async def test_each_delivery_has_its_number(bench: LeaseBench) -> None:
    """promise 1.3"""
    job_id = await bench.add()
    for token in (1, 2, 3):
        assert await bench.claimed() == (job_id, token)
        assert bench.row(job_id)["attempts"] == str(token)
        bench.lapse(job_id)
        await bench.queue.reap()


@pytest.mark.parametrize("skew_ms", [0, -DAY_MS, DAY_MS])
async def test_the_score_is_the_servers_clock_plus_the_lease(bench: LeaseBench, skew_ms: int) -> None:
    """promise 1.5, 1.6, 1.7, law 7"""
    clock = FakeClock(bench.now_ms() + skew_ms)
    plane = LeasePlane(bench.link, bench.keys, LIBRARY, PlaneOptions(lock_duration_ms=5_000), clock)
    job_id = await bench.add()
    before = bench.now_ms()
    await plane.take(bench.token())
    after = bench.now_ms()
    score = bench.score("active", job_id)
    assert score is not None
    assert before <= score - 5_000 <= after
    assert score == int(score)


async def test_the_calls_are_those_of_the_text(bench: LeaseBench) -> None:
    """promise 1.8, 1.21"""
    recorded = Recording(bench)
    await bench.add()
    await bench.queue.claim(7_000)
    await bench.queue.reap()
    base = bench.keys.base
    claim, reap = recorded.calls[-2:]
    assert claim[0] == "lease/claim"
    assert claim[1][:2] == [base + "pending", base + "active"]
    assert claim[2][:2] == [base + "job:", 7_000]
    assert reap == ("lease/reap", [base + "active", base + "pending"], [base])


async def test_the_lease_is_thirty_seconds_by_default(bench: LeaseBench) -> None:
    """promise 1.11, 3.21"""
    job_id = await bench.add()
    before = bench.now_ms()
    await bench.queue.claim()
    score = bench.score("active", job_id) or 0
    assert 30_000 <= score - before < 31_000
    assert PlaneOptions().lock_duration_ms == 30_000


def test_eight_processes_never_claim_one_job_twice(valkey_server: Server, queue_name: str) -> None:
    """promise 1.10"""
    code = """
        import sys, redis
        from echomq_pool.redisio.scripts import load_library
        text = load_library("lease")["lease/claim"].text
        client = redis.Redis(port=int(sys.argv[1]))
        base = "emq:{%s}:" % sys.argv[2]
        claim = client.register_script(text)
        while row := claim(keys=[base + "pending", base + "active"], args=[base + "job:", 60000]):
            print(row[0].decode())
    """
    base = f"emq:{{{queue_name}}}:"
    with valkey_server.client() as client:
        with client.pipeline() as pipe:
            for n in range(8_000):
                job_id = f"JOB{n:011d}"
                pipe.hset(f"{base}job:{job_id}", mapping={"attempts": 0, "state": "pending", "payload": ""})
                pipe.zadd(f"{base}pending", {job_id: 0})
            pipe.execute()
        command = [sys.executable, "-c", textwrap.dedent(code), str(valkey_server.port), queue_name]
        claimers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
        ids = [line for claimer in claimers for line in claimer.communicate()[0].split()]
        assert len(ids) == len(set(ids)) == 8_000
        assert client.zcard(f"{base}active") == 8_000


async def test_the_lease_of_a_dead_holder_stands_still(bench: LeaseBench) -> None:
    """promise 1.14"""
    job_id = await bench.add()
    await bench.claimed()
    first = bench.score("active", job_id)
    await bench.past(bench.now_ms() + 20)
    assert bench.score("active", job_id) == first


async def test_a_lease_is_over_at_its_very_millisecond(valkey_bench: LeaseBench) -> None:
    """promise 1.15"""
    bench = valkey_bench
    job_id = await bench.add()
    await bench.claimed()
    reap = bench.client.register_script(LIBRARY["lease/reap"].text)
    for _ in range(200):
        exact = _reaped_at_its_millisecond(bench, job_id, reap)
        await bench.claimed()
        if exact:
            return
    raise AssertionError("the very millisecond was never met")


def _reaped_at_its_millisecond(bench: LeaseBench, job_id: str, reap: Any) -> bool:
    keys = [bench.keys.key("active"), bench.keys.key("pending")]
    deadline = bench.now_ms() + 5
    bench.client.zadd(keys[0], {job_id: deadline})
    while True:
        with bench.client.pipeline(transaction=False) as pipe:
            pipe.time()
            reap(keys=keys, args=[bench.keys.base], client=pipe)
            pipe.time()
            (s1, u1), count, (s2, u2) = pipe.execute()
        before, after = s1 * 1000 + u1 // 1000, s2 * 1000 + u2 // 1000
        if after < deadline:
            assert count == 0, "taken back before its time"
        if before >= deadline:
            assert count == 1
        if count:
            return bool(before == after == deadline)


async def test_a_reap_of_a_hundred_is_one_call_without_a_probe(valkey_bench: LeaseBench) -> None:
    """promise 1.16, 1.29"""
    bench = valkey_bench
    for count in (1, 10, 100):
        ids = await bench.add_many(count)
        await bench.queue.claim_batch(count)
        bench.lapse(*ids)
        calls = len(bench.link.log)
        assert await bench.queue.reap() == count
        assert len(bench.link.log) == calls + 1
        await bench.queue.drain()
    assert b"EXISTS" not in LIBRARY["lease/reap"].text.split(b"local function give_back")[1]


async def test_a_pass_takes_at_most_a_hundred(bench: LeaseBench) -> None:
    """promise 1.17, 3.24"""
    ids = await bench.add_many(250)
    await bench.queue.claim_batch(250)
    bench.lapse(*ids)
    assert [await bench.queue.reap() for _ in range(4)] == [100, 100, 50, 0]
    assert sorted(bench.get("pending")) == ids


async def test_two_reapers_at_once_return_each_job_once(bench: LeaseBench) -> None:
    """promise 1.20"""
    ids = await bench.add_many(80)
    await bench.queue.claim_batch(80)
    bench.lapse(*ids)
    found = await asyncio.gather(*(bench.other("").queue.reap() for _ in range(4)))
    assert sum(found) == 80
    assert sorted(bench.get("pending")) == ids


async def test_a_client_whose_clock_is_an_hour_ahead_takes_no_live_job(bench: LeaseBench) -> None:
    """promise 1.22"""
    await bench.add()
    await bench.claimed()
    clock = FakeClock(bench.now_ms() + 3_600_000)
    for recovery in ("reap", "sweep"):
        plane = LeasePlane(bench.link, bench.keys, LIBRARY, PlaneOptions(recovery=recovery), clock)
        done = await plane.maintain()
        assert (done.recovered, done.dead) == ([], [])
    assert len(bench.get("active")) == 1


async def test_short_jobs_are_never_recovered(bench: LeaseBench) -> None:
    """promise 1.23"""
    await bench.add_many(200)
    recovered = 0
    while isinstance(got := await bench.plane.take_batch(bench.token(), 20), list):
        recovered += len((await bench.plane.maintain()).recovered)
        await asyncio.gather(*(bench.plane.complete(t.job, t.token, b"1") for t in got))
    assert recovered == 0
    assert (await bench.plane.counts("completed"))["completed"] == 200


async def test_the_lapsed_are_a_prefix_of_the_set(bench: LeaseBench) -> None:
    """promise 1.30"""
    ids = await bench.add_many(10)
    await bench.queue.claim_batch(10)
    bench.lapse(*ids[3:6])
    order = [i.decode() for i in bench.client.zrange(bench.keys.key("active"), 0, -1)]
    assert set(order[:3]) == set(ids[3:6])
    assert await bench.plane.probe() == order[:3]
    await bench.queue.drain()


async def test_the_view_of_the_leases_has_signs(bench: LeaseBench) -> None:
    """promise 1.31"""
    ids = await bench.add_many(2)
    await bench.queue.claim_batch(2)
    bench.lapse(ids[1])
    (first, over), (second, left) = await bench.queue.leases()
    assert (first, second) == (ids[1], ids[0])
    assert over < 0 < left <= 30_000


async def test_a_new_claim_fences_the_old_holder_out(bench: LeaseBench) -> None:
    """promise 3.22, 3.23, law 5"""
    job_id = await bench.add()
    old = await bench.taken()
    bench.lapse(job_id)
    await bench.queue.reap()
    new = await bench.taken()
    assert new.token > old.token
    before = bench.dump()
    plane = bench.plane
    refused: list[Any] = [
        plane.complete(old.job, old.token, b"1"),
        plane.fail(old.job, old.token, "no", []),
        plane.retry(old.job, old.token, "no", []),
        plane.delay(old.job, old.token, 10),
        plane.release(old.job, old.token),
        bench.queue.complete(job_id, old.token),
        bench.queue.retry(job_id, old.token, 0, 3, "no"),
        bench.queue.extend_lock(job_id, old.token),
        bench.queue.delay(job_id, old.token, 1),
    ]
    for verb in refused:
        with pytest.raises(LeaseLost):
            await verb
    assert await plane.extend([(job_id, old.token)]) == [job_id]
    assert bench.dump() == before
    await plane.complete(new.job, new.token, b"1")


async def test_until_then_the_old_holder_may_still_settle(bench: LeaseBench) -> None:
    """The reap does not change the token: nobody else has the job."""
    for verb in ("complete", "retry"):
        job_id = await bench.add()
        old = await bench.taken()
        bench.lapse(job_id)
        await bench.queue.reap()
        if verb == "complete":
            await bench.plane.complete(old.job, old.token, b"1")
            assert bench.row(job_id) == {}
        else:
            await bench.queue.retry(job_id, old.token, 60_000, 3, "late")
            assert bench.row(job_id)["state"] == "scheduled"
        assert bench.get("pending") is None


async def test_the_reserved_key_is_never_written(bench: LeaseBench) -> None:
    """promise 3.27"""
    await bench.add()
    taken = await bench.taken()
    await bench.plane.maintain()
    await bench.plane.complete(taken.job, taken.token, b"1")
    assert bench.client.exists("{emq}:locks") == 0
    assert all(b"{emq}:locks" not in script.text for script in LIBRARY.values())


async def test_every_key_of_a_queue_is_in_one_slot(bench: LeaseBench) -> None:
    """promise 3.32"""
    await bench.add(dedup_id="d")
    await bench.add_to("PRT0NgWEfAEJfs")
    await bench.repeats.register("tick", 1_000, "{}")
    await bench.queue.mark([(await bench.claimed())])
    keys = [bench.keys.base + name for name in bench.dump()]
    assert len(keys) > 8
    assert len({slot(key) for key in keys}) == 1


async def test_renewing_many_is_one_call_and_one_by_one_is_many(bench: LeaseBench) -> None:
    """promise 3.13, 3.14, law 10"""
    for count in (6, 600):
        ids = await bench.add_many(count)
        while await bench.queue.claim_batch(1_000):
            pass
        calls = len(bench.link.log)
        assert await bench.plane.extend([(job_id, "1") for job_id in ids]) == []
        assert len(bench.link.log) - calls == 1
    for job_id in ids[:6]:
        await bench.queue.extend_lock(job_id, 1)
    assert bench.link.log[-6:] == ["lease/extendLock"] * 6


async def test_every_script_survives_a_lost_cache(own_server: Server) -> None:
    """The reply of the second attempt is read as that of the first."""
    async with lease_on(own_server, "flushing") as bench:
        for _ in range(3):
            job_id = await bench.add()
            bench.flush_scripts()
            taken = await bench.taken()
            bench.flush_scripts()
            assert await bench.plane.extend([(job_id, "9")]) == [job_id]
            bench.flush_scripts()
            with pytest.raises(JobError):
                await bench.queue.reprocess_job(job_id)
            bench.flush_scripts()
            await bench.plane.complete(taken.job, taken.token, b"1")


async def test_claims_of_many_planes_at_once_are_disjoint(bench: LeaseBench) -> None:
    """promise 1.10"""
    ids = await bench.add_many(400)
    planes = [bench.other("").plane for _ in range(8)]
    numbers = itertools.count()
    got: list[str] = []

    async def drain(plane: LeasePlane) -> None:
        while isinstance(found := await plane.take_batch(f"w{next(numbers)}:1", 7), list):
            got.extend(taken.job.id for taken in found)

    await asyncio.gather(*(drain(plane) for plane in planes))
    assert Counter(got) == Counter(ids)
