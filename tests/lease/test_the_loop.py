# SPDX-License-Identifier: MIT
"""The loop of programs without a pool, and the renewal beside it. Times are scaled: a lease is some 100 ms."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, JobLocked, RateReached
from echomq_pool.plane.lease_consumer import Consumer, ConsumerOptions, Delivery
from echomq_pool.plane.lease_locks import Cadence, Locks
from echomq_pool.plane.lease_telemetry import TELEMETRY
from echomq_pool.redisio.link import Link
from tests.support.lease import LeaseBench
from tests.support.servers import Server
from tests.support.waiting import eventually_async

Handler = Callable[[Delivery], Awaitable[Any]]


class Crew:
    """Consumers of one queue that end with the test."""

    def __init__(self, bench: LeaseBench) -> None:
        self.bench = bench
        self.tasks: list[asyncio.Task[None]] = []
        self.links: list[Link] = []
        self.locks: list[Locks] = []
        self.runs: Counter[str] = Counter()

    async def consumer(
        self, handler: Handler, *, lease_ms: int = 30_000, renew: bool = False, **options: Any
    ) -> Consumer:
        """A consumer that is not started."""
        bench = self.bench.other("", lock_duration_ms=lease_ms, recovery=options.pop("recovery", "reap"))
        blocking = Link(RedisConfig(url=bench.server.url, port=bench.server.port), blocking=True)
        await blocking.start()
        self.links.append(blocking)
        locks = Locks(bench.queue, Cadence(lease_ms)) if renew else None
        if locks is not None:
            self.locks.append(locks)

        async def counted(delivery: Delivery) -> Any:
            self.runs[delivery.id] += 1
            return await handler(delivery)

        figures = ConsumerOptions(**({"beat_ms": 50, "retry_delay": 0} | options))
        return Consumer(bench.plane, blocking, counted, figures, locks)

    async def start(self, handler: Handler, **more: Any) -> Consumer:
        consumer = await self.consumer(handler, **more)
        self.tasks.append(asyncio.create_task(consumer.run()))
        return consumer

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for locks in self.locks:
            await locks.stop()
        for link in self.links:
            await link.close()


@pytest.fixture
async def crew(bench: LeaseBench) -> AsyncIterator[Crew]:
    crew = Crew(bench)
    yield crew
    await crew.end()


async def done(delivery: Delivery) -> None:
    """A job that does nothing."""


async def completed(bench: LeaseBench, count: int) -> None:
    await eventually_async(lambda: bench.get("metrics:completed") == {"count": str(count)})


async def test_one_beat_is_reap_promote_drain(crew: Crew) -> None:
    """promise 3.16, 3.17"""
    await crew.bench.add_many(2)
    consumer = await crew.consumer(done, beat_ms=60_000)
    log = consumer._plane._link.log  # type: ignore[attr-defined]
    await consumer.beat()
    steps = [
        "lease/reap",
        "lease/promote",
        "lease/take",
        "lease/settle",
        "lease/take",
        "lease/settle",
        "lease/take",
    ]
    assert log == steps


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, float], dict[str, str]]]]:
    """What telemetry tells of each part, in its order."""
    heard: list[tuple[str, dict[str, float], dict[str, str]]] = []
    parts = {"job": ("add", "start", "complete", "fail", "retry"), "worker": ("start", "stop")}
    names = [("emq", part, what) for part in parts for what in parts[part]] + [("emq", "rate_limit", "hit")]

    def hear(name: tuple[str, ...], measured: dict[str, float], about: dict[str, str]) -> None:
        heard.append((" ".join(name[1:]), measured, about))

    for name in names:
        TELEMETRY.attach(name, hear)
    yield heard
    for name in names:
        TELEMETRY.detach(name, hear)


async def test_telemetry_tells_what_producers_and_the_loop_do(
    crew: Crew, told: list[tuple[str, dict[str, float], dict[str, str]]]
) -> None:
    """lease-plane section 18"""
    bench = crew.bench
    job_id = await bench.add()
    await bench.queue.enqueue(job_id, "{}")  # a duplicate is not added
    fails = [True, False]

    async def once(delivery: Delivery) -> None:
        if fails.pop(0):
            raise RuntimeError("no")

    consumer = await crew.start(once, retry_delay=0)
    await completed(bench, 1)
    consumer.stop()
    await eventually_async(lambda: told[-1][0] == "worker stop")
    assert [name for name, *_ in told] == [
        "job add", "worker start", "job start", "job fail", "job retry", "job start", "job complete", "worker stop",
    ]  # fmt: skip
    assert {about["queue"] for *_, about in told} == {bench.keys.queue}
    assert {about.get("job", job_id) for *_, about in told} == {job_id}
    measured = [figures for _, figures, _ in told]
    assert measured[4] == {"attempt": 1, "delay": 0}
    assert all(figures.get("duration", 0) >= 0 for figures in measured)
    assert measured[2]["queue_time"] >= 0
    bench.client.hset(bench.keys.key("meta"), "concurrency", 1)
    await bench.add()
    await bench.claimed()
    with pytest.raises(RateReached):
        await bench.queue.is_maxed()
    assert told[-1][0] == "rate_limit hit"


async def test_a_beat_promotes_its_batch(crew: Crew) -> None:
    """promise 3.18"""
    bench = crew.bench
    for _ in range(250):
        await bench.queue.enqueue_at(bench.mint.new(), "{}", 1)
    consumer = await crew.consumer(done, beat_ms=60_000)
    for beat in (100, 200, 250):
        await consumer.beat()
        assert bench.get("metrics:completed") == {"count": str(beat)}


async def test_an_idle_loop_blocks_once_per_beat_and_a_push_wakes_it(crew: Crew) -> None:
    """promise 3.19, law 11"""
    bench = crew.bench
    started = asyncio.Event()

    async def run(delivery: Delivery) -> None:
        started.set()

    await crew.start(run, beat_ms=20_000)
    await eventually_async(
        lambda: any(c["cmd"] == "blpop" for c in bench.client.client_list() if c["flags"] == "b")
    )
    before = time.monotonic()
    await bench.add()
    await asyncio.wait_for(started.wait(), 10)
    assert time.monotonic() - before < 5


async def test_flat_jobs_and_lanes_are_both_served(crew: Crew) -> None:
    """In the sources a plain enqueue is served by no loop."""
    bench = crew.bench
    ids = [await bench.add(), await bench.add_to("PRT0NgWEfAEJfs")]
    await crew.start(done)
    await completed(bench, 2)
    assert crew.runs == Counter(ids)


async def test_a_backlog_does_not_starve_the_maintenance(crew: Crew) -> None:
    """In the sources the drain of a full queue never ends, and nothing is reaped or promoted."""
    bench = crew.bench
    due = bench.mint.new()
    await bench.queue.enqueue_at(due, "{}", 1)
    served: list[str] = []

    async def busy(delivery: Delivery) -> None:
        served.append(delivery.id)
        await asyncio.sleep(0.002)
        await bench.add()  # the queue never empties

    await bench.add_many(3)
    consumer = await crew.start(busy, beat_ms=20)
    await eventually_async(lambda: due in served)
    later = bench.mint.new()
    await bench.queue.enqueue_at(later, "{}", 1)
    await eventually_async(lambda: later in served)
    consumer.stop()


async def test_what_a_handler_raises_is_its_jobs_failure_and_the_loop_goes_on(crew: Crew) -> None:
    bench = crew.bench
    poison, good = await bench.add("poison"), await bench.add("good")

    async def run(delivery: Delivery) -> None:
        if delivery.payload == b"poison":
            raise ValueError(f"boom {delivery.attempts}")

    await crew.start(run)
    await eventually_async(lambda: bench.row(poison).get("state") == "dead")
    assert bench.row(poison)["last_error"] == "boom 3"
    assert crew.runs == {poison: 3, good: 1}


async def test_a_stop_is_honoured_between_two_jobs(crew: Crew) -> None:
    bench = crew.bench
    await bench.add_many(3)
    consumers: list[Consumer] = []

    async def run(delivery: Delivery) -> None:
        consumers[0].stop()

    consumers.append(await crew.consumer(run))
    await asyncio.wait_for(consumers[0].run(), 10)
    assert bench.get("metrics:completed") == {"count": "1"}
    assert await bench.queue.pending_size() == 2


def slow(seconds: float) -> Handler:
    async def run(delivery: Delivery) -> None:
        await asyncio.sleep(seconds)

    return run


def outliving(first: Consumer, bench: LeaseBench, rows: list[dict[str, str]]) -> Handler:
    """A second run that ends after the first holder has tried to settle; what the row is then goes to `rows`."""
    log = first._plane._link.log  # type: ignore[attr-defined]

    async def run(delivery: Delivery) -> None:
        await eventually_async(lambda: "lease/settle" in log, within=100)
        await (
            bench.queue.pending_size()
        )  # over the same connection: the answer comes after that of the settlement
        rows.append(bench.row(delivery.id))

    return run


async def runs_twice(crew: Crew, seconds: float, lease_ms: int) -> None:
    """One job that nobody renews, longer than its lease, and two consumers: the first one's end is refused."""
    bench = crew.bench
    job_id = await bench.add()
    rows: list[dict[str, str]] = []
    first = await crew.start(slow(seconds), lease_ms=lease_ms)
    await eventually_async(lambda: crew.runs[job_id] == 1)
    await crew.start(outliving(first, bench, rows), lease_ms=600_000)
    await eventually_async(lambda: crew.runs[job_id] == 2, within=2 * lease_ms / 1_000 + 30)
    await eventually_async(lambda: bool(rows), within=seconds + 30)
    assert (rows[0]["state"], rows[0]["attempts"]) == ("active", "2"), "not completed by its first holder"
    await completed(bench, 1)
    assert crew.runs[job_id] == 2


async def test_a_long_job_without_renewal_runs_twice_and_its_first_end_is_refused(crew: Crew) -> None:
    """promise 1.26, 3.1; scaled from 75 s under 30 s"""
    await runs_twice(crew, 0.75, 300)


async def runs_once(crew: Crew, seconds: float, lease_ms: int) -> None:
    """The same job under a renewal at half its lease: the second consumer never gets it."""
    bench = crew.bench
    job_id = await bench.add()
    await crew.start(slow(seconds), lease_ms=lease_ms, renew=True)
    await eventually_async(lambda: crew.runs[job_id] == 1)
    await crew.start(slow(0), lease_ms=lease_ms)
    await eventually_async(lambda: bench.get("metrics:completed") == {"count": "1"}, within=seconds + 45)
    assert crew.runs[job_id] == 1
    assert bench.client.exists(bench.keys.lock(job_id)) == 0


async def test_a_long_job_with_renewal_at_half_its_lease_runs_once(crew: Crew) -> None:
    """promise 1.24, 3.2; five leases long"""
    # Half a second of grace per beat, since a busy machine may hold up the loop that renews.
    await runs_once(crew, 5, 1_000)


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_a_job_of_75_seconds_under_a_lease_of_30(valkey_bench: LeaseBench) -> None:
    """promise 3.1, 3.2; in real time, once: without renewal it runs twice, with it once"""
    renewed, alone = Crew(valkey_bench), Crew(valkey_bench.other("-alone"))
    try:
        await asyncio.gather(runs_once(renewed, 75, 30_000), runs_twice(alone, 75, 30_000))
    finally:
        await renewed.end()
        await alone.end()


async def test_a_loop_without_renewal_sends_none(crew: Crew) -> None:
    """promise 3.15"""
    await crew.bench.add()
    consumer = await crew.consumer(slow(0.2), lease_ms=100)
    await consumer.beat()
    log = consumer._plane._link.log  # type: ignore[attr-defined]
    assert not {"lease/extendLocks", "lease/renew", "lease/mark"} & set(log)


@pytest.mark.parametrize("lease_ms", [200, 1_000])
async def test_a_dead_holders_job_waits_out_its_lease_and_one_beat(crew: Crew, lease_ms: int) -> None:
    """promise 1.25, 1.27, 1.28, 3.22"""
    bench = crew.bench
    job_id = await bench.add()
    at = time.monotonic()
    await bench.claimed(lease_ms)  # and never heard of again
    await crew.start(done)
    await completed(bench, 1)
    took_ms = (time.monotonic() - at) * 1000
    assert crew.runs[job_id] == 1
    assert took_ms >= lease_ms - 5
    assert took_ms < lease_ms + 50 + 1_500, "one lease and one beat, with room for a busy machine"


async def test_a_killed_process_loses_its_job_to_another(crew: Crew) -> None:
    """promise 1.25, 3.22, 3.30"""
    bench = crew.bench
    job_id = await bench.add()
    child = _start_holder(bench.server, bench.keys.queue)
    try:
        await eventually_async(lambda: bench.row(job_id)["state"] == "active")
        await eventually_async(lambda: bench.client.exists(bench.keys.lock(job_id)) == 1)
        first = bench.score("active", job_id) or 0
        await eventually_async(lambda: (bench.score("active", job_id) or 0) > first)
        with pytest.raises(JobLocked):
            await bench.queue.remove_job(job_id)
        os.kill(child.pid, signal.SIGKILL)
        await crew.start(done)
        await completed(bench, 1)
        await eventually_async(lambda: bench.client.exists(bench.keys.lock(job_id)) == 0)
    finally:
        child.kill()
        child.wait()


def _start_holder(server: Server, queue: str) -> subprocess.Popen[bytes]:
    """A program that takes a job, keeps its lease of 300 ms, and never ends."""
    code = """
        import asyncio, sys
        from echomq_pool.config.schema import RedisConfig
        from echomq_pool.plane.base import PlaneOptions
        from echomq_pool.plane.lease import LeasePlane
        from echomq_pool.plane.lease_consumer import Consumer
        from echomq_pool.plane.lease_keys import LeaseKeys
        from echomq_pool.plane.lease_locks import Cadence, Locks
        from echomq_pool.redisio.link import Link
        from echomq_pool.redisio.scripts import load_library

        async def main():
            library, port = load_library("lease"), int(sys.argv[1])
            config = RedisConfig(url=f"redis://127.0.0.1:{port}/0", port=port)
            link, blocking = Link(config, scripts=library), Link(config, blocking=True)
            await link.start()
            await blocking.start()
            plane = LeasePlane(link, LeaseKeys(sys.argv[2]), library, PlaneOptions(lock_duration_ms=300))
            handler = lambda delivery: asyncio.sleep(600)
            await Consumer(plane, blocking, handler, locks=Locks(plane.queue, Cadence(300))).run()

        asyncio.run(main())
    """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(server.port), queue])


# --- renewal ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cadence", "beat_ms", "marker_ms"),
    [
        (Cadence(), 15_000, 60_000),
        (Cadence(10_000), 5_000, 20_000),
        (Cadence(10_000, extend_ratio=0.25), 2_500, 20_000),
        (Cadence(10_000, extend_ms=1_000, marker_multiple=3), 1_000, 30_000),
        (Cadence(10_000, extend_ms=60_000), 9_999, 20_000),
        (Cadence(1), 1, 2),
    ],
)
def test_the_cadence_vectors(cadence: Cadence, beat_ms: int, marker_ms: int) -> None:
    """promise 3.8"""
    assert (cadence.beat_ms, cadence.marker_ms) == (beat_ms, marker_ms)


def test_a_lease_that_is_none_is_refused() -> None:
    """law 13"""
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(InputError):
            Cadence(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("beat_ms", "misses"), [(15_000, 0), (10_000, 1), (7_500, 2), (7_499, 3)])
def test_how_many_missed_renewals_a_lease_survives(beat_ms: int, misses: int) -> None:
    """promise 3.9: a lease is over at its last millisecond, so half a lease forgives no miss for certain."""
    lease_ms = 30_000
    assert (misses + 1) * beat_ms < lease_ms or misses == 0
    assert (misses + 2) * beat_ms >= lease_ms


async def test_markers_stand_while_a_job_is_tracked(bench: LeaseBench) -> None:
    """promise 3.30"""
    job_id = await bench.add()
    await bench.claimed()
    locks = Locks(bench.queue, Cadence(30_000))
    try:
        await locks.track_job(job_id, 1)
        assert (locks.get_tracked_job_ids(), locks.get_active_job_count()) == ([job_id], 1)
        assert 30_000 < bench.client.pttl(bench.keys.lock(job_id)) <= 60_000
        assert await locks.extend() == []
        await locks.untrack_job(job_id)
        assert bench.client.exists(bench.keys.lock(job_id)) == 0
        assert not locks.is_tracked(job_id)
    finally:
        await locks.stop()


async def test_a_lost_lease_is_told_once_and_not_renewed_again(bench: LeaseBench) -> None:
    """promise 3.6, 3.7; in the sources nobody hears of it"""
    ids = await bench.add_many(2)
    lost: list[str] = []
    locks = Locks(bench.queue, Cadence(30_000), lost.append)
    try:
        for job_id in ids:
            await bench.claimed()
            await locks.track_job(job_id, 1)
        bench.lapse(ids[0])
        await bench.queue.reap()
        assert await locks.extend() == [ids[0]]
        assert await locks.extend() == []
        assert lost == [ids[0]]
        assert locks.get_tracked_job_ids() == [ids[1]]
    finally:
        await locks.stop()
