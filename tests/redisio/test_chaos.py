# SPDX-License-Identifier: MIT
"""Everything at once: whatever happens, a call gets its own answer or a LinkError, and soon."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from echomq_pool.errors import LinkDown, LinkError, ServerUnready
from echomq_pool.redisio.link import Link
from tests.redisio.conftest import MakeLink
from tests.support.proxy import Proxy
from tests.support.scripts import ECHO, LIBRARY, PUSH
from tests.support.servers import Server


async def _trouble(proxy: Proxy, server: Server, dice: random.Random) -> None:
    """One random mishap, and its end."""
    what = dice.choice(["cut", "refuse", "delay", "answer", "swallow", "lose", "flush", "kill"])
    if what == "cut":
        await asyncio.to_thread(proxy.cut)
    elif what == "lose":
        proxy.lose_reply_to(b"EVALSHA")
    elif what in ("flush", "kill"):
        with server.client() as admin:
            admin.execute_command(
                *(["SCRIPT", "FLUSH"] if what == "flush" else ["CLIENT", "KILL", "SKIPME", "yes"])
            )
    else:
        setattr(
            proxy,
            {"delay": "delay_ms"}.get(what, what),
            {"delay": 30, "answer": b"-BUSY x\r\n"}.get(what, True),
        )
        if what == "refuse":
            await asyncio.to_thread(proxy.cut)
    await asyncio.sleep(dice.random() * 0.2)
    proxy.refuse, proxy.swallow, proxy.answer, proxy.delay_ms = False, False, None, 0


async def _caller(link: Link, key: str, n: int, done: asyncio.Event, counts: dict[str, int]) -> None:
    turn = 0
    while not done.is_set():
        turn += 1
        word = f"{n}-{turn}".encode()
        try:
            counts["pushed"] += 1
            await link.script(PUSH, [key], [word])
            counts["known"] += 1
            assert await link.script(ECHO, [], [word]) == word
            assert await link.call("ECHO", word) == word
        except LinkDown as error:
            counts["unknown" if error.sent else "unsent"] += 1
        except ServerUnready:
            counts["unready"] += 1
        except LinkError as error:
            pytest.fail(f"unexpected: {error!r}")


@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=pytest.mark.soak)])
async def test_no_mishap_gives_a_caller_another_ones_answer_or_none_at_all(
    make_link: MakeLink, own_server: Server, seed: int
) -> None:
    """case C001, C004, C011, C012, C013, law 6"""
    dice = random.Random(seed)
    counts = dict.fromkeys(("pushed", "known", "unknown", "unsent", "unready"), 0)
    with Proxy(own_server.port) as proxy:
        timing = {"command_timeout_ms": 700, "connect_timeout_ms": 300}
        link = await make_link(proxy.port, scripts=LIBRARY, redis=timing)
        done = asyncio.Event()
        callers = [asyncio.create_task(_caller(link, "pushed", n, done, counts)) for n in range(50)]
        for _ in range(25):
            await _trouble(proxy, own_server, dice)
        done.set()
        await asyncio.wait_for(asyncio.gather(*callers), 10)
        rows = await _read_all(link, "pushed")
        await link.close()
    assert len(rows) == len(set(rows)), "a call was repeated that had run"
    assert counts["known"] <= len(rows) <= counts["known"] + counts["unknown"]
    assert counts["known"] > 100
    assert counts["unknown"] > 0


async def _read_all(link: Link, key: str) -> list[bytes]:
    """The whole list; the last mishap may still be under way, and reading may be repeated."""
    while True:
        with contextlib.suppress(LinkDown):
            rows: list[bytes] = await link.call("LRANGE", key, 0, -1, timeout_ms=10_000)
            return rows
