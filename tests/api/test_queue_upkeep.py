# SPDX-License-Identifier: MIT
"""What an operator does with a queue, on real servers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from echomq_pool import InputError, Queue, SyncQueue
from echomq_pool.api.job_verbs import JobVerbs
from echomq_pool.api.sync_job import SyncJob
from echomq_pool.errors import JobLocked, JobMissing, QueueInUse, SchedulerOwned
from echomq_pool.redisio.link import Link
from tests.support.planes import Bench
from tests.support.servers import Server


async def fill(queue: Queue) -> None:
    """Three waiting, two prioritized, one delayed."""
    for job_id in ("a", "b", "c"):
        await queue.add("n", job_id=job_id)
    await queue.add("n", job_id="p5", priority=5)
    await queue.add("n", job_id="p2", priority=2)
    await queue.add("n", job_id="later", delay=60_000)


async def end(bench: Bench, how: str = "completed") -> str:
    taken = await bench.taken()
    if how == "completed":
        await bench.plane.complete(taken.job, taken.token, b'{"ok":1}')
    else:
        await bench.plane.fail(taken.job, taken.token, "no luck", ["trace"])
    return taken.job.id


def ids(jobs: list[Any]) -> list[str]:
    return [job.id for job in jobs]


def verbs(cls: type) -> dict[str, list[str]]:
    found = {name: member for name, member in inspect.getmembers(cls, inspect.isfunction) if name[0] != "_"}
    return {name: list(inspect.signature(member).parameters) for name, member in found.items()}


def test_both_producers_have_the_same_methods() -> None:
    one, other = verbs(Queue), verbs(SyncQueue)
    one.pop("start")  # the synchronous one connects by itself
    assert one == other


def test_both_jobs_have_the_same_verbs() -> None:
    other = verbs(SyncJob)
    missing = [name for name in verbs(JobVerbs) if name not in other and name not in dir(JobVerbs.__mro__[1])]
    assert missing == []


# --- looking -----------------------------------------------------------------------------------------


async def test_jobs_are_listed_by_state_in_pages_from_either_end(queue: Queue) -> None:
    await fill(queue)
    assert ids(await queue.get_jobs("waiting")) == ["c", "b", "a"]
    assert ids(await queue.get_jobs("waiting", asc=True)) == ["a", "b", "c"]
    assert ids(await queue.get_jobs("waiting", 0, 0, True)) == ["a"]
    assert ids(await queue.get_jobs("wait", 1, 2)) == ["b", "a"]
    assert ids(await queue.get_prioritized()) == ["p2", "p5"]
    assert ids(await queue.get_delayed()) == ["later"]
    assert ids(await queue.get_jobs(["delayed", "prioritized"])) == ["later", "p5", "p2"]
    assert len(await queue.get_jobs()) == 6
    assert (await queue.get_waiting())[0].name == "n"
    with pytest.raises(InputError, match="no state 'waitin'"):
        await queue.get_jobs("waitin")


async def test_finished_jobs_come_the_last_first(queue: Queue, bench: Bench) -> None:
    await fill(queue)
    assert [await end(bench), await end(bench), await end(bench, "failed")] == ["a", "b", "c"]
    assert ids(await queue.get_completed()) == ["b", "a"]
    (job,) = await queue.get_failed()
    assert (job.id, job.failed_reason, job.stacktrace) == ("c", "no luck", ["trace"])
    assert job.as_dict()["failedReason"] == "no luck"


async def test_counts_by_state_and_by_priority(queue: Queue) -> None:
    """case C106"""
    await fill(queue)
    counts = await queue.get_job_counts()
    assert (counts["waiting"], counts["prioritized"], counts["delayed"], counts["active"]) == (3, 2, 1, 0)
    assert await queue.count() == 6
    assert await queue.get_counts_per_priority([0, 2, 3, 5]) == {0: 3, 2: 1, 3: 0, 5: 1}
    assert await queue.get_counts_per_priority([]) == {}
    with pytest.raises(InputError, match="priority"):
        await queue.get_counts_per_priority([2**21])


async def test_counts_as_prometheus_text(queue: Queue) -> None:
    await queue.add("n")
    text = await queue.export_prometheus_metrics({"env": 'a"b'})
    assert text.startswith("# HELP bullmq_job_count")
    row = f'bullmq_job_count{{queue="{queue.keys.wire_name}", state="waiting", env="a\\"b"}} 1'
    assert row in text.splitlines()


async def test_logs_from_either_end(queue: Queue) -> None:
    job = await queue.add("n")
    for n in range(4):
        assert await queue.add_job_log(job.id, f"row {n}") == n + 1
    assert await queue.get_job_logs(job.id, 0, 1) == ["row 0", "row 1"]
    assert await queue.get_job_logs(job.id, 0, 1, asc=False) == ["row 3", "row 2"]
    assert await queue.count_job_logs(job.id) == 4
    await job.clear_logs(1)
    assert await queue.get_job_logs(job.id) == ["row 3"]
    await job.clear_logs()
    assert await queue.get_job_logs(job.id) == []
    with pytest.raises(JobMissing):
        await queue.add_job_log("unknown", "row")


async def test_progress_of_a_job_known_by_its_id(queue: Queue, bench: Bench) -> None:
    job = await queue.add("n")
    await queue.update_job_progress(job.id, {"done": 1})
    assert bench.get(job.id)["progress"] == '{"done":1}'
    with pytest.raises(JobMissing):
        await queue.update_job_progress("unknown", 1)


async def test_metrics_of_finished_jobs(queue: Queue, bench: Bench) -> None:
    nothing = await queue.get_metrics("completed")
    assert (nothing.count, nothing.points, nothing.total) == (0, [], 0)
    key = bench.keys.key("metrics:completed")
    bench.client.hset(key, mapping={"count": 7, "prevTS": 60_000, "prevCount": 6})
    bench.client.rpush(key + ":data", 3, 0, 2)
    found = await queue.get_metrics("completed", 0, 1)
    assert (found.count, found.prev_ts, found.prev_count) == (7, 60_000, 6)
    assert (found.points, found.total) == ([3, 0], 3)
    with pytest.raises(InputError):
        await queue.get_metrics("delayed")


async def test_workers_are_seen_by_the_names_of_their_connections(queue: Queue, server: Server) -> None:
    """case C107"""
    names = [
        queue.keys.worker_client_name(),
        queue.keys.worker_client_name("web-1"),
        queue.keys.events_client_name(),
    ]
    links = [Link(queue._config, name=name) for name in names]
    for link in links:
        await link.start()
        await link.ready()
    workers = await queue.get_workers()
    assert sorted(worker["rawname"] for worker in workers) == sorted(names[:2])
    assert {worker["name"] for worker in workers} == {queue.keys.wire_name}
    assert await queue.get_workers_count() == 2
    assert len(await queue.get_queue_events()) == 1
    for link in links:
        await link.close()


# --- limits ------------------------------------------------------------------------------------------


async def test_global_limits_are_set_read_and_removed(queue: Queue, bench: Bench) -> None:
    assert await queue.get_global_concurrency() is None
    assert await queue.get_global_rate_limit() is None
    await queue.set_global_concurrency(1)
    await queue.set_global_rate_limit(10, 60_000)
    assert (await queue.get_global_concurrency(), await queue.get_global_rate_limit()) == (1, (10, 60_000))
    assert (await queue.get_meta())["concurrency"] == "1"
    await queue.add("n")
    assert not await queue.is_maxed()
    await bench.taken()
    assert await queue.is_maxed()
    await queue.remove_global_concurrency()
    await queue.remove_global_rate_limit()
    assert (await queue.get_global_concurrency(), await queue.get_global_rate_limit()) == (None, None)


async def test_a_manual_rate_limit_is_seen_and_lifted(queue: Queue, bench: Bench) -> None:
    await queue.set_global_rate_limit(5, 1_000)
    assert await queue.get_rate_limit_ttl() == 0
    await queue.rate_limit(60_000)
    assert 0 < await queue.get_rate_limit_ttl() <= 60_000
    assert 0 < await queue.get_rate_limit_ttl(3) <= 60_000
    await queue.add("n")
    assert (await bench.nothing()).limited_ms > 0
    assert await queue.remove_rate_limit_key()
    assert not await queue.remove_rate_limit_key()
    await bench.taken()


async def test_the_length_of_the_event_stream_is_written_for_all(server: Server, queue_name: str) -> None:
    """case C123"""
    async with Queue(queue_name, url=server.url, max_len_events=50) as queue:
        assert (await queue.get_meta())["opts.maxLenEvents"] == "50"
        for _ in range(3):
            await queue.add_bulk([("n", None)] * 200)
        events = queue.keys.key("events")
        with server.client() as client:
            assert client.xlen(events) < 250
            assert await queue.trim_events(0) >= 0
    with SyncQueue(queue_name, url=server.url, max_len_events=60) as twin:
        assert twin.get_meta()["opts.maxLenEvents"] == "60"
    with pytest.raises(InputError):
        Queue(queue_name, url=server.url, max_len_events=0)


# --- many jobs ---------------------------------------------------------------------------------------


async def test_drain_leaves_what_is_delayed_unless_told(queue: Queue) -> None:
    await fill(queue)
    await queue.drain()
    assert ids(await queue.get_jobs()) == ["later"]
    await queue.drain(True)
    assert await queue.get_jobs() == []


async def test_clean_removes_old_jobs_of_one_state(queue: Queue, bench: Bench) -> None:
    await fill(queue)
    await end(bench), await end(bench), await end(bench, "failed")
    assert await queue.clean(60_000, 0, "completed") == []
    assert await queue.clean(0, 1, "completed") == ["a"]
    assert await queue.clean(0, state="failed") == ["c"]
    assert sorted(await queue.clean(0, state="prioritized")) == ["p2", "p5"]
    assert ids(await queue.get_completed()) == ["b"]
    assert "cleaned count=1" in bench.get("events")
    with pytest.raises(InputError, match="waiting-children"):
        await queue.clean(0, state="waiting-children")


async def test_obliterate_wants_force_while_jobs_are_active(queue: Queue, bench: Bench) -> None:
    await fill(queue)
    await bench.taken()
    with pytest.raises(QueueInUse) as caught:
        await queue.obliterate()
    assert (caught.value.queue, caught.value.code) == (queue.name, -2)
    await queue.obliterate(force=True, count=2)
    assert bench.dump() == {}


async def test_failed_jobs_are_retried_and_delayed_ones_promoted_all_at_once(
    queue: Queue, bench: Bench
) -> None:
    await fill(queue)
    for _ in range(3):
        await end(bench, "failed")
    await queue.retry_jobs(count=2)
    await queue.promote_jobs()
    assert sorted(ids(await queue.get_waiting())) == ["a", "b", "c", "later"]
    assert "failedReason" not in bench.get("a")
    await end(bench)
    await queue.retry_jobs("completed", timestamp=1)
    assert len(await queue.get_completed()) == 1
    await queue.retry_jobs("completed")
    assert await queue.get_completed() == []
    with pytest.raises(InputError):
        await queue.retry_jobs("active")


async def test_a_job_is_removed_by_its_id_unless_it_is_at_work(queue: Queue, bench: Bench) -> None:
    await fill(queue)
    await queue.remove("b")
    assert await queue.get_job("b") is None
    await queue.remove("unknown")
    taken = await bench.taken()
    with pytest.raises(JobLocked) as caught:
        await queue.remove(taken.job.id)
    assert (caught.value.job_id, caught.value.code) == (taken.job.id, 0)
    job = await queue.upsert_job_scheduler("s", every=60_000)
    assert job is not None
    with pytest.raises(SchedulerOwned):
        await queue.remove(job.id)


async def test_orphans_are_found_among_all_keys(queue: Queue, bench: Bench) -> None:
    await fill(queue)
    await queue.upsert_job_scheduler("s", every=60_000)
    before = bench.dump()
    for n in range(30):
        bench.client.hset(bench.keys.job(f"lost{n}"), "name", "n")
        bench.client.rpush(bench.keys.logs(f"lost{n}"), "row")
    assert await queue.remove_orphaned_jobs(count=10) == 30
    assert bench.dump() == before


async def test_own_events_are_published(queue: Queue, bench: Bench) -> None:
    await queue.publish_event("hello", {"to": "you"})
    assert bench.get("events") == ["hello to=you"]


# --- deduplication -----------------------------------------------------------------------------------


async def test_a_deduplication_id_has_an_owner_and_can_be_freed(queue: Queue) -> None:
    first = await queue.add("n", deduplication={"id": "d"})
    assert (await queue.add("n", deduplication={"id": "d"})).id == first.id
    assert await queue.get_deduplication_job_id("d") == first.id
    assert await first.remove_deduplication_key()
    assert not await first.remove_deduplication_key()
    assert await queue.get_deduplication_job_id("d") is None
    second = await queue.add("n", deduplication={"id": "d"})
    assert second.id != first.id
    assert await queue.remove_deduplication_key("d")


async def test_throttle_extend_and_debounce(queue: Queue, bench: Bench) -> None:
    throttled = await queue.add("n", deduplication={"id": "t", "ttl": 60_000})
    assert (await queue.add("n", deduplication={"id": "t", "ttl": 60_000})).id == throttled.id
    bench.client.pexpire(bench.keys.dedup("t"), 500)
    await queue.add("n", deduplication={"id": "t", "ttl": 60_000, "extend": True})
    assert bench.client.pttl(bench.keys.dedup("t")) > 10_000
    first = await queue.add("n", 1, delay=60_000, deduplication={"id": "b", "ttl": 60_000, "replace": True})
    second = await queue.add("n", 2, delay=60_000, deduplication={"id": "b", "ttl": 60_000, "replace": True})
    assert second.id != first.id
    assert ids(await queue.get_delayed()) == [second.id]


async def test_the_latest_of_many_is_kept_while_one_is_active(queue: Queue, bench: Bench) -> None:
    mode = {"id": "k", "keep_last_if_active": True}
    first = await queue.add("n", 1, deduplication=mode)
    taken = await bench.taken()
    for n in (2, 3):
        assert (await queue.add("n", n, deduplication=mode)).id == first.id
    await bench.plane.complete(taken.job, taken.token, b"null")
    (following,) = await queue.get_waiting()
    assert following.data == 3


@pytest.mark.parametrize(
    "bad",
    [{}, {"id": ""}, {"id": 5}, {"id": "d", "ttl": -1}, {"id": "d", "ttl": "5"}, {"id": "d", "extend": 1},
     {"id": "d", "tll": 5}, "d"],
)  # fmt: skip
async def test_a_deduplication_that_cannot_work_is_refused(queue: Queue, bench: Bench, bad: Any) -> None:
    with pytest.raises(InputError, match="deduplication"):
        await queue.add("n", deduplication=bad)
    assert bench.dump() == {}


# --- schedulers --------------------------------------------------------------------------------------


async def test_series_are_listed_and_counted(queue: Queue) -> None:
    await queue.upsert_job_scheduler("one", every=60_000, offset=10)
    await queue.upsert_job_scheduler("two", every=3_600_000_000, offset=5)
    assert [s.id for s in await queue.get_job_schedulers(asc=True)] == ["one", "two"]
    assert [s.id for s in await queue.get_job_schedulers()] == ["two", "one"]
    assert [s.every_ms for s in await queue.get_job_schedulers(0, 0, True)] == [60_000]
    assert await queue.get_job_schedulers_count() == 2
    assert await queue.remove_job_scheduler("one")
    assert await queue.get_job_schedulers_count() == 1


# --- options of all jobs -----------------------------------------------------------------------------


async def test_a_queues_own_options_are_those_of_its_jobs(server: Server, queue_name: str) -> None:
    async with Queue(
        queue_name, url=server.url, job_options={"attempts": 4, "remove_on_complete": 5}
    ) as queue:
        plain = await queue.add("n")
        own = (await queue.add_bulk([("n", None, {"attempts": 2})]))[0]
    assert (plain.opts["attempts"], own.opts["attempts"], own.opts["removeOnComplete"]) == (4, 2, 5)
    with pytest.raises(InputError, match="attemps"):
        Queue(queue_name, url=server.url, job_options={"attemps": 4})


def test_the_synchronous_twin_does_the_same(sync_queue: SyncQueue) -> None:
    sync_queue.add_bulk(
        [{"name": "n", "opts": {"job_id": f"j{n}", "delay": 60_000 * (n % 2)}} for n in range(6)]
    )
    assert ids(sync_queue.get_waiting()) == ["j0", "j2", "j4"]
    sync_queue.promote_jobs()
    assert sync_queue.count() == 6
    sync_queue.remove("j0")
    assert sorted(sync_queue.clean(0, 2, "wait")) == ["j2", "j4"]
    sync_queue.set_global_rate_limit(3, 1_000)
    assert sync_queue.get_global_rate_limit() == (3, 1_000)
    sync_queue.drain()
    assert sync_queue.get_jobs() == []
    sync_queue.upsert_job_scheduler("s", every=1_000)
    assert [s.id for s in sync_queue.get_job_schedulers()] == ["s"]
    sync_queue.obliterate()
    assert sync_queue.get_meta() == {}
