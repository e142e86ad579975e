# SPDX-License-Identifier: MIT
"""Values of every kind cross the wire unharmed, both ways: what one side writes, the other reads as the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from echomq_pool import SyncQueue
from tests.support.node import Node
from tests.support.pool import PoolProcess
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import BULL, EMQ, Layout, ended, finish, pool_of, workers

QUEUES = [f"values-{n}" for n in range(10)]

JSON_VALUES: list[Any] = [
    "foo", "", ["a"], [], {}, None, True, False, 0, -1, 0.1, 1e300, 2**53 - 1, {"k": {"deep": [1, None, "x"]}},
    "💥 中文", "\u0000x\u2028\u2029", "a\"b\\c\n", "\ud800 alone",
]  # fmt: skip

BIG = (
    '{"id":9007199254740993,"f":0.1,"s":"\\u0000x","t":"中文","n":{"e":[],"o":{}},"do":"fail","fail_times":1}'
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, wire_server: Server) -> Iterator[PoolProcess]:
    with pool_of(
        tmp_path_factory.mktemp("values"), wire_server, workers("all", QUEUES), name="values"
    ) as pool:
        yield pool


@pytest.fixture(scope="module")
def bull_fleet(tmp_path_factory: pytest.TempPathFactory, wire_server: Server) -> Iterator[PoolProcess]:
    """A pool on queues with BullMQ's own prefix, where nothing but ASCII can be written to a terminal."""
    folder = tmp_path_factory.mktemp("bull")
    group, poor = (
        workers("all", QUEUES),
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    )
    with pool_of(folder, wire_server, group, layout=BULL, name="bull-values", **poor) as pool:
        yield pool


@pytest.mark.parametrize("layout", [EMQ, BULL], ids=["emq", "bull"])
def test_results_of_every_json_type_are_the_same_for_node_and_for_us(
    request: pytest.FixtureRequest, wire_server: Server, judge: Node, layout: Layout
) -> None:
    """case C104, C110"""
    request.getfixturevalue("fleet" if layout == EMQ else "bull_fleet")
    at = layout.node(QUEUES[0])
    listener = judge("listen", **at)
    with SyncQueue(QUEUES[0], **layout.ours(wire_server)) as ours:
        for value in JSON_VALUES:
            made = judge("add", **at, job="💥 中文", data={"give": value}, opts={"removeOnFail": True})
            theirs = ended(judge, at, made["id"])
            mine = ours.get_job(made["id"])
            assert mine is not None
            assert theirs["returnvalue"] == mine.returnvalue == value
            assert theirs["data"] == mine.data == {"give": value}
            assert theirs["name"] == mine.name == "💥 中文"
        seen = eventually(
            lambda: len(s := judge("seen", listener=listener, event="completed")) >= len(JSON_VALUES) and s
        )
        assert [event["returnvalue"] for event in seen] == JSON_VALUES


def test_results_of_every_json_type_made_by_node_are_read_by_us(
    wire_server: Server, node: Node, queue_name: str
) -> None:
    """case C104, C110"""
    at = BULL.node(queue_name)
    node("startWorker", **at, behaviour="play", opts={"concurrency": 5})
    with SyncQueue(queue_name, **BULL.ours(wire_server)) as ours:
        jobs = ours.add_bulk([("any", {"give": value}) for value in JSON_VALUES])
        assert [job.wait_until_finished(20) for job in jobs] == JSON_VALUES
        assert [job["data"]["give"] for job in (ended(node, at, j.id) for j in jobs)] == JSON_VALUES


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_what_is_no_json_fails_its_job_with_a_reason_that_node_can_read(
    fleet: PoolProcess, judge: Node, store: redis.Redis, text: str
) -> None:
    """case C105"""
    at = EMQ.node(QUEUES[1])
    for do in ("nan", "nan_progress"):
        made = judge("add", **at, job=do, data={"do": do, "text": text}, opts={})
        job = ended(judge, at, made["id"], "failed")
        assert "NaN" in job["failedReason"] or "Infinity" in job["failedReason"]
        assert job["progress"] in (0, None)
        for field in (b"data", b"opts", b"stacktrace"):
            json.loads(store.hgetall(EMQ.base(QUEUES[1]) + made["id"])[field])


@pytest.mark.parametrize("layout", [EMQ, BULL], ids=["emq", "bull-ascii"])
def test_error_texts_of_any_kind_arrive(request: pytest.FixtureRequest, judge: Node, layout: Layout) -> None:
    """case C110"""
    fleet: PoolProcess = request.getfixturevalue("fleet" if layout == EMQ else "bull_fleet")
    at = layout.node(QUEUES[2])
    for text in ("💥 中文", "b'\\xff\\xfe'", "", "line\nline", "\u0000"):
        made = judge(
            "add", **at, job="💥", data={"do": "cry", "text": text}, opts={"jobId": f"中-{len(text)}"}
        )
        job = ended(judge, at, made["id"], "failed")
        assert text in job["failedReason"]
        assert "ValueError" in job["stacktrace"][0]
    made = judge("add", **at, job="💥", data={"do": "cry", "text": "\ud800 alone"}, opts={})
    assert "alone" in ended(judge, at, made["id"], "failed")["failedReason"]
    assert "UnicodeEncodeError" not in fleet.log()
    assert "Logging error" not in fleet.log()


def test_large_integers_stay_byte_identical_over_delay_retry_and_series(
    fleet: PoolProcess, judge: Node, store: redis.Redis, wire_server: Server
) -> None:
    """case C109"""
    queue, at, base = QUEUES[3], EMQ.node(QUEUES[3]), EMQ.base(QUEUES[3])
    data = json.loads(BIG)
    with SyncQueue(queue, **EMQ.ours(wire_server)) as ours:
        job = ours.add("big", data, delay=50, attempts=2, backoff={"type": "fixed", "delay": 20})
        first = ours.upsert_job_scheduler("series", every=100, limit=2, name="big", data=data)
        assert first is not None
        raw = store.hget(base + job.id, "data")
        assert raw is not None
        assert json.loads(raw) == data  # Python's integers are exact; what Node reads is its own affair
        assert job.wait_until_finished(20) == {"n": data["n"]}
        runs = eventually(lambda: len(ids := series_of(store, base)) == 2 and ids)
        eventually(lambda: all(ours.get_state(run) == "failed" for run in runs))
        assert {store.hget(base + run, "data") for run in [job.id, *runs]} == {raw}
    finish(judge, at, 3)


def test_large_integers_stay_byte_identical_when_node_works(
    node: Node, store: redis.Redis, wire_server: Server, queue_name: str
) -> None:
    """case C109"""
    at, base, data = EMQ.node(queue_name), EMQ.base(queue_name), json.loads(BIG)
    with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours:
        job = ours.add("big", data, delay=50, attempts=2, backoff=20)
        ours.upsert_job_scheduler("series", every=100, limit=2, name="big", data=data)
        raw = store.hget(base + job.id, "data")
        node("startWorker", **at, behaviour="play", opts={})
        assert job.wait_until_finished(20) == {"n": data["n"]}
        runs = eventually(lambda: len(ids := series_of(store, base)) == 2 and ids)
        eventually(lambda: all(ours.get_state(run) == "failed" for run in runs))
        assert {store.hget(base + run, "data") for run in [job.id, *runs]} == {raw}


def series_of(store: redis.Redis, base: str) -> list[str]:
    """Ids of the jobs that schedulers have made in a queue."""
    keys = [key.decode() for key in store.scan_iter(match=f"{base}repeat:*:*", count=1000)]
    return sorted(key[len(base) :] for key in keys if not key.endswith((":lock", ":logs")))


@pytest.mark.parametrize("progress", [42, 0.5, "half", {"step": 3, "of": [4]}, True])
def test_progress_logs_and_new_data_of_our_jobs_are_seen_by_node(
    fleet: PoolProcess, judge: Node, progress: Any
) -> None:
    """promise 4.21"""
    at = EMQ.node(QUEUES[4])
    listener = judge("listen", **at)
    data = {"do": "talk", "progress": progress, "row": "zeile 💥"}
    made = judge("add", **at, job="talk", data=data, opts={"keepLogs": 2})
    job = ended(judge, at, made["id"])
    assert job["progress"] == progress
    assert job["data"] == {**data, "updated": True}
    assert judge("logs", **at, id=made["id"]) == ["zeile 💥"]
    seen = eventually(lambda: judge("seen", listener=listener, event="progress"))
    assert [(event["jobId"], event["data"]) for event in seen] == [(made["id"], progress)]
    judge("unlisten", listener=listener)


def test_progress_logs_and_new_data_of_nodes_jobs_are_seen_by_us(
    node: Node, wire_server: Server, queue_name: str
) -> None:
    """promise 4.21"""
    at = EMQ.node(queue_name)
    node("startWorker", **at, behaviour="play", opts={})
    with SyncQueue(queue_name, **EMQ.ours(wire_server)) as ours:
        data = {"do": "talk", "progress": {"step": 3}, "row": "zeile 💥"}
        job = ours.add("talk", data)
        assert job.wait_until_finished(20) == "talked"
        assert job.refresh()
        assert job.progress == {"step": 3}
        assert job.data == {**data, "updated": True}
        assert ours.get_job_logs(job.id) == ["zeile 💥"]
        job.update_progress("after")
        job.update_data({"new": 1})
        job.log("second")
        theirs = node("job", **at, id=job.id)
        assert (theirs["progress"], theirs["data"]) == ("after", {"new": 1})
        assert node("logs", **at, id=job.id) == ["zeile 💥", "second"]
