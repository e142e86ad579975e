# SPDX-License-Identifier: MIT
"""The server answers, but cannot serve: each condition is waited out, and none is a job's failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
import redis

from echomq_pool.errors import LinkRefused, ServerUnready
from echomq_pool.redisio.state import LinkState
from tests.redisio.conftest import MakeLink
from tests.support.proxy import Proxy
from tests.support.scripts import LIBRARY, PUSH
from tests.support.servers import Server, free_port
from tests.support.waiting import eventually_async

KINDS = ("valkey", "redis")


@pytest.fixture(params=KINDS)
def lone_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each kind that this test alone may bring into trouble; with AOF in its folder."""
    server = Server(request.param, "--appendonly", "yes", "--lua-time-limit", "100").start()
    yield server
    server.destroy()


async def test_a_demoted_node_is_left_and_the_calls_wait_for_a_master(
    make_link: MakeLink, lone_server: Server, queue_name: str
) -> None:
    """case C010: no call fails, and the connection is another one afterwards"""
    heard: list[LinkState] = []
    link = await make_link(lone_server.port, scripts=LIBRARY, on_state=heard.append)
    await link.ready()
    first = link.client_id
    with lone_server.client() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
        calls = [link.script(PUSH, [queue_name], [n]) for n in range(20)]
        await eventually_async(lambda: link.state.condition == "READONLY" and not link.connected)
        calls += [link.script(PUSH, [queue_name], [n]) for n in range(20, 30)]
        reads = link.call("PING")
        await asyncio.sleep(0.5)
        assert not any(call.done() for call in calls)
        assert len(heard) < 15
        admin.execute_command("REPLICAOF", "NO", "ONE")
    assert sorted(await asyncio.gather(*calls)) == list(range(1, 31))
    assert await reads == b"PONG"
    assert link.client_id != first
    assert link.state.condition == ""


async def test_a_node_that_stays_a_replica_ends_calls_as_unready(
    make_link: MakeLink, lone_server: Server
) -> None:
    """case C010"""
    link = await make_link(lone_server.port, redis={"command_timeout_ms": 600})
    await link.ready()
    with lone_server.client() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
        for _ in range(2):
            with pytest.raises(ServerUnready) as caught:
                await link.call("SET", "a", 1)
            assert caught.value.code == "READONLY"


async def test_a_stale_replica_is_left_too(make_link: MakeLink, lone_server: Server) -> None:
    """case C010: MASTERDOWN"""
    link = await make_link(lone_server.port)
    await link.ready()
    with lone_server.client() as admin:
        admin.config_set("replica-serve-stale-data", "no")
        admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
        call = link.call("GET", "a")
        await eventually_async(lambda: link.state.condition == "MASTERDOWN" and not link.connected)
        admin.execute_command("REPLICAOF", "NO", "ONE")
    assert await call is None


async def test_a_busy_server_is_waited_for(make_link: MakeLink, lone_server: Server, queue_name: str) -> None:
    """case C012: a long script of somebody else"""
    link = await make_link(lone_server.port, scripts=LIBRARY)
    await link.ready()
    client_id = link.client_id

    def hog() -> None:
        with lone_server.client() as other:
            other.eval(
                "local t = redis.call('TIME'); local till = t[1] * 1000 + t[2] / 1000 + 1500 "
                "repeat t = redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > till return 1",
                0,
            )

    hogging = asyncio.create_task(asyncio.to_thread(hog))
    await eventually_async(lambda: _is_busy(lone_server))
    calls = [link.script(PUSH, [queue_name], [n]) for n in range(10)]
    await eventually_async(lambda: link.state.condition == "BUSY")
    assert link.connected
    assert sorted(await asyncio.gather(*calls)) == list(range(1, 11))
    await hogging
    assert link.client_id == client_id
    assert link.state.condition == ""


def _is_busy(server: Server) -> bool:
    with server.client() as client:
        try:
            client.ping()
        except redis.ResponseError as error:
            return "BUSY" in str(error)
    return False


async def test_calls_during_a_lasting_condition_end_as_unready(make_link: MakeLink, proxy: Proxy) -> None:
    """case C012"""
    link = await make_link(proxy.port, redis={"command_timeout_ms": 400})
    await link.ready()
    proxy.answer = b"-BUSY somebody's script\r\n"
    started = time.monotonic()
    with pytest.raises(ServerUnready) as caught:
        await link.call("PING")
    assert caught.value.code == "BUSY"
    assert 0.3 < time.monotonic() - started < 2
    assert len([c for c in proxy.commands if c == [b"PING"]]) < 8  # boot's, and repeats with growing pauses


async def test_a_full_server_is_waited_for_and_still_read(
    make_link: MakeLink, lone_server: Server, queue_name: str
) -> None:
    """case C016: OOM is a condition of its own; what does not need memory goes on"""
    link = await make_link(lone_server.port, scripts=LIBRARY)
    await link.call("SET", queue_name, "kept")
    with lone_server.client() as admin:
        admin.config_set("maxmemory", 1)
        calls = [link.script(PUSH, [f"{queue_name}:l"], [n]) for n in range(10)]
        plain = link.call("SET", f"{queue_name}:s", 1)
        await eventually_async(lambda: link.state.condition == "OOM")
        assert link.connected
        assert await link.call("GET", queue_name) == b"kept"
        assert link.state.condition == "OOM"  # reading proves nothing
        assert not any(call.done() for call in [*calls, plain])
        admin.config_set("maxmemory", 0)
    assert sorted(await asyncio.gather(*calls)) == list(range(1, 11))
    assert await plain == b"OK"
    assert link.state.condition == ""


async def test_a_condition_that_nobody_meets_again_is_over(
    make_link: MakeLink, valkey_server: Server, proxy: Proxy
) -> None:
    """case C016: the state does not show yesterday's trouble"""
    link = await make_link(proxy.port, redis={"command_timeout_ms": 200})
    await link.ready()
    proxy.answer = b"-OOM full\r\n"
    with pytest.raises(ServerUnready):
        await link.call("SET", "a", 1)
    proxy.answer = None
    assert link.state.condition == "OOM"
    await eventually_async(lambda: link.state.condition == "", within=8)


async def test_too_few_replicas_are_waited_for(
    make_link: MakeLink, lone_server: Server, queue_name: str
) -> None:
    """case C013: NOREPLICAS"""
    link = await make_link(lone_server.port, scripts=LIBRARY)
    await link.ready()
    with lone_server.client() as admin:
        admin.config_set("min-replicas-to-write", 1)
        call = link.script(PUSH, [queue_name], ["x"])
        await eventually_async(lambda: link.state.condition == "NOREPLICAS")
        admin.config_set("min-replicas-to-write", 0)
    assert await call == 1


async def test_a_server_that_cannot_save_is_waited_for(
    make_link: MakeLink, lone_server: Server, queue_name: str
) -> None:
    """case C013: MISCONF"""
    link = await make_link(lone_server.port, scripts=LIBRARY)
    await link.ready()
    with lone_server.client() as admin:
        admin.config_set("save", "3600 1")
        in_the_way = lone_server.folder / "dump.rdb"
        in_the_way.mkdir()  # no file can be put in the place of a folder
        (in_the_way / "full").touch()
        admin.bgsave()
        await eventually_async(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err")
        call = link.script(PUSH, [queue_name], ["x"])
        await eventually_async(lambda: link.state.condition == "MISCONF")
        admin.config_set("stop-writes-on-bgsave-error", "no")
    assert await call == 1


async def test_a_full_house_is_waited_for(make_link: MakeLink, lone_server: Server) -> None:
    """case C013: max number of clients reached"""
    with lone_server.client() as admin:
        admin.config_set("maxclients", 1)
        link = await make_link(lone_server.port)
        await eventually_async(lambda: "max number of clients" in link.state.detail)
        admin.config_set("maxclients", 100)
        await asyncio.wait_for(link.ready(), 5)


@pytest.mark.parametrize(
    "redis_options", [{}, {"password": "wrong"}, {"username": "me", "password": "wrong"}]
)
async def test_a_wrong_password_is_refused_with_a_sentence_until_it_is_right(
    make_link: MakeLink, lone_server: Server, redis_options: dict[str, str]
) -> None:
    """case C013: NOAUTH, WRONGPASS"""
    with lone_server.client() as admin:
        admin.config_set("requirepass", "right")
        started = time.monotonic()
        link = await make_link(lone_server.port, redis=redis_options)
        with pytest.raises(LinkRefused, match="password"):
            await link.ready()
        with pytest.raises(LinkRefused, match="password"):
            await link.call("PING")
        assert time.monotonic() - started < 3
        assert "wrong" not in link.state.detail.replace("WRONGPASS", "")
        admin.auth("right")
        admin.config_set("requirepass", "wrong" if redis_options.get("password") else "")
        if "username" in redis_options:
            admin.execute_command("ACL", "SETUSER", "me", "on", ">wrong", "~*", "+@all")
        await eventually_async(lambda: link.connected)
        assert await link.call("PING") == b"PONG"


async def test_a_password_for_a_server_without_one_is_refused(make_link: MakeLink, server: Server) -> None:
    """case C013"""
    link = await make_link(server.port, redis={"password": "needless"})
    with pytest.raises(LinkRefused, match="the server has none"):
        await link.ready()


async def test_a_database_that_does_not_exist_is_refused(make_link: MakeLink, server: Server) -> None:
    """case C013"""
    link = await make_link(server.port, redis={"db": 9_999})
    with pytest.raises(LinkRefused, match="no database"):
        await link.ready()


async def test_the_chosen_database_is_selected_again_after_a_loss(
    make_link: MakeLink, server: Server
) -> None:
    """case C002"""
    link = await make_link(server.port, redis={"db": 3})
    for _ in range(2):
        assert b" db=3 " in await link.call("CLIENT", "INFO")
        link.drop("for the test")
