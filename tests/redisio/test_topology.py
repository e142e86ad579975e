# SPDX-License-Identifier: MIT
"""Sentinel and cluster: the link finds its node and follows it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from echomq_pool.errors import LinkDown, LinkRefused
from echomq_pool.redisio.sentinel import find_master
from tests.redisio.conftest import MakeLink
from tests.support.scripts import LIBRARY, PUSH, script_of
from tests.support.servers import Server, binary, free_port
from tests.support.waiting import eventually, eventually_async

SLOTS = 16_384
TWO_KEYS = script_of("two", "redis.call('SET', KEYS[1], 1) return redis.call('SET', KEYS[2], 1)", 2)
HIDDEN_KEY = script_of(
    "hidden", "redis.call('GET', KEYS[1]) return redis.call('GET', 'elsewhere' .. ARGV[1])", 1
)


def cluster_node(*, kind: str = "valkey") -> Server:
    port = free_port()
    bus = free_port()
    return Server(kind, "--cluster-enabled", "yes", "--cluster-port", str(bus), port=port).start()


@pytest.fixture
def one_node() -> Iterator[Server]:
    """A cluster of one."""
    node = cluster_node()
    with node.client() as admin:
        admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        eventually(lambda: b"cluster_state:ok" in _raw(admin, "CLUSTER", "INFO"))
    yield node
    node.destroy()


@pytest.fixture
def two_nodes() -> Iterator[tuple[Server, Server]]:
    """A cluster of two, half the slots each."""
    nodes = (cluster_node(), cluster_node())
    with nodes[0].client() as first, nodes[1].client() as second:
        first.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8_191)
        second.execute_command("CLUSTER", "ADDSLOTSRANGE", 8_192, SLOTS - 1)
        second.execute_command("CLUSTER", "SET-CONFIG-EPOCH", 2)
        bus = int(nodes[1].options[3])
        first.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, bus)
        for admin in (first, second):
            eventually(lambda admin=admin: b"cluster_state:ok" in _raw(admin, "CLUSTER", "INFO"))
    yield nodes
    for node in nodes:
        node.destroy()


def _raw(client: redis.Redis, *command: str) -> bytes:
    client.set_response_callback(" ".join(command), lambda reply, **_: reply)
    reply = client.execute_command(*command)
    return reply if isinstance(reply, bytes) else str(reply).encode()


def _id(node: Server) -> str:
    with node.client() as client:
        return _raw(client, "CLUSTER", "MYID").decode()


def _slot(node: Server, key: str) -> int:
    with node.client() as client:
        slot: int = client.execute_command("CLUSTER", "KEYSLOT", key)
        return slot


async def test_a_queue_without_a_hash_tag_is_told_what_to_change(
    make_link: MakeLink, one_node: Server
) -> None:
    """case C017: CROSSSLOT, and a key that a script builds by itself"""
    link = await make_link(one_node.port, redis={"cluster": True}, slot_key="bull:q:wait", scripts=LIBRARY)
    with pytest.raises(LinkRefused, match="hash_tag"):
        await link.script(TWO_KEYS, ["bull:q:wait", "bull:q:active"], [])
    assert await link.script(TWO_KEYS, ["{bull}:q:wait", "{bull}:q:active"], []) == b"OK"
    assert await link.call("PING") == b"PONG"


async def test_a_cluster_that_was_not_announced_says_so(
    make_link: MakeLink, two_nodes: tuple[Server, Server]
) -> None:
    """case C017: MOVED without redis.cluster"""
    key = _key_of(two_nodes, 1)
    link = await make_link(two_nodes[0].port)
    with pytest.raises(LinkRefused, match=r"redis\.cluster = true"):
        await link.call("GET", key)
    with pytest.raises(LinkRefused, match="hash_tag"):
        await link.script(HIDDEN_KEY, [_key_of(two_nodes, 0)], [_suffix(two_nodes[0])])


def _suffix(node: Server) -> int:
    """Makes the key `elsewhere<n>` belong to the second node."""
    return next(n for n in range(1_000) if _slot(node, f"elsewhere{n}") > 8_191)


def _key_of(nodes: tuple[Server, Server], owner: int) -> str:
    return next(
        f"{{q{n}}}:k" for n in range(1_000) if (_slot(nodes[0], f"{{q{n}}}:k") > 8_191) == bool(owner)
    )


async def test_the_link_goes_to_the_node_of_its_slot(
    make_link: MakeLink, two_nodes: tuple[Server, Server], queue_name: str
) -> None:
    """case C017: from either seed, to either node; CLUSTER SLOTS names the rest"""
    for owner in (0, 1):
        key = _key_of(two_nodes, owner)
        for seed in two_nodes:
            link = await make_link(seed.port, redis={"cluster": True}, slot_key=key, scripts=LIBRARY)
            assert await link.script(PUSH, [key], ["x"]) >= 1
            assert f":{two_nodes[owner].port}" in link.state.detail


async def test_a_slot_that_moves_is_followed_and_no_call_is_lost(
    make_link: MakeLink, two_nodes: tuple[Server, Server]
) -> None:
    """case C017: MOVED on a living connection, ASK while the slot is on its way"""
    key = _key_of(two_nodes, 0)
    slot, ids = _slot(two_nodes[0], key), [_id(node) for node in two_nodes]
    link = await make_link(two_nodes[0].port, redis={"cluster": True}, slot_key=key, scripts=LIBRARY)
    await link.ready()
    with two_nodes[0].client() as source, two_nodes[1].client() as target:
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        # The key does not exist yet, so the source sends us to ask the target.
        assert sorted(await asyncio.gather(*(link.script(PUSH, [key], [n]) for n in range(5)))) == [
            1,
            2,
            3,
            4,
            5,
        ]
        assert f":{two_nodes[0].port}" in link.state.detail
        target.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        source.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
    calls = [link.script(PUSH, [key], [n]) for n in range(5)]
    assert sorted(await asyncio.gather(*calls)) == [6, 7, 8, 9, 10]
    assert f":{two_nodes[1].port}" in link.state.detail


async def test_the_seed_may_go_once_the_cluster_is_known(
    make_link: MakeLink, two_nodes: tuple[Server, Server]
) -> None:
    """case C017, C010"""
    key = _key_of(two_nodes, 1)
    with two_nodes[1].client() as admin:
        admin.config_set("cluster-require-full-coverage", "no")
    link = await make_link(two_nodes[0].port, redis={"cluster": True}, slot_key=key)
    assert await link.call("SET", key, 1) == b"OK"
    await asyncio.to_thread(two_nodes[0].stop, kill=True)
    link.drop("for the test")
    assert await asyncio.wait_for(link.call("GET", key), 8) == b"1"


@pytest.fixture
def watched_pair(tmp_path: Path) -> Iterator[tuple[Server, Server, Server]]:
    """Master, replica and a sentinel that watches them."""
    master = Server("valkey").start()
    replica = Server("valkey", "--replicaof", f"127.0.0.1 {master.port}").start()
    conf = tmp_path / "sentinel.conf"
    conf.write_text(
        f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
    )
    sentinel = _Sentinel(conf).start()
    with sentinel.client() as admin, master.client() as there:
        eventually(lambda: there.info("replication")["connected_slaves"] == 1)
        eventually(lambda: admin.sentinel_slaves("main"))
    yield master, replica, sentinel
    for server in (sentinel, replica, master):
        server.destroy()


class _Sentinel(Server):
    """A sentinel is a server with a configuration file that it rewrites, and takes no other options of ours."""

    def __init__(self, conf: Path) -> None:
        super().__init__("valkey")
        self.conf = conf

    def start(self) -> Server:
        command = [
            binary("valkey"),
            str(self.conf),
            "--sentinel",
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
        ]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        eventually(self._answers)
        return self

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


async def test_the_sentinels_are_asked_for_the_master_at_every_connect(
    make_link: MakeLink, watched_pair: tuple[Server, Server, Server]
) -> None:
    """case C010: a failover is followed"""
    master, replica, sentinel = watched_pair
    sentinels = ("127.0.0.1:1", f"127.0.0.1:{sentinel.port}")
    link = await make_link(0, redis={"sentinels": sentinels, "master": "main"})
    assert await link.call("SET", "a", 1) == b"OK"
    assert f":{master.port}" in link.state.detail
    await asyncio.to_thread(master.stop, kill=True)
    await eventually_async(lambda: link.connected and f":{replica.port}" in link.state.detail, within=40)
    assert await link.call("SET", "a", 2) == b"OK"


async def test_sentinels_that_do_not_know_the_master_are_named(
    make_link: MakeLink, watched_pair: tuple[Server, Server, Server]
) -> None:
    """case C010"""
    port = watched_pair[2].port
    with pytest.raises(
        LinkDown, match=r"no sentinel names the master 'other'.*127\.0\.0\.1:1.*does not know it"
    ):
        await find_master(("127.0.0.1:1", f"127.0.0.1:{port}"), "other", 1_000)
