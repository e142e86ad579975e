# SPDX-License-Identifier: MIT
"""Random lives of one queue with lanes, workers that die, and operators: rules that hold after every step."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from echomq_pool.errors import JobError
from echomq_pool.plane.base import PlaneOptions, Taken
from echomq_pool.plane.lease_gather import Settlement
from tests.support.lease import GROUPS, LeaseBench, consistent, lease_on
from tests.support.servers import Server

T = TypeVar("T")

WORKERS = ("w1", "w2", "w3")
GROUP = st.sampled_from(["", *GROUPS[:2]])
_queues = itertools.count()


class LeaseMachine(RuleBasedStateMachine):
    """`held` is what the workers believe; `live` is who rightly holds each job under a lease that runs."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.held: list[tuple[str, Taken]] = []
        self.live: dict[str, tuple[str, int]] = {}
        self.last_token: dict[str, int] = {}
        self.known: set[str] = set()
        self.ended: dict[str, str] = {}
        self.numbers = itertools.count()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    @initialize()
    def open(self) -> None:
        options = PlaneOptions(max_stalled_count=1)
        manager = lease_on(self.server, f"machine{next(_queues)}", options)
        self.bench: LeaseBench = self.do(self.stack.enter_async_context(manager))

    # --- producers

    @rule(group=GROUP)
    def add(self, group: str) -> None:
        job_id = self.do(self.bench.add_to(group) if group else self.bench.add())
        self.known.add(job_id)

    @rule(group=st.sampled_from(GROUPS[:2]), ceiling=st.integers(0, 2))
    def limit(self, group: str, ceiling: int) -> None:
        self.do(self.bench.lanes.limit(group, ceiling))

    @rule(group=st.sampled_from(GROUPS[:2]), stop=st.booleans())
    def pause(self, group: str, stop: bool) -> None:
        self.do(self.bench.lanes.pause(group) if stop else self.bench.lanes.resume(group))

    # --- workers

    @rule(worker=st.sampled_from(WORKERS), size=st.integers(1, 3))
    def take(self, worker: str, size: int) -> None:
        token = f"{worker}:{next(self.numbers)}"
        self.received(worker, self.do(self.bench.plane.take_batch(token, size)))

    def received(self, worker: str, found: Any) -> None:
        for taken in found if isinstance(found, list) else []:
            job_id, number = taken.job.id, int(taken.token)
            assert job_id in self.known, "a phantom"
            assert job_id not in self.ended, "it had ended"
            assert job_id not in self.live, "two hold it"
            assert number > self.last_token.get(job_id, 0), "the token did not grow"
            self.last_token[job_id] = number
            self.live[job_id] = (worker, number)
            self.held.append((worker, taken))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), verb=st.sampled_from(["complete", "dead", "again", "now", "delay", "release"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        worker, taken = data.draw(st.sampled_from(self.held))
        job_id, token = taken.job.id, taken.token
        operation = {
            "complete": Settlement("complete", job_id, token, (b"1",)),
            "dead": Settlement("retry", job_id, token, (0, 0, b"boom", [])),
            "again": Settlement("retry", job_id, token, (0, 3, b"boom", [])),
            "now": Settlement("requeue", job_id, token, ([],)),
            "delay": Settlement("delay", job_id, token, ("in", 0, 1, [])),
            "release": Settlement("release", job_id, token),
        }[verb]
        (word,) = self.do(self.bench.plane.settle_batch([operation]))
        holds = self.last_token.get(job_id) == int(token) and job_id not in self.ended
        if word in ("stale", "gone"):
            assert self.live.get(job_id) != (worker, int(token)), "the rightful holder was refused"
            return
        assert holds, f"a stale token was let through: {word}"
        self.live.pop(job_id, None)
        if word in ("completed", "dead"):
            self.ended[job_id] = word

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        drawn = data.draw(st.lists(st.sampled_from(self.held), max_size=4, unique_by=lambda h: h[1].job.id))
        lost = self.do(self.bench.plane.extend([(t.job.id, t.token) for _, t in drawn]))
        for _, taken in drawn:
            rightful = self.live.get(taken.job.id, ("", 0))[1] == int(taken.token)
            assert (taken.job.id in lost) == (not rightful)

    # --- what goes wrong

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def lapse_and_sweep(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.live)), unique=True, min_size=1))
        self.bench.lapse(*ids)
        recovered, dead = self.do(self.bench.plane.sweep_counting())
        assert sorted(recovered + dead) == sorted(ids)
        self.let_go(ids, dead)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def lapse_and_reap(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.live)), unique=True, min_size=1))
        self.bench.lapse(*ids)
        assert self.do(self.bench.queue.reap()) == len(ids)
        self.let_go(ids, [])

    @rule(worker=st.sampled_from(WORKERS), planned=st.booleans())
    def die(self, worker: str, planned: bool) -> None:
        found = self.do(self.bench.plane.recover(worker, planned=planned, evidence="SIGKILL"))
        mine = [job_id for job_id, (owner, _) in self.live.items() if owner == worker]
        assert sorted(r.id for r in found) == sorted(mine)
        self.held = [(owner, t) for owner, t in self.held if owner != worker]
        self.let_go(mine, [r.id for r in found if r.where == "failed"])

    def let_go(self, ids: list[str], dead: list[str]) -> None:
        for job_id in ids:
            self.live.pop(job_id, None)
        self.ended.update((job_id, "dead") for job_id in dead)

    # --- operators

    @rule()
    def promote(self) -> None:
        self.do(self.bench.queue.promote())

    @precondition(lambda self: "dead" in self.ended.values())
    @rule(data=st.data())
    def reprocess(self, data: st.DataObject) -> None:
        dead = sorted(job_id for job_id, word in self.ended.items() if word == "dead")
        job_id = data.draw(st.sampled_from(dead))
        self.do(self.bench.queue.reprocess_job(job_id))
        del self.ended[job_id]

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.known)))
        try:
            self.do(self.bench.queue.remove_job(job_id))
        except JobError:
            assert job_id in self.live or self.ended.get(job_id) in ("completed", "removed")
        else:
            assert job_id not in self.live, "a held job was removed"
            self.ended[job_id] = "removed"

    @precondition(lambda self: self.known)
    @rule(data=st.data(), group=st.sampled_from(GROUPS[:2]))
    def reassign(self, data: st.DataObject, group: str) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.known)))
        try:
            self.do(self.bench.lanes.reassign(job_id, group))
        except JobError:
            assert self.ended.get(job_id) in ("completed", "removed")

    # --- what always holds

    @invariant()
    def whole(self) -> None:
        if not hasattr(self, "bench"):
            return
        found = self.bench.dump()
        consistent(found)
        rows = {name[4:] for name in found if name.startswith("job:") and name.count(":") == 1}
        gone = {job_id for job_id, word in self.ended.items() if word in ("completed", "removed")}
        assert rows == self.known - gone, "a job was lost, or came back"
        assert set(found.get("active", {})) == set(self.live)

    def teardown(self) -> None:
        self.do(self.stack.aclose())
        self.loop.close()


@pytest.fixture(scope="module")
def machine_server() -> Iterator[Server]:
    server = Server("valkey").start()
    yield server
    server.destroy()


def test_a_queue_stays_whole_whatever_happens_to_it(machine_server: Server) -> None:
    """law 5, 6, promise 1.20"""
    LeaseMachine.server = machine_server
    lives = int(os.environ.get("ECHOMQ_LIVES", "60"))
    checks = list(HealthCheck)
    limits = settings(max_examples=lives, stateful_step_count=40, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(LeaseMachine, settings=limits)
