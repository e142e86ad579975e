# SPDX-License-Identifier: MIT
"""Random verbs against a model of the queue: after each one reply, events and every key must be the model's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.support import verbs
from tests.support.model_by_hand import FullModel
from tests.support.servers import Server
from tests.support.wire import Wire, flat

STATES = st.sampled_from(["completed", "failed"])
FLAG = st.booleans()
WHO = st.integers(0, 30)
_numbers = itertools.count(1)


class QueueMachine(RuleBasedStateMachine):
    """One queue on a real server and its model, driven alike. `who` picks among the ids at a place, or any id."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.client = self.server.client()
        self.wire, self.model = Wire(self.client, f"machine{next(_numbers)}"), FullModel()

    def teardown(self) -> None:
        keys = list(self.client.scan_iter(match=self.wire.base + "*", count=1000))
        if keys:
            self.client.delete(*keys)
        self.client.close()

    # --- comparing -------------------------------------------------------------------------------

    def same(self, found: Any, expected: Any) -> None:
        if isinstance(found, list) and found and isinstance(found[0], list):
            found = [self.plain(flat(found[0])), *found[1:]]
        assert found == expected
        assert self.wire.events() == self.model.events
        self.model.events.clear()
        left = self.wire.dump()
        left.pop("stalled-check", None)
        assert {key: self.plain(value) for key, value in left.items()} == self.model.dump()

    @staticmethod
    def plain(value: Any) -> Any:
        """A job without the options, which no verb changes."""
        if isinstance(value, dict):
            return {field: item for field, item in value.items() if field != "opts"}
        return value

    def one_of(self, who: int, *places: str) -> str:
        ids: list[str] = []
        for place in places:
            ids += getattr(self.model, place) if place in ("wait", "active") else self.model.sets[place]
        pool = sorted(ids) if ids and who % 8 else [str(number) for number in range(1, 9)]
        job_id = pool[who % len(pool)]
        if "active" in places and who % 5:
            self.wire.token = self.model.token = self.model.locks.get(job_id, "w:0")
        return job_id

    # --- the world -------------------------------------------------------------------------------

    @rule(by=st.sampled_from([1, 1, 5, 60]))
    def time_passes(self, by: int) -> None:
        self.wire.now += by
        self.model.now += by

    @rule(token=st.sampled_from(["w:0", "w:0", "w:1"]))
    def another_worker(self, token: str) -> None:
        self.wire.token = self.model.token = token

    @rule(who=WHO)
    def a_lock_lapses(self, who: int) -> None:
        job_id = self.one_of(who, "active")
        self.wire.client.delete(self.wire.key(f"{job_id}:lock"))
        self.model.locks.pop(job_id, None)

    @rule(limit=st.sampled_from([None, None, 1, 2]))
    def concurrency(self, limit: int | None) -> None:
        if limit is None:
            self.wire.client.hdel(self.wire.key("meta"), "concurrency")
            self.model.meta.pop("concurrency", None)
        else:
            self.wire.client.hset(self.wire.key("meta"), "concurrency", limit)
            self.model.meta["concurrency"] = str(limit)

    @rule(paused=FLAG)
    def pause_or_resume(self, paused: bool) -> None:
        if paused:
            self.same(self.wire.pause(), self.model.pause())
        else:
            self.same(self.wire.resume(), self.model.resume())

    # --- the everyday ----------------------------------------------------------------------------

    @rule(delay=st.sampled_from([0, 0, 1, 5, 5, 60]), priority=st.sampled_from([0, 0, 1, 1, 7]), lifo=FLAG)
    def add(self, delay: int, priority: int, lifo: bool) -> None:
        opts: dict[str, Any] = {"delay": delay, "priority": priority, "lifo": lifo}
        self.same(self.wire.add(**opts), self.model.add(**opts))

    @rule(priority=st.sampled_from([0, 1]), times=st.integers(2, 4))
    def add_some(self, priority: int, times: int) -> None:
        for _ in range(times):
            self.same(self.wire.add(priority=priority), self.model.add(priority=priority))

    @rule()
    def take(self) -> None:
        self.same(self.wire.take(), self.model.take())

    @rule(failed=FLAG, attempts=st.sampled_from([0, 1, 2]))
    def work(self, failed: bool, attempts: int) -> None:
        """Until nothing more is given."""
        answer = self.model.take()
        self.same(self.wire.take(), answer)
        while answer and answer[0]:
            value, job_id = "boom" if failed else "3", answer[1]
            found = self.wire.finish(job_id, value, failed=failed, fetch=True, attempts=attempts)
            answer = self.model.finish(job_id, failed=failed, fetch=True, keep=-1, attempts=attempts)
            self.same(found, answer)

    @rule(
        who=WHO, failed=FLAG, fetch=FLAG, keep=st.sampled_from([-1, 0, 2]), attempts=st.sampled_from([0, 2])
    )
    def finish(self, who: int, failed: bool, fetch: bool, keep: int, attempts: int) -> None:
        job_id = self.one_of(who, "active")
        value = "boom" if failed else "3"
        found = self.wire.finish(
            job_id, value, failed=failed, fetch=fetch, keep={"count": keep}, attempts=attempts
        )
        expected = self.model.finish(job_id, failed=failed, fetch=fetch, keep=keep, attempts=attempts)
        self.same(found, expected)

    @rule(who=WHO, front=FLAG)
    def retry(self, who: int, front: bool) -> None:
        job_id = self.one_of(who, "active")
        push, fields = "RPUSH" if front else "LPUSH", ["failedReason", "boom"]
        self.same(self.wire.retry(job_id, push=push, fields=fields), self.model.retry(job_id, front=front))

    @rule(who=WHO, delay=st.sampled_from([0, 1, 5]), skip=FLAG)
    def delay(self, who: int, delay: int, skip: bool) -> None:
        job_id = self.one_of(who, "active")
        self.same(self.wire.delay(job_id, delay, skip=skip), self.model.delay(job_id, delay, skip=skip))

    @rule(who=WHO)
    def release(self, who: int) -> None:
        job_id = self.one_of(who, "active")
        self.same(self.wire.release(job_id), self.model.release(job_id))

    @rule(who=WHO)
    def extend(self, who: int) -> None:
        job_id = self.one_of(who, "active")
        self.same(self.wire.extend([(job_id, self.wire.token)]), self.model.extend(job_id))

    @rule(allowed=st.sampled_from([0, 1, 5]))
    def sweep(self, allowed: int) -> None:
        found = self.wire.sweep_again(allowed)
        if len(found) > 1:  # a set has no order: the model follows what was found
            self.model.stalled = set(found) | self.model.stalled
        self.same(sorted(found), self._swept(allowed, found))

    def _swept(self, allowed: int, order: list[str]) -> list[str]:
        recovered = self.model.sweep(allowed)
        if recovered != order and sorted(recovered) == sorted(order):
            self.model.wait[-len(order) :] = order
            self.model.events = [
                event
                for job_id in order
                for event in (f"waiting jobId={job_id} prev=active", f"stalled jobId={job_id}")
            ]
        return sorted(recovered)

    # --- by hand ---------------------------------------------------------------------------------

    @rule(who=WHO)
    def promote(self, who: int) -> None:
        job_id = self.one_of(who, "delayed")
        self.same(verbs.promote(self.wire, job_id), self.model.promote(job_id))

    @rule(who=WHO, delay=st.sampled_from([0, 5, 9]))
    def change_delay(self, who: int, delay: int) -> None:
        job_id = self.one_of(who, "delayed")
        self.same(verbs.change_delay(self.wire, job_id, delay), self.model.change_delay(job_id, delay))

    @rule(who=WHO, priority=st.sampled_from([0, 1, 7]), front=FLAG)
    def change_priority(self, who: int, priority: int, front: bool) -> None:
        job_id = self.one_of(who, "wait", "prioritized")
        found = verbs.change_priority(self.wire, job_id, priority, lifo=front)
        self.same(found, self.model.change_priority(job_id, priority, front=front))

    @rule(who=WHO, state=STATES, front=FLAG, forget=FLAG)
    def reprocess(self, who: int, state: str, front: bool, forget: bool) -> None:
        job_id = self.one_of(who, state)
        push = "RPUSH" if front else "LPUSH"
        found = verbs.reprocess(self.wire, job_id, state, push=push, atm=forget, ats=forget)
        self.same(found, self.model.reprocess(job_id, state, front=front, forget=forget))

    @rule(state=st.sampled_from(["failed", "completed", "delayed"]), count=st.sampled_from([1, 2, 1_000]))
    def move_to_wait(self, state: str, count: int) -> None:
        self.same(verbs.move_to_wait(self.wire, state, count), self.model.move_to_wait(state, count))

    @rule(who=WHO)
    def remove(self, who: int) -> None:
        job_id = self.one_of(who, "wait", "active", "delayed", "prioritized", "failed", "completed")
        self.same(verbs.remove(self.wire, job_id), self.model.remove(job_id))

    @rule(
        state=st.sampled_from(["wait", "active", "delayed", "prioritized", "completed", "failed"]),
        grace=st.sampled_from([0, 5, 60]),
    )
    def clean(self, state: str, grace: int) -> None:
        if grace == 0 and len(self.model.jobs) < 6:
            return  # or there would never be much in the queue
        cut = self.wire.now - grace
        self.same(verbs.clean(self.wire, state, cut), self.model.clean(state, cut))

    @rule(delayed=FLAG, really=st.integers(0, 3).map(lambda n: n == 1))
    def drain(self, delayed: bool, really: bool) -> None:
        if not really:
            return
        self.model.drain(delayed=delayed)
        self.same(verbs.drain(self.wire, delayed=delayed), None)


@pytest.mark.parametrize(
    ("examples", "steps"),
    [(40, 60), pytest.param(5_000, 100, marks=[pytest.mark.soak, pytest.mark.timeout(5_000)])],
)
def test_the_queue_is_what_the_model_says(server: Server, examples: int, steps: int) -> None:
    """case C031; promise 4.21"""
    machine = type("Machine", (QueueMachine,), {"server": server})
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=limits)
