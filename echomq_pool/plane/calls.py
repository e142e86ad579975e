# SPDX-License-Identifier: MIT
"""The workers' script calls as values: script name, keys, arguments. Pure; who holds a connection sends them.

Keys are encoded once per queue, and what never changes inside a packed argument is packed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from echomq_pool.config.schema import KeepConfig
from echomq_pool.plane import codec
from echomq_pool.plane.base import HeldRow, PlaneOptions
from echomq_pool.plane.job_record import JobRecord, number
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.pack import pack, pack_map, pack_raw, pack_text

Arg = bytes | str | int | float


class Call(NamedTuple):
    """One script call. `script` is a name of the library."""

    script: str
    keys: Sequence[bytes | str]
    args: Sequence[Arg]


class Calls:
    """Builds the calls of one queue. `now` is always wall ms."""

    def __init__(self, keys: QueueKeys, options: PlaneOptions) -> None:
        self.keys = keys
        self.options = options
        self._base = keys.base.encode()
        self._keep: dict[str, bytes] = {}
        self._prepare_keys()
        self._prepare_packs()

    def _prepare_keys(self) -> None:
        def key_set(*suffixes: str) -> tuple[bytes, ...]:
            return tuple(self.keys.key(suffix).encode() for suffix in suffixes)

        # fmt: off
        self._take_keys = key_set(
            "wait", "active", "prioritized", "events", "stalled", "limiter", "delayed", "paused", "meta",
            "pc", "marker",
        )
        self._sweep_keys = key_set(
            "stalled", "wait", "active", "stalled-check", "meta", "paused", "marker", "events",
        )
        self._recover_keys = key_set(
            "active", "wait", "prioritized", "stalled", "meta", "marker", "events", "repeat",
        )
        self._batch_keys = key_set(
            "wait", "active", "prioritized", "events", "stalled", "delayed", "meta", "pc", "completed",
            "metrics:completed", "marker",
        )
        # fmt: on
        self._finish_keys = {state: key_set(state, f"metrics:{state}") for state in ("completed", "failed")}
        self._active_keys = key_set("active")
        self._stalled_keys = key_set("stalled")
        self._reacquire_keys = key_set("active", "stalled")
        self._base_keys = (self._base,)

    def _prepare_packs(self) -> None:
        limiter = self.options.limiter
        fixed: dict[str, Any] = {"lockDuration": self.options.lock_duration_ms}
        if limiter is not None:
            fixed["limiter"] = {"max": limiter.max, "duration": limiter.duration_ms}
        if self.options.worker_name:
            fixed["name"] = self.options.worker_name
        self._take_head = pack_map(fixed, "token")
        # The empty string, not nil, turns metrics off.
        fixed["maxMetricsSize"] = self.options.metrics_points or ""
        self._finish_head = pack_map(fixed, "token", "attempts", "keepJobs")
        self._batch_args = (
            self.options.lock_duration_ms, codec.to_wire(self.options.worker_name), self.options.metrics_points or b"",
        )  # fmt: skip
        self._batch_keep = pack(keep_map(None, self.options.keep_completed))

    # --- claiming and finishing ----------------------------------------------------------------

    def take(self, token: str, now: int, *, quiet: bool = False) -> Call:
        script = "takeOne" if quiet else "moveToActive"
        return Call(script, self._take_keys, (self._base, now, self._take_pack(token)))

    def complete(self, job: JobRecord, token: str, value: bytes, now: int, fetch: bool) -> Call:
        return self._finish(job, token, now, "completed", "returnvalue", value, b"", fetch)

    def complete_all(self, rows: Sequence[Any], now: int) -> Call:
        """Several completions; `rows` is the flat array of the script, texts as bytes."""
        return Call(
            "finishBatch",
            self._batch_keys,
            (self._base, now, *self._batch_args, pack_raw(rows), self._batch_keep),
        )

    def fail(
        self, job: JobRecord, token: str, reason: str, stack: Sequence[str], now: int, fetch: bool
    ) -> Call:
        fields = failure_fields(reason, stack)
        return self._finish(job, token, now, "failed", "failedReason", codec.to_wire(reason), fields, fetch)

    def _finish(
        self,
        job: JobRecord,
        token: str,
        now: int,
        state: str,
        field: str,
        value: bytes,
        fields: bytes,
        fetch: bool,
    ) -> Call:
        base = self._base
        finished, metrics = self._finish_keys[state]
        keys = (*self._take_keys[:10], finished, base + job.id.encode(), metrics, self._take_keys[10])
        packed = b"".join(
            (
                self._finish_head,
                pack_text(token),
                _ATTEMPTS,
                pack(job.attempts),
                _KEEP_JOBS,
                self._keep_pack(job, state),
            )
        )
        return Call(
            "moveToFinished",
            keys,
            (job.id, now, field, value, state, "1" if fetch else "0", base, packed, fields),
        )

    def _keep_pack(self, job: JobRecord, state: str) -> bytes:
        option = job.opts.get("removeOnComplete" if state == "completed" else "removeOnFail")
        name = f"{state}:{option!r}"
        packed = self._keep.get(name)
        if packed is None:
            options = self.options
            default = options.keep_completed if state == "completed" else options.keep_failed
            packed = pack(keep_map(option, default))
            if len(self._keep) < 256:  # options are few; a producer of endless kinds must not fill memory
                self._keep[name] = packed
        return packed

    def _take_pack(self, token: str) -> bytes:
        return self._take_head + pack_text(token)

    def retry(
        self, job: JobRecord, token: str, reason: str | None, stack: Sequence[str] | None, now: int
    ) -> Call:
        key = self.keys.key
        # fmt: off
        keys = (
            key("active"), key("wait"), key("paused"), self.keys.job(job.id), key("meta"), key("events"),
            key("delayed"), key("prioritized"), key("pc"), key("marker"), key("stalled"),
        )
        # fmt: on
        push = "RPUSH" if job.lifo else "LPUSH"
        return Call("retryJob", keys, (self._base, now, push, job.id, token, failure_fields(reason, stack)))

    def delay(
        self,
        job: JobRecord,
        token: str,
        delay_ms: float,
        now: int,
        *,
        skip_attempt: bool,
        reason: str | None,
        stack: Sequence[str] | None,
        fetch: bool,
    ) -> Call:
        key = self.keys.key
        # fmt: off
        keys = (
            key("marker"), key("active"), key("prioritized"), key("delayed"), self.keys.job(job.id),
            key("events"), key("meta"), key("stalled"), key("wait"), key("limiter"), key("paused"), key("pc"),
        )
        args = (
            self._base, now, job.id, token, _plain(delay_ms), "1" if skip_attempt else "0",
            failure_fields(reason, stack), "1" if fetch else "0", self._take_pack(token) if fetch else b"",
        )
        # fmt: on
        return Call("moveToDelayed", keys, args)

    def release(self, job_id: str, token: str) -> Call:
        key, job_key = self.keys.key, self.keys.job(job_id)
        # fmt: off
        keys = (
            key("active"), key("wait"), key("stalled"), key("paused"), key("meta"), key("limiter"),
            key("prioritized"), key("marker"), key("events"),
        )
        # fmt: on
        return Call("moveJobFromActiveToWait", keys, (job_id, token, job_key))

    def wait_children(self, job_id: str, token: str, child_key: str, now: int) -> Call:
        key, keys = self.keys.key, self.keys
        # fmt: off
        all_keys = (
            key("active"), key("waiting-children"), keys.job(job_id), keys.dependencies(job_id),
            keys.unsuccessful(job_id), key("stalled"), key("events"),
        )
        # fmt: on
        return Call("moveToWaitingChildren", all_keys, (token, child_key, now, job_id, self._base))

    # --- leases ----------------------------------------------------------------------------------

    def extend(self, pairs: Sequence[tuple[str, str]]) -> Call:
        tokens = pack([token for _, token in pairs])
        ids = pack([job_id for job_id, _ in pairs])
        return Call(
            "extendLocks", self._stalled_keys, (self._base, tokens, ids, self.options.lock_duration_ms)
        )

    def reacquire(self, rows: Sequence[HeldRow]) -> Call:
        packed = pack([[row.id, row.token, str(row.ats)] for row in rows])
        return Call("reacquire", self._reacquire_keys, (self._base, self.options.lock_duration_ms, packed))

    def recover(self, owner: str, held: Sequence[HeldRow], planned: bool, evidence: str, now: int) -> Call:
        rows = pack([[row.id, str(row.ats)] for row in held])
        mode = "handback" if planned else "stall"
        limit = self.options.max_stalled_count
        args = (self._base, now, f"{owner}:", mode, limit, codec.to_wire(evidence), RECOVER_BATCH, rows)
        return Call("recoverOwner", self._recover_keys, args)

    def fate(self, job_id: str, token: str, ats: int) -> Call:
        keys = (self.keys.key("active"), self.keys.job(job_id), self.keys.lock(job_id))
        return Call("fate", keys, (self._base, job_id, token, ats))

    def unknown_claims(self, owner: str, known: Sequence[tuple[str, str]]) -> Call:
        return Call(
            "unknownClaims", self._active_keys, (self._base, f"{owner}:", pack([list(p) for p in known]))
        )

    def sweep(self, max_stalled: int, interval_ms: int, now: int) -> Call:
        return Call("moveStalledJobsToWait", self._sweep_keys, (max_stalled, self._base, now, interval_ms))

    # --- what a processor does with its job ---------------------------------------------------------

    def progress(self, job_id: str, progress: bytes) -> Call:
        keys = (self.keys.job(job_id), self.keys.key("events"), self.keys.key("meta"))
        return Call("updateProgress", keys, (job_id, progress))

    def log(self, job_id: str, row: str, keep: int | None) -> Call:
        keys = (self.keys.job(job_id), self.keys.logs(job_id))
        return Call("addLog", keys, (job_id, codec.to_wire(row), "" if keep is None else keep))

    def update_data(self, job_id: str, data: bytes) -> Call:
        return Call("updateData", (self.keys.job(job_id),), (data,))

    # --- reading -----------------------------------------------------------------------------------

    def state(self, job_id: str) -> Call:
        return Call("getStateV2", tuple(map(self.keys.key, STATE_KEYS)), (job_id,))

    def is_finished(self, job_id: str) -> Call:
        keys = (self.keys.key("completed"), self.keys.key("failed"), self.keys.job(job_id))
        return Call("isFinished", keys, (job_id, "1"))

    def counts(self, names: Sequence[str]) -> Call:
        return Call("getCounts", self._base_keys, tuple("wait" if n == "waiting" else n for n in names))


RECOVER_BATCH = 1_000  # jobs given back by one call; the server does nothing else meanwhile
STATE_KEYS = (
    "completed",
    "failed",
    "delayed",
    "active",
    "wait",
    "paused",
    "waiting-children",
    "prioritized",
)
ALL_STATES = (
    "active",
    "completed",
    "delayed",
    "failed",
    "paused",
    "prioritized",
    "waiting",
    "waiting-children",
)

_ATTEMPTS = pack_text("attempts")
_KEEP_JOBS = pack_text("keepJobs")


def keep_map(option: Any, default: KeepConfig) -> dict[str, Any]:
    """`keepJobs` from a job's removeOnComplete or removeOnFail, else from the worker's own setting."""
    if option is None:
        kept: dict[str, Any] = {"count": default.count}
        if default.age_s:
            kept["age"] = default.age_s
        if default.limit:
            kept["limit"] = default.limit
        return kept
    if isinstance(option, bool):
        return {"count": 0 if option else -1}
    if isinstance(option, int | float):
        return {"count": int(number(option))}
    if not isinstance(option, dict):
        return {"count": -1}
    # Numbers only: the script has taken the job out of `active` when it comes to use them. An age may have a fraction.
    numbers = {k: number(v) for k, v in option.items() if v == 0 or number(v)}
    return {k: v if k == "age" else int(v) for k, v in numbers.items()}


def failure_fields(reason: str | None, stack: Sequence[str] | None) -> bytes:
    """The fields that a failed attempt stores, packed; empty when there is nothing to store."""
    fields: list[str] = []
    if reason is not None:
        fields += ["failedReason", reason]
    if stack is not None:
        fields += ["stacktrace", codec.encode(list(stack)).decode()]
    return pack(fields) if fields else b""


def _plain(value: float) -> int | float:
    """12.0 as 12: the text is stored as it is sent."""
    return int(value) if value == int(value) else value
