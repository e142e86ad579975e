# SPDX-License-Identifier: MIT
"""Declared schedules and the repair of series, against a real server."""

from __future__ import annotations

from dataclasses import replace

import redis

from echomq_pool.children.job_scheduler import JobScheduler
from echomq_pool.children.series import is_same
from echomq_pool.config.schema import PoolConfig, RedisConfig, SchedulerConfig, WorkersConfig
from echomq_pool.ipc.messages import Quiet, Resume
from echomq_pool.plane.schedule import SchedulerRecord
from tests.support.inprocess import InProcess
from tests.support.servers import Server
from tests.support.waiting import eventually_async


def config(server: Server, queue: str, *schedulers: SchedulerConfig, name: str = "pool") -> PoolConfig:
    return PoolConfig(
        name=name,
        redis=RedisConfig(url=server.url, port=server.port),
        workers=(WorkersConfig("w", (queue,), "x:y", stalled_interval_ms=1_000),),
        schedulers=schedulers,
    )


def nightly(queue: str, **changes: object) -> SchedulerConfig:
    made = SchedulerConfig(
        "nightly", queue, "report", pattern="0 30 2 * * *", tz="Europe/London", data='{"kind": "daily"}',
        opts={"attempts": 3, "backoff": {"type": "exponential", "delay": 10_000}},
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def delayed(client: redis.Redis, queue: str) -> list[str]:
    return [job_id.decode() for job_id in client.zrange(f"emq:{{{queue}}}:delayed", 0, -1)]


def record(client: redis.Redis, queue: str, scheduler_id: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = client.hgetall(f"emq:{{{queue}}}:repeat:{scheduler_id}")
    return found


async def test_a_declared_schedule_has_its_next_job_and_a_second_start_changes_nothing(
    server: Server, client: redis.Redis, queue_name: str
) -> None:
    """promise 4.17, case C094"""
    settings = config(server, queue_name, nightly(queue_name))
    async with InProcess(JobScheduler, settings):
        await eventually_async(lambda: delayed(client, queue_name))
    jobs, before = delayed(client, queue_name), record(client, queue_name, "nightly")
    assert len(jobs) == 1
    job = client.hgetall(f"emq:{{{queue_name}}}:{jobs[0]}")
    assert job[b"name"] == b"report"
    assert job[b"data"] == b'{"kind": "daily"}'
    counter = client.get(f"emq:{{{queue_name}}}:id")
    async with InProcess(JobScheduler, settings) as child:
        await eventually_async(lambda: child.child.declared)
    assert delayed(client, queue_name) == jobs
    assert record(client, queue_name, "nightly") == before
    assert client.get(f"emq:{{{queue_name}}}:id") == counter, "an unchanged schedule was upserted again"


async def test_a_changed_schedule_replaces_its_next_job(
    server: Server, client: redis.Redis, queue_name: str
) -> None:
    """case C097"""
    async with InProcess(JobScheduler, config(server, queue_name, nightly(queue_name))):
        await eventually_async(lambda: delayed(client, queue_name))
    changed = nightly(queue_name, pattern="", tz="", every_ms=3_600_000, data='{"kind": "hourly"}')
    async with InProcess(JobScheduler, config(server, queue_name, changed)):
        await eventually_async(lambda: record(client, queue_name, "nightly").get(b"every") == b"3600000")
    assert record(client, queue_name, "nightly")[b"data"] == b'{"kind": "hourly"}'
    # The first run of an `every` series is due at once: its job is in delayed or, promoted by nobody yet, there still.
    total = client.zcard(f"emq:{{{queue_name}}}:delayed") + client.llen(f"emq:{{{queue_name}}}:wait")
    assert total == 1


async def test_a_schedule_no_longer_declared_is_removed_and_one_made_elsewhere_is_left_alone(
    server: Server, client: redis.Redis, queue_name: str
) -> None:
    """case C033"""
    elsewhere = config(server, queue_name, nightly(queue_name, id="elsewhere"), name="another")
    async with InProcess(JobScheduler, elsewhere):
        await eventually_async(lambda: record(client, queue_name, "elsewhere"))
    async with InProcess(JobScheduler, config(server, queue_name, nightly(queue_name))):
        await eventually_async(lambda: record(client, queue_name, "nightly"))
    async with InProcess(JobScheduler, config(server, queue_name)):
        await eventually_async(lambda: not record(client, queue_name, "nightly"))
    assert record(client, queue_name, "elsewhere")
    assert [job.split(":")[1] for job in delayed(client, queue_name)] == ["elsewhere"]


async def test_a_series_whose_next_job_was_deleted_by_hand_gets_it_again(
    server: Server, client: redis.Redis, queue_name: str
) -> None:
    """case C095"""
    async with InProcess(JobScheduler, config(server, queue_name, nightly(queue_name))) as child:
        (job,) = await eventually_async(lambda: delayed(client, queue_name))
        client.zrem(f"emq:{{{queue_name}}}:delayed", job)
        client.delete(f"emq:{{{queue_name}}}:{job}")
        await eventually_async(lambda: delayed(client, queue_name) == [job])
        await eventually_async(lambda: child.child.metrics.counters.get(f"series_repaired|{queue_name}") == 1)


async def test_schedules_are_declared_again_on_a_server_that_lost_everything(
    own_server: Server, queue_name: str
) -> None:
    """case C014, C095"""
    with own_server.client() as client:
        async with InProcess(JobScheduler, config(own_server, queue_name, nightly(queue_name))) as child:
            await eventually_async(lambda: delayed(client, queue_name))
            client.flushall()
            own_server.stop()
            own_server.start()
            client.flushall()
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await eventually_async(lambda: delayed(client, queue_name))
            assert child.child.link.connected


async def test_schedules_are_declared_again_when_their_queue_was_wiped_over_a_living_connection(
    server: Server, client: redis.Redis, queue_name: str
) -> None:
    """case C094: FLUSHALL, or an obliterated queue"""
    async with InProcess(JobScheduler, config(server, queue_name, nightly(queue_name))) as child:
        await eventually_async(lambda: delayed(client, queue_name) and child.child.declared)
        client.delete(*client.scan_iter(f"emq:{{{queue_name}}}:*", count=10_000))
        await eventually_async(lambda: delayed(client, queue_name) and record(client, queue_name, "nightly"))


async def test_a_quiet_scheduler_touches_nothing_until_it_is_resumed(
    server: Server, client: redis.Redis, queue_name: str
) -> None:
    """case C095"""
    async with InProcess(JobScheduler, config(server, queue_name, nightly(queue_name))) as child:
        (job,) = await eventually_async(lambda: delayed(client, queue_name))
        child.send(Quiet())
        await eventually_async(lambda: child.child.quiet)
        client.zrem(f"emq:{{{queue_name}}}:delayed", job)
        client.delete(f"emq:{{{queue_name}}}:{job}")
        child.send(Resume())
        await eventually_async(lambda: delayed(client, queue_name) == [job])


def test_an_unchanged_schedule_is_recognised_whatever_json_made_of_it() -> None:
    """promise 4.17"""
    wanted = nightly("q")
    stored = SchedulerRecord(
        "nightly", "report", 1, pattern="0 30 2 * * *", tz="Europe/London", data=b'{"kind":"daily"}',
        opts={"backoff": {"delay": 10_000, "type": "exponential"}, "attempts": 3}, offset_ms=0, iterations=4,
    )  # fmt: skip
    assert is_same(wanted, stored)
    assert not is_same(replace(wanted, tz="UTC"), stored)
    assert not is_same(replace(wanted, data="{}"), stored)
    assert not is_same(wanted, None)
