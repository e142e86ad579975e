# SPDX-License-Identifier: MIT
"""What may be done with one job by anybody: its producer, an operator, its own processor, its parent.

Transitions that only its holder may make go through the plane (`plane/base.py`), which resolves lost replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from echomq_pool.api.ask import Ask, Base, Op, ask_read, ask_script
from echomq_pool.api.job_view import JobView
from echomq_pool.api.ops_look import decode_value
from echomq_pool.api.options import check_delay, check_priority
from echomq_pool.errors import InputError, JobLocked, JobMissing, LeaseLost
from echomq_pool.plane import codec, upkeep
from echomq_pool.plane.codes import Code, check, error_of
from echomq_pool.plane.job_record import JobRecord

KINDS = ("processed", "unprocessed", "ignored", "failed")  # of a parent's children


@dataclass(frozen=True, slots=True)
class Dependencies:
    """A parent's children by what became of them; the full key of a child's hash is its name here.

    processed: completed, with their return values. unprocessed: neither completed nor failed for good.
    ignored: failed under ignore- or continue-on-failure, with their reasons. failed: failed, and the parent with them.
    """

    processed: dict[str, Any]
    unprocessed: list[str]
    ignored: dict[str, str]
    failed: list[str]


class JobOps(Base):
    """Operations take the job as its owner sees it, and leave its fields as they are on the server afterwards."""

    # --- what it says ---------------------------------------------------------------------------------

    def load(self, job: JobView) -> Op[JobRecord | None]:
        (flat,) = yield [ask_read("HGETALL", self.keys.job(job.id))]
        return JobRecord.from_flat(job.id, flat) if flat else None

    def refresh(self, job: JobView) -> Op[bool]:
        record = yield from self.load(job)
        if record is not None:
            job.show(record)
        return record is not None

    def update_progress(self, job: JobView, progress: Any) -> Op[None]:
        (reply,) = yield [ask_script(self._calls.progress(job.id, codec.encode(progress)))]
        check(reply, job.id, "update the progress of")
        job.record.progress = progress

    def update_data(self, job: JobView, data: Any) -> Op[None]:
        raw = codec.encode(data)
        (reply,) = yield [ask_script(self._calls.update_data(job.id, raw))]
        check(reply, job.id, "update the data of")
        job.record.data = raw
        job.show(job.record)

    def log(self, job: JobView, row: str) -> Op[int]:
        keep = job.opts.get("keepLogs")
        call = self._calls.log(job.id, str(row), keep if isinstance(keep, int) else None)
        (reply,) = yield [ask_script(call)]
        check(reply, job.id, "log for")
        return int(reply)

    def clear_logs(self, job: JobView, keep: int = 0) -> Op[None]:
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
            raise InputError(f"keep: expected a whole number from 0, got {keep!r}")
        key = self.keys.logs(job.id)
        yield [ask_read("LTRIM", key, -keep, -1) if keep else ask_read("DEL", key)]

    # --- where it is ------------------------------------------------------------------------------------

    def promote(self, job: JobView) -> Op[None]:
        (reply,) = yield [ask_script(upkeep.promote(self.keys, job.id))]
        yield from self.checked(reply, job.id, "promote", "delayed")
        job.record.delay = 0

    def change_delay(self, job: JobView, delay_ms: float) -> Op[None]:
        delay = check_delay("delay_ms", delay_ms)
        (reply,) = yield [ask_script(upkeep.change_delay(self.keys, job.id, delay, self._clock.now_ms()))]
        yield from self.checked(reply, job.id, "change the delay of", "delayed")
        job.record.delay = delay

    def change_priority(self, job: JobView, priority: int = 0, *, lifo: bool = False) -> Op[None]:
        wanted = check_priority("priority", priority)
        (reply,) = yield [ask_script(upkeep.change_priority(self.keys, job.id, wanted, lifo))]
        check(reply, job.id, "change the priority of")
        job.record.priority = wanted

    def retry(
        self,
        job: JobView,
        state: str = "failed",
        *,
        reset_attempts_made: bool = False,
        reset_attempts_started: bool = False,
    ) -> Op[None]:
        if state not in ("failed", "completed"):
            raise InputError(f"retry: expected 'failed' or 'completed', got {state!r}")
        call = upkeep.reprocess(
            self.keys, job.id, state, job.record.lifo, reset_attempts_made, reset_attempts_started
        )
        (reply,) = yield [ask_script(call)]
        yield from self.checked(reply, job.id, "retry", state)
        record = job.record
        record.finished_on = record.processed_on = None
        record.failed_reason = None if state == "failed" else record.failed_reason
        record.returnvalue = None if state == "completed" else record.returnvalue
        record.atm = 0 if reset_attempts_made else record.atm
        record.ats = 0 if reset_attempts_started else record.ats

    def remove(self, job: JobView, *, remove_children: bool = True) -> Op[None]:
        (reply,) = yield [ask_script(upkeep.remove(self.keys, job.id, remove_children))]
        if reply == Code.SCHEDULER_JOB:
            raise error_of(reply, job.id, "remove")
        if reply == 0:
            raise locked(job.id, remove_children)

    def extend_lock(self, job: JobView, token: str | None, duration_ms: int) -> Op[None]:
        held = token or job.token
        if not held:
            raise InputError(f"job {job.id} is not held by this process")
        if isinstance(duration_ms, bool) or not isinstance(duration_ms, int) or duration_ms < 1:
            raise InputError(f"duration_ms: expected a whole number from 1, got {duration_ms!r}")
        (reply,) = yield [ask_script(upkeep.extend_lock(self.keys, job.id, held, duration_ms))]
        if not reply:
            text = f"cannot extend the lock of job {job.id}: it is gone, or belongs to another worker"
            raise LeaseLost(text, job_id=job.id, code=Code.NO_LOCK)

    def remove_deduplication_key(self, job: JobView) -> Op[bool]:
        if not job.record.deid:
            return False
        (reply,) = yield [ask_script(upkeep.release_dedup(self.keys, job.record.deid, job.id))]
        return bool(reply)

    # --- its children ---------------------------------------------------------------------------------

    def get_children_values(self, job: JobView) -> Op[dict[str, Any]]:
        (flat,) = yield [self._processed(job)]
        return values_of(flat)

    def get_ignored_children_failures(self, job: JobView) -> Op[dict[str, str]]:
        (flat,) = yield [ask_read("HGETALL", self.keys.failed(job.id))]
        return texts_of(flat)

    def get_failed_children(self, job: JobView) -> Op[list[str]]:
        (keys,) = yield [ask_read("ZRANGE", self.keys.unsuccessful(job.id), 0, -1)]
        return [codec.to_text(key) for key in keys]

    def get_dependencies(self, job: JobView) -> Op[Dependencies]:
        processed, pending, ignored, failed = yield [
            self._processed(job),
            ask_read("SMEMBERS", self.keys.dependencies(job.id)),
            ask_read("HGETALL", self.keys.failed(job.id)),
            ask_read("ZRANGE", self.keys.unsuccessful(job.id), 0, -1),
        ]
        return Dependencies(
            values_of(processed),
            sorted(codec.to_text(key) for key in pending),
            texts_of(ignored),
            [codec.to_text(key) for key in failed],
        )

    def get_dependencies_page(self, job: JobView, kind: str, cursor: int, count: int) -> Op[tuple[int, Any]]:
        """(cursor of the next page, 0 when this was the last; items: a dict or a list, as in Dependencies)."""
        _kind(kind)
        if kind == "failed":
            key = self.keys.unsuccessful(job.id)
            (keys,) = yield [ask_read("ZRANGE", key, cursor, cursor + count - 1)]
            following = cursor + count if len(keys) == count else 0
            return following, [codec.to_text(found) for found in keys]
        if kind == "unprocessed":
            key = self.keys.dependencies(job.id)
            (reply,) = yield [ask_read("SSCAN", key, cursor, "COUNT", count)]
            return int(reply[0]), [codec.to_text(found) for found in reply[1]]
        key = self.keys.processed(job.id) if kind == "processed" else self.keys.failed(job.id)
        (reply,) = yield [ask_read("HSCAN", key, cursor, "COUNT", count)]
        return int(reply[0]), values_of(reply[1]) if kind == "processed" else texts_of(reply[1])

    def get_dependencies_count(self, job: JobView, *kinds: str) -> Op[dict[str, int]]:
        wanted = list(kinds) or list(KINDS)
        for kind in wanted:
            _kind(kind)
        (sizes,) = yield [ask_script(upkeep.dependency_counts(self.keys, job.id, wanted))]
        return dict(zip(wanted, map(int, sizes), strict=True))

    def remove_unprocessed_children(self, job: JobView) -> Op[None]:
        yield [ask_script(upkeep.remove_unprocessed(self.keys, job.id))]

    def remove_child_dependency(self, job: JobView) -> Op[bool]:
        if not job.record.parent_key:
            return False
        (reply,) = yield [ask_script(upkeep.detach(self.keys, job.id, job.record.parent_key))]
        if reply == Code.NO_PARENT:
            text = f"cannot detach job {job.id}: its parent {job.record.parent_key} does not exist"
            raise JobMissing(text, job_id=job.id, code=int(reply))
        check(reply, job.id, "detach")
        if reply == 0:
            job.record.parent_key = job.record.parent = None
        return bool(reply == 0)

    def _processed(self, job: JobView) -> Ask:
        return ask_read("HGETALL", self.keys.processed(job.id))


def locked(job_id: str, children: bool) -> JobLocked:
    """The refusal to remove what is being processed."""
    why = "it or one of its children is being processed" if children else "it is being processed"
    return JobLocked(f"cannot remove job {job_id}: {why}", job_id=job_id, code=0, found="active")


def values_of(flat: Any) -> dict[str, Any]:
    """A hash of JSON texts."""
    pairs = zip(flat[::2], flat[1::2], strict=False)
    return {codec.to_text(key): decode_value(value) for key, value in pairs}


def texts_of(flat: Any) -> dict[str, str]:
    """A hash of plain texts."""
    pairs = zip(flat[::2], flat[1::2], strict=False)
    return {codec.to_text(key): codec.to_text(value) for key, value in pairs}


def _kind(kind: str) -> None:
    if kind not in KINDS:
        raise InputError(f"children: expected one of {', '.join(KINDS)}, got {kind!r}")
