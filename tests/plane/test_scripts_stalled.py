# SPDX-License-Identifier: MIT
"""moveStalledJobsToWait: mark, then recover; once per interval, and never twice."""

from __future__ import annotations

import random
import threading
import time

import pytest

from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.support.wire import Wire, text

LIMIT = "job stalled more than allowable limit"


def test_a_job_without_lock_is_marked_by_one_sweep_and_recovered_by_the_next(wire: Wire) -> None:
    """promise 2.11, 2.12, 2.13, 2.15, 2.16, 2.22, 4.12, 0.14, 4.20: the trace of the protocol page, limit 0."""
    wire.add("s1")
    wire.add("behind")
    wire.take()
    wire.lose_lock("s1")
    wire.client.delete(wire.key("marker"))
    wire.events()
    assert wire.sweep(0) == []
    assert wire.get("stalled") == ["s1"]
    assert wire.get("active") == ["s1"]
    before = wire.dump()
    assert wire.sweep(0) == [], "a second sweep inside the interval does nothing"
    assert wire.dump() == before
    assert wire.sweep_again(0) == ["s1"]
    before["s1"].update(stc="1", defa=LIMIT)
    before |= {
        "wait": ["behind", "s1"],
        "marker": {"0": 0},
        "events": ["waiting jobId=s1 prev=active", "stalled jobId=s1"],
    }
    del before["active"], before["stalled"]
    assert wire.dump() == before


def test_the_lock_alone_decides(wire: Wire) -> None:
    """promise 0.15, 0.24, 2.4"""
    for n in range(6):
        wire.add(f"j{n}")
        wire.take()
    wire.sweep()
    for n in (1, 4):
        wire.lose_lock(f"j{n}")
    assert sorted(wire.sweep_again()) == ["j1", "j4"]
    assert sorted(wire.get("active")) == ["j0", "j2", "j3", "j5"]
    assert wire.get("stalled") == ["j0", "j2", "j3", "j5"]


def test_a_renewal_between_two_sweeps_saves_the_job(wire: Wire) -> None:
    """promise 0.11, 2.10, 2.14"""
    wire.add()
    wire.take()
    wire.lose_lock("1")
    wire.sweep()
    wire.client.set(wire.key("1:lock"), "w:0", px=30_000)
    assert wire.extend([("1", "w:0")]) == []
    wire.lose_lock("1")
    assert wire.sweep_again() == [], "only marked again: two sightings in a row are needed"
    assert wire.sweep_again() == ["1"]


def test_the_guard_key_lasts_for_the_interval(wire: Wire) -> None:
    """promise 4.13"""
    assert wire.sweep(interval=200) == []
    assert wire.get("stalled-check") == str(wire.now)
    assert 0 < wire.client.pttl(wire.key("stalled-check")) <= 200
    eventually(lambda: wire.get("stalled-check") is None)


@pytest.mark.parametrize("ninth", [False, True])
def test_the_first_stall_is_forgiven_and_the_second_fails(wire: Wire, ninth: bool) -> None:
    """promise 2.17, 2.18, 4.14: over the limit the job is not failed here, the next taker must fail it."""
    wire.add(attempts=5)
    for stalls in (1, 2):
        wire.take()
        wire.lose_lock("1")
        for _ in range(2):
            wire.client.delete(wire.key("stalled-check"))
            found = wire.sweep(1, ninth=ninth)
        assert found == ["1"]
        stored = wire.get("1")
        assert stored["stc"] == str(stalls)
        assert stored.get("defa") == (LIMIT if stalls == 2 else None)
        assert "atm" not in stored
    hash_, *_ = wire.take()
    assert hash_[hash_.index("defa") + 1] == LIMIT
    wire.finish("1", LIMIT, failed=True, attempts=5)
    assert wire.get("1")["failedReason"] == LIMIT
    assert wire.get("wait") is None


def test_a_prioritized_job_comes_back_to_wait(wire: Wire) -> None:
    wire.add(priority=5)
    wire.take()
    wire.lose_lock("1")
    wire.sweep()
    wire.sweep_again()
    assert wire.get("wait") == ["1"]
    assert wire.get("prioritized") is None


@pytest.mark.parametrize("ninth", [False, True])
def test_a_schedulers_job_is_exempt_only_while_its_scheduler_exists(wire: Wire, ninth: bool) -> None:
    """case C033"""
    job_id, _ = wire.upsert_scheduler("s", {"name": "n", "every": 1000})
    for alive in (True, False):
        if not alive:
            wire.on("removeJobScheduler", "repeat delayed events", "s", wire.base)
        wire.take()
        wire.lose_lock(job_id)
        for _ in range(2):
            wire.client.delete(wire.key("stalled-check"))
            wire.sweep(0, ninth=ninth)
        assert ("defa" in wire.get(job_id)) is not alive


@pytest.mark.parametrize("blocked", ["paused", "concurrency"])
def test_a_blocked_queue_gets_its_jobs_back_without_a_marker(wire: Wire, blocked: str) -> None:
    for _ in range(2):
        wire.add()
        wire.take()
    wire.lose_lock("1")
    wire.sweep()
    wire.client.hset(wire.key("meta"), blocked, 1)
    wire.client.delete(wire.key("marker"))
    wire.sweep_again()
    assert wire.get("wait") == ["1"]
    assert wire.get("marker") is None
    wire.lose_lock("2")
    wire.sweep_again()
    assert wire.get("marker") == (None if blocked == "paused" else {"0": 0})


def test_a_finished_job_is_never_put_back(wire: Wire) -> None:
    """case C021, C036: its mark goes with the finish, and an id that is not in active is left where it is."""
    wire.add()
    wire.take()
    wire.sweep()
    wire.finish("1", keep={"count": 0})
    wire.client.sadd(wire.key("stalled"), "1")
    assert wire.sweep_again() == []
    assert wire.get("wait") is None
    assert wire.get("1") is None


def test_a_ghost_in_active_and_stalled_leaves_both(wire: Wire) -> None:
    """case C021: it comes back to wait as a job without a name, which a worker fails without running it."""
    wire.client.lpush(wire.key("active"), "ghost")
    wire.client.sadd(wire.key("stalled"), "ghost")
    assert wire.sweep() == ["ghost"]
    hash_, job_id, *_ = wire.take()
    assert job_id == "ghost"
    assert "name" not in hash_[::2]
    wire.finish("ghost", "no such job", failed=True, keep={"count": 0})
    assert not {"wait", "active", "stalled", "ghost", "ghost:lock"} & set(wire.dump())


def test_markers_of_ancient_versions_only_leave_active(wire: Wire) -> None:
    wire.client.rpush(wire.key("active"), "0:12")
    wire.client.sadd(wire.key("stalled"), "0:12")
    assert wire.sweep() == []
    assert not {"wait", "active", "0:12"} & set(wire.dump())


def test_twenty_thousand_dead_jobs_are_recovered_in_one_quick_sweep(wire: Wire) -> None:
    """case C035"""
    total = 20_000
    ids = [f"j{n}" for n in range(total)]
    pipe = wire.client.pipeline(transaction=False)
    for job_id in ids:
        pipe.hset(wire.key(job_id), "name", "job")
    pipe.set(wire.key("j7:lock"), "w:0", px=60_000)
    pipe.rpush(wire.key("active"), *ids)
    pipe.execute()
    started = time.monotonic()
    assert wire.sweep() == []
    found = wire.sweep_again()
    assert time.monotonic() - started < 5
    assert len(found) == len(set(found)) == total - 1
    assert wire.get("active") == ["j7"]
    assert wire.client.llen(wire.key("wait")) == total - 1
    assert wire.get("stalled") == ["j7"]


def test_a_big_sweep_keeps_the_order_of_the_living(wire: Wire) -> None:
    ids = [f"j{n}" for n in range(400)]
    wire.client.rpush(wire.key("active"), *ids)
    wire.client.sadd(wire.key("stalled"), *ids)
    living = [job_id for n, job_id in enumerate(ids) if n % 2]
    wire.client.mset({wire.key(f"{job_id}:lock"): "w:0" for job_id in living})
    assert len(wire.sweep()) == 200
    assert wire.get("active") == living


# --- atomic and not ----------------------------------------------------------------------------------


class NaiveChecker:
    """The recovery that needs two round trips: first look, then move. It is the counter-example.

    Two of them that overlap both see the job, both count the stall, and both put it back.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.seen: list[str] = []

    def look(self) -> None:
        wire = self.wire
        marked = [job_id.decode() for job_id in wire.client.smembers(wire.key("stalled"))]
        self.seen = [job_id for job_id in marked if not wire.client.exists(wire.key(f"{job_id}:lock"))]

    def move(self) -> None:
        wire = self.wire
        for job_id in self.seen:
            wire.client.lrem(wire.key("active"), 1, job_id)
            count = int(wire.client.hget(wire.key(job_id), "stc") or 0)
            wire.client.hset(wire.key(job_id), "stc", count + 1)
            wire.client.rpush(wire.key("wait"), job_id)


def stalled_job(wire: Wire) -> None:
    wire.add("s")
    wire.take()
    wire.lose_lock("s")
    wire.sweep()


def test_a_checker_of_two_round_trips_recovers_a_job_twice(wire: Wire) -> None:
    """promise 2.19, 2.23"""
    stalled_job(wire)
    first, second = NaiveChecker(wire), NaiveChecker(wire)
    first.look()
    second.look()
    first.move()
    second.move()
    assert wire.get("wait") == ["s", "s"]


def test_the_script_recovers_once_in_the_same_schedule(wire: Wire) -> None:
    """promise 2.20, 2.21"""
    stalled_job(wire)
    assert [wire.sweep_again(), wire.sweep_again()] == [["s"], []]
    assert wire.get("wait") == ["s"]
    assert wire.get("s")["stc"] == "1"


class Reference:
    """What a queue of takers, dying workers, renewals and sweeps should look like, kept in plain Python."""

    def __init__(self, ids: list[str]) -> None:
        self.wait, self.active = list(ids), list[str]()
        self.locked, self.marked = set[str](), set[str]()
        self.stalls = dict.fromkeys(ids, 0)

    def take(self) -> str | None:
        if not self.wait:
            return None
        job_id = self.wait.pop()
        self.active.append(job_id)
        self.locked.add(job_id)
        return job_id

    def lapse(self, job_id: str) -> int:
        had = job_id in self.locked
        self.locked.discard(job_id)
        return int(had)

    def renew(self, job_id: str) -> set[str]:
        if job_id not in self.locked:
            return {job_id}
        self.marked.discard(job_id)
        return set()

    def sweep(self, order: list[str]) -> set[str]:
        """`order` is how the server answered: a set has none, but the line in `wait` follows it."""
        found = {job_id for job_id in self.marked if job_id not in self.locked and job_id in self.active}
        for job_id in found:
            self.active.remove(job_id)
            self.stalls[job_id] += 1
        self.wait += [job_id for job_id in order if job_id in found]
        self.marked = set(self.active)
        return found


def test_ten_thousand_random_interleavings_recover_every_job_once(
    valkey_server: Server, queue_name: str
) -> None:
    """promise 2.20, 2.21, 2.22: every answer of 10 000 calls in a random order agrees with the reference.

    The script is atomic, so an interleaving is an order of whole calls. They travel in one pipeline to be fast;
    the server still runs them one after the other, in the order drawn.
    """
    draw, ids = random.Random(20), [f"j{n}" for n in range(30)]
    with valkey_server.client() as client:
        wire = Wire(client, queue_name)
        for job_id in ids:
            wire.client.hset(wire.key(job_id), "name", "job")
        wire.client.rpush(wire.key("wait"), *ids)
        wire.load("moveToActive", "extendLocks", "moveStalledJobsToWait")
        steps = [
            (draw.choices(("take", "lapse", "sweep", "renew"), (4, 4, 3, 2))[0], draw.choice(ids))
            for _ in range(10_000)
        ]
        pipe = client.pipeline(transaction=False)
        wire.client = pipe
        sent = [(step, job_id, send(wire, step, job_id)) for step, job_id in steps]
        answers = pipe.execute()
        wire.client = client
        model = Reference(ids)
        recovered = 0
        for step, job_id, at in sent:
            recovered += check(model, step, job_id, text(answers[at]))
        assert recovered > 300
        assert (wire.get("wait") or []) == model.wait
        assert sorted(model.wait + (wire.get("active") or [])) == sorted(ids)
        assert {job_id: int(wire.get(job_id).get("stc", 0)) for job_id in ids} == model.stalls


def send(wire: Wire, step: str, job_id: str) -> int:
    """Queues one step in the pipeline and answers the place of its reply."""
    if step == "take":
        wire.take()
    elif step == "lapse":
        wire.client.delete(wire.key(f"{job_id}:lock"))
    elif step == "renew":
        wire.extend([(job_id, wire.token)])
    else:
        wire.sweep_again(1_000_000)
    return len(wire.client) - 1


def check(model: Reference, step: str, job_id: str, answer: object) -> int:
    """Compares one answer with the reference; the number of jobs that this step recovered."""
    if step == "take":
        assert isinstance(answer, list)
        assert (answer[1] or None) == model.take()
    elif step == "lapse":
        assert answer == model.lapse(job_id)
    elif step == "renew":
        assert isinstance(answer, list)
        assert set(answer) == model.renew(job_id)
    else:
        assert isinstance(answer, list)
        assert len(answer) == len(set(answer))
        assert set(answer) == model.sweep(answer)
        return len(answer)
    return 0


def test_sweeps_that_run_at_once_recover_each_job_once_in_all(valkey_server: Server, queue_name: str) -> None:
    """promise 2.21: eight real clients at once, a hundred dead jobs."""
    with valkey_server.client() as client:
        wire = Wire(client, queue_name)
        for n in range(100):
            wire.add(f"j{n}")
            wire.take()
            wire.lose_lock(f"j{n}")
        wire.sweep()
        client.delete(wire.key("stalled-check"))
        found: list[str] = []
        gate = threading.Barrier(8)

        def sweeper() -> None:
            with valkey_server.client() as own:
                mine = Wire(own, queue_name)
                gate.wait()
                for _ in range(20):
                    found.extend(mine.sweep_again())

        threads = [threading.Thread(target=sweeper) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == sorted(f"j{n}" for n in range(100))
        assert client.llen(wire.key("wait")) == 100
        assert {wire.get(f"j{n}")["stc"] for n in range(100)} == {"1"}
