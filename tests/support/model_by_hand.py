# SPDX-License-Identifier: MIT
"""The model's other half: what sweeps, people and boards do to a queue."""

from __future__ import annotations

from typing import Any

from tests.support.model import TURN, Model

FIELD = {"failed": "failedReason", "completed": "returnvalue"}
PLACES = ("completed", "delayed", "failed", "prioritized")


class FullModel(Model):
    """Every verb that the machine calls."""

    def sweep(self, allowed: int) -> list[str]:
        """Guards aside: recover what was marked and has no lock, then mark what runs."""
        self.capped()
        recovered = []
        for job_id in sorted(self.stalled):
            if job_id in self.locks or job_id not in self.active:
                continue
            self.active.remove(job_id)
            job = self.jobs[job_id]
            job["stc"] = str(int(job.get("stc", 0)) + 1)
            if int(job["stc"]) > allowed:
                job["defa"] = "job stalled more than allowable limit"
            self.say("waiting", job_id, prev="active")
            self.say("stalled", job_id)
            recovered.append(job_id)
        self.wait += recovered
        if recovered:
            self.wake()
        self.stalled = set(self.active)
        return recovered

    def extend(self, job_id: str) -> list[str]:
        if self.locks.get(job_id) != self.token:
            return [job_id]
        self.stalled.discard(job_id)
        return []

    def pause(self) -> int:
        self.meta["paused"] = "1"
        self.sets["marker"].clear()
        self.events.append("paused")
        return 0

    def resume(self) -> int:
        self.meta.pop("paused", None)
        if self.wait or self.sets["prioritized"]:
            self.sets["marker"]["0"] = 0.0
        else:
            self.alarm()
        self.events.append("resumed")
        return 0

    def promote(self, job_id: str) -> int:
        if self.sets["delayed"].pop(job_id, None) is None:
            return -3
        self.line_up(job_id)
        self.wake()
        self.say("waiting", job_id, prev="delayed")
        self.jobs[job_id]["delay"] = "0"
        return 0

    def change_delay(self, job_id: str, delay: int) -> int:
        if job_id not in self.jobs:
            return -1
        if job_id not in self.sets["delayed"]:
            return -3
        self.file_delayed(job_id, delay)
        self.alarm()
        return 0

    def change_priority(self, job_id: str, priority: int, *, front: bool) -> int:
        if job_id not in self.jobs:
            return -1
        waits = self.sets["prioritized"].pop(job_id, None) is not None
        if not waits and job_id in self.wait:
            self.wait.remove(job_id)
            waits = True
        self.jobs[job_id]["priority"] = str(priority)
        if waits and priority and front:
            self.sets["prioritized"][job_id] = float(priority * TURN)
        elif waits:
            self.line_up(job_id, front=front)
            self.wake()
        return 0

    def _again(self, job_id: str, state: str, *more: str) -> None:
        del self.sets[state][job_id]
        for field in ("finishedOn", "processedOn", FIELD[state], *more):
            self.jobs[job_id].pop(field, None)

    def reprocess(self, job_id: str, state: str, *, front: bool, forget: bool) -> int:
        if job_id not in self.jobs:
            return -1
        if job_id not in self.sets[state]:
            return -3
        self._again(job_id, state, *(["atm", "ats"] if forget else []))
        self.push(job_id, front=front)
        self.wake()
        self.capped()
        self.say("waiting", job_id, prev=state)
        return 1

    def move_to_wait(self, state: str, count: int) -> int:
        ids = self.ordered(state)[:count]
        for job_id in ids:
            if state == "delayed":
                del self.sets[state][job_id]
            else:
                self._again(job_id, state)
            self.push(job_id)
            self.say("waiting", job_id, prev=state)
        if ids:
            self.capped()
            self.wake()
        return int(len(ids) >= count)

    def remove(self, job_id: str) -> int:
        if job_id in self.locks:
            return 0
        if job_id not in self.jobs:
            return 1
        self.say("removed", job_id, prev=self._take_out(job_id))
        self.capped()
        self.forget(job_id)
        return 1

    def _take_out(self, job_id: str) -> str:
        for name in PLACES:
            if self.sets[name].pop(job_id, None) is not None:
                return name
        for name in ("wait", "active"):
            ids = getattr(self, name)
            if job_id in ids:
                ids.remove(job_id)
                return name
        return "unknown"

    def clean(self, state: str, cut: int) -> list[str]:
        def moment(job_id: str) -> int:
            job = self.jobs[job_id]
            fields = {
                "wait": ("finishedOn", "processedOn", "timestamp"),
                "active": ("finishedOn", "processedOn", "timestamp"),
                "delayed": ("processedOn", "timestamp"),
                "prioritized": ("timestamp",),
            }[state]
            return int(next(job[field] for field in fields if field in job))

        place: Any = getattr(self, state) if state in ("wait", "active") else self.sets[state]
        ids = list(place) if isinstance(place, list) else self.ordered(state)
        if state in FIELD:
            old = [job_id for job_id in ids if place[job_id] <= cut]
        else:
            free = [job_id for job_id in ids if state != "active" or job_id not in self.locks]
            old = [job_id for job_id in free if moment(job_id) <= cut]
        for job_id in old:
            place.remove(job_id) if isinstance(place, list) else place.pop(job_id)
            self.forget(job_id)
        self.events.append(f"cleaned count={len(old)}")
        return old

    def drain(self, *, delayed: bool) -> None:
        gone = [*self.wait, *self.sets["prioritized"], *(self.sets["delayed"] if delayed else [])]
        for job_id in gone:
            self.forget(job_id)
        self.wait.clear()
        self.sets["prioritized"].clear()
        if delayed:
            self.sets["delayed"].clear()
