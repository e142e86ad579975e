# SPDX-License-Identifier: MIT
"""A world without processes for the supervision tree: a clock moved by hand, children that follow scripts."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from echomq_pool.supervisor.actions import Action, AskStop, Finished, Kill, Reply, Result, Spawn
from echomq_pool.supervisor.reason import SHUTDOWN, ExitReason, Why
from echomq_pool.supervisor.report import Report
from echomq_pool.supervisor.spec import Backoff, ChildSpec, GroupSpec, Restart, Strategy
from echomq_pool.supervisor.tree import Tree

CRASH = ExitReason(Why.CRASH, code=1)
NORMAL = ExitReason(Why.NORMAL)
KILL = ExitReason(Why.SIGNAL, signal=9)
KILLED = ExitReason(Why.KILLED, signal=9)
AT_ONCE = Backoff(0, 0, 0)


@dataclass
class Script:
    """How a child behaves. `starts`: one word per start, the last one for ever: ok, error, final, ignore, die, silent,
    nofork, wait (the test decides). `stop`: ms until it leaves when asked, or None: deaf."""

    starts: list[str] = field(default_factory=lambda: ["ok"])
    stop: int | None = 0
    reason: ExitReason = SHUTDOWN
    start_ms: int = 0
    info: Any = None


class Fake:
    """Runs a tree against scripted children. `log` holds (what, id) in order: start, up, ask, kill, abort, exit."""

    def __init__(self, root: GroupSpec, scripts: dict[str, Script] | None = None, **options: Any) -> None:
        self.tree = Tree(root, rng=Random(7), **options)
        self.scripts = scripts or {}
        self.now = 0
        self.alive: dict[int, ChildSpec] = {}
        self.log: list[tuple[str, str]] = []
        self.reports: list[Report] = []
        self.replies: dict[int, Result] = {}
        self.finished: Finished | None = None
        self.asks: list[AskStop] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._tickets = itertools.count(1)
        self._starts: dict[str, int] = {}
        self.most_alive = 0
        self.asked: dict[int, tuple[object, ...]] = {}  # by ticket
        self.unborn: set[int] = set()  # spawned, but the fork will be reported as failed

    # --- time ---

    def later(self, ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + ms, next(self._order), call))

    def advance(self, ms: int = 0) -> Fake:
        """Lets that much time pass; everything due happens in its order."""
        end = self.now + ms
        for _ in range(20_000):
            at = self._events[0][0] if self._events else None
            tick = self.tree.next_deadline()
            due = min((t for t in (at, tick) if t is not None), default=None)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            if at is not None and at <= self.now:
                heapq.heappop(self._events)[2]()
            else:
                self.do(self.tree.tick(self.now))
        else:
            raise AssertionError(f"endless: {self.log[-12:]}")
        self.now = end
        return self

    # --- what the tree wants ---

    def do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Spawn):
                self._spawn(action)
            elif isinstance(action, AskStop):
                self._ask(action)
            elif isinstance(action, Kill):
                self._kill(action)
            elif isinstance(action, Report):
                self.reports.append(action)
            elif isinstance(action, Reply):
                assert action.ticket not in self.replies, "answered twice"
                self.replies[action.ticket] = action.result
            else:
                assert self.finished is None
                self.finished = action

    def script(self, child_id: str) -> Script:
        found = self.scripts.get(child_id) or self.scripts.get(child_id.rpartition("-")[0])
        return found or self.scripts.setdefault("*", Script())

    def _spawn(self, action: Spawn) -> None:
        child, handle = action.spec.id, action.handle
        script = self.script(child)
        key = child if child in self.scripts else child.rpartition("-")[0]
        count = self._starts[key] = self._starts.get(key, 0) + 1
        word = script.starts[min(count, len(script.starts)) - 1]
        self.log.append(("start", child))
        if word == "nofork":
            self.unborn.add(handle)
            return self.later(0, lambda: self.do(self.tree.fork_failed(self.now, handle, "EAGAIN")))
        self.alive[handle] = action.spec
        self.most_alive = max(self.most_alive, len(self.alive))
        return self._first_frame(handle, word, script)

    def _first_frame(self, handle: int, word: str, script: Script) -> None:
        ms = script.start_ms
        if word == "ok":
            self.later(ms, lambda: self.ack(handle, script.info))
        elif word in ("error", "final"):
            self.later(ms, lambda: self.fail(handle, final=word == "final"))
        elif word == "ignore":
            self.later(ms, lambda: self.ignore(handle))
        elif word == "die":
            self.later(
                ms, lambda: self.end(handle, ExitReason(Why.BOOT_FAILED, detail="died before its ack"))
            )

    def ack(self, handle: int, info: Any = None) -> None:
        if handle in self.alive:
            self.log.append(("up", self.alive[handle].id))
            self.do(self.tree.acked(self.now, handle, info))

    def fail(self, handle: int, cause: str = "no such module", final: bool = False) -> None:
        if handle in self.alive:
            self.do(self.tree.start_failed(self.now, handle, cause, final))
            self.end(handle, ExitReason(Why.BOOT_FAILED, code=13))

    def ignore(self, handle: int) -> None:
        if handle in self.alive:
            self.do(self.tree.ignored(self.now, handle))
            self.end(handle, NORMAL)

    def _ask(self, action: AskStop) -> None:
        if action.handle in self.unborn:
            return
        assert action.handle in self.alive, "a child that is gone was asked to stop"
        self.asks.append(action)
        child = self.alive[action.handle].id
        self.log.append(("ask", child))
        script = self.script(child)
        if script.stop is not None:
            self.later(script.stop, lambda: self.end(action.handle, script.reason))

    def _kill(self, action: Kill) -> None:
        if action.handle in self.unborn:
            return
        assert action.handle in self.alive, "a child that is gone got a signal"
        self.log.append((action.how, self.alive[action.handle].id))
        if action.how == "kill":
            self.later(0, lambda: self.end(action.handle, KILLED))

    # --- what happens to children ---

    def end(self, handle: int, reason: ExitReason = CRASH) -> None:
        spec = self.alive.pop(handle, None)
        if spec is not None:
            self.log.append(("exit", spec.id))
            self.do(self.tree.exited(self.now, handle, reason))

    def crash(self, child_id: str, reason: ExitReason = CRASH) -> Fake:
        """Ends a running child and lets everything that follows at once happen."""
        self.end(self.handle(child_id), reason)
        return self.advance()

    # --- looking ---

    def handle(self, child_id: str) -> int:
        return next(h for h, spec in sorted(self.alive.items(), reverse=True) if spec.id == child_id)

    def handles(self) -> dict[str, int]:
        return {spec.id: h for h, spec in sorted(self.alive.items())}

    def ids(self) -> list[str]:
        return sorted(spec.id for spec in self.alive.values())

    def said(self, context: str) -> list[str]:
        """Reasons of the reports of that context."""
        return [r.reason for r in self.reports if r.context == context]

    def starts(self, child_id: str) -> int:
        return self.log.count(("start", child_id))

    def boot(self) -> Fake:
        self.do(self.tree.start(self.now))
        return self.advance()

    def ask(self, name: str, *args: Any, **kwargs: Any) -> int:
        """Sends a request to the tree; returns its ticket."""
        ticket = next(self._tickets)
        self.asked[ticket] = (self.now, name, *(a for a in args if isinstance(a, (str, int))))
        self.do(getattr(self.tree, name)(self.now, ticket, *args, **kwargs))
        self.advance()
        return ticket

    def call(self, name: str, *args: Any, **kwargs: Any) -> Result:
        """The answer to a request, which must come at once."""
        return self.replies[self.ask(name, *args, **kwargs)]

    def stop(self, within: int = 25_000, *, fast: bool = False) -> Fake:
        self.do(self.tree.stop(self.now, self.now + within, fast=fast))
        return self.advance()


def child(name: str, restart: str = "permanent", **more: Any) -> ChildSpec:
    """A child specification with no delay between restarts unless the test wants one."""
    more.setdefault("backoff", AT_ONCE)
    return ChildSpec(name, f"fake.children:{name.replace('-', '_')}", restart=Restart(restart), **more)


def group(
    name: str, *children: Any, strategy: str = "one_for_one", budget: int = 1, **more: Any
) -> GroupSpec:
    more.setdefault("backoff", AT_ONCE)
    more.setdefault("period_ms", 1_000)
    return GroupSpec(name, Strategy(strategy), tuple(children), max_restarts=budget, **more)


def pool(
    name: str, count: int, template: ChildSpec | None = None, *, budget: int = 5, **more: Any
) -> GroupSpec:
    strategy = more.pop("strategy", "dynamic")
    return group(
        name, strategy=strategy, template=template or child(name), count=count, budget=budget, **more
    )
