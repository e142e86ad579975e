# SPDX-License-Identifier: MIT
"""Random calls of the scripts that a working queue needs, for comparing one implementation with another."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.support.wire import Wire

IDS = ["1", "2", "3", "4", "a", "b", "P", "Q"]
HOUR = 3_600_000  # ms: nothing expires while two queues are compared

Draw = random.Random
Operation = Callable[[Wire, Draw], Any]


def some_active(wire: Wire, draw: Draw) -> str:
    active = wire.get("active") or []
    return draw.choice(active) if active and draw.random() < 0.9 else draw.choice(IDS)


def add(wire: Wire, draw: Draw) -> Any:
    opts: dict[str, Any] = {}
    for name, share, values in (
        ("delay", 0.25, [1, 5, 100, 12.5]),
        ("priority", 0.25, [1, 2, 7]),
        ("lifo", 0.2, [True]),
        ("attempts", 0.3, [1, 3]),
        ("children", 0.15, [True]),
        ("rjk", 0.05, ["s1"]),
        ("de", 0.25, DEDUPLICATIONS),
    ):
        if draw.random() < share:
            opts[name] = draw.choice(values)
    if draw.random() < 0.35:
        flags = draw.choice([{}, {"fpof": True}, {"cpof": True}, {"idof": True}, {"rdof": True}])
        opts["parent"] = wire.child_of(draw.choice(["P", "Q", "a"]), **flags)
    return wire.add(draw.choice(["", "", "", *IDS[:6:2]]), data=json.dumps({"n": draw.random()}), **opts)


DEDUPLICATIONS = [
    {"id": "x", **more}
    for more in (
        {},
        {"ttl": HOUR},
        {"ttl": HOUR, "extend": True},
        {"replace": True},
        {"replace": True, "ttl": HOUR},
        {"replace": True, "ttl": HOUR, "extend": True},
        {"keepLastIfActive": True},
        {"keepLastIfActive": True, "replace": True},
        {"keepLastIfActive": True, "ttl": HOUR, "extend": True},
    )
]
KEEPS: list[dict[str, int]] = [
    {"count": -1},
    {"count": -1},
    {"count": 0},
    {"count": 1},
    {"count": 2, "age": 1},
    {"age": 0},
    {"age": 1, "limit": 1},
    {},
]
FIELDS = [None, ["failedReason", "boom", "stacktrace", '["x"]']]


def limiter(draw: Draw) -> dict[str, int] | None:
    return draw.choice([None, None, None, None, {"max": 3, "duration": HOUR}])


def take(wire: Wire, draw: Draw) -> Any:
    return wire.take(limiter=limiter(draw), name=draw.choice([None, "wk"]))


def finish(wire: Wire, draw: Draw) -> Any:
    failed = draw.random() < 0.4
    return wire.finish(
        some_active(wire, draw),
        "boom" if failed else '{"r":1}',
        failed=failed,
        fetch=draw.random() < 0.6,
        keep=draw.choice(KEEPS),
        fields=draw.choice(FIELDS) if failed else None,
        limiter=limiter(draw),
        attempts=draw.choice([0, 1, 2, 3]),
        maxMetricsSize=draw.choice(["", "", 3]),
    )


def retry(wire: Wire, draw: Draw) -> Any:
    push = draw.choice(["LPUSH", "RPUSH"])
    return wire.retry(some_active(wire, draw), push=push, fields=draw.choice(FIELDS))


def delay(wire: Wire, draw: Draw) -> Any:
    job_id, wait = some_active(wire, draw), draw.choice([0, 1, 50, 7.5])
    skip, fetch = draw.random() < 0.5, draw.random() < 0.5
    return wire.delay(job_id, wait, skip=skip, fetch=fetch, fields=draw.choice(FIELDS))


def release(wire: Wire, draw: Draw) -> Any:
    answer = wire.release(some_active(wire, draw))
    return min(answer, 1)  # a rate limit is real time


def lapse(wire: Wire, draw: Draw) -> Any:
    return wire.client.delete(wire.key(some_active(wire, draw) + ":lock"))


def extend(wire: Wire, draw: Draw) -> Any:
    pairs = [(job_id, draw.choice([wire.token, "other"])) for job_id in draw.sample(IDS, 3)]
    return wire.extend(pairs, HOUR)


def sweep(wire: Wire, draw: Draw) -> Any:
    return wire.sweep_again(draw.choice([0, 1, 5]), HOUR)


def pause(wire: Wire, draw: Draw) -> Any:
    return wire.pause() if draw.random() < 0.3 else wire.resume()


def concurrency(wire: Wire, draw: Draw) -> Any:
    if draw.random() < 0.6:
        return wire.client.hdel(wire.key("meta"), "concurrency")
    return wire.client.hset(wire.key("meta"), "concurrency", draw.choice([1, 2]))


def tick(wire: Wire, draw: Draw) -> Any:
    wire.now += draw.choice([1, 1, 5, 60, 1_500, 61_000])


def other_token(wire: Wire, draw: Draw) -> Any:
    wire.token = draw.choice(["w:0", "w:0", "w:1", "0"])


def small(wire: Wire, draw: Draw) -> Any:
    job_id, which = draw.choice(IDS), draw.randrange(6)
    if which == 0:
        return wire.on("updateProgress", f"{job_id} events meta", job_id, '{"p":1}')
    if which == 1:
        return wire.on("addLog", f"{job_id} {job_id}:logs", job_id, "row", draw.choice(["", 2, 1]))
    if which == 2:
        return wire.on("saveStacktrace", job_id, '["z"]', "why")
    if which == 3:
        places = "completed failed delayed active wait paused waiting-children prioritized"
        return wire.on("getStateV2", places, job_id)
    if which == 4:
        return wire.on("isFinished", f"completed failed {job_id}", job_id, "")
    return wire.run(
        "getCounts", [wire.base], ["wait", "paused", "active", "delayed", "failed", "prioritized"]
    )


def upsert(wire: Wire, draw: Draw) -> Any:
    rule: dict[str, Any] = {"name": draw.choice("nm")}
    at = None
    if draw.random() < 0.7:
        rule["every"] = draw.choice([1_000, 60, 60])
        if draw.random() < 0.25:
            rule["offset"] = draw.choice([10, 30])
    else:
        rule["pattern"], at = "p", wire.now + draw.choice([0, 5, 1_000])
    if draw.random() < 0.15:
        rule["startDate"] = wire.now + draw.choice([-100, 500])
    more = {"priority": 2} if draw.random() < 0.3 else {}
    template = draw.choice([{}, {"attempts": 2}])
    data = draw.choice(["{}", '{"t":1}'])
    return wire.upsert_scheduler(draw.choice(["s1", "s2"]), rule, at=at, data=data, template=template, **more)


def advance(wire: Wire, draw: Draw) -> Any:
    scheduler = draw.choice(["s1", "s2"])
    if draw.random() < 0.15:
        return wire.on("removeJobScheduler", "repeat delayed events", scheduler, wire.base)
    if draw.random() < 0.15:
        return wire.on("getJobScheduler", "repeat", scheduler)
    slot = wire.client.zscore(wire.key("repeat"), scheduler) or 1
    rule = draw.choice([{"every": 60, "count": 2}, {"pattern": "p"}])
    return wire.advance_scheduler(scheduler, f"repeat:{scheduler}:{int(slot)}", at=wire.now + 50, repeat=rule)


EVERYDAY: dict[Operation, int] = {
    add: 8,
    take: 6,
    finish: 7,
    retry: 2,
    delay: 2,
    release: 1,
    lapse: 2,
    extend: 1,
    sweep: 2,
    pause: 2,
    concurrency: 1,
    tick: 3,
    other_token: 1,
    small: 3,
    upsert: 3,
    advance: 2,
}
