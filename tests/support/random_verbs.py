# SPDX-License-Identifier: MIT
"""Random calls of the scripts that people and boards use: moves by hand, removals, pages and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support import verbs
from tests.support.random_calls import IDS, Draw, Operation, some_active
from tests.support.twins import comparable
from tests.support.wire import Wire

LISTS_AND_SETS = ["wait", "active", "paused", "delayed", "prioritized", "completed", "failed"]


def some_of(wire: Wire, draw: Draw, state: str) -> str:
    """Mostly an id that sits there, sometimes any."""
    ids = sorted(wire.get(state) or [])
    return str(draw.choice(ids)) if ids and draw.random() < 0.85 else draw.choice(IDS)


def anyone(wire: Wire, draw: Draw) -> str:
    return some_of(wire, draw, draw.choice([*LISTS_AND_SETS, "waiting-children"]))


def wait_for_children(wire: Wire, draw: Draw) -> Any:
    child = draw.choice(["", "", wire.key(draw.choice(IDS))])
    return verbs.wait_for_children(wire, some_active(wire, draw), child)


def promote(wire: Wire, draw: Draw) -> Any:
    return verbs.promote(wire, some_of(wire, draw, "delayed"))


def change_delay(wire: Wire, draw: Draw) -> Any:
    return verbs.change_delay(wire, some_of(wire, draw, "delayed"), draw.choice([0, 5, 5, 12.5, 100]))


def change_priority(wire: Wire, draw: Draw) -> Any:
    job_id = some_of(wire, draw, draw.choice(["wait", "prioritized"]))
    return verbs.change_priority(wire, job_id, draw.choice([0, 1, 2, 9]), lifo=draw.random() < 0.4)


def reprocess(wire: Wire, draw: Draw) -> Any:
    state = draw.choice(["failed", "completed"])
    job_id, push = some_of(wire, draw, state), draw.choice(["LPUSH", "RPUSH"])
    atm, ats = draw.random() < 0.5, draw.random() < 0.5
    return verbs.reprocess(wire, job_id, state, push=push, atm=atm, ats=ats)


def move_to_wait(wire: Wire, draw: Draw) -> Any:
    return verbs.move_to_wait(
        wire, draw.choice(["failed", "completed", "delayed"]), draw.choice([1, 2, 1000])
    )


def remove(wire: Wire, draw: Draw) -> Any:
    return verbs.remove(wire, anyone(wire, draw), children=draw.random() < 0.5)


def remove_children(wire: Wire, draw: Draw) -> Any:
    if draw.random() < 0.5:
        return verbs.remove_unprocessed(wire, draw.choice(["P", "Q", "a"]))
    parent = wire.key(draw.choice(["P", "Q", "a"]))
    children = sorted(wire.get(parent[len(wire.base) :] + ":dependencies") or [wire.key("1")])
    return verbs.remove_child_dependency(wire, draw.choice(children), parent)


def clean(wire: Wire, draw: Draw) -> Any:
    cut = wire.now - draw.choice([0, 5, 100])
    return verbs.clean(wire, draw.choice(LISTS_AND_SETS), cut, draw.choice([0, 1, 2, 10]))


def empty(wire: Wire, draw: Draw) -> Any:
    if draw.random() < 0.6:
        return verbs.drain(wire, delayed=draw.random() < 0.5)
    return verbs.obliterate(wire, draw.choice([1, 3, 1000]), force=draw.random() < 0.5)


def drop(wire: Wire, draw: Draw) -> Any:
    if draw.random() < 0.5:
        return wire.on("removeDeduplicationKey", "de:x", draw.choice(IDS))
    wire.client.hset(wire.key("ghost"), "name", "x")
    return verbs.orphans(wire, [*LISTS_AND_SETS, "waiting-children"], "ghost", *draw.sample(IDS, 3))


def read_pages(wire: Wire, draw: Draw) -> Any:
    first, last, asc = draw.choice([0, 0, 1, -2]), draw.choice([0, 2, 5, -1]), draw.random() < 0.5
    states = draw.sample([*LISTS_AND_SETS, "waiting-children"], 3)
    if draw.random() < 0.5:
        return verbs.ranges(wire, first, last, *states, asc=asc)
    return [[row[0] for row in page] for page in verbs.jobs(wire, first, last, *states, asc=asc)]


def page_of_children(wire: Wire, draw: Draw) -> Any:
    """In no order: that of a set differs between two sets with the same members."""
    suffix = f"{draw.choice(['P', 'Q'])}:{draw.choice(['dependencies', 'processed', 'failed'])}"
    cursor, passed, items, total, *jobs = verbs.paginate(wire, suffix, 0, -1, fetch=draw.random() < 0.5)
    return [
        cursor,
        passed,
        sorted(comparable(items, wire.base), key=str),
        total,
        [len(rows) for rows in jobs],
    ]


def finished(wire: Wire, job_id: str, value: str) -> Any:
    """For a job that is not there the code alone: the sentence beside it is each one's own."""
    answer = wire.on("isFinished", f"completed failed {job_id}", job_id, value)
    return answer[0] if isinstance(answer, list) and answer[0] < 0 else answer


def release_lock(wire: Wire, draw: Draw) -> Any:
    return wire.on("releaseLock", f"{some_active(wire, draw)}:lock", draw.choice([wire.token, "stale:0"]), "")


def read_counts(wire: Wire, draw: Draw) -> Any:
    job_id = anyone(wire, draw)
    readings: list[Callable[[], Any]] = [
        lambda: wire.on("getCountsPerPriority", "wait prioritized", 0, 1, 2, 7, 9),
        lambda: wire.on("getMetrics", "metrics:completed metrics:completed:data", 0, -1),
        lambda: wire.on("isMaxed", "meta active"),
        lambda: wire.on("isJobInList", draw.choice(["wait", "active"]), job_id),
        lambda: verbs.state(wire, job_id),
        lambda: wire.on("getRateLimitTtl", "limiter meta", draw.choice([0, 1, 3])) > 0,
        lambda: verbs.child_counts(wire, draw.choice(["P", "Q"]), *verbs.KINDS),
        lambda: finished(wire, job_id, draw.choice(["", "1"])),
        lambda: page_of_children(wire, draw),
    ]
    return draw.choice(readings)()


BY_HAND: dict[Operation, int] = {
    wait_for_children: 2,
    promote: 2,
    change_delay: 1,
    change_priority: 2,
    reprocess: 3,
    move_to_wait: 1,
    remove: 2,
    remove_children: 1,
    clean: 1,
    empty: 1,
    drop: 1,
    read_pages: 2,
    read_counts: 3,
    release_lock: 1,
}
