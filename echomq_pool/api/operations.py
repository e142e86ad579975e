# SPDX-License-Identifier: MIT
"""What a producer does with a queue, written once for the asynchronous and the synchronous twin.

An operation is a generator: it yields batches of requests, is sent the replies, and returns its result. Two thin
drivers (`queue.py`, `sync.py`) run it over their connection; everything that decides is here and is pure.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from echomq_pool.api.options import NewJob, check_job, check_options
from echomq_pool.api.repeats import Repeat
from echomq_pool.clock import Clock
from echomq_pool.errors import InputError, JobFailed, JobMissing
from echomq_pool.plane import codec, scheduling
from echomq_pool.plane.calls import ALL_STATES, Arg, Call, Calls
from echomq_pool.plane.codes import Code, check, error_of
from echomq_pool.plane.events import CANCEL_EVENT
from echomq_pool.plane.job_record import JobRecord, long_opts
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.pack import pack
from echomq_pool.plane.repeat import RULES, Rule
from echomq_pool.plane.schedule import SchedulerRecord

T = TypeVar("T")

EVENTS_KEPT = 10_000  # where meta says nothing else
BULK = 1_000  # adds that travel in one write


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `repeat`: it may be sent again after a lost reply."""

    what: Call | tuple[Arg, ...]
    repeat: bool


Op = Generator[list[Ask], list[Any], T]
Added = tuple[str, NewJob]


class Operations:
    """The operations of one queue."""

    def __init__(self, keys: QueueKeys, calls: Calls, clock: Clock) -> None:
        self.keys = keys
        self._calls = calls
        self._clock = clock

    # --- adding ------------------------------------------------------------------------------------

    def add(self, name: str, data: Any, options: Mapping[str, Any]) -> Op[Added]:
        job = check_job(name, data, options, self._clock.now_ms())
        (reply,) = yield [self._add(job)]
        return added_id(reply, job), job

    def add_bulk(self, jobs: Iterable[Any]) -> Op[list[Added]]:
        """All are checked before the first is sent; the first error reply ends it."""
        now = self._clock.now_ms()
        checked = [_bulk_entry(index, job, now) for index, job in enumerate(jobs)]
        added: list[Added] = []
        for start in range(0, len(checked), BULK):
            part = checked[start : start + BULK]
            replies = yield [self._add(job) for job in part]
            added += [(added_id(reply, job), job) for reply, job in zip(replies, part, strict=True)]
        return added

    def _add(self, job: NewJob) -> Ask:
        return Ask(add_call(self.keys, job), repeat=bool(job.job_id))

    # --- looking -----------------------------------------------------------------------------------

    def load(self, job_id: str) -> Op[JobRecord | None]:
        (flat,) = yield [Ask(("HGETALL", self.keys.job(_text_id(job_id))), repeat=True)]
        return JobRecord.from_flat(job_id, flat) if flat else None

    def state(self, job_id: str) -> Op[str]:
        (reply,) = yield [self._script(self._calls.state(_text_id(job_id)))]
        return codec.to_text(reply)

    def logs(self, job_id: str, start: int, end: int) -> Op[list[str]]:
        (rows,) = yield [Ask(("LRANGE", self.keys.logs(_text_id(job_id)), start, end), repeat=True)]
        return [codec.to_text(row) for row in rows]

    def counts(self, names: Sequence[str]) -> Op[dict[str, int]]:
        """Sizes by state. `waiting` includes what an older client parked in `paused`."""
        wanted = list(names) or [name for name in ALL_STATES if name != "paused"]
        unknown = [name for name in wanted if name not in ALL_STATES]
        if unknown:
            raise InputError(f"counts: there is no state {unknown[0]!r}; known are {', '.join(ALL_STATES)}")
        (sizes,) = yield [self._script(self._calls.counts([*wanted, "paused"]))]
        found = dict(zip(wanted, sizes, strict=False))
        if "waiting" in found:
            found["waiting"] += sizes[-1]
        return found

    def is_paused(self) -> Op[bool]:
        (reply,) = yield [Ask(("HEXISTS", self.keys.key("meta"), "paused"), repeat=True)]
        return bool(reply)

    # --- waiting for a job's end -----------------------------------------------------------------------

    def position(self) -> Op[str]:
        """The last entry of the event stream: what comes later is read from there."""
        (last,) = yield [Ask(("XREVRANGE", self.keys.key("events"), "+", "-", "COUNT", 1), repeat=True)]
        return codec.to_text(last[0][0]) if last else "0-0"

    def since(self, position: str) -> Op[list[Any]]:
        """All entries of the event stream after a position, (id, flat fields) each."""
        ask = Ask(("XRANGE", self.keys.key("events"), f"({position}", "+"), repeat=True)
        (entries,) = yield [ask]
        return list(entries or [])

    def finished(self, job_id: str) -> Op[tuple[bool, Any]]:
        """(finished, return value).

        Raises:
            JobMissing: there is no such job (any more).
            JobFailed: it failed.
        """
        (reply,) = yield [self._script(self._calls.is_finished(_text_id(job_id)))]
        code = int(reply[0])
        if code == -1:
            raise error_of(Code.MISSING, job_id, "wait for")
        if code == 2:
            raise JobFailed(codec.to_text(reply[1]), job_id=job_id)
        return (True, decode_value(reply[1])) if code == 1 else (False, None)

    # --- the queue as a whole ------------------------------------------------------------------------

    def pause(self) -> Op[None]:
        yield [self._script(self._pause_call("wait", "paused", "paused", "1"))]

    def resume(self) -> Op[None]:
        """Takes back what an older client parked, some thousand at a time."""
        event = "1"
        while True:
            (remaining,) = yield [self._script(self._pause_call("paused", "wait", "resumed", event))]
            if not remaining:
                return
            event = "0"

    def _pause_call(self, source: str, target: str, what: str, event: str) -> Call:
        names = (source, target, "meta", "prioritized", "events", "delayed", "marker")
        return Call("pause", tuple(map(self.keys.key, names)), (what, event))

    def set_concurrency(self, limit: int | None) -> Op[None]:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InputError(
                f"concurrency: expected a whole number from 1, or None for no limit, got {limit!r}"
            )
        yield [self._meta({"concurrency": limit})]

    def set_rate_limit(self, most: int | None, duration_ms: int | None) -> Op[None]:
        """Both or none: a maximum without a duration makes the taking script fail."""
        if (most is None) != (duration_ms is None):
            raise InputError("rate limit: a maximum and a duration in ms belong together")
        for name, value in (("max", most), ("duration_ms", duration_ms)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"rate limit {name}: expected a whole number from 1, got {value!r}")
        yield [self._meta({"max": most, "duration": duration_ms})]

    def _meta(self, fields: Mapping[str, int | None]) -> Ask:
        meta = self.keys.key("meta")
        given = [item for name, value in fields.items() if value is not None for item in (name, value)]
        return Ask(("HSET", meta, *given) if given else ("HDEL", meta, *fields), repeat=True)

    def cancel(self, job_id: str, reason: str) -> Op[None]:
        """A custom event; whoever runs the job stops it. Twice is once."""
        if not isinstance(reason, str):
            raise InputError(f"reason: expected a text, got {type(reason).__name__} {reason!r}")
        (cap,) = yield [Ask(("HGET", self.keys.key("meta"), "opts.maxLenEvents"), repeat=True)]
        fields = ("event", CANCEL_EVENT, "jobId", _text_id(job_id), "reason", codec.to_wire(reason))
        events = self.keys.key("events")
        yield [Ask(("XADD", events, "MAXLEN", "~", cap or EVENTS_KEPT, "*", *fields), repeat=True)]

    # --- schedulers --------------------------------------------------------------------------------

    def upsert_scheduler(
        self, scheduler_id: str, repeat: Repeat, name: str | None, data: Any, options: Mapping[str, Any]
    ) -> Op[JobRecord | None]:
        """Makes or replaces a series; returns its next job, None when the pattern has no further instant."""
        _check_scheduler_id(scheduler_id)
        now = self._clock.now_ms()
        template = check_options(options)
        raw = codec.encode({} if data is None else data)
        due, next_ms = repeat.first(now)
        if not due:
            return None
        call = scheduling.upsert(
            self.keys, scheduler_id, name or scheduler_id, raw, template, repeat.wire(), next_ms, now
        )
        (reply,) = yield [self._script(call)]
        check(reply, scheduler_id, "schedule")
        return (yield from self.load(codec.to_text(reply[0])))

    def get_scheduler(self, scheduler_id: str) -> Op[SchedulerRecord | None]:
        (reply,) = yield [self._script(scheduling.get(self.keys, scheduler_id))]
        return SchedulerRecord.from_reply(scheduler_id, reply)

    def remove_scheduler(self, scheduler_id: str) -> Op[bool]:
        (reply,) = yield [self._script(scheduling.remove(self.keys, scheduler_id))]
        return int(reply) == 0

    def scheduler_ids(self) -> Op[list[str]]:
        (ids,) = yield [Ask(("ZRANGE", self.keys.key("repeat"), 0, -1), repeat=True)]
        return [codec.to_text(found) for found in ids]

    def repair_scheduler(self, scheduler_id: str) -> Op[tuple[str, str]]:
        """(what was done, job id): gone | moved | alive | taken | made | ended."""
        record = yield from self.get_scheduler(scheduler_id)
        if record is None:
            return "gone", ""
        call = scheduling.repair(self.keys, record, self._clock.now_ms())
        if call is None:
            return "ended", ""
        (reply,) = yield [self._script(call)]
        return codec.to_text(reply[0]), codec.to_text(reply[1])

    # --- a job's own verbs -----------------------------------------------------------------------------

    def progress(self, job_id: str, value: Any) -> Op[None]:
        (reply,) = yield [self._script(self._calls.progress(job_id, codec.encode(value)))]
        check(reply, job_id, "update the progress of")

    def log(self, job_id: str, row: str, keep: int | None) -> Op[int]:
        (reply,) = yield [self._script(self._calls.log(job_id, row, keep))]
        check(reply, job_id, "log for")
        return int(reply)

    def update_data(self, job_id: str, data: Any) -> Op[None]:
        (reply,) = yield [self._script(self._calls.update_data(job_id, codec.encode(data)))]
        check(reply, job_id, "update the data of")

    def _script(self, call: Call) -> Ask:
        return Ask(call, repeat=RULES[call.script] in (Rule.REPEAT, Rule.READ))


def add_call(keys: QueueKeys, job: NewJob) -> Call:
    """The add script for a job: delayed, prioritized or plain."""
    dedup_key = keys.dedup(job.dedup_id) if job.dedup_id else None
    head = [keys.base, job.job_id, job.name, job.timestamp, None, None, None, None, dedup_key]
    script, names = "addStandardJob", _STANDARD_KEYS
    if job.opts.get("delay"):
        script, names = "addDelayedJob", _DELAYED_KEYS
    elif job.opts.get("priority"):
        script, names = "addPrioritizedJob", _PRIORITIZED_KEYS
    return Call(script, [keys.base + name for name in names], (pack(head), job.data, pack(job.opts)))


def added_id(reply: Any, job: NewJob) -> str:
    """The id in an add's reply.

    Raises:
        ParentMissing: -5 or -7.
    """
    check(reply, job.job_id or job.name, "add")
    return codec.to_text(reply)


def record_of(job_id: str, job: NewJob) -> JobRecord:
    """A job just added, as its hash holds it, without asking."""
    record = JobRecord(job_id, job.name, job.data, timestamp=job.timestamp)
    record.opts = long_opts(job.opts)
    record.delay = job.opts.get("delay", 0)
    record.priority = job.opts.get("priority", 0)
    record.deid = job.dedup_id or None
    return record


def decode_value(raw: Any) -> Any:
    """A stored return value; text that is no JSON (other clients wrote it) as it is."""
    if raw in (None, b"", ""):
        return None
    try:
        return codec.decode(raw)
    except ValueError:
        return codec.to_text(raw)


def outcome_of(name: str, job_id: str, fields: Mapping[str, Any]) -> tuple[bool, Any]:
    """What an event of the waited-for job says: (it is over, return value).

    Raises:
        JobFailed, JobMissing: as `Operations.finished`.
    """
    if name == "completed":
        return True, fields.get("returnvalue")
    if name == "failed":
        raise JobFailed(str(fields.get("failedReason", "")), job_id=job_id)
    if name == "removed":
        raise JobMissing(f"cannot wait for job {job_id}: it was removed", job_id=job_id, code=Code.MISSING)
    return False, None


_STANDARD_KEYS = ["wait", "paused", "meta", "id", "completed", "delayed", "active", "events", "marker"]
_DELAYED_KEYS = ["marker", "meta", "id", "delayed", "completed", "events"]
_PRIORITIZED_KEYS = ["marker", "meta", "id", "prioritized", "delayed", "completed", "active", "events", "pc"]


def _bulk_entry(index: int, job: Any, now: int) -> NewJob:
    """One entry of add_bulk: `{"name": …, "data": …, "opts": {…}}` or (name, data[, options])."""
    try:
        if isinstance(job, Mapping):
            extra = set(job) - {"name", "data", "opts"}
            if extra:
                raise InputError(f"{sorted(extra)[0]}: expected only name, data and opts")
            return check_job(job.get("name"), job.get("data"), job.get("opts") or {}, now)
        name, data, *rest = job
        return check_job(name, data, rest[0] if rest else {}, now)
    except InputError as error:
        raise InputError(f"job {index}: {error}") from None
    except (TypeError, ValueError):
        raise InputError(f"job {index}: expected a dict or (name, data, options), got {job!r}") from None


def _text_id(job_id: object) -> str:
    if not isinstance(job_id, str) or not job_id:
        raise InputError(f"job id: expected a non-empty text, got {job_id!r}")
    return job_id


def _check_scheduler_id(scheduler_id: object) -> None:
    if not isinstance(scheduler_id, str) or not scheduler_id.strip():
        raise InputError(f"scheduler id: expected a non-empty text, got {scheduler_id!r}")
