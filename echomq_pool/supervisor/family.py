# SPDX-License-Identifier: MIT
"""The processes that exist: who they are, where they sit on the board, what is known of their end so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel
from echomq_pool.ipc.messages import Down, Linked, Ready, Up
from echomq_pool.supervisor.reason import ExitReason, Why
from echomq_pool.supervisor.spec import ChildSpec
from echomq_pool.supervisor.status import Evidence, WaitStatus


@dataclass(eq=False, slots=True)
class Member:
    """One living (or not yet reaped) child."""

    handle: int
    spec: ChildSpec
    group: str
    slot: int
    pid: int
    pidfd: int
    channel: Channel
    started_ms: int
    ready: Ready | None = None
    linked: Linked | None = None
    client_ids: list[int] = field(default_factory=list)
    expired: list[list[str]] = field(default_factory=list)
    asked: bool = False
    unhurried_ms: int = 0  # asked to leave then, without a deadline; 0: not so
    killed: bool = False
    aborted: bool = False
    why: Why | None = None
    bye: str | None = None
    abort_ms: int = 0  # SIGABRT was sent then; SIGKILL follows
    writing: bool = False  # its socket is watched for writing: something waits in the outbox

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def worker_id(self) -> str:
        return "" if self.ready is None else self.ready.worker_id

    def evidence(self, oom: bool) -> Evidence:
        return Evidence(
            self.ready is not None, self.asked, self.why, self.killed, self.aborted, self.bye, oom
        )

    def up(self) -> Up:
        """What the lock manager must know of a living worker."""
        assert self.ready is not None
        return Up(self.worker_id, self.slot, self.pid, list(self.ready.queues), self.client_ids)

    def down(self, reason: ExitReason, end: WaitStatus) -> Down:
        """What the lock manager must know of a dead one."""
        assert self.ready is not None
        return Down(
            self.worker_id, self.slot, list(self.ready.queues), self.client_ids,
            reason.hands_back, reason.text, self.expired, end.peak_bytes,
        )  # fmt: skip


class Family:
    """All members by handle, and the places on the board."""

    def __init__(self, board: Board) -> None:
        self.members: dict[int, Member] = {}
        self.buried: dict[str, Down] = {}  # dead workers that the lock manager has not dealt with yet
        self._board = board
        self._taken: set[int] = {0}
        self._named: dict[str, Member | None] = {}  # what `named` has found; every forwarded frame asks

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self.members.values()))

    def add(self, member: Member) -> None:
        self.members[member.handle] = member

    def acked(self, member: Member, ready: Ready) -> None:
        """It is up."""
        member.ready = ready
        self._named.clear()

    def take_slot(self) -> int | None:
        """The lowest free place, None when the board is full."""
        for slot in range(1, self._board.slots):
            if slot not in self._taken:
                self._taken.add(slot)
                return slot
        return None

    def free_slot(self, slot: int) -> None:
        self._taken.discard(slot)

    def by_pid(self, pid: int) -> Member | None:
        return next((m for m in self.members.values() if m.pid == pid), None)

    def by_worker_id(self, worker_id: str) -> Member | None:
        return next((m for m in self.members.values() if worker_id and m.worker_id == worker_id), None)

    def by_slot(self, slot: int) -> Member | None:
        return next((m for m in self.members.values() if m.slot == slot), None)

    def named(self, name: str) -> Member | None:
        """The newest member of that id that has acked."""
        if name not in self._named:
            found = [m for m in self.members.values() if m.id == name and m.ready is not None]
            self._named[name] = found[-1] if found else None
        return self._named[name]

    def workers(self) -> list[Member]:
        """Those that run jobs: they said so in their ack."""
        return [m for m in self.members.values() if m.worker_id]

    def remove(self, member: Member, down: Down | None) -> None:
        """A dead member leaves. Its slot is free at once unless the lock manager may still write there."""
        self.members.pop(member.handle, None)
        self._named.clear()
        if down is None:
            self.free_slot(member.slot)
        else:
            self.buried[down.worker_id] = down

    def recovered(self, worker_id: str) -> Down | None:
        """The lock manager has dealt with a dead worker."""
        down = self.buried.pop(worker_id, None)
        if down is not None:
            self.free_slot(down.slot)
        return down


def child_row(member: Member, state: str, restarts: int, busy: int, now_ms: int) -> dict[str, Any]:
    """One line of `status`."""
    linked = member.linked
    return {
        "id": member.id,
        "group": member.group,
        "pid": member.pid,
        "slot": member.slot,
        "state": state,
        "restarts": restarts,
        "busy": busy,
        "connected": linked is not None and linked.connected,
        "detail": "" if linked is None else linked.detail,
        "generation": member.spec.generation,
        "age_s": (now_ms - member.started_ms) // 1000,
    }
