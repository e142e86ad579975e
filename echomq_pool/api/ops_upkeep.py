# SPDX-License-Identifier: MIT
"""What operators do with a whole queue: pause, limits, clean-up, retries, deduplication keys, series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from echomq_pool.api.ask import Ask, Base, Op, ask_read, ask_script, text_id
from echomq_pool.api.ops_add import AddOps
from echomq_pool.api.ops_job import locked
from echomq_pool.api.ops_look import LookOps
from echomq_pool.errors import InputError, QueueInUse
from echomq_pool.plane import codec, upkeep
from echomq_pool.plane.calls import Call
from echomq_pool.plane.codes import Code, error_of
from echomq_pool.plane.events import CANCEL_EVENT
from echomq_pool.plane.keys import SUFFIXES
from echomq_pool.plane.lock import MANUAL_LIMIT

EVENTS_KEPT = 10_000  # where meta says nothing else
CLEAN_STEP = 10_000  # jobs that one clean-up call removes at most
STEP = 1_000  # jobs that one retry, promotion or obliteration call moves at most
CLEANABLE = ("wait", "active", "paused", "delayed", "prioritized", "completed", "failed")
_KNOWN = frozenset(name.partition(":")[0] for name in (*SUFFIXES, "de", "dn", "delay", "priority"))


class UpkeepOps(AddOps, LookOps, Base):
    """Pause, limits and the verbs that touch many jobs."""

    def pause(self) -> Op[None]:
        yield [ask_script(self._pause_call("wait", "paused", "paused", "1"))]

    def resume(self) -> Op[None]:
        """Takes back what an older client parked, some thousand at a time."""
        event = "1"
        while True:
            (remaining,) = yield [ask_script(self._pause_call("paused", "wait", "resumed", event))]
            if not remaining:
                return
            event = "0"

    def _pause_call(self, source: str, target: str, what: str, event: str) -> Call:
        names = (source, target, "meta", "prioritized", "events", "delayed", "marker")
        return Call("pause", tuple(map(self.keys.key, names)), (what, event))

    def is_paused(self) -> Op[bool]:
        (reply,) = yield [ask_read("HEXISTS", self.keys.key("meta"), "paused")]
        return bool(reply)

    def is_maxed(self) -> Op[bool]:
        (reply,) = yield [ask_script(upkeep.is_maxed(self.keys))]
        return bool(reply)

    # --- limits ---------------------------------------------------------------------------------------

    def set_concurrency(self, limit: int | None) -> Op[None]:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InputError(
                f"concurrency: expected a whole number from 1, or None for no limit, got {limit!r}"
            )
        yield [self._meta({"concurrency": limit})]

    def concurrency(self) -> Op[int | None]:
        (value,) = yield [ask_read("HGET", self.keys.key("meta"), "concurrency")]
        return None if value is None else int(value)

    def set_rate_limit(self, most: int | None, duration_ms: int | None) -> Op[None]:
        """Both or none: a maximum without a duration makes the taking script fail."""
        if (most is None) != (duration_ms is None):
            raise InputError("rate limit: a maximum and a duration in ms belong together")
        for name, value in (("max", most), ("duration_ms", duration_ms)):
            if value is not None:
                whole(f"rate limit {name}", value, 1)
        yield [self._meta({"max": most, "duration": duration_ms})]

    def rate_limit(self) -> Op[tuple[int, int] | None]:
        (reply,) = yield [ask_read("HMGET", self.keys.key("meta"), "max", "duration")]
        most, duration = reply
        return None if most is None or duration is None else (int(most), int(duration))

    def rate_limit_ttl(self, most: int | None) -> Op[int]:
        limit = 0 if most is None else whole("max", most, 1)
        (ttl,) = yield [ask_script(upkeep.rate_limit_ttl(self.keys, limit))]
        return int(ttl)

    def rate_limit_now(self, duration_ms: int) -> Op[None]:
        duration = whole("duration_ms", duration_ms, 1)
        yield [ask_read("SET", self.keys.key("limiter"), MANUAL_LIMIT, "PX", duration)]

    def lift_rate_limit(self) -> Op[bool]:
        (gone,) = yield [ask_read("DEL", self.keys.key("limiter"))]
        return bool(gone)

    def _meta(self, fields: Mapping[str, int | str | None]) -> Ask:
        meta = self.keys.key("meta")
        given = [item for name, value in fields.items() if value is not None for item in (name, value)]
        return ask_read("HSET", meta, *given) if given else ask_read("HDEL", meta, *fields)

    def greet(self, max_len_events: int, version: str) -> Op[None]:
        """What Node's Queue writes at its start: how long the event stream may grow, and by whom it is used."""
        yield [self._meta({"opts.maxLenEvents": max_len_events, "version": version})]

    # --- many jobs ------------------------------------------------------------------------------------

    def drain(self, delayed: bool) -> Op[None]:
        yield [ask_script(upkeep.drain(self.keys, delayed))]

    def clean(self, grace_ms: int, limit: int, state: str) -> Op[list[str]]:
        """Removes jobs older than `grace_ms`, at most `limit` (0 = all), in calls of bounded length."""
        name = "wait" if state == "waiting" else state
        if name not in CLEANABLE:
            raise InputError(f"clean: expected one of {', '.join(CLEANABLE)}, got {state!r}")
        left = whole("limit", limit, 0) or 1 << 62
        cut = self._clock.now_ms() - whole("grace_ms", grace_ms, 0)
        removed: list[str] = []
        while left > 0:
            step = min(left, CLEAN_STEP)
            (ids,) = yield [ask_script(upkeep.clean(self.keys, name, cut, step))]
            removed += [codec.to_text(job_id) for job_id in ids]
            left -= len(ids)
            if len(ids) < step:
                break
        return removed

    def obliterate(self, force: bool, count: int) -> Op[None]:
        yield from self.pause()
        step = whole("count", count, 1)
        while True:
            (reply,) = yield [ask_script(upkeep.obliterate(self.keys, step, force))]
            if reply == 0:
                return
            if reply < 0:
                why = (
                    "it was resumed meanwhile"
                    if reply == -1
                    else "it has active jobs; force removes them, too"
                )
                text = f"cannot obliterate queue {self.keys.queue}: {why}"
                raise QueueInUse(text, queue=self.keys.queue, code=int(reply))

    def retry_jobs(self, state: str, count: int, until_ms: int | None) -> Op[None]:
        if state not in ("failed", "completed"):
            raise InputError(f"retry: expected 'failed' or 'completed', got {state!r}")
        until = self._clock.now_ms() if until_ms is None else whole("timestamp", until_ms, 0)
        yield from self._move_all(state, count, until)

    def promote_jobs(self, count: int) -> Op[None]:
        yield from self._move_all("delayed", count, upkeep.EVERYTHING)

    def _move_all(self, state: str, count: int, until: int | str) -> Op[None]:
        step = whole("count", count, 1)
        while True:
            (more,) = yield [ask_script(upkeep.move_to_wait(self.keys, state, step, until))]
            if not more:
                return

    def remove(self, job_id: str, children: bool) -> Op[None]:
        (reply,) = yield [ask_script(upkeep.remove(self.keys, text_id(job_id), children))]
        if reply == Code.SCHEDULER_JOB:
            raise error_of(reply, job_id, "remove")
        if reply == 0:
            raise locked(job_id, children)

    def remove_orphans(self, count: int, limit: int) -> Op[int]:
        """Looks through all keys of the queue for jobs that are in no state."""
        cursor, removed = b"0", 0
        seen: set[str] = set()
        pattern = "".join(f"\\{c}" if c in "[]*?^\\" else c for c in self.keys.base) + "*"
        while True:
            ((cursor, keys),) = yield [ask_read("SCAN", cursor, "MATCH", pattern, "COUNT", count)]
            candidates = [i for i in self._candidates(keys) if i not in seen]
            seen.update(candidates)
            if candidates:
                (gone,) = yield [ask_script(upkeep.remove_orphans(self.keys, candidates))]
                removed += int(gone)
            if codec.to_text(cursor) == "0" or (limit and removed >= limit):
                return removed

    def _candidates(self, keys: Iterable[Any]) -> list[str]:
        found: dict[str, None] = {}
        for key in keys:
            name = codec.to_text(key)[len(self.keys.base) :]
            head, _, tail = name.rpartition(":")
            job_id = head if head and tail in upkeep.SUB_KEYS else name
            if job_id.partition(":")[0] not in _KNOWN:
                found[job_id] = None
        return list(found)

    def trim_events(self, most: int) -> Op[int]:
        (gone,) = yield [
            ask_read("XTRIM", self.keys.key("events"), "MAXLEN", "~", whole("max_length", most, 0))
        ]
        return int(gone)

    def cancel(self, job_id: str, reason: str) -> Op[None]:
        """A custom event; whoever runs the job stops it. Twice is once."""
        if not isinstance(reason, str):
            raise InputError(f"reason: expected a text, got {type(reason).__name__} {reason!r}")
        fields = {"jobId": text_id(job_id), "reason": reason}
        (cap,) = yield [ask_read("HGET", self.keys.key("meta"), "opts.maxLenEvents")]
        yield from self.publish(CANCEL_EVENT, fields, int(cap or EVENTS_KEPT))

    def publish(self, event: str, fields: Mapping[str, str], most: int = 1_000) -> Op[None]:
        """An event of the user's own (Node: QueueEventsProducer)."""
        if not isinstance(event, str) or not event:
            raise InputError(f"event: expected a non-empty text, got {event!r}")
        flat = [codec.to_wire(str(part)) for pair in fields.items() for part in pair]
        yield [ask_read("XADD", self.keys.key("events"), "MAXLEN", "~", most, "*", "event", event, *flat)]

    # --- deduplication --------------------------------------------------------------------------------

    def dedup_owner(self, dedup_id: str) -> Op[str | None]:
        (owner,) = yield [ask_read("GET", self.keys.dedup(text_id(dedup_id)))]
        return None if owner is None else codec.to_text(owner)

    def release_dedup(self, dedup_id: str) -> Op[bool]:
        (gone,) = yield [ask_read("DEL", self.keys.dedup(text_id(dedup_id)))]
        return bool(gone)


def whole(name: str, value: Any, low: int) -> int:
    """`value` as it is.

    Raises:
        InputError: no whole number from `low`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{name}: expected a whole number from {low}, got {value!r}")
    return value
