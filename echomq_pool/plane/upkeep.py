# SPDX-License-Identifier: MIT
"""The script calls by which producers and operators look after a queue, as values. Pure, like `calls.py`."""

from __future__ import annotations

from collections.abc import Sequence

from echomq_pool.plane.calls import Arg, Call
from echomq_pool.plane.keys import SUFFIXES, QueueKeys

EVERYTHING = "1.7976931348623157e+308"  # the largest double: every delayed job, however late
SUB_KEYS = ("logs", "dependencies", "processed", "failed", "unsuccessful", "lock")
REFILLS = 5  # windows that one page of jobs may read further, to make up for ids without a job


def _keys(keys: QueueKeys, *suffixes: str) -> tuple[str, ...]:
    return tuple(map(keys.key, suffixes))


# --- looking ---------------------------------------------------------------------------------------


def ranges(keys: QueueKeys, names: Sequence[str], start: int, end: int, asc: bool) -> Call:
    """Ids by state; lists come unreversed when `asc`."""
    return Call("getRanges", (keys.base,), (start, end, _flag(asc), *names))


def jobs(keys: QueueKeys, names: Sequence[str], start: int, end: int, asc: bool) -> Call:
    """Per state an array of [id, flat hash]."""
    return Call("getJobs", (keys.base,), (start, end, _flag(asc), REFILLS, *names))


def counts_per_priority(keys: QueueKeys, priorities: Sequence[int]) -> Call:
    return Call("getCountsPerPriority", _keys(keys, "wait", "prioritized"), tuple(priorities))


def metrics(keys: QueueKeys, kind: str, start: int, end: int) -> Call:
    """[[count, prevTS, prevCount], points, number of points]."""
    return Call("getMetrics", _keys(keys, f"metrics:{kind}", f"metrics:{kind}:data"), (start, end))


def rate_limit_ttl(keys: QueueKeys, most: int) -> Call:
    return Call("getRateLimitTtl", _keys(keys, "limiter", "meta"), (most,))


def is_maxed(keys: QueueKeys) -> Call:
    return Call("isMaxed", _keys(keys, "meta", "active"), ())


def paginate(key: str, start: int, end: int, cursor: str, offset: int, jobs_too: bool) -> Call:
    """[cursor, offset, items, total, jobs] of a set or hash."""
    args = (start, end, cursor, offset, REFILLS)
    return Call("paginate", (key,), (*args, "1") if jobs_too else args)


def dependency_counts(keys: QueueKeys, job_id: str, names: Sequence[str]) -> Call:
    lists = (
        keys.processed(job_id),
        keys.dependencies(job_id),
        keys.failed(job_id),
        keys.unsuccessful(job_id),
    )
    return Call("getDependencyCounts", lists, tuple(names))


# --- many jobs -------------------------------------------------------------------------------------


def drain(keys: QueueKeys, delayed: bool) -> Call:
    names = _keys(keys, "wait", "paused", "delayed", "prioritized", "repeat")
    return Call("drain", names, (keys.base, _flag(delayed)))


def clean(keys: QueueKeys, state: str, cut_ms: int, limit: int) -> Call:
    """Returns the removed ids."""
    return Call("cleanJobsInSet", _keys(keys, state, "events", "repeat"), (keys.base, cut_ms, limit, state))


def obliterate(keys: QueueKeys, count: int, force: bool) -> Call:
    """1 = call again, 0 = done, -1 not paused, -2 active jobs."""
    return Call("obliterate", (keys.key("meta"), keys.base), (count, "force" if force else ""))


def move_to_wait(keys: QueueKeys, state: str, count: int, until: int | str) -> Call:
    """1 = call again."""
    names = ("events", state, "wait", "paused", "meta", "active", "marker")
    return Call("moveJobsToWait", (keys.base, *_keys(keys, *names)), (count, until, state))


def remove_orphans(keys: QueueKeys, candidates: Sequence[str]) -> Call:
    """Returns how many of the candidates were in no state and are gone."""
    args: list[Arg] = [len(SUFFIXES), *SUFFIXES, len(SUB_KEYS), *SUB_KEYS, *candidates]
    return Call("removeOrphanedJobs", (keys.base,), args)


# --- one job ---------------------------------------------------------------------------------------


def promote(keys: QueueKeys, job_id: str) -> Call:
    # fmt: off
    names = _keys(
        keys, "delayed", "wait", "paused", "meta", "prioritized", "active", "pc", "events", "marker",
    )
    # fmt: on
    return Call("promote", names, (keys.base, job_id))


def change_delay(keys: QueueKeys, job_id: str, delay_ms: float, now: int) -> Call:
    names = _keys(keys, "delayed", "meta", "marker", "events")
    return Call("changeDelay", names, (delay_ms, now, job_id, keys.job(job_id)))


def change_priority(keys: QueueKeys, job_id: str, priority: int, lifo: bool) -> Call:
    names = _keys(keys, "wait", "paused", "meta", "prioritized", "active", "pc", "marker")
    return Call("changePriority", names, (priority, keys.base, job_id, _flag(lifo)))


def reprocess(keys: QueueKeys, job_id: str, state: str, lifo: bool, atm: bool, ats: bool) -> Call:
    """Back to wait from `failed` or `completed`; `atm`, `ats`: set those counters back to nothing."""
    field = "failedReason" if state == "failed" else "returnvalue"
    names = (keys.job(job_id), *_keys(keys, "events", state, "wait", "meta", "paused", "active", "marker"))
    push = "RPUSH" if lifo else "LPUSH"
    return Call("reprocessJob", names, (job_id, push, field, state, _flag(atm), _flag(ats)))


def remove(keys: QueueKeys, job_id: str, children: bool) -> Call:
    """1 = gone, 0 = it or a child is locked, -8 = a scheduler's current occurrence."""
    return Call("removeJob", (keys.job(job_id), keys.key("repeat")), (job_id, _flag(children), keys.base))


def remove_unprocessed(keys: QueueKeys, job_id: str) -> Call:
    return Call("removeUnprocessedChildren", (keys.job(job_id), keys.key("meta")), (keys.base, job_id))


def detach(keys: QueueKeys, job_id: str, parent_key: str) -> Call:
    """0 = detached, 1 = it was no pending child, -1 / -5 = job or parent missing."""
    return Call("removeChildDependency", (keys.base,), (keys.job(job_id), parent_key))


def release_dedup(keys: QueueKeys, dedup_id: str, job_id: str) -> Call:
    """1 = the id was this job's and is free now."""
    return Call("removeDeduplicationKey", (keys.dedup(dedup_id),), (job_id,))


def extend_lock(keys: QueueKeys, job_id: str, token: str, duration_ms: int) -> Call:
    """1 = extended, 0 = the lock is not ours."""
    return Call("extendLock", (keys.lock(job_id), keys.key("stalled")), (token, duration_ms, job_id))


def _flag(value: bool) -> str:
    return "1" if value else "0"
