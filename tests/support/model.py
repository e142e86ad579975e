# SPDX-License-Identifier: MIT
"""A small model of one queue in plain Python, written from the protocol page, for comparing whole keyspaces.

It knows plain, delayed and prioritized jobs, not flows, schedulers, deduplication or rate limits.
"""

from __future__ import annotations

from typing import Any

from tests.support.wire import NOW

TURN = 2**32
Job = dict[str, str]


class Model:
    """What every key of the queue holds. `wait` and `active` have the newest at the left, as on the server."""

    def __init__(self) -> None:
        self.now, self.token = NOW, "w:0"
        self.count, self.turns = 0, 0
        self.wait: list[str] = []
        self.active: list[str] = []
        self.sets: dict[str, dict[str, float]] = {
            name: {} for name in ("prioritized", "delayed", "completed", "failed", "marker")
        }
        self.stalled: set[str] = set()
        self.locks: dict[str, str] = {}
        self.meta: dict[str, str] = {}
        self.jobs: dict[str, Job] = {}
        self.events: list[str] = []

    # --- looking ---------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """As `Wire.dump` shows the queue, without the events."""
        keys: dict[str, Any] = {
            "id": str(self.count) if self.count else "",
            "pc": str(self.turns) if self.turns else "",
            "wait": self.wait,
            "active": self.active,
            "stalled": sorted(self.stalled),
            "meta": self.meta,
            **self.sets,
            **self.jobs,
            **{f"{job_id}:lock": token for job_id, token in self.locks.items()},
        }
        return {key: value for key, value in keys.items() if value}

    def ordered(self, name: str) -> list[str]:
        members = self.sets[name]
        return sorted(members, key=lambda job_id: (members[job_id], job_id))

    @property
    def blocked(self) -> bool:
        limit = self.meta.get("concurrency")
        return "paused" in self.meta or (limit is not None and len(self.active) >= int(limit))

    # --- pieces ----------------------------------------------------------------------------------

    def say(self, event: str, job_id: str, **fields: Any) -> None:
        self.events.append(" ".join([f"{event} jobId={job_id}", *(f"{k}={v}" for k, v in fields.items())]))

    def capped(self) -> None:
        self.meta.setdefault("opts.maxLenEvents", "10000")

    def wake(self) -> None:
        if not self.blocked:
            self.sets["marker"]["0"] = 0.0

    def alarm(self) -> None:
        if self.sets["delayed"]:
            self.sets["marker"]["1"] = min(self.sets["delayed"].values()) / 4096

    def push(self, job_id: str, *, front: bool = False) -> None:
        self.wait.insert(len(self.wait) if front else 0, job_id)

    def push_prioritized(self, job_id: str, priority: int) -> None:
        self.turns += 1
        self.sets["prioritized"][job_id] = float(priority * TURN + self.turns)

    def line_up(self, job_id: str, *, front: bool = False) -> None:
        """Into `wait` or `prioritized`, by the priority that the job has."""
        priority = int(self.jobs[job_id]["priority"])
        if priority:
            self.push_prioritized(job_id, priority)
        else:
            self.push(job_id, front=front)

    def file_delayed(self, job_id: str, delay: int) -> None:
        """Into `delayed`, after those of the same moment; the job's own old place is one of them."""
        due = self.now + delay
        low, high = due * 4096, due * 4096 + 4095
        same = [score for score in self.sets["delayed"].values() if low <= score <= high]
        self.sets["delayed"][job_id] = float(min(max(same) + 1, high) if same else low)
        self.jobs[job_id]["delay"] = str(delay)
        self.capped()
        self.say("delayed", job_id, delay=due)

    def promote_due(self) -> None:
        blocked, delayed = self.blocked, self.sets["delayed"]
        due = [job_id for job_id in self.ordered("delayed") if delayed[job_id] <= (self.now + 1) * 4096 - 1]
        for job_id in due:
            del delayed[job_id]
            self.line_up(job_id)
            self.say("waiting", job_id, prev="delayed")
            self.jobs[job_id]["delay"] = "0"
        if due and not blocked:
            self.sets["marker"]["0"] = 0.0

    def unlock(self, job_id: str) -> int:
        """0, or the code of a refusal."""
        held = self.locks.get(job_id)
        if held != self.token:
            return -2 if held is None else -6
        del self.locks[job_id]
        self.stalled.discard(job_id)
        return 0

    def leave_active(self, job_id: str, fields: Job) -> int:
        """The common beginning of all ends of a run."""
        if job_id not in self.jobs:
            return -1
        refused = self.unlock(job_id)
        if refused:
            return refused
        self.jobs[job_id].update(fields)
        self.active.reverse()
        found = job_id in self.active
        if found:
            self.active.remove(job_id)
        self.active.reverse()
        return 0 if found else -3

    def attempted(self, job_id: str) -> None:
        self.jobs[job_id]["atm"] = str(int(self.jobs[job_id].get("atm", 0)) + 1)

    def forget(self, job_id: str) -> None:
        self.jobs.pop(job_id, None)

    # --- verbs -----------------------------------------------------------------------------------

    def add(self, *, delay: int = 0, priority: int = 0, lifo: bool = False) -> str:
        self.count += 1
        job_id = str(self.count)
        self.capped()
        self.jobs[job_id] = {"name": "job", "data": "{}", "timestamp": str(self.now)}
        self.jobs[job_id] |= {"delay": str(delay), "priority": str(priority)}
        self.events.append(f"added jobId={job_id} name=job")
        if delay:
            self.file_delayed(job_id, delay)
            self.alarm()
            return job_id
        self.line_up(job_id, front=lifo)
        self.wake()
        self.say("waiting", job_id)
        return job_id

    def fetch(self) -> Any:
        """The job as a dict with its id, an answer without job, or None for nothing at all."""
        blocked = self.blocked
        self.promote_due()
        if blocked:
            return [0, 0, 0, 0]
        if self.wait:
            job_id = self.wait.pop()
        elif self.sets["prioritized"]:
            job_id = self.ordered("prioritized")[0]
            del self.sets["prioritized"][job_id]
        else:
            self.turns = 0
            delayed = self.sets["delayed"]
            return [0, 0, 0, int(min(delayed.values()) / 4096)] if delayed else None
        self.active.insert(0, job_id)
        self.locks[job_id] = self.token
        self.say("active", job_id, prev="waiting")
        job = self.jobs[job_id]
        job |= {"processedOn": str(self.now), "ats": str(int(job.get("ats", 0)) + 1)}
        self.sets["marker"]["0"] = 0.0
        return [dict(job), job_id, 0, 0]

    def take(self) -> Any:
        return self.fetch() or [0, 0, 0, 0]

    def finish(self, job_id: str, *, failed: bool, fetch: bool, keep: int, attempts: int) -> Any:
        refused = self.leave_active(job_id, {})
        if refused:
            return refused
        self.capped()
        self.attempted(job_id)
        made = int(self.jobs[job_id]["atm"])
        state, field, value = (
            ("failed", "failedReason", "boom") if failed else ("completed", "returnvalue", "3")
        )
        if keep:
            self._keep(job_id, state, {field: value, "finishedOn": str(self.now)}, keep)
        else:
            self.forget(job_id)
        self.say(state, job_id, **{field: value}, prev="active")
        if failed and made >= attempts:
            self.say("retries-exhausted", job_id, attemptsMade=made)
        found = self.fetch() if fetch else None
        if found:
            return found
        if not (self.wait or self.active or self.sets["prioritized"]):
            self.events.append("drained")
        return 0

    def _keep(self, job_id: str, state: str, fields: Job, keep: int) -> None:
        self.sets[state][job_id] = float(self.now)
        self.jobs[job_id].update(fields)
        if state == "failed":
            self.jobs[job_id].pop("defa", None)
        for old in self.ordered(state)[:-keep] if keep > 0 else []:
            del self.sets[state][old]
            self.forget(old)

    def retry(self, job_id: str, *, front: bool) -> int:
        self.promote_due()
        refused = self.leave_active(job_id, {"failedReason": "boom"})
        if refused:
            return refused
        self.capped()
        self.line_up(job_id, front=front)
        self.wake()
        self.attempted(job_id)
        self.say("waiting", job_id, prev="active")
        return 0

    def delay(self, job_id: str, delay: int, *, skip: bool) -> int:
        refused = self.leave_active(job_id, {})
        if refused:
            return refused
        if not skip:
            self.attempted(job_id)
        self.file_delayed(job_id, delay)
        self.alarm()
        return 0

    def release(self, job_id: str) -> int:
        refused = self.leave_active(job_id, {})
        if refused:
            return 0 if refused == -3 else refused
        self.capped()
        priority = int(self.jobs[job_id]["priority"])
        if priority:
            self.sets["prioritized"][job_id] = float(priority * TURN)
        else:
            self.push(job_id, front=True)
            self.wake()
        self.say("waiting", job_id, prev="active")
        return 0
