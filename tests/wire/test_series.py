# SPDX-License-Identifier: MIT
"""Series made by either side and advanced by either side."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from echomq_pool import SyncQueue
from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import EMQ, finish, pool_of, story, workers

QUEUES = [f"series-{n}" for n in range(12)]
DAY_MS = 86_400_000
RUNS = 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, wire_server: Server) -> Iterator[PoolProcess]:
    group = workers("all", QUEUES, processes=2, concurrency=3)
    with pool_of(tmp_path_factory.mktemp("series"), wire_server, group, name="series") as pool:
        yield pool


def runs_of(store: redis.Redis, base: str) -> list[str]:
    return [job_id for _, job_id in story(store, base, "completed") if job_id.startswith("repeat:")]


def slots(runs: list[str], scheduler: str) -> list[int]:
    """The planned times of a series' runs, in ms."""
    return sorted(int(run.rpartition(":")[2]) for run in runs if run.startswith(f"repeat:{scheduler}:"))


def make_all(ours: SyncQueue, node: Node, at: dict[str, str]) -> list[str]:
    """An interval and a pattern from each side, each with a limit."""
    for side in ("ours", "node"):
        if side == "ours":
            ours.upsert_job_scheduler("ours-every", every=150, limit=RUNS, name="tick", data={"give": "ours"})
            ours.upsert_job_scheduler(
                "ours-cron", pattern="* * * * * *", tz="Europe/Berlin", limit=2, name="tock", data={"give": "ours"},
                opts={"attempts": 2, "backoff": {"type": "fixed", "delay": 5}, "remove_on_fail": 10},
            )  # fmt: skip
        else:
            template = {"name": "tick", "data": {"give": "node"}, "opts": {"attempts": 2, "priority": 3}}
            node(
                "upsertScheduler",
                **at,
                id="node-every",
                repeat={"every": 150, "limit": RUNS},
                template=template,
            )
            repeat = {"pattern": "* * * * * *", "tz": "Europe/Berlin", "limit": 2}
            node(
                "upsertScheduler", **at, id="node-cron", repeat=repeat, template={**template, "name": "tock"}
            )
    return ["ours-every", "ours-cron", "node-every", "node-cron"]


@pytest.mark.parametrize("who", ["pool", "node", "both"])
def test_series_of_both_sides_are_advanced_by_either_and_end_at_their_limits(
    request: pytest.FixtureRequest,
    node: Node,
    wire_server: Server,
    store: redis.Redis,
    queue_name: str,
    who: str,
) -> None:
    """case C093, C098; promise 4.21"""
    queue = queue_name if who == "node" else QUEUES[0]
    at, base = EMQ.node(queue), EMQ.base(queue)
    node("obliterate", **at)
    if who != "node":
        request.getfixturevalue("fleet")
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        ours.resume()
        ids = make_all(ours, node, at)
        if who != "pool":
            node("startWorker", **at, behaviour="play", opts={"concurrency": 3})
        total = 2 * RUNS + 2 * 2
        finish(node, at, total)
        runs = runs_of(store, base)
        assert len(runs) == len(set(runs)) == total
        for side in ("ours", "node"):
            every, cron = slots(runs, f"{side}-every"), slots(runs, f"{side}-cron")
            assert [(b - a) % 150 for a, b in itertools.pairwise(every)] == [0] * (RUNS - 1)
            assert [slot % 1000 for slot in cron] == [0, 0]
            check_jobs(node, at, runs, side)
        assert {s["key"]: s["iterationCount"] for s in node("schedulers", **at)} == {
            s: 2 if s.endswith("cron") else RUNS for s in ids
        }
        found = {s: ours.get_job_scheduler(s) for s in ids}
        assert {s: record.iterations for s, record in found.items() if record} == {
            s: 2 if s.endswith("cron") else RUNS for s in ids
        }
        assert node("counts", **at)["delayed"] == 0


def check_jobs(node: Node, at: dict[str, str], runs: list[str], side: str) -> None:
    """Each run bears its template."""
    for run in runs:
        if run.startswith(f"repeat:{side}"):
            job = node("job", **at, id=run)
            assert job["name"] == ("tock" if "cron" in run else "tick")
            assert job["data"] == {"give": side}
            assert job["returnvalue"] == side
            assert job["opts"]["attempts"] == (2 if side == "node" or "cron" in run else 0)
            assert job["opts"]["repeat"]["count"] >= 1


@pytest.mark.parametrize("state", ["delayed", "active"])
@pytest.mark.parametrize("changer", ["us", "node"])
def test_a_changed_template_and_interval_take_hold_at_the_next_run(
    fleet: PoolProcess, judge: Node, wire_server: Server, store: redis.Redis, state: str, changer: str
) -> None:
    """case C097"""
    queue = QUEUES[1 + 2 * (state == "active") + (changer == "us")]
    at, base = EMQ.node(queue), EMQ.base(queue)
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        first = ours.upsert_job_scheduler(
            "s", every=10_000, name="old", data={"ms": 500 if state == "active" else 0}
        )
        assert first is not None
        wanted = "active" if state == "active" else "completed"
        eventually(lambda: ours.get_state(first.id) == wanted)
        eventually(lambda: ours.get_job_counts("delayed")["delayed"] == 1)
        began = time.time() * 1000
        if changer == "us":
            ours.upsert_job_scheduler("s", every=500, name="new", data={"give": "new"})
        else:
            template = {"name": "new", "data": {"give": "new"}}
            judge("upsertScheduler", **at, id="s", repeat={"every": 500}, template=template)
        runs = eventually(lambda: len(r := [x for x in runs_of(store, base) if x != first.id]) >= 3 and r)
        jobs = [judge("job", **at, id=run) for run in runs[:3]]
        assert all((job["name"], job["returnvalue"]) == ("new", "new") for job in jobs)
        assert jobs[0]["processedOn"] - began < 1_500
        assert ours.get_job_counts("delayed")["delayed"] <= 1
        assert ours.remove_job_scheduler("s")
        assert ours.get_job_counts("delayed")["delayed"] == 0


def test_a_series_removed_and_made_again_within_its_slot_has_a_next_job(
    fleet: PoolProcess, node: Node, wire_server: Server
) -> None:
    """case C096"""
    at = EMQ.node(QUEUES[5])
    node("obliterate", **at)
    with SyncQueue(QUEUES[5], **EMQ.ours(wire_server)) as ours:
        ours.resume()
        for n in range(2):
            template = {"name": "minute", "data": {"give": n}}
            node("upsertScheduler", **at, id="s", repeat={"every": 60_000}, template=template)
            finish(node, at, n + 1)
            eventually(lambda: node("counts", **at)["delayed"] == 1)
            node("removeScheduler", **at, id="s")
            assert node("counts", **at)["delayed"] == 0
            ours.upsert_job_scheduler("s", every=60_000, name="minute")
            eventually(lambda: node("counts", **at)["delayed"] == 1, why="a next job after all")
            assert ours.remove_job_scheduler("s")
            finished = node("counts", **at)["completed"]
            for job in node("jobs", **at, states=["completed"])[1:] if finished > n + 1 else []:
                node("remove", **at, id=job["id"])


def test_a_promoted_occurrence_does_not_end_its_series(
    fleet: PoolProcess, node: Node, wire_server: Server
) -> None:
    """case C102"""
    at = EMQ.node(QUEUES[6])
    node("obliterate", **at)
    with SyncQueue(QUEUES[6], **EMQ.ours(wire_server)) as ours:
        ours.resume()
        first = ours.upsert_job_scheduler(
            "daily", pattern="0 0 3 * * *", tz="UTC", name="daily", data={"give": 1}
        )
        assert first is not None
        node("promote", **at, id=first.id)
        assert first.wait_until_finished(10) == 1
        (following,) = eventually(lambda: node("jobs", **at, states=["delayed"]))
        planned = int(following["id"].rpartition(":")[2])
        assert planned == int(first.id.rpartition(":")[2]) + DAY_MS
        for side in ("us", "node"):
            if side == "us":
                ours.upsert_job_scheduler("daily", pattern="0 0 3 * * *", tz="UTC", name="daily")
            else:
                repeat = {"pattern": "0 0 3 * * *", "tz": "UTC"}
                node("upsertScheduler", **at, id="daily", repeat=repeat, template={"name": "daily"})
            jobs = node("jobs", **at, states=["delayed"])
            assert [job["id"].rpartition(":")[0] for job in jobs] == ["repeat:daily"]
            assert int(jobs[0]["id"].rpartition(":")[2]) in (planned, planned - DAY_MS)


def test_a_lost_next_job_is_made_again_by_the_next_upsert(
    fleet: PoolProcess, node: Node, wire_server: Server
) -> None:
    """case C095"""
    at = EMQ.node(QUEUES[7])
    node("obliterate", **at)
    with SyncQueue(QUEUES[7], **EMQ.ours(wire_server)) as ours:
        ours.resume()
        for side in ("us", "node"):
            ours.upsert_job_scheduler("s", pattern="0 0 3 * * *", tz="UTC", name="s")
            (job,) = node("jobs", **at, states=["delayed"])
            with wire_server.client() as client:
                assert client.zrem(f"{EMQ.base(QUEUES[7])}delayed", job["id"]) == 1
                assert client.delete(EMQ.base(QUEUES[7]) + job["id"]) == 1
            if side == "us":
                ours.upsert_job_scheduler("s", pattern="0 0 3 * * *", tz="UTC", name="s")
            else:
                node(
                    "upsertScheduler",
                    **at,
                    id="s",
                    repeat={"pattern": "0 0 3 * * *", "tz": "UTC"},
                    template={"name": "s"},
                )
            assert [found["id"] for found in node("jobs", **at, states=["delayed"])] == [job["id"]]


def test_upserts_from_everywhere_at_once_leave_one_next_job(
    fleet: PoolProcess, judge: Node, wire_server: Server, store: redis.Redis
) -> None:
    """case C094, C098"""
    queue = QUEUES[8]
    at, base = EMQ.node(queue), EMQ.base(queue)
    most: list[int] = []
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:

        def storm() -> None:
            for _ in range(50):
                ours.upsert_job_scheduler("s", every=400, name="tick", data={"give": "tick"})

        threads = [threading.Thread(target=storm) for _ in range(3)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for _ in range(50):
            judge(
                "upsertScheduler",
                **at,
                id="s",
                repeat={"every": 400},
                template={"name": "tick", "data": {"give": "tick"}},
            )
            most.append(judge("counts", **at)["delayed"])
        for thread in threads:
            thread.join()
        eventually(lambda: len(runs_of(store, base)) >= 3)
        judge("removeScheduler", **at, id="s")
        seconds = time.monotonic() - began
    runs = slots(runs_of(store, base), "s")
    assert max(most) <= 1
    assert len(runs) == len(set(runs)) <= seconds / 0.4 + 2
    for key in store.scan_iter(match=f"{base}repeat:s:*", count=1000):
        row: Any = store.hgetall(key)
        assert (row[b"name"], row[b"data"]) == (b"tick", b'{"give":"tick"}')
