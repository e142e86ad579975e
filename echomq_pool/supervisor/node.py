# SPDX-License-Identifier: MIT
"""What all nodes of the tree share: their states, their world (time, timers, actions) and the parent's ear."""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, Protocol

from echomq_pool.supervisor.actions import Action, Reply, Result
from echomq_pool.supervisor.reason import ExitReason
from echomq_pool.supervisor.spec import NEVER_MS, Patience, Restart, Spec

LAST_GRACE_MS = 1_000  # what a child asked after the global deadline still gets …
HARD_LIMIT_MS = 2_500  # … but all of them together no longer than this

Answer = Callable[[Result], None]


class State(Enum):
    """A node's life. Allowed moves: DOWN → STARTING → RUNNING → STOPPING → DOWN; a failed start or an end leads to
    RESTARTING or DOWN; RESTARTING → STARTING or DOWN; STARTING may be stopped."""

    DOWN = "down"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    RESTARTING = "restarting"


LIVE = frozenset({State.STARTING, State.RUNNING, State.STOPPING})


class Timer:
    """One moment at which something is to be called, unless it is cancelled before."""

    __slots__ = ("at", "call")

    def __init__(self, at: int, call: Callable[[], None]) -> None:
        self.at = at
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class World:
    """What surrounds the nodes: the time of this turn, timers, actions of this turn, handles, the global stop."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 0
        self.actions: list[Action] = []
        self.live: dict[int, Any] = {}  # leaves with a process, by handle
        self.closing_ms: int | None = None  # deadline of the global stop, once there is one
        self.fast = False
        self._handles = itertools.count(1)
        self.last_handle = 0
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()

    def new_handle(self) -> int:
        """A number that no other incarnation has or will have."""
        self.last_handle = next(self._handles)
        return self.last_handle

    def emit(self, action: Action) -> None:
        self.actions.append(action)

    def take_actions(self) -> list[Action]:
        actions, self.actions = self.actions, []
        return actions

    def answer(self, ticket: int) -> Answer:
        """Something to call with the result of a request."""
        return lambda result: self.emit(Reply(ticket, result))

    def at(self, at: int, call: Callable[[], None]) -> Timer:
        timer = Timer(at, call)
        heapq.heappush(self._timers, (at, next(self._order), timer))
        return timer

    def next_deadline(self) -> int | None:
        """When the next timer is due (ms), None without timers."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def fire(self) -> None:
        """Calls what is due now. What these calls set for now waits for the next turn: a stop may come in between."""
        due = []
        while (at := self.next_deadline()) is not None and at <= self.now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            if timer.call is not None:
                timer.call()

    def deadline(self, patience: Patience, cap_ms: int) -> int:
        """When a child asked to stop now must have gone."""
        own = NEVER_MS if not isinstance(patience, int) else self.now + patience
        return min(own, cap_ms, self.global_cap())

    def global_cap(self) -> int:
        """Deadline of the global stop. Those whose turn comes after it get a last second, to finish the books."""
        if self.closing_ms is None:
            return NEVER_MS
        return min(max(self.closing_ms, self.now + LAST_GRACE_MS), self.closing_ms + HARD_LIMIT_MS)


class Parent(Protocol):
    """What a node tells its parent. After `start` exactly one of the first three; later `ended` or `stopped`."""

    id: str

    def child_started(self, node: Node) -> None: ...
    def child_ignored(self, node: Node) -> None: ...
    def child_failed(self, node: Node, cause: str, final: bool, forked: bool = True) -> None: ...
    def child_ended(self, node: Node, reason: ExitReason) -> None: ...
    def child_stopped(self, node: Node, reason: ExitReason) -> None: ...
    def child_closing(self, node: Node) -> None: ...


class Node(ABC):
    """A child of a group: a process (`Leaf`) or a group."""

    kind = ""

    def __init__(self, world: World, parent: Parent, spec: Spec) -> None:
        self.world = world
        self.parent = parent
        self.id = spec.id
        self.state = State.DOWN
        self.handle = 0  # of the current or last incarnation
        self.info: Any = None
        self.asked = ""  # "start" or "restart": an operator waits for this start
        self.was_up = False
        self.retired = False  # leaves the group when it has stopped
        self.up_since = 0
        self.failures = 0  # restarts in a row; decides the back-off
        self.restarts = 0
        self.last: ExitReason | None = None
        self.last_failure = ""
        self.restart_at = 0
        self.timer: Timer | None = None
        self.starters: list[Answer] = []
        self.stoppers: list[Answer] = []

    @property
    @abstractmethod
    def restart(self) -> Restart: ...

    @property
    @abstractmethod
    def significant(self) -> bool: ...

    @property
    @abstractmethod
    def stop_first(self) -> bool: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self, why: str, *, patience: Patience | None = None, cap_ms: int = NEVER_MS) -> None: ...

    @abstractmethod
    def offender(self) -> dict[str, Any]:
        """Who this is, for reports."""

    @property
    def live(self) -> bool:
        return self.state in LIVE

    def restart_later(self, at: int, call: Callable[[], None] | None) -> None:
        """Marks the node as restarting; `call` (if any) happens at that time."""
        self.state = State.RESTARTING
        self.restart_at = at
        self.set_timer(at, call)

    def stay_down(self) -> None:
        """Gives up a pending restart."""
        self.set_timer(0, None)
        self.state = State.DOWN

    def set_timer(self, at: int, call: Callable[[], None] | None) -> None:
        """The node has one timer at most: a new one (or None) replaces it."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.world.at(at, call) if call is not None else None

    def came_up(self) -> None:
        """Notes the ack and tells those who waited for it."""
        self.state = State.RUNNING
        self.was_up = True
        self.up_since = self.world.now
        self.set_timer(0, None)
        self.tell_starters(Result(self.handle, detail=str(self.info or "")))

    def tell_starters(self, result: Result) -> None:
        waiting, self.starters = self.starters, []
        for answer in waiting:
            answer(result)

    def tell_stoppers(self, result: Result) -> None:
        waiting, self.stoppers = self.stoppers, []
        for answer in waiting:
            answer(result)
