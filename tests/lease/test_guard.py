# SPDX-License-Identifier: MIT
"""The lock for users' own critical sections, outside of jobs: asynchronous, synchronous, and one against the other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.crc import key_slot

from echomq_pool import InputError, Lease, LeaseExpired, LeaseTaken, SyncLease
from echomq_pool.clock import FakeClock
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import LinkDown
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import SCRIPTS, Guard, GuardKeys, renewing
from echomq_pool.redisio.link import Link
from tests.support.lease import LIBRARY
from tests.support.servers import Server
from tests.support.waiting import eventually, eventually_async

KEYS = GuardKeys("emq")


def state(lease: Lease | SyncLease | Guard) -> bool:
    """Whether it is held, asked anew."""
    return lease.held


@pytest.fixture
async def bench(server: Server, queue_name: str) -> AsyncIterator[GuardBench]:
    with server.client() as client:
        yield GuardBench(server, client, queue_name)


class GuardBench:
    """One name on one server, and somebody who looks and meddles."""

    def __init__(self, server: Server, client: Any, name: str) -> None:
        self.server, self.client, self.name = server, client, name
        self.key = KEYS.base + name

    def lease(self, **more: Any) -> Lease:
        return Lease(self.name, url=self.server.url, **more)

    def sync(self, **more: Any) -> SyncLease:
        return SyncLease(self.name, url=self.server.url, **more)

    def ttl(self) -> int:
        return int(self.client.pttl(self.key))

    def steal(self) -> None:
        self.client.set(self.key, "thief:1")


class Asker:
    """Somebody who makes single calls."""

    def __init__(self, link: Link) -> None:
        self.link = link

    async def ask(self, call: Call) -> int:
        return int(await self.reply(call))

    async def reply(self, call: Call) -> Any:
        return await self.link.script(LIBRARY[call.script], call.keys, call.args)


@asynccontextmanager
async def asking(server: Server) -> AsyncIterator[Asker]:
    link = Link(RedisConfig(url=server.url, port=server.port), scripts=LIBRARY)
    await link.start()
    try:
        yield Asker(link)
    finally:
        await link.close()


# --- one holder at a time ---------------------------------------------------------------------------------


async def test_a_whole_life(bench: GuardBench) -> None:
    """promise 3.10"""
    mine, other = bench.lease(), bench.lease(wait=0)
    assert not state(mine)
    assert await mine.acquire()
    assert not await other.acquire()
    assert state(mine)
    assert not mine.lost
    assert (other.held, other.lost) == (False, False)
    assert 29_000 < bench.ttl() <= 30_000
    assert await mine.release()
    assert not state(mine)
    assert not mine.lost
    assert await other.acquire()
    assert other.fencing_token > mine.fencing_token > 0
    assert await other.release()
    assert not await other.release()


def test_a_whole_life_of_the_synchronous_twin(server: Server, queue_name: str) -> None:
    """promise 3.10"""
    with server.client() as client:
        bench = GuardBench(server, client, queue_name)
        mine, other = bench.sync(), bench.sync(wait="10ms")
        assert mine.acquire()
        assert not other.acquire()
        assert state(mine)
        assert 29_000 < bench.ttl() <= 30_000
        with pytest.raises(LeaseTaken, match=f"'{queue_name}' is held by somebody else"), other:
            pass
        assert mine.release()
        assert not state(mine)
        with other as held:
            assert held.fencing_token > mine.fencing_token
            held.check()
        assert bench.ttl() == -2
        assert other.acquire(wait=None)  # its connection is made anew
        assert other.release()


async def test_both_kinds_and_all_names_share_one_growing_number(bench: GuardBench) -> None:
    """law 5: whoever comes later has the greater number, and nothing is left of a name but that"""
    numbers: list[int] = []
    for number in range(6):
        lease = Lease(f"{bench.name}-{number % 2}", url=bench.server.url)
        async with lease:
            numbers.append(lease.fencing_token)
        with bench.sync() as held:
            assert await bench.lease(wait=0).acquire() is False
            numbers.append(held.fencing_token)
    assert numbers == sorted(set(numbers))
    assert list(bench.client.scan_iter(f"*{bench.name}*")) == []


@pytest.mark.parametrize("prefix", ["other", "{bull}", "a{b}c"])
async def test_prefixes_keep_apart_and_each_has_one_slot(bench: GuardBench, prefix: str) -> None:
    """lock-plane: a prefix may bring its own hash tag"""
    keys = GuardKeys(prefix)
    async with bench.lease() as one, bench.lease(prefix=prefix, wait=0) as two:
        assert one.held
        assert two.held
        assert bench.client.exists(keys.base + bench.name)
    slots = {key_slot(key.encode()) for key in (keys.fence, f"{keys.base}x", f"{keys.base}{{y}}")}
    assert len(slots) == 1


async def test_whoever_waits_gets_it_next(bench: GuardBench) -> None:
    """law 2"""
    order: list[int] = []

    async def section() -> None:
        async with bench.lease() as held:
            order.append(held.fencing_token)
            await asyncio.sleep(0.01)
            assert held.held

    await asyncio.gather(*(section() for _ in range(5)))
    assert order == sorted(set(order))
    assert len(order) == 5


async def test_one_object_is_one_holder(bench: GuardBench) -> None:
    """law 13"""
    async with bench.lease() as held:
        with pytest.raises(InputError, match="has a holder already"):
            await held.acquire()
        assert held.held
        one, two = bench.lease(wait="2s"), bench.sync(wait="2s")
        trying = asyncio.gather(one.acquire(), asyncio.to_thread(two.acquire))
        await asyncio.sleep(0.1)
        with pytest.raises(InputError, match="has a holder already"):
            await one.acquire()
        with pytest.raises(InputError, match="has a holder already"):
            two.acquire()
        assert list(await trying) == [False, False]


async def test_a_waiter_that_is_cancelled_holds_nothing(bench: GuardBench) -> None:
    async with bench.lease() as held:
        waiter = asyncio.create_task(bench.lease().acquire())
        await asyncio.sleep(0.05)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert held.held
    assert bench.ttl() == -2


# --- its time ---------------------------------------------------------------------------------------------


async def test_renewed_only_by_its_token(bench: GuardBench) -> None:
    """promise 3.3, 3.4"""
    mine = bench.lease()
    await mine.acquire()
    bench.client.pexpire(bench.key, 5_000)
    other = Guard(bench.name, 30_000, KEYS, FakeClock())
    other.acquiring()
    async with asking(bench.server) as lone:
        assert await lone.ask(other.extending()) == 0
        assert bench.ttl() <= 5_000
        assert await lone.ask(other.releasing()) == 0  # promise 3.11
    assert await mine.renew()
    assert bench.ttl() > 29_000
    assert LIBRARY["lease/guardExtend"].keys == 1
    await mine.release()


async def test_a_lapsed_lock_does_not_come_back(bench: GuardBench) -> None:
    """promise 3.5"""
    mine = bench.lease()
    await mine.acquire()
    bench.client.delete(bench.key)
    assert not await mine.renew()
    assert mine.lost
    assert bench.client.exists(bench.key) == 0
    before = mine.fencing_token
    assert await mine.acquire(wait=0)  # but it may be taken anew, under a new number
    assert mine.fencing_token > before
    await mine.release()


async def test_given_back_only_by_its_token(bench: GuardBench) -> None:
    """promise 3.11"""
    mine = bench.lease()
    await mine.acquire()
    bench.steal()
    assert not await mine.release()
    assert bench.client.get(bench.key) == b"thief:1"


async def test_a_crash_frees_it_in_its_time(bench: GuardBench) -> None:
    """promise 3.12"""
    dead, heir = bench.lease(ttl="150ms"), bench.lease(wait=0)
    await dead.acquire()
    await eventually_async(heir.acquire, within=5)
    assert heir.fencing_token > dead.fencing_token
    assert dead.lost
    with pytest.raises(LeaseExpired, match="any more"):
        dead.check()
    assert not await dead.release()
    await heir.release()


async def test_it_is_renewed_as_long_as_its_block_runs(bench: GuardBench) -> None:
    """promise 3.2, 3.8"""
    async with bench.lease(ttl="1500ms") as mine:
        number = mine.fencing_token
        for _ in range(70):
            await asyncio.sleep(0.05)
            assert bench.ttl() > 0
            mine.check()
        assert mine.fencing_token == number
    assert bench.ttl() == -2


def test_a_thread_renews_the_synchronous_one(server: Server, queue_name: str) -> None:
    """promise 3.2, 3.8"""
    with server.client() as client:
        bench = GuardBench(server, client, queue_name)
        threads = threading.active_count()
        with bench.sync(ttl="1500ms") as mine:
            for _ in range(70):
                time.sleep(0.05)
                assert bench.ttl() > 0
                mine.check()
        assert bench.ttl() == -2
        assert threading.active_count() == threads


async def test_its_holder_hears_that_it_is_lost_and_renews_no_more(bench: GuardBench) -> None:
    """promise 3.6, 3.7"""
    told: list[str] = []
    async with bench.lease(ttl="300ms", on_lost=lambda: told.append("lost")) as mine:
        bench.steal()
        await eventually_async(lambda: told)
        assert mine.lost
        with pytest.raises(LeaseExpired):
            mine.check()
        assert mine._keeping is not None
        await asyncio.wait_for(asyncio.shield(mine._keeping), 10)
    assert told == ["lost"]
    assert bench.client.get(bench.key) == b"thief:1"


def test_the_synchronous_holder_hears_it_too(server: Server, queue_name: str) -> None:
    """promise 3.6, 3.7"""
    told: list[str] = []
    with server.client() as client:
        bench = GuardBench(server, client, queue_name)
        with bench.sync(ttl="300ms", on_lost=lambda: told.append("lost")) as mine:
            bench.steal()
            eventually(lambda: told)
            assert mine.lost
        assert told == ["lost"]
        assert client.get(bench.key) == b"thief:1"


async def test_an_error_of_the_holders_own_is_logged_and_ends_no_renewing(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """law 4: only the server's word ends it, and that may be that the lease is still ours"""

    def broken() -> None:
        raise RuntimeError("no mail server")

    with own_server.client() as client:
        async with Lease("x", url=own_server.url, ttl="300ms", on_lost=broken) as mine:
            client.persist(KEYS.base + "x")  # nobody else has it, however long the holder hears nothing
            own_server.freeze()
            await eventually_async(lambda: "on_lost of lease x failed" in caplog.text)
            own_server.thaw()
            await eventually_async(lambda: mine.held)
    assert "no mail server" in caplog.text


def test_the_synchronous_holders_own_error_is_logged_too(
    server: Server, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """law 4"""
    with server.client() as client:
        bench = GuardBench(server, client, queue_name)
        with bench.sync(ttl="300ms", on_lost=lambda: [][0]) as mine:
            bench.steal()
            eventually(lambda: f"on_lost of lease {queue_name} failed" in caplog.text)
            assert mine.lost


async def test_without_a_server_it_counts_as_lost_when_its_time_is_over(own_server: Server) -> None:
    """law 4"""
    told: list[str] = []
    async with Lease("x", url=own_server.url, ttl="300ms", on_lost=lambda: told.append("lost")) as mine:
        own_server.stop(kill=True)
        await eventually_async(lambda: mine.lost)
        await eventually_async(lambda: told == ["lost"])
        assert not mine.held


async def test_a_server_that_does_not_answer_is_named() -> None:
    """law 13"""
    nowhere = RedisConfig(url="redis://127.0.0.1:1", port=1, command_timeout_ms=200, connect_timeout_ms=200)
    with pytest.raises(LinkDown, match=r"127\.0\.0\.1:1"):
        await Lease("x", redis=nowhere).acquire()
    with pytest.raises(LinkDown, match=r"127\.0\.0\.1:1"):
        SyncLease("x", redis=nowhere).acquire()


# --- as the holder knows it ---------------------------------------------------------------------------------


def test_its_time_counts_from_before_the_call_was_sent() -> None:
    """law 4"""
    clock = FakeClock()
    guard = Guard("x", 1_000, KEYS, clock)
    sent = clock.mono_ms()
    guard.acquiring()
    clock.advance(400)
    assert guard.acquired(7, sent)
    clock.advance(599)
    assert state(guard)
    clock.advance(1)
    assert not state(guard)
    assert guard.taken


def test_an_answer_that_came_too_late_is_no_acquisition() -> None:
    """law 4"""
    clock = FakeClock()
    guard = Guard("x", 1_000, KEYS, clock)
    sent = clock.mono_ms()
    first = guard.acquiring()
    clock.advance(1_000)
    assert not guard.acquired(7, sent)
    again = clock.mono_ms()
    assert guard.acquiring() == first  # the same try: the server knows its token
    assert guard.acquired(7, again)


async def test_a_lost_reply_is_no_lost_lock(bench: GuardBench) -> None:
    """law 6"""
    mine = Guard(bench.name, 30_000, KEYS, FakeClock())
    async with asking(bench.server) as lone:
        number = await lone.ask(mine.acquiring())
        bench.client.pexpire(bench.key, 1_000)
        assert await lone.ask(mine.acquiring()) == number
        assert bench.ttl() > 29_000, "its time counts from the call that was answered"
        assert await lone.ask(mine.releasing()) == 1
        assert await lone.ask(mine.releasing()) == 0


async def test_many_are_renewed_by_one_call_which_names_the_refused(bench: GuardBench) -> None:
    """law 10, law 5"""
    guards = [Guard(f"{bench.name}-{n}", 30_000, KEYS, FakeClock()) for n in range(50)]
    async with asking(bench.server) as lone:
        for guard in guards:
            await lone.ask(guard.acquiring())
            bench.client.pexpire(KEYS.base + guard.name, 5_000)
        bench.client.delete(KEYS.base + guards[3].name)
        bench.client.set(KEYS.base + guards[4].name, "thief:9")
        call = renewing(KEYS, [(guard.name, guard.token, guard.ttl_ms) for guard in guards])
        refused = await lone.reply(call)
        assert {token.decode() for token in refused} == {guards[3].token, guards[4].token}
        assert not bench.client.exists(KEYS.base + guards[3].name)
        for guard in guards[5:]:
            assert bench.client.pttl(KEYS.base + guard.name) > 29_000
    assert set(SCRIPTS) <= set(LIBRARY)


# --- what makes no lease ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"ttl": 30}, r'ttl: expected a text with a unit .* such as "30s", got 30'),
        ({"ttl": "30"}, r"ttl: expected a text with a unit .*, got '30'"),
        ({"ttl": "30 parsecs"}, r"ttl: expected a text with a unit .*, got '30 parsecs'"),
        ({"ttl": "99ms"}, r'ttl: expected from "100ms" to "366d", got \'99ms\''),
        ({"ttl": "400d"}, r'ttl: expected from "100ms" to "366d", got \'400d\''),
        ({"ttl": None}, r"ttl: expected a text with a unit .*, got None"),
        ({"wait": 3}, r"wait: expected a text with a unit .*, got 3"),
        ({"wait": False}, r"wait: expected a text with a unit .*, got False"),
        ({"wait": "soon"}, r"wait: expected a text with a unit .*, got 'soon'"),
        ({"name": ""}, r"lease name: expected a non-empty text, got ''"),
        ({"name": "\ud800"}, r"lease name: '\\ud800' holds a lone surrogate"),
        ({"name": 7}, r"lease name: expected a non-empty text, got 7"),
        ({"name": "é" * 101}, r"lease name: expected at most 200 bytes, got 202"),
        ({"prefix": ""}, r"prefix: expected a non-empty text"),
        ({"url": ""}, r"url: expected the server's address"),
    ],
)
@pytest.mark.parametrize("kind", [Lease, SyncLease])
def test_what_makes_no_lease_is_refused(kind: Any, wrong: dict[str, Any], sentence: str) -> None:
    """law 13"""
    with pytest.raises(InputError, match=sentence):
        kind(**{"name": "x", "url": "redis://127.0.0.1:1", **wrong})


async def test_a_wait_that_is_none_is_refused_by_acquire_too(bench: GuardBench) -> None:
    """law 13"""
    with pytest.raises(InputError, match="wait: expected"):
        await bench.lease().acquire(wait=-1)
    with pytest.raises(InputError, match="wait: expected"):
        bench.sync().acquire(wait=2.5)
    assert bench.ttl() == -2


def test_any_text_is_a_name(server: Server) -> None:
    """law 13"""
    with SyncLease("a b {c} é:fence", url=server.url, wait="1s") as held:
        assert held.held
        assert repr(held).startswith("SyncLease('a b {c} é:fence', held, fencing token ")
