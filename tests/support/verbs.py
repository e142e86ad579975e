# SPDX-License-Identifier: MIT
"""The rest of the scripts, called as a client does: what moves, removes and reads jobs by hand."""

from __future__ import annotations

from typing import Any

from tests.support.wire import Wire

STATES = "completed failed delayed active wait paused waiting-children prioritized"
KINDS = ("processed", "unprocessed", "ignored", "failed")
LARGEST = "1.7976931348623157e+308"


def wait_for_children(wire: Wire, job_id: str, child: str = "") -> Any:
    suffixes = f"active waiting-children {job_id} {job_id}:dependencies {job_id}:unsuccessful stalled events"
    return wire.on("moveToWaitingChildren", suffixes, wire.token, child, wire.now, job_id, wire.base)


def promote(wire: Wire, job_id: str) -> Any:
    suffixes = "delayed wait paused meta prioritized active pc events marker"
    return wire.on("promote", suffixes, wire.base, job_id)


def change_delay(wire: Wire, job_id: str, delay: Any) -> Any:
    return wire.on("changeDelay", "delayed meta marker events", delay, wire.now, job_id, wire.key(job_id))


def change_priority(wire: Wire, job_id: str, priority: int, *, lifo: bool = False) -> Any:
    suffixes = "wait paused meta prioritized active pc marker"
    return wire.on("changePriority", suffixes, priority, wire.base, job_id, int(lifo))


def reprocess(
    wire: Wire,
    job_id: str,
    state: str = "failed",
    *,
    push: str = "LPUSH",
    atm: bool = False,
    ats: bool = False,
) -> Any:
    suffixes = f"{job_id} events {state} wait meta paused active marker"
    field = "failedReason" if state == "failed" else "returnvalue"
    return wire.on("reprocessJob", suffixes, job_id, push, field, state, int(atm), int(ats))


def move_to_wait(wire: Wire, state: str, count: Any = 1000, until: Any = None) -> Any:
    """Both ends of the promotion of everything: `until` is now, for delayed jobs the end of time."""
    until = until or (LARGEST if state == "delayed" else wire.now)
    keys = [
        wire.base,
        *(wire.key(suffix) for suffix in f"events {state} wait paused meta active marker".split()),
    ]
    return wire.run("moveJobsToWait", keys, [count, until, state])


def remove(wire: Wire, job_id: str, *, children: bool = False) -> Any:
    return wire.on("removeJob", f"{job_id} repeat", job_id, int(children), wire.base)


def remove_unprocessed(wire: Wire, job_id: str) -> Any:
    return wire.on("removeUnprocessedChildren", f"{job_id} meta", wire.base, job_id)


def remove_child_dependency(wire: Wire, child: str, parent: str) -> Any:
    return wire.run("removeChildDependency", [wire.base], [child, parent])


def clean(wire: Wire, state: str, cut: int, limit: int = 0) -> Any:
    return wire.on("cleanJobsInSet", f"{state} events repeat", wire.base, cut, limit, state)


def drain(wire: Wire, *, delayed: bool = False) -> Any:
    return wire.on("drain", "wait paused delayed prioritized repeat", wire.base, "1" if delayed else "0")


def obliterate(wire: Wire, count: int = 1000, *, force: bool = False) -> Any:
    return wire.run("obliterate", [wire.key("meta"), wire.base], [count, "force" if force else ""])


def ranges(wire: Wire, first: int, last: int, *states: str, asc: bool = False) -> Any:
    return wire.run("getRanges", [wire.base], [first, last, int(asc), *states])


def jobs(wire: Wire, first: int, last: int, *states: str, asc: bool = False, windows: int = 5) -> Any:
    return wire.run("getJobs", [wire.base], [first, last, int(asc), windows, *states])


def paginate(
    wire: Wire,
    suffix: str,
    first: int,
    last: int,
    cursor: Any = 0,
    passed: Any = 0,
    *,
    scans: int = 5,
    fetch: bool = False,
) -> Any:
    return wire.on("paginate", suffix, first, last, cursor, passed, scans, *(["1"] if fetch else []))


def state(wire: Wire, job_id: str, script: str = "getState") -> Any:
    return wire.on(script, STATES, job_id)


def orphans(wire: Wire, states: list[str], *ids: str) -> Any:
    subs = ["logs", "dependencies", "processed", "failed", "unsuccessful", "lock"]
    return wire.run("removeOrphanedJobs", [wire.base], [len(states), *states, len(subs), *subs, *ids])


def child_counts(wire: Wire, job_id: str, *kinds: str) -> Any:
    suffixes = f"{job_id}:processed {job_id}:dependencies {job_id}:failed {job_id}:unsuccessful"
    return wire.on("getDependencyCounts", suffixes, *kinds)
