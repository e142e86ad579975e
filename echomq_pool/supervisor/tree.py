# SPDX-License-Identifier: MIT
"""The supervision tree as a machine: events in, actions out, nothing else.

No process, no clock and no input or output of its own: every method takes the monotonic time in ms and returns what is
to be done. Children are named by `handle`, a number that belongs to one incarnation and is never used again. After any
call ask `next_deadline`, and call `tick` when that time has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from echomq_pool.errors import SpecError
from echomq_pool.supervisor import requests
from echomq_pool.supervisor.actions import Action, Finished, Result
from echomq_pool.supervisor.group import Group
from echomq_pool.supervisor.leaf import Leaf
from echomq_pool.supervisor.node import Node, State, World
from echomq_pool.supervisor.reason import ExitReason, Why
from echomq_pool.supervisor.report import Report
from echomq_pool.supervisor.requests import Who
from echomq_pool.supervisor.rollout import Rollout
from echomq_pool.supervisor.spec import GroupSpec, Spec, check_tree
from echomq_pool.supervisor.surge import Swap

Actions = list[Action]


class Tree:
    """One tree of groups and children.

    Args:
        spec: the root group; the names of all groups in it are different.
        drain_ms: how long the rest may work on when the root has given up.

    Raises:
        SpecError: two groups share a name.
    """

    id = "supervisor"  # as the root's parent

    def __init__(self, spec: GroupSpec, *, rng: Random | None = None, drain_ms: int = 25_000) -> None:
        check_tree(spec)
        self._world = World(rng or Random())
        self._drain_ms = drain_ms
        self.root = Group(self._world, self, spec)
        self.rollout: Rollout | None = None
        self.finished: Finished | None = None

    # --- time ------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `tick` has something to do (monotonic ms); None: nothing is pending."""
        return self._world.next_deadline()

    def tick(self, now_ms: int) -> Actions:
        return self._turn(now_ms, self._world.fire)

    def _turn(self, now_ms: int, do: Callable[[], Any]) -> Actions:
        self._world.now = now_ms
        do()
        return self._world.take_actions()

    # --- life ------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> Actions:
        """The first start: a child that fails ends everything."""
        return self._turn(now_ms, self.root.start)

    def stop(self, now_ms: int, deadline_ms: int, *, fast: bool = False) -> Actions:
        """The global stop; a second call may shorten the deadline and make it fast."""

        def do() -> None:
            if self.finished is None:
                self._close(deadline_ms, fast)
                if self.root.state is State.DOWN:
                    self.child_stopped(self.root, ExitReason(Why.SHUTDOWN))
                else:
                    self.root.stop("shutdown")

        return self._turn(now_ms, do)

    def _close(self, deadline_ms: int, fast: bool) -> None:
        """Sets the global deadline, reaches those that are stopping already, and asks those that go first."""
        world = self._world
        before = (world.closing_ms, world.fast)
        world.closing_ms = min(deadline_ms, world.closing_ms if world.closing_ms is not None else deadline_ms)
        world.fast = world.fast or fast
        if self.rollout is not None:
            self.rollout.abort("the pool is stopping")
        if before != (world.closing_ms, world.fast):
            for leaf in list(world.live.values()):
                if leaf.state is State.STOPPING:
                    leaf.hurry("shutdown")
        _ask_first(self.root)

    # --- what happened to a child ------------------------------------------------------------------

    def acked(self, now_ms: int, handle: int, info: Any = None) -> Actions:
        """The child's first frame."""
        return self._with_leaf(now_ms, handle, lambda leaf: leaf.acked(info))

    def ignored(self, now_ms: int, handle: int) -> Actions:
        """The child has nothing to do."""
        return self._with_leaf(now_ms, handle, lambda leaf: leaf.ignored())

    def start_failed(self, now_ms: int, handle: int, cause: str, final: bool = False) -> Actions:
        """The child said that it cannot start."""
        return self._with_leaf(now_ms, handle, lambda leaf: leaf.start_failed(cause, final))

    def exited(self, now_ms: int, handle: int, reason: ExitReason) -> Actions:
        """The process is gone and reaped."""
        return self._with_leaf(now_ms, handle, lambda leaf: leaf.exited(reason))

    def fork_failed(self, now_ms: int, handle: int, errno_name: str) -> Actions:
        """The kernel gave us no process for this `Spawn`."""
        return self._with_leaf(now_ms, handle, lambda leaf: leaf.fork_failed(errno_name))

    def _with_leaf(self, now_ms: int, handle: int, do: Callable[[Leaf], None]) -> Actions:
        leaf = self._world.live.get(handle)
        return self._turn(now_ms, lambda: do(leaf) if leaf is not None else None)

    # --- the root's parent -------------------------------------------------------------------------

    def child_started(self, node: Node) -> None:
        self._world.emit(Report(self.id, "progress", "started", node.offender(), trouble=False))

    def child_ignored(self, node: Node) -> None:
        """Groups are never ignored."""

    def child_failed(self, node: Node, cause: str, final: bool, forked: bool = True) -> None:
        self._world.emit(Report(self.id, "start_error", cause, node.offender()))
        self._finish(Finished("boot_failed", cause))

    def child_ended(self, node: Node, reason: ExitReason) -> None:
        gave_up = reason.kind is Why.GAVE_UP
        self._finish(Finished("gave_up" if gave_up else "shutdown", reason.detail))

    def child_stopped(self, node: Node, reason: ExitReason) -> None:
        gave_up = node.last is not None and node.last.kind is Why.GAVE_UP
        self._finish(
            Finished("gave_up", node.last.detail if node.last else "") if gave_up else Finished("stopped")
        )

    def child_closing(self, node: Node) -> None:
        """The root ends: what still works is drained under a deadline like that of any stop."""
        if self._world.closing_ms is None:
            self._close(self._world.now + self._drain_ms, False)

    def _finish(self, finished: Finished) -> None:
        if self.finished is None:
            self.finished = finished
            self._world.emit(finished)

    # --- requests ------------------------------------------------------------------------------------

    def start_child(self, now_ms: int, ticket: int, group: str, spec: Spec | None = None) -> Actions:
        """See `requests.start_child`; the answer comes as `Reply(ticket, …)`, here as in all requests."""
        return self._ask(now_ms, ticket, group, lambda g, a: requests.start_child(g, spec, a))

    def terminate_child(self, now_ms: int, ticket: int, group: str, who: Who) -> Actions:
        """See `requests.terminate_child`."""
        return self._ask(now_ms, ticket, group, lambda g, a: requests.terminate_child(g, who, a))

    def restart_child(self, now_ms: int, ticket: int, group: str, who: Who) -> Actions:
        """See `requests.restart_child`."""
        return self._ask(now_ms, ticket, group, lambda g, a: requests.restart_child(g, who, a))

    def delete_child(self, now_ms: int, ticket: int, group: str, who: Who) -> Actions:
        """See `requests.delete_child`."""
        return self._ask(now_ms, ticket, group, lambda g, a: requests.delete_child(g, who, a))

    def scale(self, now_ms: int, ticket: int, group: str, count: int, busy: Mapping[int, int]) -> Actions:
        """See `requests.scale`."""
        return self._ask(now_ms, ticket, group, lambda g, a: requests.scale(g, count, busy, a))

    def replace_child(self, now_ms: int, ticket: int, handle: int, why: str) -> Actions:
        """A new one for a running child: heir first where two may live. Answered when the old one has left."""

        def do() -> None:
            answer = self._world.answer(ticket)
            leaf = self._world.live.get(handle)
            group = None if leaf is None else leaf.parent
            if leaf is None or not isinstance(group, Group):
                return answer(Result(error="not_found"))
            spec = group.spec.template if group.spec.template is not None else leaf.spec
            done = lambda ok, cause: answer(Result(ok, error="" if ok else "not_replaced", detail=cause))  # noqa: E731
            return group.surge.request(Swap(leaf, spec, why, done))

        return self._turn(now_ms, do)

    def reconfigure(self, now_ms: int, ticket: int, spec: GroupSpec, *, roll: bool = True) -> Actions:
        """Takes a new specification of the whole tree.

        With `roll` everything that differs is replaced, pools heir by heir (see `rollout.py`); otherwise only the
        rules change. Refused whole: `bad_spec`, `restarting` (a rollout is going on), `not_running`.
        """

        def do() -> None:
            answer = self._world.answer(ticket)
            try:
                check_tree(spec)
                self._reconfigure(spec, roll, lambda result: answer(result))
            except SpecError as error:
                answer(Result(error="bad_spec", detail=str(error)))

        return self._turn(now_ms, do)

    def _reconfigure(self, spec: GroupSpec, roll: bool, answer: Callable[[Result], None]) -> None:
        if self.root.state is not State.RUNNING or self._world.closing_ms is not None:
            return answer(Result(error="not_running"))
        if self.rollout is not None and not self.rollout.over:
            return answer(Result(error="restarting", detail="a reload is going on"))
        if not roll:
            requests.adopt(self.root, spec)
            return answer(Result(True))
        self.rollout = Rollout(self.root, spec, answer)
        return self.rollout.begin()

    def which_children(self, group: str) -> list[tuple[str, int | str | None, str]] | None:
        """See `requests.which_children`; None for an unknown group."""
        found = self.group(group)
        return None if found is None else requests.which_children(found)

    def count_children(self, group: str) -> dict[str, int] | None:
        """See `requests.count_children`; None for an unknown group."""
        found = self.group(group)
        return None if found is None else requests.count_children(found)

    def get_childspec(self, group: str, who: Who) -> Result:
        """See `requests.get_childspec`."""
        found = self.group(group)
        return Result(error="not_found") if found is None else requests.get_childspec(found, who)

    def _ask(self, now_ms: int, ticket: int, group: str, do: Callable[[Group, Any], None]) -> Actions:
        found = self.group(group)
        answer = self._world.answer(ticket)
        if found is None:
            return self._turn(now_ms, lambda: answer(Result(error="not_found", detail=f"no group {group!r}")))
        return self._turn(now_ms, lambda: do(found, answer))

    @property
    def closing_ms(self) -> int | None:
        """Deadline of the global stop (monotonic ms), once there is one."""
        return self._world.closing_ms

    # --- looking around --------------------------------------------------------------------------------

    def group(self, name: str) -> Group | None:
        """The group of that name."""
        return next((g for g in walk(self.root) if isinstance(g, Group) and g.id == name), None)

    def leaf(self, handle: int) -> Leaf | None:
        """The live child with that handle."""
        return self._world.live.get(handle)

    def leaves(self) -> list[Leaf]:
        """All processes that are not known to be gone."""
        return list(self._world.live.values())


def walk(node: Node) -> list[Node]:
    """The node and everything below it, in start order."""
    found = [node]
    if isinstance(node, Group):
        for child in node.children:
            found += walk(child)
    return found


def _ask_first(group: Group) -> None:
    """Asks those that a global stop does not let wait for their turn."""
    for child in list(group.children):
        if child.stop_first and child.state in (State.STARTING, State.RUNNING):
            child.stop("shutdown")
        elif child.stop_first and child.state is State.RESTARTING:
            child.stay_down()
        elif isinstance(child, Group):
            _ask_first(child)
