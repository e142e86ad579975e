# SPDX-License-Identifier: MIT
"""Calls per question and per tick, counted: constant where the design says so, whatever the number of jobs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from benchmarks.support.lease_jobs import TOKEN, active_leases, keys_of
from benchmarks.support.seed import active_jobs, token_of
from benchmarks.support.wire import Wire
from benchmarks.test_probe import FORMS
from benchmarks.test_probe import KEYS as PROBE_KEYS
from echomq_pool.config.schema import RedisConfig
from echomq_pool.plane.factory import make_plane
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.redisio.link import Link
from echomq_pool.redisio.scripts import load_library
from tests.support.planes import LossyLink
from tests.support.servers import Server

LIBRARY = load_library()
_numbers = itertools.count()


def calls_of(server: Server, keys: QueueKeys, question: Callable[[Any], Awaitable[Any]]) -> list[str]:
    """What a plane sends to answer `question`."""

    async def run() -> list[str]:
        link = Link(RedisConfig(port=server.port), scripts=LIBRARY)
        await link.start()
        await link.ready()
        counting = LossyLink(link)
        await question(make_plane(counting, keys, LIBRARY))
        await link.close()
        return counting.log

    return asyncio.run(run())


@pytest.mark.parametrize("jobs", [1, 10, 100, 1_000])
def test_renewal_is_one_call_on_both_planes(valkey_server: Server, jobs: int) -> None:
    """promise 4.4, 4.5; law 10"""
    lock, lease = QueueKeys("emq", f"calls-{next(_numbers)}"), keys_of(f"calls-lease-{next(_numbers)}")
    held = [(i, token_of(i)) for i in active_jobs(valkey_server, lock, jobs, missing_every=0)]
    assert len(calls_of(valkey_server, lock, lambda plane: plane.extend(held))) == 1
    held = [(i, TOKEN) for i in active_leases(valkey_server, lease, jobs, lapsed_every=0)]
    assert len(calls_of(valkey_server, lease, lambda plane: plane.extend(held))) == 1


@pytest.mark.parametrize("jobs", [1, 10, 100])
def test_what_is_lost_is_one_question_on_the_lease_plane(valkey_server: Server, jobs: int) -> None:
    """promise 1.29: the lock plane reads the list and asks for the locks, the lease plane reads one range."""
    lock, lease = QueueKeys("emq", f"calls-{next(_numbers)}"), keys_of(f"calls-lease-{next(_numbers)}")
    active_jobs(valkey_server, lock, jobs, missing_every=0)
    active_leases(valkey_server, lease, jobs, lapsed_every=0)
    assert len(calls_of(valkey_server, lock, lambda plane: plane.probe())) == 2
    assert len(calls_of(valkey_server, lease, lambda plane: plane.probe())) == 1


@pytest.mark.parametrize(
    ("form", "trips"),
    [("one call per job", 2_500), ("pipelined", 1), ("pipelined, slices of 1000", 3), ("inside a script", 1)],
)
def test_round_trips_of_each_form_of_the_probe(own_server: Server, form: str, trips: int) -> None:
    """promise 1.29"""
    ids = active_jobs(own_server, PROBE_KEYS, 2_500)
    with closing(Wire(own_server.port)) as wire:
        assert FORMS[form](wire, ids) == ids[::1_000]
        assert wire.trips == trips


def test_the_variadic_form_asks_again_only_where_something_is_missing(own_server: Server) -> None:
    ids = active_jobs(own_server, PROBE_KEYS, 2_500, missing_every=0)
    ask = FORMS["variadic, 1000 keys a call"]
    with closing(Wire(own_server.port)) as wire:
        assert ask(wire, ids) == []
        assert wire.trips == 1
        assert wire.call("DEL", PROBE_KEYS.lock(ids[1_700])) == 1
        wire.trips = 0
        assert ask(wire, ids) == [ids[1_700]]
        assert wire.trips == 3
