# SPDX-License-Identifier: MIT
"""Is the pool alive, and can work be done? Pure judgements over the supervisor's status and the queue figures.

Liveness asks one thing only: does the supervisor's loop turn. A Redis outage, a long job or a stuck worker must
not make a platform kill the container. Readiness asks whether work can be done now (cases C154, C155, C160).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

STUCK_TAKING_MS = 10_000


@dataclass(slots=True)
class TakingWatch:
    """Notices a pool that has work, free hands and a link, and takes nothing."""

    taken: float = -1
    since_ms: int = 0
    idle_hands: bool = field(default=False)

    def look(self, now_ms: int, *, taken: float, waiting: int, free: bool) -> bool:
        """True while nothing was taken for `STUCK_TAKING_MS` although jobs wait and slots are free."""
        moved = taken != self.taken
        if moved or not waiting or not free:
            self.taken, self.since_ms = taken, now_ms
            return False
        return now_ms - self.since_ms >= STUCK_TAKING_MS


def liveness(now_ms: int, beat_ms: int, hang_timeout_ms: int) -> str:
    """Empty when the supervisor's loop turns, else what is wrong. The loop beats every quarter of hang_timeout."""
    age = now_ms - beat_ms
    limit = max(1_000, hang_timeout_ms // 2)
    return "" if age <= limit else f"the supervisor's loop has not turned for {age} ms"


def readiness(status: dict[str, Any]) -> list[str]:
    """Why the pool cannot work now, one sentence each; empty = ready."""
    if not status:
        return ["no word from the supervisor yet"]
    problems = []
    if status["state"] != "running":
        problems.append(f"the pool is {status['state']}")
    for group in status["groups"]:
        problems += _group_problems(group, [c for c in status["children"] if c["group"] == group["id"]])
    return problems


def _group_problems(group: dict[str, Any], children: list[dict[str, Any]]) -> list[str]:
    """A worker group is ready when one of its processes runs and is linked; infra when all of it runs."""
    running = [c for c in children if c["state"] == "running"]
    if not group.get("dynamic"):
        return [f"{c['id']} is {c['state']}" for c in children if c["state"] not in ("running", "ignored")]
    if not running:
        return [f"group {group['id']}: no worker is ready"]
    hung = [c["id"] for c in running if c.get("stopped")]
    problems = [f"{name} is stopped or stuck" for name in hung]
    if not any(c["connected"] for c in running):
        detail = next((c["detail"] for c in running if c["detail"]), "no connection")
        problems.append(f"group {group['id']}: the server cannot be used: {detail}")
    return problems
