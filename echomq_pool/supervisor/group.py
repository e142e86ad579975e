# SPDX-License-Identifier: MIT
"""A group at work: starts its children in order, brings them back by its strategy, gives up past its budget.

It is a value inside the one loop, not a process: nothing here waits. What takes time is a state, and the queue of
`steps` goes on when the child concerned reports. Every restart attempt is put on the list of times, a failed start as
well; a whole round of one_for_all counts once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from echomq_pool.supervisor.actions import Result
from echomq_pool.supervisor.intensity import FORK_RETRY_MS, OOM_RETRY_MS, Times, add_restart, restart_delay
from echomq_pool.supervisor.leaf import Leaf
from echomq_pool.supervisor.news import News
from echomq_pool.supervisor.node import Node, Parent, State, World
from echomq_pool.supervisor.numbers import Numbers
from echomq_pool.supervisor.reason import SHUTDOWN, ExitReason, Why
from echomq_pool.supervisor.report import Report
from echomq_pool.supervisor.spec import (
    NEVER_MS,
    AutoShutdown,
    ChildSpec,
    GroupSpec,
    Patience,
    Restart,
    Spec,
    Strategy,
)
from echomq_pool.supervisor.steps import Do, Step
from echomq_pool.supervisor.strategy import Start, Stop, plan
from echomq_pool.supervisor.surge import Surge

GAVE_UP = "reached_max_restart_intensity"


class Group(Node):
    """A supervisor in the OTP sense."""

    kind = "supervisor"

    def __init__(self, world: World, parent: Parent, spec: GroupSpec) -> None:
        super().__init__(world, parent, spec)
        self.spec = spec
        self.children: list[Node] = []
        self.times: Times = ()
        self.steps: deque[Step] = deque()
        self.target = spec.count
        self.problem = ""  # the last start that failed without being retried
        self.surge = Surge(self)
        self.numbers = Numbers()
        self.news = News(self)
        self._ending: Callable[[], None] = lambda: None
        self._cap_ms = NEVER_MS
        self._advancing = False

    @property
    def restart(self) -> Restart:
        return self.spec.restart

    @property
    def significant(self) -> bool:
        return self.spec.significant

    @property
    def stop_first(self) -> bool:
        return self.spec.stop_first

    @property
    def dynamic(self) -> bool:
        return self.spec.strategy is Strategy.DYNAMIC

    @property
    def alone(self) -> bool:
        """Whether a dead child concerns nobody else."""
        return self.dynamic or self.spec.strategy is Strategy.ONE_FOR_ONE

    # --- start and end of the group itself ---------------------------------------------------------

    def start(self) -> None:
        """Starts from the specification: children added at run time are not remembered."""
        self.handle = self.world.new_handle()
        self.state = State.STARTING
        self.set_timer(0, None)
        self.times, self._cap_ms, self.problem = (), NEVER_MS, ""
        self.numbers, self.target = Numbers(), self.spec.count
        self.children = [self.make(spec) for spec in self.initial()]
        together = [self.children] if self.dynamic else [[child] for child in self.children]
        self.steps = deque(Step(Do.START, nodes) for nodes in together)
        self.advance()

    def initial(self) -> Iterable[Spec]:
        """The specifications of the children that every start of the group begins with."""
        if self.spec.template is None:
            return self.spec.children
        return [self.copy_of(self.spec.template) for _ in range(self.spec.count)]

    def copy_of(self, template: ChildSpec) -> ChildSpec:
        """The template under the lowest free number."""
        return replace(template, id=f"{template.id}-{self.numbers.take()}")

    def make(self, spec: Spec) -> Node:
        if isinstance(spec, GroupSpec):
            return Group(self.world, self, spec)
        return Leaf(self.world, self, spec)

    def stop(self, why: str, *, patience: Patience | None = None, cap_ms: int = NEVER_MS) -> None:
        """Stops everything inside, in reverse order. Ends in `child_stopped`, whatever was going on before."""
        patience = self.spec.shutdown if patience is None else patience
        own = self.world.now + (patience if isinstance(patience, int) else 0)
        self._cap_ms = min(cap_ms, NEVER_MS if patience == "infinity" else own)
        self.tell_starters(Result(error="terminated"))
        self._end(lambda: self.parent.child_stopped(self, SHUTDOWN))

    def _end(self, ending: Callable[[], None]) -> None:
        self._ending = ending
        if self.state is State.STOPPING:
            return
        self.state = State.STOPPING
        self.surge.clear("the group is stopping")
        self._quench()
        self.steps.clear()
        self.parent.child_closing(self)
        together = [self.children] if self.dynamic else [[child] for child in reversed(self.children)]
        self.steps = deque(Step(Do.STOP, nodes) for nodes in together)
        self.advance()

    def _quench(self) -> None:
        for child in self.children:
            if child.state is State.RESTARTING:
                child.stay_down()

    def give_up(self, why: str, node: Node, *, final: bool = False) -> None:
        """Past the budget (or without hope): an abnormal end, whatever restart kind this group has."""
        self.world.emit(Report(self.id, "shutdown", why, node.offender()))
        reason = ExitReason(Why.GAVE_UP, code=78 if final else None, detail=f"{node.id}: {_last_words(node)}")
        self.last = reason
        self._end(lambda: self.parent.child_ended(self, reason))

    def _fail_start(self, node: Node, cause: str, final: bool) -> None:
        self.last_failure = f"{node.id}: {cause}"
        self._end(lambda: self.parent.child_failed(self, self.last_failure, final))

    # --- the queue of steps ------------------------------------------------------------------------

    def advance(self, node: Node | None = None) -> None:
        """Goes on with the queue as far as it can; `node` has just changed its state."""
        if node is not None and self.steps:
            self.steps[0].settle(node)
        if self._advancing:
            return
        self._advancing = True
        while self.steps:
            step = self.steps[0]
            if not step.begun:
                self._begin(step)
            if step.pending or (step.do is Do.WAIT and self.world.now < step.at):
                break
            if self.steps and self.steps[0] is step:  # a failure may have put another queue in its place
                self.steps.popleft()
        self._advancing = False
        if not self.steps:
            self._settled()

    def _begin(self, step: Step) -> None:
        step.begun = True
        if step.do is Do.WAIT and self.world.now < step.at:
            self.set_timer(step.at, self.advance)
        step.pending = set(step.nodes)
        for node in step.nodes:
            if step.do is Do.STOP:
                self._begin_stop(node)
            elif not (node.live or node.retired or self._held_down(node)):
                node.start()
            step.settle(node)

    def _begin_stop(self, node: Node) -> None:
        if node.state is State.RESTARTING:
            node.stay_down()
        elif node.live and (node.state is not State.STOPPING or isinstance(node, Group)):
            node.stop("shutdown", cap_ms=self._cap_ms)  # a group may be ending for reasons of its own

    def _held_down(self, node: Node) -> bool:
        return node.stop_first and self.world.closing_ms is not None

    def _settled(self) -> None:
        if self.state is State.STARTING:
            self.came_up()
            self.parent.child_started(self)
        if self.state is State.RUNNING:
            self.surge.pump()
        elif self.state is State.STOPPING and not any(c.live for c in self.children):
            self.state = State.DOWN
            self.set_timer(0, None)
            self.news.fold()
            self._ending()

    # --- what children tell --------------------------------------------------------------------------

    def child_started(self, node: Node) -> None:
        self.world.emit(Report(self.id, "progress", "started", node.offender(), bool(node.asked), False))
        node.asked = ""
        if isinstance(node, Leaf):
            self.surge.started(node)
        self.advance(node)

    def child_ignored(self, node: Node) -> None:
        """Nothing to do: static specifications are kept without a process, all others are forgotten."""
        node.tell_starters(Result(None, detail="ignore"))
        node.asked = ""
        if not (isinstance(node, Leaf) and self.surge.failed(node, "the new one has nothing to do")) and (
            node.restart is Restart.TEMPORARY or self.spec.pool
        ):
            self.remove(node)
        self.advance(node)

    def child_failed(self, node: Node, cause: str, final: bool, forked: bool = True) -> None:
        """A start that did not succeed: an answer for who asked, final at the first start, else an attempt."""
        self.world.emit(Report(self.id, "start_error", cause, node.offender()))
        asked, node.asked = node.asked, ""
        if asked == "start":
            self.problem = f"{node.id}: {cause}"
        node.tell_starters(Result(error="start_error", detail=cause))
        if isinstance(node, Leaf) and self.surge.failed(node, cause):
            return self.advance(node)
        if self._was_to_stop(node) or asked == "restart":
            self._forget_temporary(node)
            return self.advance(node)
        if asked == "start":
            self.remove(node)
            return self.advance(node)
        if self.state is State.STARTING and not node.was_up:
            return self._fail_start(node, cause, final)
        return self._retry(node, final, forked)

    def child_ended(self, node: Node, reason: ExitReason) -> None:
        """A child ended by itself, or we killed it while it was to go on."""
        if self._was_to_stop(node):
            return self.child_stopped(node, reason)
        node.tell_starters(
            Result(error="start_error", detail=reason.text)
        )  # a group that gave up while it started
        node.asked = ""
        self.news.ended(node, reason)
        if isinstance(node, Leaf) and self.surge.ended(node):
            self.remove(node)
            if not reason.planned and not self._count():
                self.give_up(GAVE_UP, node)
            return self.advance(node)
        # In pools user code runs: a job that calls os._exit(78) must not end the pool.
        if reason.final and not self.spec.pool:
            return self.give_up("no restart will help", node, final=True)
        if reason.kind is Why.GAVE_UP and reason.code is not None:
            return self.give_up("no restart will help", node, final=True)
        return self._bring_back(node, reason) if reason.restarts(node.restart) else self._over(node)

    def child_stopped(self, node: Node, reason: ExitReason) -> None:
        """A child that was asked to stop has ended, in whatever way."""
        self.news.stopped(node, reason, brutal=_spec_of(node).shutdown == "brutal_kill")
        node.tell_stoppers(Result(True))
        surged = isinstance(node, Leaf) and self.surge.stopped(node)
        if not surged and (node.retired or node.restart is Restart.TEMPORARY):
            self.remove(node)
        self.advance(node)

    def child_closing(self, node: Node) -> None:
        """Only the root's end is everybody's end."""

    def _was_to_stop(self, node: Node) -> bool:
        if self.state is State.STOPPING or self._held_down(node):
            return True
        return any(step.do is Do.STOP and step.covers(node) for step in self.steps)

    # --- bringing back -------------------------------------------------------------------------------

    def _count(self) -> bool:
        """Notes one restart attempt; False when it is one too many."""
        self.times, over = add_restart(
            self.times, self.world.now, self.spec.max_restarts, self.spec.period_ms
        )
        return not over

    def _bring_back(self, node: Node, reason: ExitReason) -> None:
        if self.world.now - node.up_since >= self.spec.period_ms:
            node.failures = 0
        node.restarts += 1
        delay = 0
        if not reason.planned:
            if not self._count():
                return self.give_up(GAVE_UP, node)
            delay = self._delay(node, OOM_RETRY_MS if reason.kind is Why.OOM else 0)
        return self._schedule(node, self.world.now + delay, crashed=True)

    def _retry(self, node: Node, final: bool, forked: bool) -> None:
        """After a failed restart. A failed fork costs budget only when nothing lives that could still work."""
        if final and not self.spec.pool:
            return self.give_up("no restart will help", node, final=True)
        if (forked or not self.world.live) and not self._count():
            return self.give_up(GAVE_UP, node)
        delay = self._delay(node, 0 if forked else FORK_RETRY_MS)
        return self._schedule(node, self.world.now + delay, crashed=False)

    def _delay(self, node: Node, least: int) -> int:
        node.failures += 1
        return max(least, restart_delay(_spec_of(node).backoff, node.failures - 1, self.world.rng))

    def _schedule(self, node: Node, at: int, *, crashed: bool) -> None:
        """Restart at that time. After a crash the others stop now; after a failed start they stay until the retry."""
        if self.alone:
            if crashed and at <= self.world.now:
                return node.start()
            return node.restart_later(at, lambda: self._again(node))
        by_id = {child.id: child for child in self.children}
        todo = plan(self.spec.strategy, [_spec_of(c) for c in self.children], node.id)
        stops = [Step(Do.STOP, [by_id[s.id]]) for s in todo if isinstance(s, Stop)]
        starts = [Step(Do.START, [by_id[s.id]]) for s in todo if isinstance(s, Start)]
        node.restart_later(at, None)
        wait = Step(Do.WAIT, at=at)
        self.steps = deque([*stops, wait, *starts] if crashed else [wait, *stops, *starts])
        self.surge.clear("the group restarts")  # what this sets off must find the round going on
        return self.advance()

    def _again(self, node: Node) -> None:
        if node.state is State.RESTARTING and not self._was_to_stop(node):
            node.start()

    def _over(self, node: Node) -> None:
        """Ended for good. A significant one may take the group with it."""
        mode = self.spec.auto_shutdown
        if node.restart is Restart.TEMPORARY or self.spec.pool:
            self.remove(node)
        left = any(c.significant and c is not node and c.state is not State.DOWN for c in self.children)
        if node.significant and (mode is AutoShutdown.ANY or (mode is AutoShutdown.ALL and not left)):
            self.world.emit(
                Report(self.id, "shutdown", f"auto_shutdown: {mode}", node.offender(), trouble=False)
            )
            self.last = SHUTDOWN
            return self._end(lambda: self.parent.child_ended(self, SHUTDOWN))
        return self.advance(node)

    # --- the list --------------------------------------------------------------------------------------

    def remove(self, node: Node) -> None:
        """Forgets a child that has no process any more."""
        if node in self.children:
            self.children.remove(node)
            self.numbers.give_back(node.id)
        node.retired = True  # a step that still names it must not start it
        node.set_timer(0, None)

    def _forget_temporary(self, node: Node) -> None:
        if node.restart is Restart.TEMPORARY or node.retired:
            self.remove(node)

    def awaited(self, node: Node) -> bool:
        """Whether a round is going to start that child."""
        return any(step.do is Do.START and step.covers(node) for step in self.steps)

    def drop_round(self) -> None:
        """Ends a round of restarts at an operator's word: what it has not started stays down."""
        if self.state is State.RUNNING and self.steps:
            self.steps.clear()
            self.set_timer(0, None)
            self._quench()
            self.advance()

    def offender(self) -> dict[str, Any]:
        return {
            "handle": self.handle,
            "id": self.id,
            "restart": self.spec.restart.value,
            "shutdown": self.spec.shutdown,
            "type": self.kind,
        }


def _spec_of(node: Node) -> Spec:
    spec: Spec = node.spec  # type: ignore[attr-defined]
    return spec


def _last_words(node: Node) -> str:
    return node.last_failure or (node.last.text if node.last else "")
