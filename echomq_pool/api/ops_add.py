# SPDX-License-Identifier: MIT
"""Adding jobs: the operations of `Queue.add` and `Queue.add_bulk`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from echomq_pool.api.ask import Ask, Base, Op, ask_script
from echomq_pool.api.options import check_job
from echomq_pool.errors import InputError
from echomq_pool.plane import adding, codec
from echomq_pool.plane.adding import NewJob
from echomq_pool.plane.codes import check
from echomq_pool.plane.job_record import JobRecord, long_opts

BULK = 1_000  # adds that travel in one write
TOGETHER = 50  # plain jobs that one script adds: it then holds the server for half a millisecond

Added = tuple[str, NewJob]
Tell = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class AddOps(Base):
    """`defaults`: options of every job of this producer, which a job's own override (Node: defaultJobOptions)."""

    defaults: Mapping[str, Any] = {}

    def add(self, name: str, data: Any, options: Mapping[str, Any]) -> Op[Added]:
        job = check_job(name, data, self._with_defaults(options), self._clock.now_ms())
        (reply,) = yield [self._add(job)]
        return added_id(reply, job), job

    def add_bulk(self, jobs: Iterable[Any], tell: Tell = lambda options: options) -> Op[list[Added]]:
        """All are checked before the first is sent; the first error reply ends it. `tell` adds to a job's options."""
        now = self._clock.now_ms()
        checked = [self._bulk_entry(index, job, now, tell) for index, job in enumerate(jobs)]
        added: list[Added] = []
        for start in range(0, len(checked), BULK):
            groups = together(checked[start : start + BULK])
            replies = yield [self._add_group(group) for group in groups]
            for reply, group in zip(replies, groups, strict=True):
                added += zip(_ids(reply, group), group, strict=True)
        return added

    def _add_group(self, group: list[NewJob]) -> Ask:
        return self._add(group[0]) if len(group) == 1 else ask_script(adding.add_many(self.keys, group))

    def _add(self, job: NewJob) -> Ask:
        return Ask(adding.add(self.keys, job), repeat=bool(job.job_id))

    def _with_defaults(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return merged(self.defaults, options)

    def _bulk_entry(self, index: int, job: Any, now: int, tell: Tell) -> NewJob:
        """One entry of add_bulk: `{"name": …, "data": …, "opts": {…}}` or (name, data[, options])."""
        try:
            if isinstance(job, Mapping):
                extra = set(job) - {"name", "data", "opts"}
                if extra:
                    raise InputError(f"{sorted(extra)[0]}: expected only name, data and opts")
                options = self._with_defaults(job.get("opts") or {})
                return check_job(job.get("name"), job.get("data"), tell(options), now)
            name, data, *rest = job
            return check_job(name, data, tell(self._with_defaults(rest[0] if rest else {})), now)
        except InputError as error:
            raise InputError(f"job {index}: {error}") from None
        except (TypeError, ValueError):
            raise InputError(f"job {index}: expected a dict or (name, data, options), got {job!r}") from None


def merged(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """`options` over `defaults`; None means "not given"."""
    return {**defaults, **{name: value for name, value in options.items() if value is not None}}


def together(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    """`jobs` in the same order, neighbours that one script may add in one list."""
    groups: list[list[NewJob]] = []
    before = False
    for job in jobs:
        plain = adding.is_plain(job)
        if plain and before and len(groups[-1]) < TOGETHER:
            groups[-1].append(job)
        else:
            groups.append([job])
        before = plain
    return groups


def _ids(reply: Any, group: Sequence[NewJob]) -> list[str]:
    """The ids of the jobs of one request, by its reply."""
    if len(group) == 1:
        return [added_id(reply, group[0])]
    return [str(number) for number in range(reply, reply + len(group))]


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
    if job.parent is not None:
        record.parent_key = job.parent.key
        record.parent = {"id": job.parent.id, "queueKey": job.parent.queue}
    return record
