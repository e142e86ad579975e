# SPDX-License-Identifier: MIT
"""Synchronous producers on a cluster: each queue at its node, wherever that is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import redis

from echomq_pool import InputError, SyncFlowProducer, SyncQueue
from echomq_pool.api.job import Job
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import JobMissing, LinkDown, LinkRefused, ServerUnready
from echomq_pool.worker import Worker
from tests.redisio.test_topology import _id, two_nodes
from tests.support.servers import Server
from tests.support.waiting import eventually

__all__ = ["two_nodes"]

Nodes = tuple[Server, Server]


def config_of(nodes: Nodes) -> RedisConfig:
    return RedisConfig(host="127.0.0.1", port=nodes[0].port, cluster=True)


def slot_of(node: Server, key: str) -> int:
    with node.client() as client:
        slot: int = client.execute_command("CLUSTER", "KEYSLOT", key)
        return slot


@pytest.fixture
def names(two_nodes: Nodes, queue_name: str) -> tuple[str, str]:
    """A queue at either node."""
    found: dict[bool, str] = {}
    for n in range(200):
        name = f"{queue_name}-{n}"
        found.setdefault(slot_of(two_nodes[0], f"{{{name}}}") > 8_191, name)
    return found[False], found[True]


@pytest.fixture
def apart(two_nodes: Nodes, names: tuple[str, str]) -> Iterator[tuple[SyncQueue, SyncQueue]]:
    config = config_of(two_nodes)
    with SyncQueue(names[0], redis=config) as one, SyncQueue(names[1], redis=config) as other:
        yield one, other


def keys_at(node: Server, queue: SyncQueue) -> int:
    with node.client() as client:
        return len(list(client.scan_iter(f"{queue.keys.base}*")))


def test_each_queue_is_written_and_read_at_its_own_node(
    two_nodes: Nodes, apart: tuple[SyncQueue, SyncQueue]
) -> None:
    """case C017"""
    for node, queue in zip(two_nodes, apart, strict=True):
        queue.add("one", {"x": 1}, job_id="a", delay=60_000)
        queue.add_bulk([("many", {"n": n}) for n in range(300)])
        job = queue.get_job("a")
        assert job is not None
        job.promote()
        job.log("row")
        assert (job.state(), queue.get_job_logs("a")) == ("waiting", ["row"])
        assert queue.get_job_counts("waiting") == {"waiting": 301}
        assert len(queue.get_jobs("waiting", 0, 9)) == 10
        assert queue.upsert_job_scheduler("s", every=60_000) is not None
        assert queue.get_job_scheduler_ids() == ["s"]
        assert queue.get_workers() == []
        assert queue.remove_orphaned_jobs() == 0
        assert keys_at(node, queue) > 300
        assert sum(keys_at(other, queue) for other in two_nodes) == keys_at(node, queue)
        queue.obliterate(force=True)
        assert queue.count() == 0


async def test_a_wait_ends_at_either_node(two_nodes: Nodes, apart: tuple[SyncQueue, SyncQueue]) -> None:
    async def echo(job: Job) -> object:
        return job.data

    for queue in apart:
        async with Worker(queue.name, echo, redis=config_of(two_nodes)):
            job = await asyncio.to_thread(queue.add, "n", {"x": queue.name})
            assert await asyncio.to_thread(job.wait_until_finished, 30) == {"x": queue.name}
        with pytest.raises(JobMissing):
            await asyncio.to_thread(queue.wait_until_finished, "nobody", 5)


def test_flows_go_to_their_node_and_must_stay_in_one_slot(two_nodes: Nodes, names: tuple[str, str]) -> None:
    """case C017"""
    with SyncFlowProducer(redis=config_of(two_nodes)) as flows:
        for name in names:
            child = {"name": "child", "queue": name}
            root = flows.add({"name": "root", "queue": name, "children": [child, child]})
            read = flows.get_flow(root.job.id, name)
            assert read is not None
            assert len(read.children) == 2
            assert root.job.get_dependencies_count("unprocessed") == {"unprocessed": 2}
        torn = {"name": "root", "queue": names[0], "children": [{"name": "child", "queue": names[1]}]}
        with pytest.raises(LinkRefused, match="slot"):
            flows.add(torn)


def test_threads_may_share_a_queue_of_a_cluster(apart: tuple[SyncQueue, SyncQueue]) -> None:
    for queue in apart:
        threads = [threading.Thread(target=lambda q=queue: [q.add("n") for _ in range(30)]) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert queue.count() == 180


def test_a_slot_that_moves_is_followed_and_no_job_is_lost(
    two_nodes: Nodes, apart: tuple[SyncQueue, SyncQueue]
) -> None:
    """case C017: MOVED on a living connection, ASK while the slot is on its way"""
    queue, ids = apart[0], [_id(node) for node in two_nodes]
    slot = slot_of(two_nodes[0], queue.keys.key("meta"))
    assert queue.count() == 0
    with two_nodes[0].client() as source, two_nodes[1].client() as target:
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        # No key exists yet, so the source sends us to ask the target, which has not seen the script.
        assert queue.get_job_counts("waiting") == {"waiting": 0}
        queue.publish_event("hello", {})
        with pytest.raises(ServerUnready):  # several keys, which may be at either: nobody may run it now
            queue.add("torn")
        target.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        source.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
    assert len(queue.add_bulk([("moved", n) for n in range(50)])) == 50
    assert queue.get_job_counts("waiting") == {"waiting": 50}
    assert keys_at(two_nodes[0], queue) == 0


def test_the_seed_may_go_and_come_back(two_nodes: Nodes, apart: tuple[SyncQueue, SyncQueue]) -> None:
    """case C010, C017"""
    at_seed, beside = apart
    for queue in apart:
        queue.add("n")
    with two_nodes[1].client() as admin:
        admin.config_set("cluster-require-full-coverage", "no")
    two_nodes[0].stop(kill=True)
    with pytest.raises((LinkDown, ServerUnready)):
        at_seed.add("n")
    assert beside.add("n").id == "2"
    with SyncQueue(beside.name, client=redis.RedisCluster(host="127.0.0.1", port=two_nodes[1].port)) as late:
        assert late.count() == 2
    two_nodes[0].start()
    eventually(lambda: counted(at_seed) == 0, why="the node is back, without its data")


def counted(queue: SyncQueue) -> int | None:
    try:
        return queue.count()
    except (LinkDown, ServerUnready):
        return None


def test_a_queue_whose_keys_have_no_common_slot_is_told_what_to_change(
    two_nodes: Nodes, queue_name: str
) -> None:
    """case C017"""
    queue = SyncQueue(queue_name, redis=config_of(two_nodes), hash_tag=False)
    with queue, pytest.raises(LinkRefused, match="hash_tag"):
        queue.add_bulk([("n", None), ("n", None)])


def test_a_cluster_that_was_not_announced_says_so(two_nodes: Nodes, names: tuple[str, str]) -> None:
    """case C017"""
    with (
        SyncQueue(names[1], url=two_nodes[0].url) as queue,
        pytest.raises(LinkRefused, match="cluster = true"),
    ):
        queue.add("n")


def test_a_cluster_client_that_the_user_has_already_is_shared(
    two_nodes: Nodes, names: tuple[str, str]
) -> None:
    """case C103"""
    with redis.RedisCluster(host="127.0.0.1", port=two_nodes[0].port) as mine:
        for name in names:
            with SyncQueue(name, client=mine) as queue, SyncFlowProducer(client=mine) as flows:
                queue.add_bulk([("näme", {"x": "ü"}, {"job_id": "a"}), ("n", None)])
                found = queue.get_job("a")
                assert found is not None
                assert (found.name, found.data, queue.count()) == ("näme", {"x": "ü"}, 2)
                flows.add({"name": "n", "queue": name})
        assert mine.set("{left}open", 1), "it is left open"
    text = redis.RedisCluster(host="127.0.0.1", port=two_nodes[0].port, decode_responses=True)
    with text, pytest.raises(InputError, match="bytes"):
        SyncQueue(names[0], client=text)
