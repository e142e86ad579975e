# SPDX-License-Identifier: MIT
"""Producers and the ways to a server: sentinels, clusters, a client that the user has already."""

from __future__ import annotations

import pytest

from echomq_pool import InputError, Queue, QueueEvents, SyncFlowProducer, SyncQueue
from echomq_pool.config.schema import RedisConfig
from tests.redisio.test_topology import two_nodes, watched_pair
from tests.support.servers import Server

__all__ = ["two_nodes", "watched_pair"]


def test_a_synchronous_producer_finds_the_master_by_its_sentinels(
    watched_pair: tuple[Server, Server, Server], queue_name: str
) -> None:
    """case C010"""
    master, _, sentinel = watched_pair
    config = RedisConfig(sentinels=("127.0.0.1:1", f"127.0.0.1:{sentinel.port}"), master="main")
    with SyncQueue(queue_name, redis=config) as queue:
        assert queue.add("n", {"x": 1}).data == {"x": 1}
        assert queue.get_job_counts("waiting") == {"waiting": 1}
    with master.client() as client:
        assert client.llen(queue.keys.key("wait")) == 1


async def test_an_asynchronous_producer_works_on_a_cluster(
    two_nodes: tuple[Server, Server], queue_name: str
) -> None:
    config = RedisConfig(host="127.0.0.1", port=two_nodes[0].port, cluster=True)
    for suffix in ("a", "b", "c"):  # on either node
        async with Queue(queue_name + suffix, redis=config) as queue:
            job = await queue.add("n", {"x": 1}, delay=60_000)
            await job.promote()
            assert await queue.get_job_counts("waiting") == {"waiting": 1}
            async with QueueEvents(queue_name + suffix, redis=config) as events:
                await queue.add("n")
                assert [event.name async for event in _first(events)] == ["added"]


async def _first(events: QueueEvents):  # type: ignore[no-untyped-def]
    async for event in events:
        yield event
        return


def test_a_client_that_the_user_has_already_is_shared(valkey_server: Server, queue_name: str) -> None:
    """case C103"""
    with valkey_server.client() as mine:
        mine.set_response_callback("HGETALL", lambda reply, **_: 1 / 0)  # its own ideas do not matter
        with SyncQueue(queue_name, client=mine) as queue, SyncFlowProducer(client=mine) as flows:
            job = queue.add("näme", {"x": "ü"})
            found = queue.get_job(job.id)
            assert found is not None
            assert (found.name, found.data, queue.get_meta()) == ("näme", {"x": "ü"}, queue.get_meta())
            flows.add({"name": "n", "queue": queue_name})
        assert mine.ping(), "it is left open"


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_client_of_either_protocol_is_read_alike(
    valkey_server: Server, queue_name: str, protocol: int
) -> None:
    """case C103"""
    with valkey_server.client(protocol=protocol) as mine, SyncQueue(queue_name, client=mine) as queue:
        queue.add("n", {"x": 1}, job_id="a", priority=3)
        found = queue.get_job("a")
        assert found is not None
        assert (found.data, found.priority, found.state()) == ({"x": 1}, 3, "prioritized")
        assert queue.get_job_counts("prioritized") == {"prioritized": 1}
        assert found.get_dependencies_count("failed") == {"failed": 0}
        queue.set_global_rate_limit(5, 1_000)
        assert queue.get_meta()["max"] == "5"
        assert queue.upsert_job_scheduler("s", every=60_000) is not None
        assert [s.id for s in queue.get_job_schedulers()] == ["s"]
        assert found.get_children_values() == {}
        assert found.get_dependencies().unprocessed == []


def test_a_client_that_decodes_is_refused(valkey_server: Server, queue_name: str) -> None:
    """case C103"""
    with valkey_server.client(decode_responses=True) as mine, pytest.raises(InputError, match="bytes"):
        SyncQueue(queue_name, client=mine)
