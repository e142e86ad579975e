# SPDX-License-Identifier: MIT
"""The server goes away, freezes, comes back, or only seems to be there."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from echomq_pool.errors import LinkDown, ServerUnready
from tests.redisio.conftest import MakeLink
from tests.support.proxy import Proxy
from tests.support.scripts import ECHO, LIBRARY
from tests.support.servers import Server
from tests.support.waiting import eventually_async


async def test_the_link_comes_back_however_close_together_the_drops_are(
    make_link: MakeLink, own_server: Server
) -> None:
    """case C001: three restarts in a row"""
    link = await make_link(own_server.port, scripts=LIBRARY)
    for _ in range(3):
        await link.ready()
        await asyncio.to_thread(own_server.stop, kill=True)
        await asyncio.to_thread(own_server.start)
    calls = [link.script(ECHO, [], [n]) for n in range(5)]
    assert len(await asyncio.wait_for(asyncio.gather(*calls), 10)) == 5


async def test_after_an_outage_the_connection_has_its_name_and_scripts_again(
    make_link: MakeLink, own_server: Server
) -> None:
    """case C002, C011, C087"""
    link = await make_link(own_server.port, scripts=LIBRARY, name="worker:w")
    await link.ready()
    await asyncio.to_thread(own_server.stop)
    await eventually_async(lambda: not link.connected)
    waiting = link.script(ECHO, [], ["waited"])
    await asyncio.to_thread(own_server.start)
    assert await waiting == b"waited"
    with own_server.client() as client:
        assert "worker:w" in [entry["name"] for entry in client.client_list()]
        assert client.info("commandstats")["cmdstat_evalsha"]["failed_calls"] == 0


@pytest.mark.parametrize(
    "outage_s", [3, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(200)])]
)
async def test_an_outage_costs_little_cpu_and_few_log_lines_and_retries_never_end(
    make_link: MakeLink, own_server: Server, caplog: pytest.LogCaptureFixture, outage_s: int
) -> None:
    """case C003, C008: ten links, each with a caller that asks again and again"""
    links = [await make_link(own_server.port, redis={"command_timeout_ms": 500}) for _ in range(10)]
    await asyncio.gather(*(link.ready() for link in links))
    await asyncio.to_thread(own_server.stop, kill=True)
    done = False

    async def ask(n: int) -> None:
        while not done:
            try:
                await links[n].call("PING")
            except (LinkDown, ServerUnready):  # away, or back and loading
                continue
            await asyncio.sleep(0.1)

    askers = [asyncio.create_task(ask(n)) for n in range(10)]
    cpu = time.process_time()
    await asyncio.sleep(outage_s)  # the length of the outage is what the case is about
    assert time.process_time() - cpu < 0.2 * outage_s
    await asyncio.to_thread(own_server.start)
    for link in links:
        assert await asyncio.wait_for(link.call("PING", timeout_ms=20_000), 25) == b"PONG"
    done = True
    await asyncio.gather(*askers)
    assert len([record for record in caplog.records if record.levelno >= logging.INFO]) < 40


async def test_a_silent_peer_is_noticed_and_replaced(make_link: MakeLink, proxy: Proxy) -> None:
    """case C004: bytes are swallowed both ways, the socket stays open"""
    command = await make_link(proxy.port, redis={"command_timeout_ms": 1_000, "connect_timeout_ms": 500})
    blocking = await make_link(proxy.port, blocking=True, redis={"connect_timeout_ms": 500})
    await asyncio.gather(command.ready(), blocking.ready())
    waiting = asyncio.create_task(blocking.blocking_call("BZPOPMIN", "none", block_ms=500))
    await eventually_async(lambda: any(c[0] == b"BZPOPMIN" for c in proxy.commands))
    proxy.swallow = True
    started = time.monotonic()
    with pytest.raises(LinkDown, match="no answer in time") as caught:
        await waiting
    assert caught.value.sent
    assert time.monotonic() - started < 2.5
    with pytest.raises(LinkDown):
        await command.call("PING")
    await eventually_async(lambda: not command.connected and not blocking.connected)
    proxy.swallow = False
    assert await command.call("PING") == b"PONG"
    assert await blocking.blocking_call("BZPOPMIN", "none", block_ms=10) is None


async def test_a_frozen_server_fails_calls_in_time_and_is_used_again_when_it_thaws(
    make_link: MakeLink, own_server: Server
) -> None:
    """case C004, C008"""
    link = await make_link(own_server.port, redis={"command_timeout_ms": 500, "connect_timeout_ms": 500})
    await link.ready()
    own_server.freeze()
    try:
        sent = link.call("INCR", "n")
        with pytest.raises(LinkDown) as caught:
            await sent
        assert caught.value.sent
        await eventually_async(lambda: not link.connected)
        with pytest.raises(LinkDown) as caught:
            await link.call("INCR", "n")
        assert not caught.value.sent
    finally:
        own_server.thaw()
    await link.ready()
    assert await link.call("INCR", "n") in (1, 2)


async def test_calls_in_flight_at_a_loss_fail_and_waiting_ones_are_sent_later(
    make_link: MakeLink, proxy: Proxy
) -> None:
    """law 6, case C009"""
    link = await make_link(proxy.port)
    await link.ready()
    proxy.swallow = True
    lost = [link.call("ECHO", n) for n in range(3)]
    await eventually_async(lambda: len([c for c in proxy.commands if c[0] == b"ECHO"]) == 3)
    proxy.refuse = True
    proxy.cut()
    await eventually_async(lambda: not link.connected)
    waiting = [link.call("ECHO", n) for n in range(3, 6)]
    proxy.swallow = proxy.refuse = False
    assert await asyncio.gather(*waiting) == [b"3", b"4", b"5"]
    for future in lost:
        with pytest.raises(LinkDown) as caught:
            await future
        assert caught.value.sent


async def test_loading_and_resets_take_the_same_path_as_a_lost_server(
    make_link: MakeLink, proxy: Proxy
) -> None:
    """case C013: LOADING to everything, then resets, then service"""
    link = await make_link(proxy.port, scripts=LIBRARY)
    await link.ready()
    proxy.answer = b"-LOADING server is loading the dataset in memory\r\n"
    call = link.script(ECHO, [], ["through"])
    await eventually_async(lambda: link.state.condition == "LOADING")
    proxy.cut()
    await eventually_async(lambda: not link.connected)
    await eventually_async(lambda: link.state.condition == "LOADING")  # at boot, too
    proxy.refuse, proxy.answer = True, None
    proxy.cut()
    before = proxy.accepted
    await eventually_async(lambda: proxy.accepted > before + 2)
    proxy.refuse = False
    # It was refused, so it is repeated, unless a cut caught it on its way.
    (outcome,) = await asyncio.gather(call, return_exceptions=True)
    assert outcome == b"through" or (isinstance(outcome, LinkDown) and outcome.sent)
    assert await asyncio.wait_for(link.script(ECHO, [], ["through"]), 3) == b"through"
    await eventually_async(lambda: link.state.condition == "")


async def test_closing_during_an_outage_is_quick(make_link: MakeLink) -> None:
    """case C003: the stop must not wait for the server"""
    link = await make_link(1)
    ready = asyncio.create_task(link.ready())
    call = link.call("PING")
    await asyncio.sleep(0)
    started = time.monotonic()
    await link.close()
    assert time.monotonic() - started < 0.5
    for waiter in (ready, call):
        with pytest.raises(LinkDown):
            await waiter


async def test_dropping_a_connection_makes_a_new_one(make_link: MakeLink, server: Server) -> None:
    """case C004"""
    link = await make_link(server.port)
    await link.ready()
    first = link.client_id
    link.drop("a test says so")
    assert link.state.detail == "a test says so"
    await link.ready()
    assert link.client_id != first
