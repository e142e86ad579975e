# SPDX-License-Identifier: MIT
"""Calls, pipelines, scripts and the order of a connection's first commands."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import LinkDown, LinkError, LinkRefused, ReplyError
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.state import LinkState
from tests.redisio.conftest import MakeLink
from tests.support.proxy import Proxy
from tests.support.scripts import ECHO, LIBRARY, PUSH, script_of
from tests.support.servers import Server
from tests.support.waiting import eventually_async


async def test_replies_come_in_the_types_of_the_wire(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C103: bulk is bytes, whatever a user's own client decodes to"""
    link = await make_link(server.port)
    key = f"{queue_name}:é"
    assert await link.call("SET", key, "grün".encode()) == b"OK"
    assert await link.call("GET", key) == "grün".encode()
    assert await link.call("GET", f"{key}:none") is None
    assert await link.call("RPUSH", f"{key}:l", 1, 2.5, "x", b"\x00\xff\r\n") == 4
    assert await link.call("LRANGE", f"{key}:l", 0, -1) == [b"1", b"2.5", b"x", b"\x00\xff\r\n"]
    assert link.server.kind == server.kind
    assert link.state.server.startswith(server.kind)


async def test_all_calls_of_one_loop_turn_go_out_in_one_write(
    make_link: MakeLink, valkey_server: Server
) -> None:
    """design: automatic pipelining"""
    link = await make_link(valkey_server.port, scripts=LIBRARY)
    await link.ready()
    before = await link.call("INFO", "stats")
    calls = [link.script(ECHO, [], [n]) for n in range(500)]
    assert [int(reply) for reply in await asyncio.gather(*calls)] == list(range(500))
    after = await link.call("INFO", "stats")
    reads = [_stat(info, "total_reads_processed") for info in (before, after)]
    assert reads[1] - reads[0] < 50  # one by one they would be 500


def _stat(info: bytes, name: str) -> int:
    return int(info.decode().split(f"{name}:")[1].split()[0])


async def test_a_command_error_reaches_its_caller_and_no_other(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C013"""
    link = await make_link(server.port)
    good, bad, also = (
        link.call("SET", queue_name, 1),
        link.call("LPUSH", queue_name, 1),
        link.call("GET", queue_name),
    )
    assert await good == b"OK"
    with pytest.raises(ReplyError, match="WRONGTYPE") as caught:
        await bad
    assert caught.value.code == "WRONGTYPE"
    assert await also == b"1"


async def test_a_flushed_script_is_loaded_and_only_its_own_call_repeated(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """case C011: in a pipeline, twice"""
    link = await make_link(server.port, scripts=LIBRARY)
    for _ in range(2):
        await link.call("DEL", queue_name)
        flush = link.call("SCRIPT", "FLUSH")
        calls = [link.script(PUSH, [queue_name], [n]) for n in range(20)]
        plain = link.call("INCRBY", f"{queue_name}:n", 1)
        await flush
        assert sorted(await asyncio.gather(*calls)) == list(range(1, 21))
        await plain
        rows = await link.call("LRANGE", queue_name, 0, -1)
        assert sorted(int(row) for row in rows) == list(range(20))
    assert await link.call("GET", f"{queue_name}:n") == b"2"


async def test_a_script_outside_the_library_is_loaded_when_it_is_missed(
    make_link: MakeLink, server: Server
) -> None:
    """case C011"""
    link = await make_link(server.port)
    stray = script_of("stray", "return 'stray'")
    assert await link.script(stray, [], []) == b"stray"


async def test_a_script_that_cannot_be_compiled_fails_its_call(make_link: MakeLink, server: Server) -> None:
    """case C011: no endless loop of loads"""
    link = await make_link(server.port)
    with pytest.raises(ReplyError, match="NOSCRIPT"):
        await link.script(script_of("broken", "return ("), [], [])
    assert await link.call("PING") == b"PONG"


async def test_preparations_come_before_any_waiting_call(make_link: MakeLink, proxy: Proxy) -> None:
    """case C002: name, scripts and on_connect, then the callers' commands, at every connect"""
    heard: list[LinkState] = []

    async def prepare(link: Link) -> None:
        await link.call("ECHO", "prepare")
        await link.call("ECHO", "prepare again")

    link = await make_link(
        proxy.port, name="emq:my queue", scripts=LIBRARY, on_connect=prepare, on_state=heard.append
    )
    for _ in range(2):
        proxy.commands.clear()
        await link.call("ECHO", "caller")
        said = [b" ".join(command[:2]) for command in proxy.commands]
        assert said[0] == b"PING"
        assert b"CLIENT SETNAME" in said
        assert b"SCRIPT EXISTS" in said
        assert said[-3:] == [b"ECHO prepare", b"ECHO prepare again", b"ECHO caller"]
        assert await link.call("CLIENT", "GETNAME") == b"emq:my_queue"
        assert await link.call("CLIENT", "ID") == link.client_id
        proxy.cut()
        await eventually_async(lambda: not link.connected)
        assert link.client_id is None
    assert [state.connected for state in heard][:3] == [True, False, True]


async def test_a_failing_preparation_is_tried_again_with_the_next_connection(
    make_link: MakeLink, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """case C013"""
    runs = 0

    def prepare(link: Link) -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError("not yet")

    link = await make_link(proxy.port, on_connect=prepare)
    assert await link.call("PING") == b"PONG"
    assert (runs, proxy.accepted) == (3, 3)
    assert "not yet" in caplog.text


async def test_a_preparation_survives_a_flush_and_a_lost_connection(
    make_link: MakeLink, proxy: Proxy
) -> None:
    """case C011, C001"""
    downs: list[LinkDown] = []

    async def prepare(link: Link) -> None:
        await link.call("SCRIPT", "FLUSH")
        assert await link.script(ECHO, [], ["x"]) == b"x"
        if not downs:
            proxy.lose_reply_to(b"PING")
            try:
                await link.call("PING")
            except LinkDown as error:
                downs.append(error)
                raise

    link = await make_link(proxy.port, scripts=LIBRARY, on_connect=prepare)
    assert await link.call("ECHO", "there") == b"there"
    assert [error.sent for error in downs] == [True]


async def test_a_preparation_that_is_being_repeated_dies_with_its_connection(
    make_link: MakeLink, proxy: Proxy
) -> None:
    """case C012, C013: BUSY during on_connect, then a cut; the next connection is not held up by it"""
    errors: list[LinkError] = []

    async def prepare(link: Link) -> None:
        if not errors:
            proxy.answer = b"-BUSY somebody's script\r\n"
        try:
            await link.call("ECHO", "prepare")
        except LinkError as error:
            errors.append(error)
            raise

    link = await make_link(proxy.port, on_connect=prepare)
    await eventually_async(lambda: len([c for c in proxy.commands if c[0] == b"ECHO"]) > 1)
    proxy.cut()
    await eventually_async(lambda: errors)
    proxy.answer = None
    assert await asyncio.wait_for(link.call("ECHO", "there"), 5) == b"there"
    assert len([c for c in proxy.commands if c == [b"ECHO", b"prepare"]]) < 6


async def test_a_cancelled_call_leaves_the_stream_in_step(make_link: MakeLink, valkey_server: Server) -> None:
    """case C004"""
    link = await make_link(valkey_server.port)
    await link.ready()
    sent = [link.call("ECHO", n) for n in range(10)]
    await asyncio.sleep(0)  # written, not answered
    for future in sent[::2]:
        future.cancel()
    unsent = link.call("ECHO", "never")
    unsent.cancel()
    assert await link.call("ECHO", "last") == b"last"
    assert [future.result() for future in sent[1::2]] == [b"1", b"3", b"5", b"7", b"9"]


async def test_a_lost_reply_says_that_the_command_may_have_run(
    make_link: MakeLink, proxy: Proxy, queue_name: str
) -> None:
    """law 6"""
    link = await make_link(proxy.port, scripts=LIBRARY)
    await link.ready()
    proxy.lose_reply_to(b"EVALSHA")
    with pytest.raises(LinkDown) as caught:
        await link.script(PUSH, [queue_name], ["once"])
    assert caught.value.sent
    assert await link.call("LLEN", queue_name) == 1


async def test_a_call_that_never_left_says_so(make_link: MakeLink) -> None:
    """law 6"""
    link = await make_link(1, redis={"command_timeout_ms": 300})
    with pytest.raises(LinkDown, match="cannot connect") as caught:
        await link.call("PING")
    assert not caught.value.sent
    with pytest.raises(LinkDown, match="not sent in time"):
        await link.call("PING", timeout_ms=50)


async def test_calls_that_wait_are_bounded_in_number(make_link: MakeLink) -> None:
    """case C003"""
    link = await make_link(1, max_queued=10, redis={"command_timeout_ms": 2_000})
    calls = [link.call("PING") for _ in range(30)]
    await asyncio.wait(calls[10:])
    assert not any(call.done() for call in calls[:10])
    with pytest.raises(LinkDown, match="10 calls wait"):
        await calls[-1]


async def test_one_impatient_caller_does_not_cost_the_others_their_connection(
    make_link: MakeLink, proxy: Proxy
) -> None:
    """case C089"""
    link = await make_link(proxy.port)
    await link.ready()
    client_id = link.client_id
    proxy.delay_ms = 300
    patient = link.call("ECHO", "patient")
    with pytest.raises(LinkDown) as caught:
        await link.call("PING", timeout_ms=50)
    assert caught.value.sent
    assert await patient == b"patient"
    assert link.client_id == client_id


async def test_closing_fails_what_waits_and_leaves_nothing_running(make_link: MakeLink, proxy: Proxy) -> None:
    """design: a closed link holds nobody"""
    link = await make_link(proxy.port)
    await link.ready()
    proxy.swallow = True
    sent = link.call("PING")
    await asyncio.sleep(0)
    await link.close()
    with pytest.raises(LinkDown) as caught:
        await sent
    assert caught.value.sent
    with pytest.raises(LinkDown) as caught:
        await link.call("PING")
    assert not caught.value.sent
    with pytest.raises(LinkDown):
        await link.ready()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_abandoned_calls_print_no_tracebacks(
    make_link: MakeLink, caplog: pytest.LogCaptureFixture
) -> None:
    """case C003"""
    link = await make_link(1, redis={"command_timeout_ms": 50})
    calls = [link.call("PING") for _ in range(100)]
    await asyncio.wait(calls)
    calls.clear()
    gc.collect()
    await asyncio.sleep(0)
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_a_big_reply_and_a_big_argument_pass(
    make_link: MakeLink, server: Server, queue_name: str
) -> None:
    """design: payloads of megabytes"""
    link = await make_link(server.port)
    blob = b"x" * 20_000_000
    calls = [link.call("SET", queue_name, blob), *(link.call("ECHO", n) for n in range(100))]
    assert (await asyncio.gather(*calls))[-1] == b"99"
    assert await link.call("GET", queue_name) == blob


async def test_the_link_runs_on_uvloop_too(valkey_server: Server) -> None:
    """design: the loop is the caller's choice"""
    uvloop = pytest.importorskip("uvloop")

    async def use() -> bytes:
        link = Link(RedisConfig(port=valkey_server.port), scripts=LIBRARY, name="uv")
        await link.start()
        try:
            reply: bytes = await link.script(ECHO, [], ["uv"])
            return reply
        finally:
            await link.close()

    def run() -> bytes:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            reply: bytes = runner.run(use())
            return reply

    assert await asyncio.to_thread(run) == b"uv"


async def test_states_are_logged_once_each(
    make_link: MakeLink, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """case C003"""
    caplog.set_level(logging.DEBUG, "echomq.link")
    link = await make_link(proxy.port, name="lines")
    await link.ready()
    proxy.refuse = True
    proxy.cut()
    await eventually_async(lambda: proxy.accepted > 4)
    proxy.refuse = False
    await link.ready()
    assert len(caplog.messages) == 3  # connected, lost, connected


async def test_a_link_that_was_never_started_says_so(valkey_server: Server) -> None:
    """case C013"""
    with pytest.raises(RuntimeError, match="not started"):
        Link(RedisConfig(port=valkey_server.port)).call("PING")


async def test_a_user_without_the_right_is_refused_with_a_sentence(
    make_link: MakeLink, valkey_server: Server
) -> None:
    """case C017: NOPERM"""
    with valkey_server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "+get", "+auth")
        link = await make_link(
            valkey_server.port, redis={"username": "poor", "password": "secret"}, name="poor"
        )
        assert await link.call("GET", "nothing") is None
        assert link.client_id is None
        with pytest.raises(LinkRefused, match="ACL does not allow"):
            await link.call("SET", "nothing", 1)
        admin.execute_command("ACL", "DELUSER", "poor")
