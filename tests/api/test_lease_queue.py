# SPDX-License-Identifier: MIT
"""`Queue(plane="lease")` and its synchronous twin: the same verbs where the plane has them, refusals elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from echomq_pool import Queue, SyncQueue, connect, task
from echomq_pool.api.lease_queue import LeaseQueue
from echomq_pool.api.producers import producers
from echomq_pool.api.sync_lease import SyncLeaseQueue
from echomq_pool.api.tracing import Tracing
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, JobMissing, WrongPlane
from echomq_pool.plane import branded
from echomq_pool.plane.events import Event
from echomq_pool.plane.lease_events import Subscriber
from echomq_pool.plane.lease_flows import FlowNode
from tests.support.servers import Server
from tests.support.waiting import eventually_async


@pytest_asyncio.fixture
async def queue(server: Server, queue_name: str) -> AsyncIterator[LeaseQueue]:
    async with Queue(queue_name, plane="lease", url=server.url) as queue:
        assert isinstance(queue, LeaseQueue)
        yield queue


@pytest.fixture
def sync_queue(server: Server, queue_name: str) -> Iterator[SyncQueue]:
    with SyncQueue(queue_name, plane="lease", url=server.url) as queue:
        yield queue


async def test_a_job_is_added_found_and_removed(queue: LeaseQueue) -> None:
    """law 13; ids are branded and made here"""
    job = await queue.add("pay", {"n": 1}, attempts=3, backoff=50, keep_logs=2)
    assert branded.parse(job.id).namespace == "JOB"
    found = await queue.get_job(job.id)
    assert found is not None
    assert (found.name, found.data, found.record.attempts) == ("pay", {"n": 1}, 3)
    assert await found.state() == await queue.get_state(job.id) == "waiting"
    assert [await found.log(row) for row in "abc"] == [1, 2, 2]
    assert await queue.get_job_logs(job.id) == ["b", "c"]
    await found.update_progress(40)
    await found.update_data({"n": 2})
    assert await found.refresh()
    assert (found.progress, found.data) == (40, {"n": 2})
    await found.remove()
    assert await queue.get_job(job.id) is None
    assert await queue.get_state(job.id) == "unknown"
    with pytest.raises(JobMissing):
        await queue.remove(job.id)


async def test_counts_pause_drain_and_obliterate(queue: LeaseQueue) -> None:
    """the queue's verbs"""
    await queue.add_bulk([("a", {}), {"name": "b", "data": 1}, ("c", None, {"delay": 60_000})])
    assert await queue.get_job_counts("waiting", "delayed") == {"waiting": 2, "delayed": 1}
    assert await queue.count() == 3
    await queue.pause()
    assert await queue.is_paused()
    assert await queue.wire.claim() is None
    await queue.resume()
    assert not await queue.is_paused()
    await queue.set_global_concurrency(4)
    assert await queue.get_global_concurrency() == 4
    await queue.remove_global_concurrency()
    assert await queue.get_global_concurrency() is None
    await queue.drain(delayed=True)
    assert await queue.count() == 0
    await queue.add("d")
    await queue.obliterate()
    assert await queue.count() == 0
    await queue.add("e")  # and it may be used again, on this plane
    assert await queue.count() == 1


async def test_an_id_or_a_deduplication_id_that_is_taken_adds_nothing(queue: LeaseQueue) -> None:
    """lease-plane section 6, OPEN 13"""
    first = await queue.add("a", 1, deduplication={"id": "once", "ttl": 60_000})
    again = await queue.add("a", 2, deduplication={"id": "once"})
    assert again.id == first.id == await queue.get_deduplication_job_id("once")
    assert (await queue.add("b", 3, job_id=first.id)).id == first.id
    assert await queue.count() == 1


async def test_a_job_of_a_group_waits_in_its_lane(queue: LeaseQueue) -> None:
    """lease-plane section 14"""
    group = branded.Mint().new("PRT")
    await queue.add("a", group=group)
    await queue.add("b", group=group)
    assert await queue.lanes.depth(group) == 2
    assert (await queue.get_job_counts("waiting"))["waiting"] == 2
    with pytest.raises(InputError, match="group: expected"):
        await queue.add("c", group="plain")


async def test_a_dead_job_gets_a_fresh_budget_and_keeps_its_token(queue: LeaseQueue) -> None:
    """the fencing token only grows"""
    job = await queue.add("a")
    claimed = await queue.wire.claim()
    assert claimed is not None
    assert await queue.wire.retry(job.id, claimed[2], 0, 1, "no") == "dead"
    assert await queue.get_state(job.id) == "failed"
    await job.retry()
    again = await queue.wire.claim()
    assert again is not None
    assert again[2] == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": 2}, "use a lane"),
        ({"lifo": True}, "order of their ids"),
        ({"remove_on_complete": True}, "always removed"),
        ({"parent": {"id": "1", "queue": "emq:{q}"}}, "flows"),
        ({"deduplication": {"id": "x", "extend": True}}, "only id and ttl"),
    ],
)
async def test_options_of_the_lock_plane_are_refused_with_the_reason(
    queue: LeaseQueue, options: dict[str, Any], words: str
) -> None:
    """law 13"""
    with pytest.raises(WrongPlane, match=words):
        await queue.add("a", None, **options)
    assert await queue.count() == 0


async def test_lists_hold_the_jobs_in_lanes_in_the_order_of_their_ids(queue: LeaseQueue) -> None:
    """lease-plane section 14; paused lanes and lanes at their ceiling are listed, too"""
    mint = branded.Mint()
    groups = [mint.new("PRT") for _ in range(3)]
    added = [(await queue.add("a", group=group)).id for _ in range(3) for group in [*groups, None]]
    await queue.lanes.pause(groups[0])
    await queue.lanes.limit(groups[1], 1)
    claimed = await queue.lanes.claim()
    assert claimed is not None
    added.remove(claimed[0])
    assert [job.id for job in await queue.get_waiting()] == added
    assert [job.id for job in await queue.get_waiting(2, 5)] == added[2:6]
    assert [job.id for job in await queue.get_waiting(-3, -2)] == added[-3:-1]
    assert [job.id for job in await queue.get_jobs("waiting", 0, 3)] == added[:-5:-1]
    assert [job.id for job in await queue.get_active()] == [claimed[0]]


async def test_a_promoted_job_goes_to_its_lane_and_wakes_a_worker(queue: LeaseQueue) -> None:
    """lease-plane section 14.2"""
    group = branded.Mint().new("PRT")
    job = await queue.add("a", group=group, delay=60_000)
    await job.promote()
    assert await queue.lanes.depth(group) == 1
    assert await queue._link.call("LLEN", queue.keys.key("wake")) == 1
    claimed = await queue.lanes.claim()
    assert claimed is not None
    assert claimed[0] == job.id


async def test_a_parent_knows_what_became_of_its_children(queue: LeaseQueue) -> None:
    """lease-plane section 15.6"""
    mint = branded.Mint()
    nodes = [FlowNode(mint.new(), "{}", ignore_dependency_on_failure=n == 1) for n in range(4)]
    parent = FlowNode(mint.new(), "{}", children=tuple(nodes))
    await queue.flows.add(parent)
    job = await queue.get_job(parent.id)
    assert job is not None
    assert await job.is_waiting_children()
    done, ignored, fatal = [await queue.wire.claim() for _ in range(3)]
    assert done is not None
    assert ignored is not None
    assert fatal is not None
    await queue.wire.complete(done[0], done[2], '{"n":1}')
    await queue.wire.retry(ignored[0], ignored[2], 0, 1, "no")
    assert await job.get_dependencies_count() == {"processed": 1, "unprocessed": 2, "ignored": 1, "failed": 0}
    assert await job.get_dependencies_page("processed") == (0, {done[0]: {"n": 1}})
    assert await job.get_dependencies_page("ignored") == (0, {ignored[0]: "no"})
    page = await queue.get_dependencies(parent.id)
    assert (page.items, page.jobs, page.total) == ([(done[0], {"n": 1})], [None], 1)
    await queue.wire.retry(fatal[0], fatal[2], 0, 1, "boom")
    assert await job.get_failed_children() == [fatal[0]]
    assert await job.get_dependencies_page("failed") == (0, [fatal[0]])
    assert await job.get_dependencies_count("failed") == {"failed": 1}
    assert await job.is_failed()
    for bad in (job.get_dependencies_page("lost"), job.get_dependencies_count("lost")):
        with pytest.raises(InputError):
            await bad


async def test_counts_of_ended_jobs_are_kept_although_the_jobs_are_not(queue: LeaseQueue) -> None:
    """lease-plane section 13"""
    await queue.add_bulk([("a", {}), ("b", {})])
    first, second = await queue.wire.claim(), await queue.wire.claim()
    assert first is not None
    assert second is not None
    await queue.wire.complete(first[0], first[2])
    await queue.wire.retry(second[0], second[2], 0, 1, "no")
    assert [(await queue.get_metrics(kind)).count for kind in ("completed", "failed")] == [1, 1]
    assert await queue.counts() == {"waiting": 0, "active": 0, "delayed": 0, "failed": 1, "completed": 1}
    assert "bullmq_job_completed_total" in await queue.export_prometheus_metrics()


async def test_an_event_of_ones_own_is_heard_by_who_listens(queue: LeaseQueue, server: Server) -> None:
    """lease-plane section 18"""
    heard: list[Event] = []
    subscriber = Subscriber(RedisConfig(url=server.url, port=server.port), [queue._lease_keys], heard.append)
    await subscriber.start()
    await subscriber.ready()
    await queue.publish_event("hello", {"to": "you", "jobId": "JOB0NgWEfAEJfs"})
    await eventually_async(lambda: heard)
    assert (heard[0].name, heard[0].job_id) == ("unknown", "JOB0NgWEfAEJfs")
    assert (heard[0].data["event"], heard[0].data["to"]) == ("hello", "you")
    with pytest.raises(InputError):
        await queue.publish_event("", {})
    await subscriber.close()


async def test_a_repeat_that_keeps_its_rule_keeps_its_next_time(queue: LeaseQueue) -> None:
    """lease-plane section 16"""
    rules: list[dict[str, Any]] = [{"every": 60_000}, {"pattern": "0 0 0 1 1 *", "tz": "Asia/Tokyo"}]
    for rule in rules:
        assert await queue.upsert_job_scheduler("s", **rule, data={"n": 1}) is None
        await queue._link.call("ZADD", queue.keys.key("repeat"), 4_000_000_000_000, "s")
        await queue.upsert_job_scheduler("s", **rule, data={"n": 2})
        kept = await queue.get_job_scheduler("s")
        assert kept is not None
        assert (kept.next_ms, kept.data) == (4_000_000_000_000, b'{"n":2}')
        await queue.upsert_job_scheduler("s", **rule, immediately=True)
        assert await queue.repeats.pump() == 1
        job_id = (await queue.wire.claim() or ("",))[0]
        job = await queue.get_job(job_id)
        assert job is not None
        assert (job.name, job.data, job.repeat_job_key) == ("s", {}, "s")
        await queue.remove_job_scheduler("s")


async def test_a_queue_belongs_to_one_plane_and_the_other_names_both(server: Server, queue_name: str) -> None:
    """design, section 6; whichever came first"""
    async with (
        Queue(queue_name, plane="lease", url=server.url) as ours,
        Queue(queue_name, url=server.url) as other,
    ):
        await ours.add("a")
        with pytest.raises(WrongPlane, match=r"belongs to the lease plane.*on the lock plane"):
            await other.add("a")
    lock = queue_name + "-lock"
    async with Queue(lock, url=server.url) as first:
        await first.add("a")
        with pytest.raises(WrongPlane, match=r"belongs to the lock plane.*on the lease plane"):
            async with Queue(lock, plane="lease", url=server.url):
                pass
        assert await first.count() == 1


def test_traces_and_the_lack_of_a_stream(server: Server, queue_name: str) -> None:
    """law 13; the context travels in the job as on the other plane"""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = Tracing(provider.get_tracer("test"))
    with SyncQueue(queue_name, plane="lease", url=server.url, telemetry=tracing) as queue:
        job = queue.add("n")
        (bulk,) = queue.add_bulk([("n", None)])
        for added in (job, bulk):
            assert "traceparent" in added.opts["telemetry"]["metadata"]
        stored = queue.get_job(job.id)
        assert stored is not None
        assert stored.opts["telemetry"] == job.opts["telemetry"]
    assert [span.name for span in spans.get_finished_spans()] == [
        f"add {queue_name}.n",
        f"addBulk {queue_name}",
    ]
    with pytest.raises(WrongPlane, match="keeps no events"):
        SyncQueue(queue_name, plane="lease", url=server.url, max_len_events=5)


def test_an_unknown_plane_a_prefix_and_a_name_are_refused(server: Server) -> None:
    """law 13"""
    with pytest.raises(InputError, match="expected 'lock' or 'lease'"):
        Queue("q", plane="fast", url=server.url)
    with pytest.raises(InputError, match="no other prefix"):
        Queue("q", plane="lease", prefix="bull", url=server.url)
    with pytest.raises(InputError, match="queue name"):
        SyncQueue("a b", plane="lease", url=server.url)
    with pytest.raises(InputError, match="plane: expected one of"):
        task("x", queue="q", plane="fast")


def test_the_synchronous_twin_does_the_same(sync_queue: SyncQueue) -> None:
    """the same verbs, blocking"""
    first, second = sync_queue.add_bulk([("a", {"n": 1}), ("b", {"n": 2})])
    assert first.state() == sync_queue.get_state(second.id) == "waiting"
    found = sync_queue.get_job(first.id)
    assert found is not None
    assert found.data == {"n": 1}
    first.remove()
    assert sync_queue.get_job(first.id) is None
    assert sync_queue.count() == 1
    assert [job.id for job in sync_queue.get_waiting()] == [second.id]
    with pytest.raises(WrongPlane, match="no such verb"):
        sync_queue.get_completed()
    with pytest.raises(WrongPlane, match="no such verb"):
        second.change_priority(1)
    assert isinstance(sync_queue, SyncLeaseQueue)
    group = branded.Mint().new("PRT")
    sync_queue.add("c", group=group)
    assert sync_queue.lanes.depth(group) == 1


@pytest.mark.parametrize("first", ["lanes", "flows", "repeats", "wire"])
def test_whatever_is_asked_first_opens_the_synchronous_queue(sync_queue: Any, first: str) -> None:
    asked: dict[str, Callable[[], Any]] = {
        "lanes": lambda: sync_queue.lanes.weight(branded.encode("CUS", 42), 3),
        "flows": lambda: sync_queue.flows.add(FlowNode(branded.Mint().new(), "{}")),
        "repeats": lambda: sync_queue.repeats.register("tick", 60_000, "{}"),
        "wire": lambda: sync_queue.wire.pending_size(),
    }
    asked[first]()
    assert sync_queue.get_job_counts("failed") == {"failed": 0}


def test_a_task_of_the_lease_plane_is_enqueued_there(server: Server, sync_queue: SyncQueue) -> None:
    """`@task(…, plane="lease")`"""

    @task("greet", queue=sync_queue.name, plane="lease")
    def greet(who: str) -> str:
        return f"hello {who}"

    connect(server.url)
    try:
        job = greet.enqueue_sync("you")
        assert branded.parse(str(job.id)).namespace == "JOB"
        assert sync_queue.get_job_counts("waiting") == {"waiting": 1}
    finally:
        producers.close_sync()
        producers.target = None
