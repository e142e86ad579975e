# SPDX-License-Identifier: MIT
"""Many clients at once: every order in which their scripts can run ends in a state that the rules allow.

Scripts are atomic, so a race is an order of scripts. A model says what each must answer; a whole interleaving goes
to the server in one pipeline, and every answer and the state at the end are compared with the model.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

from tests.support.lease import LIBRARY
from tests.support.servers import Server

INTERLEAVINGS = int(os.environ.get("ECHOMQ_INTERLEAVINGS", "10000"))
JOBS, STEPS = 3, 16
FAR_MS = 600_000
IDS = [f"JOB0000000000{n}" for n in range(JOBS)]


@dataclass
class ModelJob:
    """What the rules say about one job."""

    state: str = "pending"
    attempts: int = 0
    spent: int = 0
    lapsed: bool = False

    def held_by(self, token: int) -> bool:
        return self.state in ("active", "pending") and self.attempts == token and self.spent != token


@dataclass
class Model:
    """The queue by the rules, and what every client remembers to hold (also what it has lost long ago)."""

    jobs: dict[str, ModelJob] = field(default_factory=lambda: {i: ModelJob() for i in IDS})
    tokens: list[tuple[str, int]] = field(default_factory=list)

    def claim(self) -> Any:
        for job_id in IDS:
            job = self.jobs.get(job_id)
            if job is not None and job.state == "pending":
                job.state, job.lapsed = "active", False
                job.attempts += 1
                self.tokens.append((job_id, job.attempts))
                return [job_id.encode(), b"{}", job.attempts]
        return []

    def reap(self) -> int:
        lapsed = [job for job in self.jobs.values() if job.state == "active" and job.lapsed]
        for job in lapsed:
            job.state = "pending"
        return len(lapsed)

    def extend(self, job_id: str, token: int) -> Any:
        job = self.jobs.get(job_id)
        if job is None:
            return -1
        if job.attempts != token or job.state != "active":
            return "EMQSTALE"
        job.lapsed = False
        return 1

    def complete(self, job_id: str, token: int) -> Any:
        job = self.jobs.get(job_id)
        if job is None:
            return 0
        if not job.held_by(token):
            return "EMQSTALE"
        del self.jobs[job_id]
        return 1

    def retry(self, job_id: str, token: int) -> Any:
        job = self.jobs.get(job_id)
        if job is None or not job.held_by(token):
            return "EMQSTALE"
        job.spent = token
        job.state = "dead" if token >= 4 else "scheduled"
        return job.state.encode()

    def promote(self) -> int:
        due = [job for job in self.jobs.values() if job.state == "scheduled"]
        for job in due:
            job.state = "pending"
        return len(due)

    def lapse(self, job_id: str) -> None:
        job = self.jobs.get(job_id)
        if job is not None:
            job.lapsed = True


class Interleaving:
    """One order of steps on a queue of its own."""

    def __init__(self, client: Any, scripts: dict[str, Any], seed: int) -> None:
        self.random = random.Random(seed)
        self.base = f"emq:{{race{seed}}}:"
        self.scripts = scripts
        self.pipe = client.pipeline(transaction=False)
        self.model = Model()
        self.expected: list[tuple[str, Any]] = []

    def run(self) -> None:
        for job_id in IDS:
            self.call("enqueue", [f"job:{job_id}", "pending", "wake"], [job_id, "{}", self.base], 1)
        for _ in range(STEPS):
            self.random.choice(STEPS_BY_WEIGHT)(self)
        self.compare(self.pipe_end())

    def call(self, name: str, keys: list[str], args: list[Any], expected: Any) -> None:
        self.scripts[name](keys=[self.base + key for key in keys], args=args, client=self.pipe)
        self.expected.append((name, expected))

    # --- steps of the clients

    def claim(self) -> None:
        self.call("claim", ["pending", "active"], [self.base + "job:", FAR_MS], self.model.claim())

    def reap(self) -> None:
        self.call("reap", ["active", "pending"], [self.base], self.model.reap())

    def some_token(self) -> tuple[str, int]:
        return self.random.choice(self.model.tokens) if self.model.tokens else (IDS[0], 1)

    def extend(self) -> None:
        job_id, token = self.some_token()
        expected = self.model.extend(job_id, token)
        self.call("extendLock", ["active", f"job:{job_id}"], [job_id, token, FAR_MS], expected)

    def complete(self) -> None:
        job_id, token = self.some_token()
        expected = self.model.complete(job_id, token)
        self.call("complete", ["active", f"job:{job_id}"], [job_id, token, self.base], expected)

    def retry(self) -> None:
        job_id, token = self.some_token()
        expected = self.model.retry(job_id, token)
        keys = ["active", "schedule", "dead", f"job:{job_id}"]
        self.call("retry", keys, [job_id, token, 0, 4, "boom", self.base], expected)

    def promote(self) -> None:
        self.call("promote", ["schedule", "pending"], [self.base, 10], self.model.promote())

    def lapse(self) -> None:
        """What time does."""
        job_id = self.random.choice(IDS)
        self.model.lapse(job_id)
        self.pipe.zadd(self.base + "active", {job_id: 1}, xx=True)
        self.expected.append(("lapse", None))

    # --- the end

    def pipe_end(self) -> list[Any]:
        for name in ("pending", "active", "schedule", "dead"):
            self.pipe.zrange(self.base + name, 0, -1)
        for job_id in IDS:
            self.pipe.hmget(f"{self.base}job:{job_id}", "attempts", "state", "payload")
        return self.pipe.execute(raise_on_error=False)

    def compare(self, replies: list[Any]) -> None:
        for (name, expected), reply in zip(self.expected, replies, strict=False):
            if name == "lapse":
                continue
            got = str(reply).split()[0] if isinstance(reply, redis.ResponseError) else reply
            assert got == expected, f"{self.base} {name}: {self.expected}"
        sets, rows = replies[len(self.expected) :][:4], replies[len(self.expected) :][4:]
        places = {"pending": sets[0], "active": sets[1], "scheduled": sets[2], "dead": sets[3]}
        for job_id, row in zip(IDS, rows, strict=True):
            job = self.model.jobs.get(job_id)
            where = [name for name, ids in places.items() if job_id.encode() in ids]
            if job is None:
                assert (where, row) == ([], [None] * 3), f"{self.base} {job_id} left something: {where} {row}"
            else:
                assert where == [job.state], f"{self.base} {job_id}: {where}, not {job.state}"
                assert row == [str(job.attempts).encode(), job.state.encode(), b"{}"], f"{self.base} {row}"


STEPS_BY_WEIGHT = [
    Interleaving.claim, Interleaving.claim, Interleaving.claim, Interleaving.reap, Interleaving.reap,
    Interleaving.lapse, Interleaving.lapse, Interleaving.extend, Interleaving.complete, Interleaving.retry,
    Interleaving.promote,
]  # fmt: skip


@pytest.fixture(scope="module")
def race_server() -> Iterator[Server]:
    server = Server("valkey").start()
    yield server
    server.destroy()


def test_ten_thousand_interleavings_keep_every_job_once(race_server: Server) -> None:
    """promise 1.10, 1.20, law 5, 6"""
    with race_server.client() as client:
        scripts = {name.partition("/")[2]: client.register_script(LIBRARY[name].text) for name in LIBRARY}
        for script in LIBRARY.values():
            client.script_load(script.text)
        for seed in range(INTERLEAVINGS):
            Interleaving(client, scripts, seed).run()
            if seed % 1_000 == 999:
                client.flushall()
