# SPDX-License-Identifier: MIT
"""Sweeps, takes, renewals and ends from many clients, in ten thousand random orders of their scripts.

Scripts are atomic, so a race is an order of scripts. The arguments depend on nothing that was answered before, hence a
whole order goes to the server in one pipeline; then a model is walked along the answers.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import msgpack

from tests.support.servers import Server
from tests.support.wire import LIBRARY, NOW, text

INTERLEAVINGS = int(os.environ.get("ECHOMQ_INTERLEAVINGS", "10000"))
IDS, TOKENS, STEPS = ("a", "b", "c"), ("w:0", "v:0"), 16
SWEEP = "stalled wait active stalled-check meta paused marker events"
TAKE = "wait active prioritized events stalled limiter delayed paused meta pc marker"
LEFT = (*IDS, *(f"{job_id}:lock" for job_id in IDS), *SWEEP.split(), "completed")
WEIGHTS = {"take": 4, "sweep": 5, "lapse": 3, "renew": 2, "finish": 2}
OPTS = {
    token: msgpack.packb(
        {"token": token, "lockDuration": 600_000, "limiter": None, "name": None}
        | {"keepJobs": {"count": -1}, "attempts": 1, "maxMetricsSize": ""}
    )
    for token in TOKENS
}


class Model:
    """The queue by the rules: `wait` from its front, who holds which lock, what the last sweep has marked."""

    def __init__(self) -> None:
        self.wait, self.active, self.completed = list(IDS), set[str](), set[str]()
        self.locks: dict[str, str] = {}
        self.marked: set[str] = set()
        self.takes, self.stalls = Counter[str](), Counter[str]()

    def take(self, reply: Any, job_id: str, token: str) -> None:
        taken = self.wait.pop(0) if self.wait else ""
        assert reply[1] == (taken or 0)
        if taken:
            self.active.add(taken)
            self.locks[taken] = token
            self.takes[taken] += 1

    def sweep(self, reply: Any, job_id: str, token: str) -> None:
        lost = {marked for marked in self.marked & self.active if marked not in self.locks}
        assert sorted(reply) == sorted(lost), "each once, and nobody else"
        self.wait = [*reversed(reply), *self.wait]
        self.active -= lost
        self.stalls.update(lost)
        self.marked = set(self.active)

    def lapse(self, reply: Any, job_id: str, token: str) -> None:
        self.locks.pop(job_id, None)

    def renew(self, reply: Any, job_id: str, token: str) -> None:
        held = self.locks.get(job_id) == token
        assert reply == ([] if held else [job_id])
        if held:
            self.marked.discard(job_id)

    def finish(self, reply: Any, job_id: str, token: str) -> None:
        lock = self.locks.get(job_id)
        assert reply == (0 if lock == token else -6 if lock else -2)
        if lock == token:
            del self.locks[job_id]
            self.marked.discard(job_id)
            self.active.remove(job_id)
            self.completed.add(job_id)


def send(pipe: Any, base: str, step: str, job_id: str, token: str) -> None:
    def script(name: str, suffixes: str, *args: Any) -> None:
        keys = [base + suffix for suffix in suffixes.split()]
        pipe.evalsha(LIBRARY[name].sha, len(keys), *keys, *args)

    if step == "take":
        script("moveToActive", TAKE, base, NOW, OPTS[token])
    elif step == "sweep":
        script("moveStalledJobsToWait", SWEEP, 1_000_000, base, NOW, 1)
    elif step == "lapse":
        pipe.delete(f"{base}{job_id}:lock")
    elif step == "renew":
        script("extendLocks", "stalled", base, msgpack.packb([token]), msgpack.packb([job_id]), 600_000)
    else:
        suffixes = TAKE.replace(" marker", f" completed {job_id} metrics:completed marker")
        args = (job_id, NOW, "returnvalue", "1", "completed", 0, base, OPTS[token], "")
        script("moveToFinished", suffixes, *args)


def run(client: Any, seed: int) -> Counter[str]:
    """One order on a queue of its own; what happened in it."""
    rng, base = random.Random(seed), f"emq:{{storm{seed}}}:"
    steps = [
        (step, rng.choice(IDS), rng.choice(TOKENS))
        for step in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS)
    ]
    with client.pipeline(transaction=False) as pipe:
        for job_id in IDS:
            pipe.hset(base + job_id, mapping={"name": "n", "data": "{}", "opts": "{}", "timestamp": NOW})
            pipe.lpush(base + "wait", job_id)
        for what in steps:
            pipe.delete(base + "stalled-check")  # its interval is over
            send(pipe, base, *what)
        for name in ("wait", "active"):
            pipe.lrange(base + name, 0, -1)
        pipe.zrange(base + "completed", 0, -1)
        for job_id in IDS:
            pipe.hmget(base + job_id, "ats", "stc")
        pipe.delete(*(base + name for name in LEFT))
        replies: list[Any] = [text(reply) for reply in pipe.execute()][:-1]
    model = Model()
    for (step, job_id, token), reply in zip(steps, replies[2 * len(IDS) + 1 :: 2], strict=False):
        getattr(model, step)(reply, job_id, token)
    wait, active, completed, *rows = replies[-3 - len(IDS) :]
    assert wait[::-1] == model.wait
    assert (sorted(active), sorted(completed)) == (sorted(model.active), sorted(model.completed))
    assert len(wait) + len(active) + len(completed) == len(IDS), "none lost, none twice"
    for job_id, row in zip(IDS, rows, strict=True):
        assert [int(value or 0) for value in row] == [model.takes[job_id], model.stalls[job_id]]
    return Counter(stalls=model.stalls.total(), takes=model.takes.total(), completed=len(completed))


def test_ten_thousand_interleavings_recover_every_job_once_and_count_it_once(valkey_server: Server) -> None:
    """promise 2.20, 2.21, 2.14, law 5, 6"""
    seen: Counter[str] = Counter()
    with valkey_server.client() as client:
        for name in ("moveToActive", "moveStalledJobsToWait", "extendLocks", "moveToFinished"):
            client.script_load(LIBRARY[name].text)
        for seed in range(INTERLEAVINGS):
            try:
                seen += run(client, seed)
            except AssertionError as error:
                raise AssertionError(f"in the order of seed {seed}") from error
    assert min(seen[name] for name in ("stalls", "takes", "completed")) > INTERLEAVINGS // 10, seen
