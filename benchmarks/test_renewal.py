# SPDX-License-Identifier: MIT
"""Keeping N leases of W workers alive for one more tick, in every form the wire knows.

The forms that renew per worker use one connection for each; the pool's form is what its LockManager does: one
process renews for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

import hiredis
import pytest

from benchmarks.conftest import Row
from benchmarks.support.foreground import Foreground
from benchmarks.support.lease_jobs import TOKEN, active_leases, keys_of
from benchmarks.support.meter import Meter, percentile
from benchmarks.support.seed import LEASE_MS, active_jobs, token_of
from benchmarks.support.wire import Wire, slices
from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane import lease_row
from echomq_pool.plane.base import PlaneOptions
from echomq_pool.plane.calls import Calls
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import load_library
from tests.support.servers import Server

TITLE = "Renewal: N leases held by W workers, one tick"
METHOD = (
    "Median of the rounds. Timers: an asyncio timer and an extendLock call for each job, over the pool's own "
    "connection class, all due within the tick. PEXPIRE and SET: a bare connection for each worker, one pipeline "
    "each, one after the other. extendLocks: one connection for all workers, one call for 10 000 leases at most. "
    "Foreground: one GET a millisecond from a process of its own."
)
KEYS = QueueKeys("emq", "renewal")
LIBRARY = load_library()
CALLS = Calls(KEYS, PlaneOptions(lock_duration_ms=LEASE_MS))
BATCH = 10_000

RE_SCORE = "lease plane: re-score"
LEASE_KEYS = keys_of("renewal")

Trips = int
Prepare = Callable[[int, Sequence[str], int, ExitStack], Callable[[], Trips]]


def shares(ids: Sequence[str], workers: int) -> list[Sequence[str]]:
    return [ids[n::workers] for n in range(workers)]


def timer_per_job(port: int, ids: Sequence[str], workers: int, open_: ExitStack) -> Callable[[], Trips]:
    """A timer and a call for each job."""
    runner = open_.enter_context(asyncio.Runner())
    links = runner.run(_links(port, workers))
    open_.callback(lambda: runner.run(_close(links)))

    def tick() -> Trips:
        runner.run(_fire(links, shares(ids, workers)))
        return len(ids)

    return tick


async def _links(port: int, count: int) -> list[Link]:
    links = [Link(RedisConfig(port=port), scripts=LIBRARY) for _ in range(count)]
    for link in links:
        await link.start()
    for link in links:
        await link.ready()
    return links


async def _close(links: Sequence[Link]) -> None:
    for link in links:
        await link.close()


async def _fire(links: Sequence[Link], parts: Sequence[Sequence[str]]) -> None:
    loop = asyncio.get_running_loop()
    left = sum(map(len, parts))
    done = loop.create_future()
    script = LIBRARY["extendLock"]

    def renewed(call: asyncio.Future[Any]) -> None:
        nonlocal left
        assert call.result() == 1
        left -= 1
        if not left:
            done.set_result(None)

    def due(link: Link, job_id: str) -> None:
        keys = (KEYS.lock(job_id), KEYS.key("stalled"))
        link.script(script, keys, (token_of(job_id), LEASE_MS, job_id)).add_done_callback(renewed)

    start = loop.time()
    for link, part in zip(links, parts, strict=True):
        for n, job_id in enumerate(part):
            loop.call_at(start + n * 1e-6, due, link, job_id)
    await done


def per_worker(command: Callable[[str], tuple[Any, ...]]) -> Prepare:
    """One pipeline of `command(id)` for each worker."""

    def prepare(port: int, ids: Sequence[str], workers: int, open_: ExitStack) -> Callable[[], Trips]:
        wires = [open_.enter_context(closing(Wire(port))) for _ in range(workers)]
        parts = shares(ids, workers)

        def tick() -> Trips:
            for wire, part in zip(wires, parts, strict=True):
                wire.pipeline(map(command, part))
            return workers

        return tick

    return prepare


def extend_locks(port: int, ids: Sequence[str], workers: int, open_: ExitStack) -> Callable[[], Trips]:
    """The pool's form: whoever holds them, all leases of a queue in one call."""
    del workers
    wire = open_.enter_context(closing(Wire(port)))
    wire.call("SCRIPT", "LOAD", LIBRARY["extendLocks"].text)
    batches = [[(i, token_of(i)) for i in part] for part in slices(ids, BATCH)]

    def tick() -> Trips:
        for pairs in batches:
            call = CALLS.extend(pairs)
            failed = wire.call("EVALSHA", LIBRARY["extendLocks"].sha, len(call.keys), *call.keys, *call.args)
            assert failed == [], failed[:3]
        return len(batches)

    return tick


def re_score(port: int, ids: Sequence[str], workers: int, open_: ExitStack) -> Callable[[], Trips]:
    """The same on the lease plane, where the lease is a score."""
    del workers
    wire = open_.enter_context(closing(Wire(port)))
    script = LIBRARY["lease/renew"]
    wire.call("SCRIPT", "LOAD", script.text)
    batches = [lease_row.pack([(i, TOKEN) for i in part]) for part in slices(ids, BATCH)]

    def tick() -> Trips:
        for packed in batches:
            args = (LEASE_KEYS.base, LEASE_MS, 0, packed)
            assert wire.call("EVALSHA", script.sha, 1, LEASE_KEYS.key("active"), *args) == []
        return len(batches)

    return tick


FORMS: dict[str, Prepare] = {
    "a timer for each job": timer_per_job,
    "pipelined PEXPIRE": per_worker(lambda i: ("PEXPIRE", KEYS.lock(i), LEASE_MS)),
    "pipelined SET…PX": per_worker(lambda i: ("SET", KEYS.lock(i), token_of(i), "PX", LEASE_MS)),
    "extendLocks, one for all": extend_locks,
    RE_SCORE: re_score,
}


@pytest.mark.benchmark(group="renewal")
@pytest.mark.sizes("workers", smoke=[4], quick=[1, 64], full=[1, 8, 64])
@pytest.mark.sizes("leases", smoke=[100], quick=[1_000, 10_000], full=[100, 1_000, 10_000, 100_000])
@pytest.mark.parametrize("form", FORMS)
def test_batched_renewal(
    benchmark: Any, server: Server, row: Row, pick: Any, form: str, leases: int, workers: int
) -> None:
    """promise 4.4"""
    if form == RE_SCORE:
        ids = active_leases(server, LEASE_KEYS, leases, lapsed_every=0)
    else:
        ids = active_jobs(server, KEYS, leases, missing_every=0)
    rounds = pick(1, 3, 7)
    with ExitStack() as open_, Foreground(server.port) as foreground:
        tick = FORMS[form](server.port, ids, workers, open_)
        tick()
        foreground.begin()
        with Meter(server) as spent:
            trips = benchmark.pedantic(tick, rounds=rounds, iterations=1)
        latencies = foreground.end()
    row(
        TITLE,
        METHOD,
        form=form,
        leases=leases,
        workers=workers,
        wall_ms=(benchmark.stats.stats.median if benchmark.stats else spent.wall_s) * 1e3,
        client_ms=spent.client_cpu_s / rounds * 1e3,
        server_ms=spent.server_cpu_s / rounds * 1e3,
        calls=trips,
        KB_sent=spent.bytes_in / rounds / 1e3,
        KB_received=spent.bytes_out / rounds / 1e3,
        foreground_p50_ms=percentile(latencies, 0.5),
        foreground_p99_ms=percentile(latencies, 0.99),
    )


def test_a_bare_lock_is_what_the_scripts_expect(server: Server) -> None:
    """The seed writes what a take writes: the script renews it, and refuses another's token."""
    [job_id] = active_jobs(server, KEYS, 1, missing_every=0)
    wire = Wire(server.port)
    args = CALLS.extend([(job_id, "another's:1")])
    reply = wire.call("EVAL", LIBRARY["extendLocks"].text, len(args.keys), *args.keys, *args.args)
    assert reply == [job_id.encode()]
    assert not isinstance(reply, hiredis.ReplyError)
