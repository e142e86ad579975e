# SPDX-License-Identifier: MIT
"""The HTTP side: liveness, readiness, metrics."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import aiohttp

from echomq_pool.api.sync_lease import SyncLeaseQueue
from echomq_pool.children.exposition import families
from echomq_pool.children.health import TakingWatch, liveness, readiness
from echomq_pool.children.observer import Observer
from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.config.schema import ObserverConfig, PoolConfig, RedisConfig, SupervisorConfig, WorkersConfig
from echomq_pool.ipc.messages import Events, Ready, Tree
from echomq_pool.metrics import Metrics, Totals
from echomq_pool.plane import branded
from tests.support.inprocess import InProcess
from tests.support.servers import Server
from tests.support.waiting import eventually_async


def status(*, connected: bool = True, state: str = "running", detail: str = "") -> dict[str, Any]:
    worker = {"id": "w-1", "group": "w", "state": state, "connected": connected, "detail": detail, "busy": 0}
    worker |= {"pid": 11, "slot": 2}
    singleton = {
        "id": "lock_manager",
        "group": "infra",
        "state": "running",
        "connected": True,
        "detail": "",
        "busy": 0,
        "pid": 10,
        "slot": 1,
    }
    groups = [{"id": "infra", "dynamic": False}, {"id": "w", "dynamic": True}]
    return {
        "state": "running",
        "groups": groups,
        "children": [singleton, worker],
        "totals": {},
        "restarts": {},
    }


def settings(server: Server, queue: str = "q", bind: str = "127.0.0.1:0") -> PoolConfig:
    return PoolConfig(
        redis=RedisConfig(url=server.url, port=server.port, connect_timeout_ms=500),
        supervisor=SupervisorConfig(hang_timeout_ms=4_000),
        workers=(WorkersConfig("w", (queue,), "x:y"),),
        observer=ObserverConfig(bind),
    )


async def fetch(child: InProcess, path: str) -> tuple[int, str]:
    ready = child.heard[0]
    assert isinstance(ready, Ready)
    async with aiohttp.ClientSession() as session, session.get(ready.info + path) as answer:
        return answer.status, await answer.text()


async def test_liveness_asks_only_whether_the_supervisors_loop_turns(own_server: Server) -> None:
    """case C154"""
    async with InProcess(Observer, settings(own_server)) as child:
        child.board.beat(0, SYSTEM_CLOCK.mono_ms())
        own_server.stop()
        assert (await fetch(child, "/livez"))[0] == 200
        child.board.beat(0, SYSTEM_CLOCK.mono_ms() - 60_000)
        code, text = await fetch(child, "/livez")
        assert code == 503
        assert "loop" in text


async def test_readiness_needs_a_worker_a_link_and_a_server_and_says_what_is_missing(
    own_server: Server,
) -> None:
    """case C154, C160"""
    async with InProcess(Observer, settings(own_server)) as child:
        assert (await fetch(child, "/readyz"))[0] == 503
        child.send(Tree(status()))
        await eventually_async(lambda: child.child.status and child.child.link.connected)

        async def code() -> int:
            return (await fetch(child, "/readyz"))[0]

        async def is_ready() -> bool:
            return await code() == 200

        async def is_not() -> bool:
            return await code() == 503

        await eventually_async(is_ready)
        child.send(Tree(status(connected=False, detail="READONLY")))
        await eventually_async(is_not)
        assert "READONLY" in (await fetch(child, "/readyz"))[1]
        child.send(Tree(status()))
        await eventually_async(is_ready)
        own_server.stop()
        await eventually_async(is_not)
        assert "cannot be reached" in (await fetch(child, "/readyz"))[1]


async def test_metrics_show_jobs_by_outcome_queue_depths_and_events(
    valkey_server: Server, queue_name: str
) -> None:
    """case C156"""
    with valkey_server.client() as client:
        client.lpush(f"emq:{{{queue_name}}}:wait", "1", "2")
        async with InProcess(Observer, settings(valkey_server, queue_name)) as child:
            await eventually_async(lambda: child.child.link.connected)
            counted = Metrics()
            counted.count(f"completed|{queue_name}", 5)
            counted.observe(f"duration|{queue_name}", 0.2)
            totals = Totals()
            totals.update(1, *counted.snapshot())
            child.send(Tree({**status(), "totals": totals.as_dict(), "restarts": {"signal": 2}}))
            child.send(Events({queue_name: {"completed": 5}}))
            await eventually_async(lambda: child.child.events)
            code, text = await fetch(child, "/metrics")
        assert code == 200
        assert f'echomq_completed_total{{queue="{queue_name}"}} 5.0' in text
        assert f'echomq_queue_jobs{{queue="{queue_name}",state="wait"}} 2.0' in text
        assert f'echomq_duration_seconds_bucket{{le="0.25",queue="{queue_name}"}} 1.0' in text
        assert f'echomq_events_total{{event="completed",queue="{queue_name}"}} 5.0' in text
        assert 'echomq_restarts_total{reason="signal"} 2.0' in text


async def test_metrics_show_how_long_ago_each_group_has_beaten(own_server: Server) -> None:
    """case C156; of the loop that is behind the others, and of nobody who has no process"""
    async with InProcess(Observer, settings(own_server)) as child:
        now = SYSTEM_CLOCK.mono_ms()
        for slot, ago in ((0, 1_000), (1, 2_000), (2, 60_000)):
            child.board.beat(slot, now - ago)
        gone = {"id": "x-1", "group": "x", "state": "restarting", "pid": 0, "slot": -1}
        told = status()
        child.send(Tree({**told, "children": [*told["children"], gone]}))
        await eventually_async(lambda: child.child.status)
        _, text = await fetch(child, "/metrics")
    ages = dict(re.findall(r'echomq_beat_age_seconds{group="(\w+)"} ([0-9.]+)', text))
    assert ages.keys() == {"supervisor", "infra", "w"}
    assert float(ages["supervisor"]) < float(ages["infra"]) < float(ages["w"])
    assert float(ages["w"]) >= 60


async def test_depths_of_a_lease_plane_queue_count_the_jobs_in_its_lanes(
    valkey_server: Server, queue_name: str
) -> None:
    """case C156; lanes that are paused or at their ceiling as well"""
    groups = [branded.Mint().new("PRT") for _ in range(3)]
    config = settings(valkey_server, queue_name)
    config = replace(config, workers=(replace(config.workers[0], plane="lease"),))
    old = branded.encode("JOB", (SYSTEM_CLOCK.now_ms() - 3_600_000 - branded.EPOCH_MS) << 22)
    with SyncLeaseQueue(queue_name, url=valkey_server.url) as queue:
        queue.add("a", group=groups[0], job_id=old)
        for group in (*groups, None):
            queue.add("a", group=group)
        queue.add("a", delay=60_000)
        queue.lanes.pause(groups[0])
        queue.lanes.limit(groups[1], 1)
        assert queue.lanes.claim() is not None
        queue.add("a", group=groups[1])
        async with InProcess(Observer, config) as child:
            await eventually_async(lambda: child.child.link.connected)
            _, text = await fetch(child, "/metrics")
    for state, n in {"wait": 5, "active": 1, "delayed": 1, "failed": 0, "prioritized": 0}.items():
        assert f'echomq_queue_jobs{{queue="{queue_name}",state="{state}"}} {n}.0' in text
    (age,) = re.findall(r"echomq_queue_oldest_waiting_seconds\{[^}]*\} ([0-9.]+)", text)
    assert 3_599 < float(age) < 3_900


async def test_a_taken_port_costs_the_page_and_not_the_pool(valkey_server: Server) -> None:
    """case C157"""
    async with InProcess(Observer, settings(valkey_server)) as first:
        port = first.child.runner.addresses[0][1]
        async with InProcess(Observer, settings(valkey_server, bind=f"127.0.0.1:{port}")) as second:
            assert isinstance(second.heard[0], Ready)
            assert "not listening" in second.heard[0].info


def test_a_counter_never_falls_when_processes_come_and_go() -> None:
    """case C156"""
    totals, last = Totals(), 0.0
    for process in range(500):
        metrics = Metrics()
        metrics.count("completed|q", 10)
        metrics.gauge("active|q", 3)
        totals.update(process, *metrics.snapshot())
        assert totals.counters()["completed|q"] >= last
        last = totals.counters()["completed|q"]
        totals.end(process)
    assert totals.counters() == {"completed|q": 5_000}
    assert totals.gauges() == {}


def test_the_page_has_the_same_size_after_any_number_of_processes() -> None:
    """case C156"""
    totals, sizes = Totals(), set()
    for process in range(50):
        metrics = Metrics()
        metrics.observe("duration|q", 0.01)
        totals.update(process, *metrics.snapshot())
        totals.end(process)
        sizes.add(sum(len(f.samples) for f in families({**status(), "totals": totals.as_dict()}, {}, {}, {})))
    assert len(sizes) == 1


def test_a_pool_with_work_free_hands_and_no_takes_is_not_ready() -> None:
    """case C155"""
    watch = TakingWatch()
    assert not watch.look(0, taken=5, waiting=3, free=True)
    assert not watch.look(9_000, taken=5, waiting=3, free=True)
    assert watch.look(10_000, taken=5, waiting=3, free=True)
    assert not watch.look(11_000, taken=6, waiting=3, free=True), "a job was taken"
    assert not watch.look(60_000, taken=6, waiting=3, free=False), "all hands are busy with long jobs"
    assert not watch.look(99_000, taken=6, waiting=0, free=True), "an idle pool stays green"


def test_readiness_names_what_is_wrong() -> None:
    """case C154"""
    assert readiness(status()) == []
    assert readiness(status(state="starting")) == ["group w: no worker is ready"]
    assert "READONLY" in readiness(status(connected=False, detail="READONLY"))[0]
    assert readiness({}) == ["no word from the supervisor yet"]
    assert liveness(10_000, 9_500, 4_000) == ""
    assert liveness(10_000, 1_000, 4_000) != ""
