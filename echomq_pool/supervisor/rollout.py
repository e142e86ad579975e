# SPDX-License-Identifier: MIT
"""Rolling reload: from one specification of the tree to the next without a moment of less capacity.

In this order, so that a configuration or code that does not boot leaves the old ones running:

    1. children that may live twice (zygotes): heir up, old one away, one by one; then the new ones of that kind,
       which the pools may need
    2. one heir in each pool that changed, held: it must ack, but nobody leaves yet
    3. the other static children that changed, in place, one by one
    4. children and groups that are new
    5. the pools, heir by heir; all pools side by side
    6. the new rules are taken, pools brought to their size, what has vanished is stopped

A failure before step 5 undoes all of it; in step 5 those already replaced stay and the rest keep the old generation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from echomq_pool.supervisor import requests
from echomq_pool.supervisor.actions import Result
from echomq_pool.supervisor.group import Group
from echomq_pool.supervisor.leaf import Leaf
from echomq_pool.supervisor.node import Node, State
from echomq_pool.supervisor.report import Report
from echomq_pool.supervisor.spec import ChildSpec, GroupSpec, Spec
from echomq_pool.supervisor.surge import Swap

WHY = "reload"


class Rollout:
    """One reload. `over` when it has succeeded or was aborted."""

    def __init__(self, root: Group, spec: GroupSpec, answer: Callable[[Result], None]) -> None:
        requests.check_shape(root, spec)
        self.over = False
        self.outcome = ""
        self._root = root
        self._answer = answer
        self._pairs = _pairs(root, spec)
        self._phases = iter(
            [self._surge_statics, self._canaries, self._in_place, self._newcomers, self._roll, self._commit]
        )
        self._todo: list[Callable[[], None]] = []
        self._waiting = 0
        self._undo: list[Callable[[], None]] = []

    def begin(self) -> None:
        self._next()

    def abort(self, cause: str) -> None:
        """Nothing more is replaced; what can be undone is."""
        if self.over:
            return
        self.over, self.outcome = True, cause
        for group, _ in self._pairs:
            group.surge.cancel(cause)
        for undo in reversed(self._undo):
            undo()
        self._root.world.emit(
            Report(self._root.id, "not_replaced", f"reload aborted: {cause}", {"id": "reload"})
        )
        self._answer(Result(error="reload_failed", detail=cause))

    # --- going on ----------------------------------------------------------------------------------

    def _next(self) -> None:
        """The next piece of this phase, or the next phase."""
        while not self.over and self._waiting == 0:
            if self._todo:
                self._todo.pop(0)()
                continue
            phase = next(self._phases, None)
            if phase is None:
                return
            phase()

    def _done(self, ok: bool, cause: str) -> None:
        self._waiting -= 1
        if not ok:
            return self.abort(cause)
        return self._next()

    def _swap(self, group: Group, old: Leaf, spec: Spec, *, hold: bool = False) -> None:
        """Asks for one replacement. A held one counts as done when its heir is up."""
        self._waiting += 1
        once = _Once(self._done)
        held = (lambda: once(True, "")) if hold else None
        assert not isinstance(spec, GroupSpec)
        group.surge.request(Swap(old, spec, WHY, once, hold=hold, on_held=held))

    def _when_free(
        self, group: Group, old: Leaf, spec: Spec, act: Callable[[Group, Leaf, Spec], None]
    ) -> None:
        """Now, or when the replacement that is going on is over: an operator's, or the undoing of a failed reload."""
        going_on = group.surge.of(old)
        if going_on is None:
            return act(group, old, spec)
        self._waiting += 1
        before = going_on.done

        def done(ok: bool, cause: str) -> None:
            before(ok, cause)
            self._waiting -= 1
            leaf = next((child for child in group.children if child.id == old.id), None)
            if not self.over and isinstance(leaf, Leaf):
                self._todo.insert(0, lambda: act(group, leaf, spec))
            self._next()

        going_on.done = done
        return None

    def _living(self) -> list[tuple[Group, GroupSpec]]:
        """Groups at work. The others only take the new specification, and follow it at their next start."""
        return [(group, new) for group, new in self._pairs if group.state in (State.STARTING, State.RUNNING)]

    # --- the phases ------------------------------------------------------------------------------------

    def _statics(self, *, surge: bool) -> list[tuple[Group, Leaf, Spec]]:
        found: list[tuple[Group, Leaf, Spec]] = []
        for group, new in self._living():
            specs = {s.id: s for s in new.children}
            for child in group.children:
                twin = specs.get(child.id)
                twice = isinstance(child, Leaf) and child.spec.surge and group.alone
                if isinstance(child, Leaf) and twin is not None and twin != child.spec and twice == surge:
                    found.append((group, child, twin))
        return found

    def _surge_statics(self) -> None:
        for group, old, spec in self._statics(surge=True):
            self._todo.append(lambda g=group, o=old, s=spec: self._when_free(g, o, s, self._swap))  # type: ignore[misc]
        for group, spec in self._unknown():
            if isinstance(spec, ChildSpec) and spec.surge:
                self._todo.append(lambda g=group, s=spec: self._add(g, s))  # type: ignore[misc]

    def _canaries(self) -> None:
        for group, new in self._living():
            old = next((e for e in _elders(group, new) if not group.surge.concerns(e)), None)
            if old is not None and new.template is not None:
                self._swap(group, old, new.template, hold=True)

    def _in_place(self) -> None:
        for group, old, spec in self._statics(surge=False):
            self._todo.append(lambda g=group, o=old, s=spec: self._when_free(g, o, s, self._exchange))  # type: ignore[misc]

    def _exchange(self, group: Group, old: Leaf, spec: Spec) -> None:
        before = old.spec
        self._undo.append(lambda: _put_back(group, old, before))
        self._swap(group, old, spec)

    def _newcomers(self) -> None:
        for group, spec in self._unknown():
            self._todo.append(lambda g=group, s=spec: self._add(g, s))  # type: ignore[misc]

    def _unknown(self) -> list[tuple[Group, Spec]]:
        """Static children and groups that are only in the new specification, each with its parent."""
        found: list[tuple[Group, Spec]] = []
        for group, new in self._living():
            known = {child.id for child in group.children}
            found += [(group, spec) for spec in new.children if spec.id not in known]
        return found

    def _add(self, group: Group, spec: Spec) -> None:
        if group.state is not State.RUNNING:
            return self.abort(f"{group.id} does not run")
        self._waiting += 1
        node = group.make(spec)
        self._undo.append(lambda: _take_away(group, node))
        return requests.launch(group, node, "start", lambda result: self._done(result.ok, result.detail))

    def _roll(self) -> None:
        """From here on nothing is undone: the new generation works. Goes round until nobody old is left."""
        self._undo = []
        for group, new in self._living():
            for old in _elders(group, new):
                self._replace(group, old, new)
            group.surge.release()
        if self._waiting:
            self._todo.append(self._roll)  # an heir that somebody else had asked for is old as well

    def _replace(self, group: Group, old: Leaf, new: GroupSpec) -> None:
        """One more for `_roll` to wait for: a replacement of our own, or the one that is going on."""
        assert new.template is not None
        going_on = group.surge.of(old)
        if going_on is None:
            return self._swap(group, old, new.template)
        self._waiting += 1
        before, once = going_on.done, _Once(self._done)

        def done(ok: bool, cause: str) -> None:
            before(ok, cause)
            once(ok or going_on.on_held is None, cause)

        going_on.done = done
        return None

    def _commit(self) -> None:
        self.over = True
        for group, new in self._pairs:
            group.spec = new
            names = {s.id for s in new.children}
            for child in list(group.children):
                if not new.pool and child.id not in names:
                    _take_away(group, child)
            if new.pool and group.state is State.RUNNING:
                requests.scale(group, new.count, {}, lambda result: None)
        self._root.world.emit(Report(self._root.id, "replaced", WHY, {"id": "reload"}, trouble=False))
        self._answer(Result(True))


class _Once:
    """Passes on the first call only: a held replacement is answered when its heir is up, and again at its end."""

    def __init__(self, call: Callable[[bool, str], None]) -> None:
        self._call: Callable[[bool, str], None] | None = call

    def __call__(self, ok: bool, cause: str) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(ok, cause)


def _pairs(group: Group, spec: GroupSpec) -> list[tuple[Group, GroupSpec]]:
    """Each group that stays, with its new specification."""
    found = [(group, spec)]
    new = {s.id: s for s in spec.children}
    for child in group.children:
        twin = new.get(child.id)
        if isinstance(child, Group) and isinstance(twin, GroupSpec):
            found += _pairs(child, twin)
    return found


def _elders(group: Group, new: GroupSpec) -> list[Leaf]:
    """Children of a pool that do not follow the new template yet, oldest first."""
    if new.template is None:
        return []
    found = [c for c in group.children if isinstance(c, Leaf) and not c.retired]
    return [c for c in found if replace(c.spec, id=new.template.id) != new.template]


def _put_back(group: Group, leaf: Leaf, spec: Spec) -> None:
    """Replaces a static child once more, by what it was before."""
    if leaf.spec != spec and not isinstance(spec, GroupSpec):
        group.surge.request(Swap(leaf, spec, WHY, lambda ok, cause: None))


def _take_away(group: Group, node: Node) -> None:
    """Stops a child and forgets it."""
    node.retired = True
    if node.live and node.state is not State.STOPPING:
        node.stop(WHY)
    elif not node.live:
        node.stay_down()
        group.remove(node)
