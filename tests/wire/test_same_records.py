# SPDX-License-Identifier: MIT
"""Every key that our side leaves behind is the one that BullMQ would have left: whole queues compared, key by key."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

from tests.support.waiting import eventually
from tests.support.wire import dump
from tests.wire.ground import Side

HOUR_MS = 3_600_000

ADDS: list[dict[str, Any]] = [
    {},
    {"attempts": 3, "backoff": 1_000},
    {"attempts": 3, "backoff": {"type": "exponential", "delay": 7, "jitter": 0.5}},
    {"priority": 5},
    {"priority": 5, "lifo": True},
    {"lifo": True},
    {"delay": HOUR_MS},
    {"delay": HOUR_MS, "priority": 2},
    {"jobId": "my-id"},
    {"jobId": "my-id"},
    {"deduplication": {"id": "d1"}},
    {"deduplication": {"id": "d1"}},
    {"deduplication": {"id": "d2", "ttl": HOUR_MS, "extend": True}},
    {"deduplication": {"id": "d2", "ttl": HOUR_MS, "extend": True}},
    {"deduplication": {"id": "d3", "ttl": HOUR_MS, "replace": True}, "delay": HOUR_MS},
    {"deduplication": {"id": "d3", "ttl": HOUR_MS, "replace": True}, "delay": HOUR_MS},
    {"deduplication": {"id": "d4", "keepLastIfActive": True}},
    {"removeOnComplete": True, "removeOnFail": {"age": 60, "count": 7}, "keepLogs": 3},
    {"stackTraceLimit": 2, "sizeLimit": 10_000},
]

REPEATS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"every": HOUR_MS}, {"every": HOUR_MS}),
    ({"every": HOUR_MS, "offset": 500, "limit": 3}, {"every": HOUR_MS, "offset": 500, "limit": 3}),
    ({"pattern": "0 0 3 * * *", "tz": "Europe/Berlin"}, {"pattern": "0 0 3 * * *", "tz": "Europe/Berlin"}),
    ({"pattern": "0 3 * * 1", "limit": 9, "tz": "UTC"}, {"pattern": "0 3 * * 1", "limit": 9, "tz": "UTC"}),
    ({"every": HOUR_MS, "endDate": 4_000_000_000_000}, {"every": HOUR_MS, "end": 4_000_000_000_000}),
    ({"every": HOUR_MS, "startDate": 3_000_000_000_000}, {"every": HOUR_MS, "start": 3_000_000_000_000}),
    ({"pattern": "@daily", "tz": "UTC", "immediately": True}, {"pattern": "@daily", "tz": "UTC", "immediately": True}),
]  # fmt: skip


PASSING = ("stalled-check", "marker", "stalled", "limiter")
# A grid begins at the ms of the first upsert, and a delay ends at a fixed one.
OF_THE_MOMENT = re.compile(r"/repeat:s[04]/offset|/repeat:s\d:(T|3000000000000)(/opts)?/delay")


def timeless(found: Any) -> Any:
    """A dump with every instant written as T, JSON texts as objects, and nothing of who did the work."""
    if isinstance(found, dict):
        skipped = ("pb", "version")
        return {key_of(key): timeless(value) for key, value in found.items() if key not in skipped}
    if isinstance(found, list):
        return [timeless(item) for item in found]
    if isinstance(found, float):
        return "T" if found > 1e12 else found
    if isinstance(found, int):
        return "T" if found > 10**12 else found
    if isinstance(found, str):
        if found[:1] in "{[" and found[-1:] in "}]":
            return timeless(json.loads(found))
        return key_of(found)
    return found


def differences(mine: Any, theirs: Any, place: str = "") -> list[str]:
    """Where two dumps differ: `place: mine / theirs`."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = sorted(mine.keys() | theirs.keys())
        return [row for key in keys for row in differences(mine.get(key), theirs.get(key), f"{place}/{key}")]
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return [
            row
            for n, pair in enumerate(zip(mine, theirs, strict=True))
            for row in differences(*pair, f"{place}[{n}]")
        ]
    return [] if mine == theirs else [f"{place}: {mine!r} / {theirs!r}"]


def key_of(text: str) -> str:
    return re.sub(r"\b1[6-9]\d{11}(\.\d+)?\b", "T", text)


def settled_dump(side: Side) -> dict[str, Any]:
    """A queue's keys without those whose presence is a matter of the moment; its name is "queue"."""
    with side.client() as client:
        found = json.dumps(dump(client, side.keys.base)).replace(side.keys.wire_name, "queue")
    keys = {key: value for key, value in json.loads(found).items() if key not in PASSING}
    keys["meta"] = {name: value for name, value in keys.get("meta", {}).items() if "echomq-pool:" not in name}
    # Release 5 tells the same a second time under its old name.
    keys["events"] = [row for row in keys.get("events", []) if not row.startswith("debounced")]
    result: dict[str, Any] = timeless(keys)
    for value in result.values():
        if isinstance(value, dict):
            value.pop("stacktrace", None)
    return result


def test_added_jobs_are_the_same_records(twins: tuple[Side, Side]) -> None:
    """promise 4.20, 4.21; case C106"""
    theirs, ours = twins
    data = {"n": 1, "t": "中文 💥", "e": [], "o": {}}
    ours.theirs("counts")  # a queue of Node's notes its version and the length of the stream
    for n, opts in enumerate(ADDS):
        theirs.theirs("add", job=f"job-{n}", data=data, opts=opts)
    many = [{"name": f"bulk-{n}", "data": data, "opts": {"priority": n}} for n in range(3)]
    theirs.theirs("addBulk", jobs=many)
    with ours.ours() as queue:
        for n, opts in enumerate(ADDS):
            queue.add(f"job-{n}", data, **opts)
        queue.add_bulk(many)
    with ours.client() as store:
        eventually(lambda: store.hexists(ours.keys.key("meta"), "opts.maxLenEvents"))
    assert differences(settled_dump(ours), settled_dump(theirs)) == []


def test_series_are_the_same_records(twins: tuple[Side, Side]) -> None:
    """promise 4.21; case C093"""
    theirs, ours = twins
    template: dict[str, Any] = {
        "data": {"a": [1]},
        "opts": {"attempts": 3, "backoff": {"type": "fixed", "delay": 9}, "removeOnFail": 5},
    }
    ours.theirs("counts")
    with ours.ours() as queue:
        for n, (repeat, mine) in enumerate(REPEATS):
            for _ in range(2):  # made, and made again
                named = {"name": f"n{n}", **template}
                theirs.theirs("upsertScheduler", id=f"s{n}", repeat=repeat, template=named)
                queue.upsert_job_scheduler(f"s{n}", **named, **mine)
        found = differences(settled_dump(ours), settled_dump(theirs))
        assert [row for row in found if not OF_THE_MOMENT.match(row)] == []
        for n in range(len(REPEATS)):
            record = queue.get_job_scheduler(f"s{n}")
            view = ours.theirs("scheduler", id=f"s{n}")
            assert record is not None
            assert (view["name"], view["next"]) == (record.name, record.next_ms)
            assert view["template"]["data"] == template["data"]


WORKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"give": {"a": [1, "x"]}}, {}),
    ({"give": None}, {"priority": 3}),
    ({"do": "fail"}, {}),
    ({"do": "fail"}, {"attempts": 2}),
    ({"do": "fail"}, {"attempts": 2, "backoff": 10}),
    ({"do": "fail", "fail_times": 1, "n": 7}, {"attempts": 2, "priority": 2, "backoff": 10}),
    ({"do": "talk", "progress": 5, "row": "x"}, {"keepLogs": 1}),
    ({"give": 1}, {"removeOnComplete": True}),
    ({"do": "fail"}, {"removeOnFail": True}),
    ({"give": 1}, {"deduplication": {"id": "d"}}),
    ({"give": 1}, {"removeOnComplete": {"count": 2}}),
    ({"give": 1}, {"delay": 5}),
]


def test_worked_jobs_are_the_same_records(twins: tuple[Side, Side]) -> None:
    """promise 4.20, 4.21"""
    theirs, ours = twins
    theirs.node_worker()
    with ours.worker():
        for side in twins:
            for n, (data, opts) in enumerate(WORKED):  # one after the other, so that both do the same
                made = side.theirs("add", job=f"job-{n}", data=data, opts=opts)
                eventually(partial(at_rest, side, made["id"]), why=f"{side.queue} {data} {opts}")
        assert differences(settled_dump(ours), settled_dump(theirs)) == []


def at_rest(side: Side, job_id: str) -> bool:
    job = side.theirs("job", id=job_id)
    counts = side.theirs("counts")
    done = job is None or job["state"] in ("completed", "failed")
    return done and not counts["active"] + counts["waiting"] + counts["prioritized"] + counts["delayed"]


def test_flows_are_the_same_records(twins: tuple[Side, Side]) -> None:
    """promise 4.21; case C111"""
    theirs, ours = twins
    for side in twins:
        side.theirs("counts")
    options = ["", "failParentOnFailure", "removeDependencyOnFailure", "ignoreDependencyOnFailure"]
    with ours.flows() as producer:
        for n, option in enumerate(options[:2]):
            theirs.theirs("addFlow", flow=tree(theirs.keys.wire_name, n, option))
            producer.add(tree(ours.queue, n, option))
        theirs.theirs("addFlows", flows=[tree(theirs.keys.wire_name, n, options[n]) for n in (2, 3)])
        producer.add_bulk([tree(ours.queue, n, options[n]) for n in (2, 3)])
    mine, made = settled_dump(ours), settled_dump(theirs)
    for found in (mine, made):
        found["events"].sort()  # a parent comes before its children; the rest of the order is free
    assert differences(mine, made) == []


def tree(queue: str, n: int, option: str) -> dict[str, Any]:
    """A flow of three levels with ids of its own."""
    more = {option: True} if option else {}

    def node(name: str, opts: dict[str, Any], children: list[Any] | None = None) -> dict[str, Any]:
        found = {
            "name": name,
            "queueName": queue,
            "data": {"name": name},
            "opts": {"jobId": f"{name}-{n}", **opts},
        }
        return {**found, "children": children} if children else found

    leaf = node("leaf", {"delay": HOUR_MS, "attempts": 2, **more})
    return node("root", {"priority": 2}, [node("left", more, [leaf]), node("right", {"lifo": True, **more})])
