# SPDX-License-Identifier: MIT
"""Looking at a queue: jobs, counts, logs, metrics, workers, and whether a job is finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from echomq_pool.api.ask import Base, Op, ask_read, ask_script, text_id
from echomq_pool.errors import InputError, JobFailed, JobMissing
from echomq_pool.plane import codec, upkeep
from echomq_pool.plane.calls import ALL_STATES
from echomq_pool.plane.codes import Code, error_of
from echomq_pool.plane.job_record import JobRecord, number

COUNTED = tuple(name for name in ALL_STATES if name != "paused")
PENDING = ("waiting", "delayed", "prioritized", "waiting-children")


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """Finished jobs per minute, as workers with metrics switched on store them.

    `points`: one number per minute, the newest first. `count`: jobs ever counted. `prev_ts`: wall ms of the last
    point. `total`: how many points are stored.
    """

    count: int
    prev_ts: int
    prev_count: int
    points: list[int]
    total: int


class LookOps(Base):
    """Reads only; may be repeated."""

    def load(self, job_id: str) -> Op[JobRecord | None]:
        (flat,) = yield [ask_read("HGETALL", self.keys.job(text_id(job_id)))]
        return JobRecord.from_flat(job_id, flat) if flat else None

    def jobs(self, states: str | Sequence[str], start: int, end: int, asc: bool) -> Op[list[JobRecord]]:
        names = _lists(self._states(states) or list(COUNTED))
        (groups,) = yield [ask_script(upkeep.jobs(self.keys, names, start, end, asc))]
        return [JobRecord.from_flat(codec.to_text(i), flat) for group in groups for i, flat in group]

    def logs(self, job_id: str, start: int, end: int, asc: bool = True) -> Op[list[str]]:
        if not asc:
            start, end = -(end + 1), -(start + 1)
        (rows,) = yield [ask_read("LRANGE", self.keys.logs(text_id(job_id)), start, end)]
        texts = [codec.to_text(row) for row in rows]
        return texts if asc else texts[::-1]

    def log_count(self, job_id: str) -> Op[int]:
        (length,) = yield [ask_read("LLEN", self.keys.logs(text_id(job_id)))]
        return int(length)

    def counts(self, states: Sequence[str]) -> Op[dict[str, int]]:
        """Sizes by state. `waiting` includes what an older client parked in `paused`."""
        wanted = self._states(states) or list(COUNTED)
        (sizes,) = yield [ask_script(self._calls.counts([*wanted, "paused"]))]
        found = dict(zip(wanted, sizes, strict=False))
        if "waiting" in found:
            found["waiting"] += sizes[-1]
        return found

    def count(self) -> Op[int]:
        found = yield from self.counts(PENDING)
        return sum(found.values())

    def counts_per_priority(self, priorities: Sequence[int]) -> Op[dict[int, int]]:
        wanted = list(dict.fromkeys(priorities))
        for priority in wanted:
            if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority < 2**21:
                raise InputError(f"priority: expected a whole number from 0 to {2**21 - 1}, got {priority!r}")
        if not wanted:
            return {}
        (sizes,) = yield [ask_script(upkeep.counts_per_priority(self.keys, wanted))]
        return dict(zip(wanted, map(int, sizes), strict=True))

    def metrics(self, kind: str, start: int, end: int) -> Op[QueueMetrics]:
        if kind not in ("completed", "failed"):
            raise InputError(f"metrics: expected 'completed' or 'failed', got {kind!r}")
        (reply,) = yield [ask_script(upkeep.metrics(self.keys, kind, start, end))]
        (count, stamp, before), points, total = reply
        return QueueMetrics(
            int(number(count)),
            int(number(stamp)),
            int(number(before)),
            [int(number(p)) for p in points],
            int(total),
        )

    def prometheus(self, labels: Mapping[str, str]) -> Op[str]:
        """Sizes and totals as Prometheus text, under BullMQ's names."""
        sizes = yield from self.counts(())
        totals = {}
        for kind in ("completed", "failed"):
            totals[kind] = (yield from self.metrics(kind, 0, 0)).count
        return prometheus_text(self.keys.wire_name, sizes, totals, labels)

    def clients(self, role: str) -> Op[list[dict[str, str]]]:
        """Connections whose names say that they work this queue ("w") or read its events ("qe")."""
        (text,) = yield [ask_read("CLIENT", "LIST")]
        plain = self.keys.worker_client_name()
        found = []
        for line in codec.to_text(text).splitlines():
            fields = dict(part.split("=", 1) for part in line.split(" ") if "=" in part)
            name = fields.get("name", "")
            mine = name == f"{plain}:qe" if role == "qe" else name == plain or name.startswith(f"{plain}:w:")
            if mine:
                found.append({**fields, "rawname": name, "name": self.keys.wire_name})
        return found

    def meta(self) -> Op[dict[str, str]]:
        (flat,) = yield [ask_read("HGETALL", self.keys.key("meta"))]
        texts = [codec.to_text(item) for item in flat]
        return dict(zip(texts[::2], texts[1::2], strict=False))

    # --- waiting for a job's end -----------------------------------------------------------------------

    def position(self) -> Op[str]:
        """The last entry of the event stream: what comes later is read from there."""
        (last,) = yield [ask_read("XREVRANGE", self.keys.key("events"), "+", "-", "COUNT", 1)]
        return codec.to_text(last[0][0]) if last else "0-0"

    def since(self, position: str) -> Op[list[Any]]:
        """All entries of the event stream after a position, (id, flat fields) each."""
        (entries,) = yield [ask_read("XRANGE", self.keys.key("events"), f"({position}", "+")]
        return list(entries or [])

    def finished(self, job_id: str) -> Op[tuple[bool, Any]]:
        """(finished, return value).

        Raises:
            JobMissing: there is no such job (any more).
            JobFailed: it failed.
        """
        (reply,) = yield [ask_script(self._calls.is_finished(text_id(job_id)))]
        code = int(reply[0])
        if code == -1:
            raise error_of(Code.MISSING, job_id, "wait for")
        if code == 2:
            raise JobFailed(codec.to_text(reply[1]), job_id=job_id)
        return (True, decode_value(reply[1])) if code == 1 else (False, None)

    @staticmethod
    def _states(states: str | Sequence[str]) -> list[str]:
        """Each once, `wait` as the `waiting` that it is."""
        given = [states] if isinstance(states, str) else list(states)
        wanted = list(dict.fromkeys("waiting" if name == "wait" else name for name in given))
        unknown = [name for name in wanted if name not in ALL_STATES]
        if unknown:
            raise InputError(f"there is no state {unknown[0]!r}; known are {', '.join(ALL_STATES)}")
        return wanted


def _lists(states: Sequence[str]) -> list[str]:
    """The keys that hold these states; what an older client parked in `paused` is waiting, too."""
    names = [key for name in states for key in (("wait", "paused") if name == "waiting" else (name,))]
    return list(dict.fromkeys(names))


def prometheus_text(
    queue_name: str, sizes: Mapping[str, int], totals: Mapping[str, int], labels: Mapping[str, str]
) -> str:
    """Sizes by state and totals by outcome, as BullMQ names them for Prometheus."""
    extra = "".join(f', {name}="{_escaped(value)}"' for name, value in labels.items())
    queue = f'queue="{_escaped(queue_name)}"'
    rows = ["# HELP bullmq_job_count Number of jobs in the queue by state", "# TYPE bullmq_job_count gauge"]
    rows += [f'bullmq_job_count{{{queue}, state="{state}"{extra}}} {n}' for state, n in sizes.items()]
    for kind, total in totals.items():
        name = f"bullmq_job_{kind}_total"
        rows += [f"# HELP {name} Total number of {kind} jobs", f"# TYPE {name} counter"]
        rows.append(f"{name}{{{queue}{extra}}} {total}")
    return "\n".join(rows) + "\n"


def _escaped(label: str) -> str:
    return str(label).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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
