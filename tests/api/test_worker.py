# SPDX-License-Identifier: MIT
"""The worker inside a program of one's own, on real servers."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from echomq_pool import (
    InputError,
    Job,
    JobFailed,
    Queue,
    SyncJob,
    SyncQueue,
    UnrecoverableError,
    WaitingChildrenError,
    Worker,
    task,
)
from echomq_pool.api.middleware import Middleware
from echomq_pool.api.tasks import UnknownTask
from tests.support.planes import Bench
from tests.support.servers import Server
from tests.support.waiting import eventually_async

FIRST_FAILS = {"attempts": 2}


async def echo(job: Job) -> Any:
    return {"got": job.data}


async def test_it_does_the_jobs_of_its_queue(server: Server, queue: Queue) -> None:
    async with Worker(queue.name, echo, url=server.url, concurrency=5) as worker:
        running = [worker.is_running]
        jobs = await queue.add_bulk([("n", {"n": n}) for n in range(30)])
        values = await asyncio.gather(*(job.wait_until_finished(10) for job in jobs))
        workers = await queue.get_workers()
    assert values == [{"got": {"n": n}} for n in range(30)]
    assert len(workers) == 1
    assert [*running, worker.is_running] == [True, False]
    assert await queue.get_workers() == []


async def test_a_plain_function_runs_in_a_thread_with_a_job_that_blocks(server: Server, queue: Queue) -> None:
    def handle(job: SyncJob) -> str:
        job.update_progress(50)
        job.log("in a thread")
        return threading.current_thread().name

    async with Worker(queue.name, handle, url=server.url):
        job = await queue.add("n")
        assert "MainThread" not in await job.wait_until_finished(10)
    await job.refresh()
    assert (job.progress, await queue.get_job_logs(job.id)) == (50, ["in a thread"])


async def test_a_processor_may_be_named_by_where_it_is(server: Server, queue: Queue) -> None:
    async with Worker(queue.name, "tests.support.processors:noop", url=server.url):
        job = await queue.add("n", {"x": 1})
        assert await job.wait_until_finished(10) is None


async def test_failures_are_retried_by_the_jobs_own_options(server: Server, queue: Queue) -> None:
    async def handle(job: Job) -> str:
        if job.name == "never":
            raise UnrecoverableError("no use")
        if job.attempts_started == 1:
            raise ValueError("first time")
        return "second time"

    async with Worker(queue.name, handle, url=server.url):
        again = await queue.add("again", attempts=3, backoff=10)
        never = await queue.add("never", attempts=3)
        assert await again.wait_until_finished(10) == "second time"
        with pytest.raises(JobFailed, match="no use"):
            await never.wait_until_finished(10)


async def test_a_long_job_keeps_its_lease_beside_a_stalled_check(
    server: Server, queue: Queue, bench: Bench
) -> None:
    """law 1"""
    runs = 0

    async def handle(job: Job) -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(2)

    worker = Worker(queue.name, handle, url=server.url, lock_duration_ms=500, stalled_interval_ms=100)
    async with worker:
        job = await queue.add("n")
        await job.wait_until_finished(10)
    await job.refresh()
    assert (runs, job.stalled_counter, job.attempts_made) == (1, 0, 1)


async def test_a_job_over_its_time_fails(server: Server, queue: Queue) -> None:
    async def handle(job: Job) -> None:
        await asyncio.Event().wait()

    async with Worker(queue.name, handle, url=server.url, timeout_ms=100):
        job = await queue.add("n")
        with pytest.raises(JobFailed, match="time limit of 100 ms"):
            await job.wait_until_finished(10)


async def test_a_plain_function_over_its_time_is_waited_for_and_runs_only_once(
    server: Server, queue: Queue
) -> None:
    runs = []

    def handle(job: SyncJob) -> None:
        runs.append(job.id)
        time.sleep(0.5)

    async with Worker(queue.name, handle, url=server.url, timeout_ms=100):
        job = await queue.add("n")
        with pytest.raises(JobFailed, match="time limit of 100 ms"):
            await job.wait_until_finished(10)
    assert runs == [job.id]


async def test_a_running_job_is_cancelled(server: Server, queue: Queue) -> None:
    started = asyncio.Event()

    async def handle(job: Job) -> None:
        started.set()
        await asyncio.Event().wait()

    async with Worker(queue.name, handle, url=server.url) as worker:
        job = await queue.add("n", attempts=5)
        await started.wait()
        worker.cancel(job.id, "not needed")
        with pytest.raises(JobFailed, match="not needed"):
            await job.wait_until_finished(10)
        started.clear()
        other = await queue.add("n", attempts=5)
        await started.wait()
        worker.cancel_all("closing time")
        with pytest.raises(JobFailed, match="closing time"):
            await other.wait_until_finished(10)


async def test_closing_waits_for_what_runs_or_hands_it_back(server: Server, queue: Queue) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def handle(job: Job) -> str:
        started.set()
        await go_on.wait()
        return "done"

    worker = Worker(queue.name, handle, url=server.url)
    await worker.start()
    job = await queue.add("n")
    await started.wait()
    closing = asyncio.create_task(worker.close())
    go_on.set()
    await closing
    assert await job.wait_until_finished(5) == "done"
    started.clear()
    go_on.clear()
    worker = Worker(queue.name, handle, url=server.url)
    await worker.start()
    job = await queue.add("n")
    await started.wait()
    await worker.close(force=True)
    await job.refresh()
    assert (await job.state(), job.attempts_made) == ("waiting", 0)


async def test_closing_ends_although_the_server_is_gone(own_server: Server, queue_name: str) -> None:
    started = asyncio.Event()

    async def handle(job: Job) -> None:
        started.set()
        await asyncio.Event().wait()

    async with Queue(queue_name, url=own_server.url) as queue:
        worker = Worker(queue_name, handle, url=own_server.url)
        await worker.start()
        await queue.add("n")
        await started.wait()
        own_server.stop()
        async with asyncio.timeout(15):
            await worker.close(timeout=0.2)


async def test_a_paused_worker_takes_nothing(server: Server, queue: Queue) -> None:
    async with Worker(queue.name, echo, url=server.url) as worker:
        await worker.pause()
        job = await queue.add("n")
        await asyncio.sleep(0.1)
        assert (worker.is_paused, await job.state()) == (True, "waiting")
        worker.resume()
        await job.wait_until_finished(10)


async def test_jobs_of_a_lost_worker_are_put_back_and_done(
    server: Server, queue: Queue, bench: Bench
) -> None:
    job = await queue.add("n")
    taken = await bench.taken()
    bench.lose_lock(taken.job.id)
    async with Worker(queue.name, echo, url=server.url, stalled_interval_ms=50, drain_delay_ms=100):
        assert await job.wait_until_finished(10) == {"got": {}}
    await job.refresh()
    assert job.stalled_counter == 1


async def test_a_series_goes_on(server: Server, queue: Queue) -> None:
    """case C093"""
    runs = []

    async def handle(job: Job) -> None:
        runs.append(job.data)

    async with Worker(queue.name, handle, url=server.url):
        await queue.upsert_job_scheduler("s", every=50, data={"x": 1})
        await eventually_async(lambda: len(runs) >= 4)
        assert len(await queue.get_delayed()) <= 1
    assert runs[:4] == [{"x": 1}] * 4


async def test_a_running_parent_adds_children_and_ends_after_them(server: Server, queue: Queue) -> None:
    async def handle(job: Job) -> Any:
        if job.name == "child":
            return job.data * 2
        if job.data["step"] == "split":
            for n in (1, 2, 3):
                await queue.add("child", n, parent=job)
            await job.update_data({"step": "join"})
            if await job.move_to_waiting_children():
                raise WaitingChildrenError
        return sorted((await job.get_children_values()).values())

    async with Worker(queue.name, handle, url=server.url, concurrency=2):
        parent = await queue.add("parent", {"step": "split"})
        assert await parent.wait_until_finished(10) == [2, 4, 6]


async def test_a_plain_parent_in_a_thread_does_the_same(server: Server, queue: Queue) -> None:
    def handle(job: SyncJob) -> Any:
        if job.name == "child":
            return job.data * 2
        if job.data["step"] == "split":
            with SyncQueue(queue.name, url=server.url) as mine:
                mine.add_bulk([("child", n, {"parent": job}) for n in (1, 2)])
            job.update_data({"step": "join"})
            if job.move_to_waiting_children():
                raise WaitingChildrenError
        return sorted(job.get_children_values().values())

    async with Worker(queue.name, handle, url=server.url, concurrency=2):
        parent = await queue.add("parent", {"step": "split"})
        assert await parent.wait_until_finished(10) == [2, 4]


async def test_a_cancel_from_anywhere_reaches_a_worker_that_listens(server: Server, queue: Queue) -> None:
    started = asyncio.Event()

    async def handle(job: Job) -> None:
        started.set()
        await asyncio.Event().wait()

    async with Worker(queue.name, handle, url=server.url, listen=True):
        job = await queue.add("n", attempts=5)
        await started.wait()
        await job.cancel("from afar")
        with pytest.raises(JobFailed, match="from afar"):
            await job.wait_until_finished(10)


async def test_limits_hold(server: Server, queue: Queue) -> None:
    """case C130"""
    starts = []

    async def handle(job: Job) -> None:
        starts.append(time.monotonic())

    jobs = await queue.add_bulk([("n", None)] * 9)
    worker = Worker(queue.name, handle, url=server.url, concurrency=5, limiter=(3, 300))
    async with worker:
        await asyncio.gather(*(job.wait_until_finished(10) for job in jobs))
    assert starts[-1] - starts[0] > 0.5


async def test_finished_jobs_are_kept_as_the_worker_says(server: Server, queue: Queue) -> None:
    worker = Worker(queue.name, echo, url=server.url, remove_on_complete=2)
    async with worker:
        jobs = await queue.add_bulk([("n", None)] * 5)
        await eventually_async(lambda: _done(queue, jobs[-1].id))
        assert len(await queue.get_completed()) == 2


async def test_finished_jobs_are_counted_per_minute(server: Server, queue: Queue) -> None:
    async with Worker(queue.name, echo, url=server.url, metrics_points=60):
        jobs = await queue.add_bulk([("n", None)] * 3)
        await asyncio.gather(*(job.wait_until_finished(10) for job in jobs))
        found = await queue.get_metrics("completed")
    assert (found.count, found.prev_count, found.points) == (3, 0, [])
    assert found.prev_ts > 0


async def _done(queue: Queue, job_id: str) -> bool:
    return await queue.get_state(job_id) in ("completed", "unknown")


# --- by hand -----------------------------------------------------------------------------------------


async def test_jobs_are_taken_and_settled_by_hand(server: Server, queue: Queue) -> None:
    async with Worker(queue.name, url=server.url, drain_delay_ms=200) as worker:
        assert await worker.get_next_job(block=False) is None
        assert await worker.get_next_job() is None
        for job_id in ("a", "b", "c"):
            await queue.add("n", job_id=job_id)
        job = await worker.get_next_job("mine:1")
        assert job is not None
        assert (job.id, job.token) == ("a", "mine:1")
        await job.extend_lock(duration_ms=60_000)
        following = await job.move_to_completed(1, fetch_next=True)
        assert following is not None
        await following.move_to_failed("no luck")
        last = await worker.get_next_job()
        assert last is not None
        await last.move_to_delayed(delay_ms=60_000)
        assert [await queue.get_state(i) for i in ("a", "b", "c")] == ["completed", "failed", "delayed"]


async def test_a_blocked_wait_by_hand_ends_when_a_job_comes(server: Server, queue: Queue) -> None:
    async with Worker(queue.name, url=server.url, drain_delay_ms=10_000) as worker:
        waiting = asyncio.create_task(worker.get_next_job())
        await queue.add("n", delay=100)
        job = await asyncio.wait_for(waiting, 5)
        assert job is not None
        await job.move_to_completed(None)


# --- tasks and middleware ----------------------------------------------------------------------------


@task("double", queue="unused")
async def double(n: int) -> int:
    return 2 * n


@task("blocked", queue="unused", timeout="100ms")
def blocked(job: SyncJob, seconds: float = 0.0) -> str:
    time.sleep(seconds)
    return job.name


async def test_tasks_are_found_by_the_name_of_the_job(server: Server, queue: Queue) -> None:
    """case C114"""
    async with Worker(queue.name, tasks=[double, blocked], url=server.url, concurrency=3):
        good = await queue.add("double", {"n": 4})
        thread = await queue.add("blocked")
        assert await good.wait_until_finished(10) == 8
        assert await thread.wait_until_finished(10) == "blocked"
        lost = await queue.add("doubel", {"n": 4}, attempts=2)
        with pytest.raises(
            JobFailed, match=r'no task of this worker is called "doubel"; did you mean "double"\?'
        ):
            await lost.wait_until_finished(10)
        await lost.refresh()
        assert lost.attempts_made == 2, "a deploy may bring the task: the attempts are used"
        assert UnknownTask.__name__ in lost.stacktrace[0]


async def test_a_task_is_no_processor(queue: Queue) -> None:
    """law 13: it takes arguments, not a job"""
    with pytest.raises(InputError, match=r"double is a @task; say tasks=\[double\] instead"):
        Worker(queue.name, double, url="redis://127.0.0.1:1")


@pytest.mark.parametrize(
    ("data", "words"),
    [({}, "missing a required argument: 'n'"), ({"n": "4"}, "n: expected int, got str '4'"),
     ({"n": 1, "m": 2}, "unexpected keyword argument 'm'"), ([4], "expected an object")],
)  # fmt: skip
async def test_arguments_are_checked_when_a_task_runs(
    server: Server, queue: Queue, data: Any, words: str
) -> None:
    async with Worker(queue.name, tasks=[double], url=server.url):
        job = await queue.add("double", data)
        with pytest.raises(JobFailed) as caught:
            await job.wait_until_finished(10)
        assert words in str(caught.value)


async def test_a_task_has_its_own_time_limit(server: Server, queue: Queue) -> None:
    async with Worker(queue.name, tasks=[blocked], url=server.url, timeout_ms=60_000):
        job = await queue.add("blocked", {"seconds": 0.4})
        with pytest.raises(JobFailed, match="time limit of 100 ms"):
            await job.wait_until_finished(10)


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_middleware_stands_around_every_job(server: Server, queue: Queue, kind: str) -> None:
    told: list[str] = []

    def layer(name: str) -> Middleware:
        return Middleware(
            on_start=lambda job: told.append(f"{name} start {job.name}"),
            on_success=lambda job, result: told.append(f"{name} success {result}"),
            on_failure=lambda job, error: told.append(f"{name} failure {error}"),
        )

    async def handle(job: Job) -> int:
        return plain(job)

    def plain(job: Any) -> int:
        if job.name == "bad":
            raise ValueError("no luck")
        return 1

    processor = handle if kind == "async" else plain
    async with Worker(queue.name, processor, url=server.url, middleware=[layer("outer"), layer("inner")]):
        good, bad = await queue.add("good"), await queue.add("bad")
        await good.wait_until_finished(10)
        with pytest.raises(JobFailed):
            await bad.wait_until_finished(10)
    assert told == [
        "outer start good", "inner start good", "inner success 1", "outer success 1",
        "outer start bad", "inner start bad", "inner failure no luck", "outer failure no luck",
    ]  # fmt: skip


async def test_a_middleware_that_raises_harms_no_job_that_is_done(server: Server, queue: Queue) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("broken middleware")

    async with Worker(queue.name, echo, url=server.url, middleware=[Middleware(on_success=broken)]):
        assert await (await queue.add("n", 1)).wait_until_finished(10) == {"got": 1}
    async with Worker(queue.name, echo, url=server.url, middleware=[Middleware(on_start=broken)]):
        with pytest.raises(JobFailed, match="broken middleware"):
            await (await queue.add("n", 1)).wait_until_finished(10)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency"), ({"lock_duration_ms": "30s"}, "lock_duration_ms"),
    ({"limiter": 5}, "limiter"), ({"remove_on_complete": "no"}, "remove_on_complete"),
    ({"processor": 5}, "processor"), ({"processor": echo, "tasks": [double]}, "got both"),
    ({"url": ""}, "url"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words"), BAD)
def test_arguments_that_cannot_be_used_are_refused(options: dict[str, Any], words: str) -> None:
    """case C145"""
    given = {"url": "redis://127.0.0.1:1/0", "processor": echo, **options}
    with pytest.raises(InputError, match=words):
        Worker("q", given.pop("processor"), **given)


async def test_a_worker_with_a_processor_takes_nothing_by_hand(server: Server, queue: Queue) -> None:
    async with Worker(queue.name, echo, url=server.url) as worker:
        with pytest.raises(InputError, match="by hand"):
            await worker.get_next_job()
    with pytest.raises(InputError, match="closed already"):
        worker.resume()
