# SPDX-License-Identifier: MIT
"""Calls that wait in the server."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from echomq_pool.errors import InputError, LinkDown, ReplyError, ServerUnready
from echomq_pool.redisio.blocking import with_timeout
from echomq_pool.redisio.replies import as_int
from echomq_pool.redisio.state import ServerInfo
from tests.redisio.conftest import MakeLink
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import eventually_async

VALKEY = ServerInfo("valkey", (9, 1, 2))


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        (("BZPOPMIN", "k"), ("BZPOPMIN", "k", "5.000")),
        ((b"bzpopmin", "k"), (b"bzpopmin", "k", "5.000")),
        (("BZPOPMIN", "k", 0), ("BZPOPMIN", "k", "5.000")),
        (("BLPOP", "a", "b"), ("BLPOP", "a", "b", "5.000")),
        (("BLMOVE", "a", "b", "LEFT", "RIGHT"), ("BLMOVE", "a", "b", "LEFT", "RIGHT", "5.000")),
        (("BZMPOP", 1, "a", "MIN"), ("BZMPOP", "5.000", 1, "a", "MIN")),
        (("XREAD", "STREAMS", "s", "$"), ("XREAD", "BLOCK", 5000, "STREAMS", "s", "$")),
        (("XREAD", "BLOCK", 0, "STREAMS", "s", "$"), ("XREAD", "BLOCK", 5000, "STREAMS", "s", "$")),
        (
            ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"),
            ("XREADGROUP", "GROUP", "g", "c", "BLOCK", 5000, "STREAMS", "s", ">"),
        ),
    ],
)  # fmt: skip
def test_the_timeout_is_put_where_each_command_wants_it(args: tuple[str, ...], sent: tuple[str, ...]) -> None:
    """case C084"""
    assert with_timeout(args, 5_000, VALKEY) == sent


def test_a_command_whose_timeout_has_no_known_place_is_refused() -> None:
    """case C084"""
    with pytest.raises(InputError, match="WAIT"):
        with_timeout(("WAIT", 1), 5, VALKEY)


@pytest.mark.parametrize("block_ms", [-1, 0, 0.2, 1, 2, 30])
async def test_a_tiny_timeout_ends_and_is_never_sent_as_zero(
    make_link: MakeLink, server: Server, queue_name: str, block_ms: float
) -> None:
    """case C084, C086: on each supported server"""
    with Proxy(server.port) as proxy:
        link = await make_link(proxy.port, blocking=True)
        started = time.monotonic()
        assert await link.blocking_call("BZPOPMIN", queue_name, block_ms=block_ms) is None
        assert await link.blocking_call("XREAD", "STREAMS", queue_name, "$", block_ms=block_ms) is None
        assert time.monotonic() - started < 5
        (pop,) = [command for command in proxy.commands if command[0] == b"BZPOPMIN"]
        assert float(pop[-1]) > 0
        await link.close()


async def test_a_blocked_call_returns_what_arrives(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C088: it waits no longer than asked, and is woken at once"""
    link, other = await make_link(server.port, blocking=True), await make_link(server.port)
    waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=10_000))
    await eventually_async(lambda: _blocked(other))
    started = time.monotonic()
    await other.call("ZADD", queue_name, 1696233644865.1, "nonsense")
    key, member, score = await waiting
    assert (key, member, as_int(score)) == (queue_name.encode(), b"nonsense", 1696233644865)
    assert time.monotonic() - started < 1


async def _blocked(link: object) -> int:
    info = await link.call("INFO", "clients")  # type: ignore[attr-defined]
    return int(info.decode().split("blocked_clients:")[1].split()[0])


async def test_an_unblocked_call_is_as_one_that_ran_out(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C005: CLIENT UNBLOCK … ERROR, twice; then it works as before"""
    link, other = await make_link(server.port, blocking=True), await make_link(server.port)
    await link.ready()
    client_id = link.client_id
    assert client_id is not None
    for how in ("ERROR", "ERROR", "TIMEOUT"):
        waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=10_000))
        await eventually_async(lambda how=how: other.call("CLIENT", "UNBLOCK", client_id, how))
        assert await asyncio.wait_for(waiting, 3) is None
    await other.call("ZADD", queue_name, 0, "0")
    assert await link.blocking_call("BZPOPMIN", queue_name, block_ms=10_000) == [
        queue_name.encode(),
        b"0",
        b"0",
    ]
    assert link.client_id == client_id


async def test_a_slow_line_causes_no_timeouts(make_link: MakeLink, proxy: Proxy, queue_name: str) -> None:
    """case C089: 400 ms each way, block time far below the command timeout and near it"""
    proxy.delay_ms = 400
    link = await make_link(proxy.port, blocking=True, redis={"command_timeout_ms": 2_000})
    for block_ms in (1, 100, 2_000):
        assert await link.blocking_call("BZPOPMIN", queue_name, block_ms=block_ms) is None
    assert proxy.accepted == 1


async def test_the_margin_of_the_watchdog_can_be_set(
    make_link: MakeLink, proxy: Proxy, queue_name: str
) -> None:
    """case C089"""
    link = await make_link(proxy.port, blocking=True, margin_ms=100)
    await link.ready()
    proxy.delay_ms = 400
    with pytest.raises(LinkDown, match="no answer in time"):
        await link.blocking_call("BZPOPMIN", queue_name, block_ms=1)
    proxy.delay_ms = 0


async def test_cancelling_a_blocked_call_takes_it_off_the_server(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C005: nothing is popped for a caller who has gone"""
    link, other = await make_link(server.port, blocking=True), await make_link(server.port)
    waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=30_000))
    await eventually_async(lambda: _blocked(other))
    waiting.cancel()
    await asyncio.wait([waiting])
    await eventually_async(lambda: _unblocked(other))
    await other.call("ZADD", queue_name, 0, "kept")
    assert await link.blocking_call("BZPOPMIN", queue_name, block_ms=30_000) == [
        queue_name.encode(),
        b"kept",
        b"0",
    ]


async def _unblocked(link: object) -> bool:
    return await _blocked(link) == 0


async def test_closing_ends_a_blocked_call_at_once(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C003"""
    link, other = await make_link(server.port, blocking=True), await make_link(server.port)
    waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=30_000))
    await eventually_async(lambda: _blocked(other))
    started = time.monotonic()
    await link.close()
    with pytest.raises(LinkDown, match="closed"):
        await waiting
    assert time.monotonic() - started < 0.5
    await eventually_async(lambda: _unblocked(other))


async def test_a_blocked_call_waits_for_a_server_that_is_away(
    make_link: MakeLink, proxy: Proxy, queue_name: str
) -> None:
    """case C008: also longer than its own timeout, and then with the full timeout"""
    proxy.refuse = True
    link = await make_link(proxy.port, blocking=True)
    waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=50))
    await eventually_async(lambda: proxy.accepted > 4)
    assert not waiting.done()
    proxy.refuse = False
    assert await waiting is None


async def test_a_blocked_call_without_a_server_fails_in_the_end(make_link: MakeLink) -> None:
    """case C008"""
    link = await make_link(1, blocking=True, redis={"command_timeout_ms": 300})
    with pytest.raises(LinkDown, match="cannot connect") as caught:
        await link.blocking_call("BZPOPMIN", "k", block_ms=10)
    assert not caught.value.sent


async def test_a_server_that_cannot_serve_is_asked_again_with_pauses(
    make_link: MakeLink, proxy: Proxy, queue_name: str
) -> None:
    """case C012, C013: BUSY to a blocking call"""
    link = await make_link(proxy.port, blocking=True, redis={"command_timeout_ms": 600})
    await link.ready()
    proxy.answer = b"-BUSY somebody's script\r\n"
    with pytest.raises(ServerUnready):
        await link.blocking_call("BZPOPMIN", queue_name, block_ms=5)
    assert len([c for c in proxy.commands if c[0] == b"BZPOPMIN"]) < 12
    waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=5))
    proxy.answer = None
    assert await waiting is None


async def test_a_replica_is_left_by_a_blocking_link_too(
    make_link: MakeLink, own_server: Server, queue_name: str
) -> None:
    """case C010, C005: the blocked call is thrown out at demotion, the next one waits for a master"""
    link, other = await make_link(own_server.port, blocking=True), await make_link(own_server.port)
    waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=10_000))
    await eventually_async(lambda: _blocked(other))
    first = link.client_id
    with own_server.client() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", 1)
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        assert outcome is None or isinstance(outcome, LinkDown)
        waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=10_000))
        await eventually_async(lambda: link.state.condition == "READONLY")
        admin.execute_command("REPLICAOF", "NO", "ONE")
        await eventually_async(lambda: link.connected)
        admin.zadd(queue_name, {"0": 0})
    assert await waiting == [queue_name.encode(), b"0", b"0"]
    assert link.client_id != first


async def test_errors_of_the_command_reach_the_caller(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C085"""
    link = await make_link(server.port, blocking=True)
    await link.call("SET", queue_name, "text")
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await link.blocking_call("BZPOPMIN", queue_name, block_ms=10)


async def test_a_second_blocked_call_on_one_link_is_refused(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C004: it would wait behind the first, and look like a dead line"""
    link = await make_link(server.port, blocking=True)
    waiting = asyncio.create_task(link.blocking_call("BZPOPMIN", queue_name, block_ms=300))
    await link.ready()
    await asyncio.sleep(0)
    with pytest.raises(InputError, match="one call at a time"):
        await link.blocking_call("BZPOPMIN", queue_name, block_ms=300)
    assert await waiting is None


async def test_numbers_as_text_from_a_compatible_server_do_no_harm(
    make_link: MakeLink, server: Server
) -> None:
    """case C087: CLIENT ID as a bulk string"""

    def as_bulk(match: re.Match[bytes]) -> bytes:
        return b"$%d\r\n%s\r\n" % (len(match[1]), match[1])

    with Proxy(server.port) as proxy:
        proxy.edit = lambda chunk: re.sub(rb"(?:^|(?<=\r\n)):(\d+)\r\n", as_bulk, chunk)
        link = await make_link(proxy.port)
        await link.ready()
        assert isinstance(link.client_id, int)
        assert await link.call("CLIENT", "ID") == str(link.client_id).encode()
        await link.close()
