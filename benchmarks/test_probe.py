# SPDX-License-Identifier: MIT
"""Which of the active jobs have lost their lock? The same question asked in every form the wire knows.

One in a thousand locks is missing, and every form must name exactly those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

from benchmarks.conftest import Row
from benchmarks.support.foreground import Foreground
from benchmarks.support.lease_jobs import active_leases, keys_of
from benchmarks.support.meter import Meter, percentile
from benchmarks.support.seed import MISSING_EVERY, active_jobs
from benchmarks.support.wire import Wire, slices
from echomq_pool.plane.keys import QueueKeys
from tests.support.servers import Server

TITLE = "EXISTS probe: which of N active jobs have no lock"
METHOD = (
    "One bare connection, commands packed and replies parsed inside the time; median of the rounds. Foreground: one "
    "GET a millisecond from a process of its own while the probe runs. One lock in a thousand is missing."
)
SLICE = 1_000
KEYS = QueueKeys("emq", "probe")

# Reads only; the ids come from the list itself, so nothing but the answer travels.
SCRIPT = """
local missing = {}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if redis.call('EXISTS', ARGV[1] .. id .. ':lock') == 0 then missing[#missing + 1] = id end
end
return missing
"""


def _lockless(ids: Sequence[str], found: Sequence[int]) -> list[str]:
    return [job_id for job_id, exists in zip(ids, found, strict=True) if not exists]


def one_by_one(wire: Wire, ids: Sequence[str]) -> list[str]:
    return _lockless(ids, [wire.call("EXISTS", KEYS.lock(i)) for i in ids])


def pipelined(wire: Wire, ids: Sequence[str]) -> list[str]:
    return _lockless(ids, wire.pipeline(("EXISTS", KEYS.lock(i)) for i in ids))


def in_slices(wire: Wire, ids: Sequence[str]) -> list[str]:
    return [missing for part in slices(ids, SLICE) for missing in pipelined(wire, part)]


def variadic(wire: Wire, ids: Sequence[str]) -> list[str]:
    """Counts by the thousand in one pipeline, then asks again about the thousands that are not complete."""
    parts = list(slices(ids, SLICE))
    counts = wire.pipeline(("EXISTS", *map(KEYS.lock, part)) for part in parts)
    short = [i for part, count in zip(parts, counts, strict=True) if count < len(part) for i in part]
    return _halve(wire, short)


def _halve(wire: Wire, ids: Sequence[str], size: int = 64) -> list[str]:
    """The incomplete thousands, by smaller counts first: most of their jobs are well too."""
    parts = list(slices(ids, size))
    if not parts:
        return []
    counts = wire.pipeline(("EXISTS", *map(KEYS.lock, part)) for part in parts)
    short = [i for part, count in zip(parts, counts, strict=True) if count < len(part) for i in part]
    return pipelined(wire, short) if short else []


def scripted(wire: Wire, ids: Sequence[str]) -> list[str]:
    del ids  # the server reads them itself
    return [i.decode() for i in wire.call("EVAL", SCRIPT, 1, KEYS.key("active"), KEYS.base)]


FORMS: dict[str, Callable[[Wire, Sequence[str]], list[str]]] = {
    "one call per job": one_by_one,
    "pipelined": pipelined,
    f"pipelined, slices of {SLICE}": in_slices,
    f"variadic, {SLICE} keys a call": variadic,
    "inside a script": scripted,
}


@pytest.mark.benchmark(group="probe")
@pytest.mark.sizes("jobs", smoke=[100], quick=[1_000, 10_000, 100_000], full=[1_000, 10_000, 100_000])
def test_range_read_of_the_lease_plane(
    benchmark: Any, server: Server, row: Row, pick: Any, jobs: int
) -> None:
    """promise 1.29: the deadline is the score, so the question is one read whatever N is."""
    keys = keys_of("probe")
    ids = active_leases(server, keys, jobs)

    def ask(wire: Wire) -> list[str]:
        now = int(time.time() * 1000)
        return [i.decode() for i in wire.call("ZRANGEBYSCORE", keys.key("active"), "-inf", now)]

    measure(
        benchmark, server, row, pick(1, 5, 15), "lease plane: one range read", jobs, ask, ids[::MISSING_EVERY]
    )


@pytest.mark.benchmark(group="probe")
@pytest.mark.sizes("jobs", smoke=[100], quick=[1_000, 10_000, 100_000], full=[1_000, 10_000, 100_000])
@pytest.mark.parametrize("form", FORMS)
def test_exists_probe(benchmark: Any, server: Server, row: Row, pick: Any, form: str, jobs: int) -> None:
    ids = active_jobs(server, KEYS, jobs)
    probe = FORMS[form]
    measure(
        benchmark,
        server,
        row,
        pick(1, 5, 15),
        form,
        jobs,
        lambda wire: probe(wire, ids),
        ids[::MISSING_EVERY],
    )


def measure(
    benchmark: Any,
    server: Server,
    row: Row,
    rounds: int,
    form: str,
    jobs: int,
    ask: Callable[[Wire], list[str]],
    lost: Sequence[str],
) -> None:
    """Times `ask`, and checks that it names exactly what is lost."""
    with closing(Wire(server.port)) as wire, Foreground(server.port) as foreground:
        ask(wire)  # the script is compiled, the allocators are warm
        wire.trips = wire.sent = wire.received = 0
        foreground.begin()
        with Meter(server) as spent:
            found = benchmark.pedantic(ask, args=(wire,), rounds=rounds, iterations=1)
        latencies = foreground.end()
    assert sorted(found) == sorted(lost)
    row(
        TITLE,
        METHOD,
        form=form,
        jobs=jobs,
        wall_ms=(benchmark.stats.stats.median if benchmark.stats else spent.wall_s) * 1e3,
        server_ms=spent.server_cpu_s / rounds * 1e3,
        round_trips=wire.trips // rounds,
        KB_sent=wire.sent / rounds / 1e3,
        KB_received=wire.received / rounds / 1e3,
        foreground_p50_ms=percentile(latencies, 0.5),
        foreground_p99_ms=percentile(latencies, 0.99),
    )
