# SPDX-License-Identifier: MIT
"""What our scripts cost the server, beside BullMQ's own, called alike in turns on one server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack
import pytest

from benchmarks.conftest import Row
from benchmarks.support.meter import Meter
from echomq_pool.redisio.scripts import load_library
from tests.support.servers import Server
from tests.support.twins import load_theirs
from tests.support.wire import NOW

pytestmark = pytest.mark.node

TITLE = "Scripts side by side with BullMQ 6.2"
METHOD = (
    "Two queues on one server, one per side, which get the same jobs in turns of 500, pipelined by 50. µs: EVALSHA in "
    "commandstats, per job. BullMQ's finish carries the eleven options of its worker, ours the five of the pool's. Ten "
    "in one call: ours by finishBatch, as the pool sends completions of one turn of the loop; BullMQ's one by one."
)
TURN, PIPELINE, BATCH = 500, 50, 10
TAKE = "wait active prioritized events stalled limiter delayed paused meta pc"
ADD = "wait paused meta id completed delayed active events marker"
BATCH_KEYS = "wait active prioritized events stalled delayed meta pc completed metrics:completed marker"
TOKEN = "0d02218a-f466-4fc0-830f-20ee84d9e47b:0"  # as long as those of BullMQ's workers
WORKER = {"token": TOKEN, "lockDuration": 30_000}
FINISH = {**WORKER, "keepJobs": {"count": 0}, "attempts": 0, "maxMetricsSize": ""}
UNUSED = {"limiter": None, "name": None, "fpof": False, "cpof": False, "idof": False, "rdof": False}


@dataclass
class Side:
    """One queue and the scripts that work on it."""

    name: str
    client: Any
    hashes: dict[str, tuple[str, int]]
    spent_us: dict[str, float] = field(default_factory=dict)

    @property
    def base(self) -> str:
        return f"emq:{{{self.name}}}:"

    def call(self, pipe: Any, script: str, keys: str, *args: Any) -> None:
        sha, count = self.hashes[script]
        named = [self.base + key for key in keys.split()]
        assert len(named) == count
        pipe.evalsha(sha, count, *named, *args)

    def add(self, pipe: Any, number: int) -> None:
        row = msgpack.packb([self.base, "", "job", float(NOW), None, None, None, None, None])
        self.call(pipe, "addStandardJob", ADD, row, '{"n":1}', msgpack.packb({"attempts": 0}))

    def take(self, pipe: Any, number: int) -> None:
        self.call(pipe, "moveToActive", f"{TAKE} marker", self.base, NOW + number, msgpack.packb(WORKER))

    def finish(self, pipe: Any, number: int, fetch: int = 0) -> None:
        keys = f"{TAKE} completed {number} metrics:completed marker"
        packed = msgpack.packb(FINISH if self.name == "ours" else {**FINISH, **UNUSED})
        args = (number, NOW + number, "returnvalue", "null", "completed", fetch, self.base, packed, "")
        self.call(pipe, "moveToFinished", keys, *args)

    def finish_and_fetch(self, pipe: Any, number: int) -> None:
        self.finish(pipe, number, 1)

    def finish_together(self, pipe: Any, number: int) -> None:
        """Ten of them at the tenth number."""
        if self.name != "ours":
            self.finish_and_fetch(pipe, number)
        elif number % BATCH == 0:
            rows = [
                part for n in range(number - BATCH + 1, number + 1) for part in (str(n), TOKEN, "null", 1)
            ]
            self.call(
                pipe, "finishBatch", BATCH_KEYS, self.base, NOW + number, 30_000, "", "", msgpack.packb(rows)
            )

    def renew(self, pipe: Any, number: int) -> None:
        ids = [f"x{n}" for n in range(100)]
        packed = (msgpack.packb([TOKEN] * len(ids)), msgpack.packb(ids))
        self.call(pipe, "extendLocks", "stalled", self.base, *packed, 30_000)


@pytest.fixture
def sides(server: Server) -> Iterator[list[Side]]:
    theirs = {
        name: (script["sha"], script["keys"])
        for name, script in load_theirs("bullmq-620", server.port).items()
    }
    with server.client() as client:
        ours = {s.name: (client.script_load(s.text), s.keys) for s in load_library("lock", "pool").values()}
        both = [Side("ours", client, ours), Side("theirs", client, theirs)]
        for side in both:
            client.hset(side.base + "meta", mapping={"opts.maxLenEvents": 10_000, "version": "bullmq:6.2.0"})
            for number in range(100):
                client.set(f"{side.base}x{number}:lock", TOKEN, px=3_600_000)
        yield both


def in_turns(server: Server, sides: list[Side], verb: str, numbers: range) -> None:
    """Calls `verb` with each number on both sides; adds up what it cost each."""
    for start in range(numbers.start, numbers.stop, TURN):
        for side in sides:
            step: Callable[[Any, int], None] = getattr(side, verb)
            with Meter(server) as spent:
                for first in range(start, min(start + TURN, numbers.stop), PIPELINE):
                    pipe = side.client.pipeline(transaction=False)
                    for number in range(first, min(first + PIPELINE, start + TURN, numbers.stop)):
                        step(pipe, number)
                    pipe.execute()
            side.spent_us[verb] = side.spent_us.get(verb, 0.0) + spent.script_us
        sides.reverse()


def test_the_same_job_by_both(server: Server, sides: list[Side], row: Row, pick: Any) -> None:
    """Finishes that fetch the next, one by one and by ten; claims and finishes apart; renewals of a hundred."""
    count: int = pick(40, 5_000, 20_000)
    named = list(sides)
    plan: list[tuple[str, str, range]] = [
        ("addStandardJob", "add", range(1, count + 1)),
        ("", "take", range(1)),
        ("moveToFinished and fetch the next, not kept", "finish_and_fetch", range(1, count)),
        ("", "finish", range(count, count + 1)),
        ("", "add", range(count)),
        ("moveToActive", "take", range(count)),
        ("moveToFinished, not kept", "finish", range(count + 1, 2 * count + 1)),
        ("", "add", range(count + BATCH)),
        ("", "take", range(BATCH)),
        (
            "finish and fetch the next, not kept, ten in one call",
            "finish_together",
            range(2 * count + 1, 3 * count + 1),
        ),
        ("", "finish", range(3 * count + 1, 3 * count + BATCH + 1)),
        ("extendLocks, 100 of them", "renew", range(max(20, count // 20))),
    ]
    for title, verb, numbers in plan:
        for side in sides:
            side.spent_us.pop(verb, None)
        in_turns(server, sides, verb, numbers)
        if title:
            ours, theirs = (side.spent_us[verb] / len(numbers) for side in named)
            row(
                TITLE,
                METHOD,
                script=title,
                calls=len(numbers),
                ours_us=ours,
                theirs_us=theirs,
                ratio=ours / theirs,
            )
    assert all(side.client.exists(f"{side.base}active") == 0 for side in named)
