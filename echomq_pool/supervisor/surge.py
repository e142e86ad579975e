# SPDX-License-Identifier: MIT
"""Planned replacement: the heir is up before the old one leaves; one at a time in each group.

Costs no budget. An heir that does not come up leaves the old one running. A child that must not live twice
(LockManager and its like) is replaced in place: stopped, then started; if the new one fails, by its old specification.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from echomq_pool.supervisor.leaf import Leaf
from echomq_pool.supervisor.node import Node, State, World
from echomq_pool.supervisor.report import Report
from echomq_pool.supervisor.spec import ChildSpec, GroupSpec
from echomq_pool.supervisor.steps import Step

Done = Callable[[bool, str], None]


class Host(Protocol):
    """What a group offers to the replacement of one of its children."""

    id: str
    world: World
    spec: GroupSpec
    state: State
    children: list[Node]
    problem: str
    steps: deque[Step]

    @property
    def alone(self) -> bool: ...

    def make(self, spec: ChildSpec) -> Node: ...
    def copy_of(self, template: ChildSpec) -> ChildSpec: ...
    def remove(self, node: Node) -> None: ...


@dataclass(slots=True)
class Swap:
    """One replacement. With `hold` the old one is left alone until `Surge.release`."""

    old: Leaf
    spec: ChildSpec  # in pools: the template
    why: str
    done: Done
    hold: bool = False
    on_held: Callable[[], None] | None = None
    heir: Leaf | None = None
    before: ChildSpec | None = None  # the specification to return to
    started: bool = False  # the heir is up
    dismissed: bool = False  # the old one has been asked to leave


class Surge:
    """The replacements of one group."""

    def __init__(self, group: Host) -> None:
        self._group = group
        self._queue: deque[Swap] = deque()
        self.active: Swap | None = None

    def request(self, swap: Swap) -> None:
        """Takes its turn; a second request for the same child is answered at once."""
        if self.of(swap.old) is not None:
            return swap.done(False, "already being replaced")
        if self._group.state not in (State.STARTING, State.RUNNING):
            return swap.done(False, "its group does not run")
        self._queue.append(swap)
        return self.pump()

    def of(self, node: Leaf) -> Swap | None:
        """The replacement of that child, waiting or going on."""
        swaps = [*self._queue, *([self.active] if self.active else [])]
        return next((swap for swap in swaps if swap.old is node), None)

    def concerns(self, node: Leaf) -> bool:
        """Whether that child is being replaced, or is somebody's heir."""
        return self.of(node) is not None or (self.active is not None and self.active.heir is node)

    def pump(self) -> None:
        """Begins the next replacement, if none is going on, nor a round of restarts."""
        while self.active is None and self._queue and self._at_peace():
            swap = self._queue.popleft()
            if swap.old not in self._group.children or swap.old.retired or swap.old.state is State.STOPPING:
                swap.done(True, "it has left already")
            elif not swap.old.live:
                swap.old.spec = replace(swap.spec, id=swap.old.id)
                swap.done(True, "")
            else:
                self._begin(swap)

    def _at_peace(self) -> bool:
        return self._group.state is State.RUNNING and not self._group.steps

    def _begin(self, swap: Swap) -> None:
        self.active = swap
        if not self._heir_first(swap.old):
            swap.before = swap.old.spec
            return swap.old.stop(swap.why)
        spec = self._group.copy_of(swap.spec) if self._group.spec.pool else swap.spec
        heir = self._group.make(spec)
        assert isinstance(heir, Leaf)
        swap.heir = heir
        self._group.children.insert(self._group.children.index(swap.old) + 1, heir)
        return heir.start()

    def _heir_first(self, old: Leaf) -> bool:
        return self._group.spec.pool or (old.spec.surge and self._group.alone)

    def release(self) -> None:
        """Lets a held replacement go on."""
        swap = self.active
        if swap is not None and swap.hold:
            swap.hold = False
            if swap.started:
                self._dismiss(swap)

    def cancel(self, cause: str) -> None:
        """Forgets what waits, and an heir whose elder has not been asked to leave yet."""
        waiting, self._queue = list(self._queue), deque()
        swap = self.active
        if swap is not None and swap.heir is not None and not swap.dismissed:
            waiting.append(swap)
            self.active = None
            self._send_away(swap.heir)
        for each in waiting:
            each.done(False, cause)

    def clear(self, cause: str) -> None:
        """The group stops or restarts: nothing is replaced any more."""
        self.cancel(cause)
        swap, self.active = self.active, None
        if swap is not None:
            swap.done(False, cause)

    # --- what the group passes on ----------------------------------------------------------------

    def started(self, node: Leaf) -> None:
        """An ack: of the heir (then the old one may go), or of the one that was replaced in place."""
        swap = self.active
        if swap is None:
            return
        if swap.heir is node:
            swap.started = True
            if not swap.hold:
                self._dismiss(swap)
            elif swap.on_held is not None:
                swap.on_held()
        elif swap.heir is None and swap.old is node:
            self._finish(True, "")

    def _dismiss(self, swap: Swap) -> None:
        swap.old.retired = swap.dismissed = True
        patience = self._group.spec.drain if self._group.spec.pool else swap.old.spec.shutdown
        swap.old.stop(swap.why, patience=patience)

    def failed(self, node: Leaf, cause: str) -> bool:
        """A failed start. True when it was an heir's and nothing more is to be done about it."""
        swap = self.active
        if swap is None:
            return False
        if swap.heir is node:
            self._group.remove(node)
            self._group.problem = f"{node.id}: {cause}"
            self._report(swap, "not_replaced", cause)
            self._finish(False, cause)
            return True
        if swap.heir is None and swap.old is node:
            assert swap.before is not None
            node.spec = swap.before
            self._report(swap, "not_replaced", cause)
            self._finish(False, cause)
        return False

    def ended(self, node: Leaf) -> bool:
        """The old one died while its heir is on the way: the heir takes its place. True then."""
        swap = self.active
        if swap is None or swap.heir is None or swap.old is not node:
            return False
        swap.heir.was_up = True  # from now on an ordinary child: a failed start is an attempt to be repeated
        self._finish(True, "")
        return True

    def stopped(self, node: Leaf) -> bool:
        """The old one has left as asked, or an operator stopped one of the two. True when it was dealt with here."""
        swap = self.active
        if swap is None or node not in (swap.old, swap.heir):
            return False
        if swap.heir is None:
            node.spec = swap.spec
            node.was_up = True
            node.start()
            return True
        self._group.remove(node)
        if node is swap.heir:
            self._finish(False, "the new one was stopped")
        elif swap.dismissed:
            self._report(swap, "replaced", swap.why)
            self._finish(True, "")
        else:
            self._send_away(swap.heir)
            self._finish(False, "stopped by an operator")
        return True

    def _send_away(self, heir: Leaf) -> None:
        heir.retired = True
        if not heir.live:  # it crashed and waits for its restart
            heir.stay_down()
            self._group.remove(heir)
        elif heir.state is not State.STOPPING:
            heir.stop("shutdown")

    def _finish(self, ok: bool, cause: str) -> None:
        swap, self.active = self.active, None
        if swap is not None:
            swap.done(ok, cause)
        self.pump()

    def _report(self, swap: Swap, context: str, text: str) -> None:
        offender = swap.old.offender() | {"heir": swap.heir.id if swap.heir else swap.old.id}
        trouble = context == "not_replaced"
        self._group.world.emit(Report(self._group.id, context, text, offender, trouble=trouble))
