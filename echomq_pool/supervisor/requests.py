# SPDX-License-Identifier: MIT
"""What an operator (or the loop on a child's behalf) may ask of one group. Each request is answered once.

Errors are single words: not_found, running, restarting, already_started, already_present, not_running, by_handle,
max_children, start_error, terminated, bad_spec, refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echomq_pool.errors import SpecError
from echomq_pool.supervisor.actions import Result
from echomq_pool.supervisor.group import Group
from echomq_pool.supervisor.leaf import Leaf
from echomq_pool.supervisor.node import Answer, Node, State
from echomq_pool.supervisor.spec import AutoShutdown, ChildSpec, GroupSpec, Spec

Who = str | int  # the id of a static child, the handle of a pool child


def start_child(group: Group, spec: Spec | None, answer: Answer) -> None:
    """Adds a child: to a pool one more copy of its template, to a static group that specification.

    Answered when the child has acked; a child that fails to start is not kept.
    """
    if group.state is not State.RUNNING:
        return answer(Result(error="not_running"))
    if group.spec.pool:
        return _start_copy(group, spec, answer)
    if spec is None:
        return answer(Result(error="bad_spec", detail="a static group needs a specification"))
    twin = next((c for c in group.children if c.id == spec.id), None)
    if twin is not None:
        word = "already_started" if twin.live else "already_present"
        return answer(Result(twin.handle if twin.live else None, error=word))
    if spec.significant and group.spec.auto_shutdown is AutoShutdown.NEVER:
        return answer(Result(error="bad_spec", detail="significant: auto_shutdown is never here"))
    return launch(group, group.make(spec), "start", answer)


def _start_copy(group: Group, spec: Spec | None, answer: Answer) -> None:
    if spec is not None:
        return answer(Result(error="bad_spec", detail="a pool starts copies of its template only"))
    limit = group.spec.max_children
    if limit is not None and len(group.children) >= limit:
        return answer(Result(error="max_children"))
    assert group.spec.template is not None
    return launch(group, group.make(group.copy_of(group.spec.template)), "start", answer)


def launch(group: Group, node: Node, asked: str, answer: Answer) -> None:
    """Starts a node at somebody's request; a failure is the answer and is not retried."""
    node.asked = asked
    node.starters.append(answer)
    if node not in group.children:
        group.children.append(node)
    node.start()


def find(group: Group, who: Who) -> tuple[Node | None, str]:
    """A child by id (static) or handle (pool), and the word to answer with when there is none."""
    if group.spec.pool != isinstance(who, int):
        return None, "by_handle" if group.spec.pool else "not_found"
    for child in group.children:
        if (child.handle if group.spec.pool else child.id) == who:
            return child, ""
    return None, "not_found"


def terminate_child(group: Group, who: Who, answer: Answer) -> None:
    """Stops a child; static specifications are kept. Also ends a pending restart. Done twice, it is done."""
    node, word = find(group, who)
    if node is None:
        ended = isinstance(who, int) and group.spec.pool and 0 < who <= group.world.last_handle
        gone = ended and who not in group.world.live
        return answer(Result(True) if gone else Result(error=word))
    if group.spec.pool and not node.retired:
        node.retired = True
        if node is not _pending_heir(group):
            group.target = max(0, group.target - 1)
    if node.live:
        node.stoppers.append(answer)
        if node.state is not State.STOPPING or isinstance(node, Group):
            node.stop("shutdown")  # a group may be ending for reasons of its own, to be restarted
        return None
    if node.state is State.RESTARTING:
        node.stay_down()
        if not group.spec.pool:
            group.drop_round()
    if node.retired:
        group.remove(node)
    return answer(Result(True))


def restart_child(group: Group, who: Who, answer: Answer) -> None:
    """Starts a stopped static child again. When that fails the specification is kept and nothing is retried."""
    node, word = _stopped(group, who)
    if node is None:
        return answer(Result(error=word))
    return launch(group, node, "restart", answer)


def delete_child(group: Group, who: Who, answer: Answer) -> None:
    """Forgets a stopped static child."""
    node, word = _stopped(group, who)
    if node is None:
        return answer(Result(error=word))
    group.remove(node)
    return answer(Result(True))


def _stopped(group: Group, who: Who) -> tuple[Node | None, str]:
    if group.spec.pool:
        return None, "refused"
    node, word = find(group, who)
    if node is None:
        return None, word
    if node.state is State.DOWN and not group.awaited(node):
        return (node, "") if group.state is State.RUNNING else (None, "not_running")
    return None, "running" if node.state in (State.RUNNING, State.STOPPING) else "restarting"


def which_children(group: Group) -> list[tuple[str, int | str | None, str]]:
    """(id, handle | "restarting" | None, "worker" | "supervisor"), newest first."""
    rows: list[tuple[str, int | str | None, str]] = []
    for child in reversed(group.children):
        handle = "restarting" if child.state is State.RESTARTING else child.handle if child.live else None
        rows.append((child.id, handle, child.kind))
    return rows


def count_children(group: Group) -> dict[str, int]:
    """specs (1 for dynamic groups), active, supervisors, workers. Restarting ones are not active."""
    supervisors = sum(isinstance(c, Group) for c in group.children)
    return {
        "specs": 1 if group.dynamic else len(group.children),
        "active": sum(c.live for c in group.children),
        "supervisors": supervisors,
        "workers": len(group.children) - supervisors,
    }


def get_childspec(group: Group, who: Who) -> Result:
    """The whole specification, defaults filled in; a pool's template by the handle of any live child."""
    node, word = find(group, who)
    if node is None or (group.spec.pool and not node.live):
        return Result(error=word or "not_found")
    spec: Any = group.spec.template if group.dynamic else node.spec  # type: ignore[attr-defined]
    return Result(spec)


# --- the size of a pool -----------------------------------------------------------------------------


def scale(group: Group, count: int, busy: Mapping[int, int], answer: Answer) -> None:
    """Brings a pool to `count` children: new ones at once, or the idlest and then the oldest away.

    Upwards it is answered when every new child has acked or failed; failed ones are not retried. Downwards at once:
    those that leave finish their jobs first. `busy`: running jobs by handle.
    """
    if not group.spec.pool:
        return answer(Result(error="refused", detail="not a pool"))
    if group.state is not State.RUNNING:
        return answer(Result(error="not_running"))
    limit = group.spec.max_children
    if limit is not None and count > limit:
        return answer(Result(error="max_children", detail=f"at most {limit}"))
    heir = _pending_heir(group)
    present = [c for c in group.children if not c.retired and c is not heir]
    group.target, group.problem = count, ""
    if count <= len(present):
        for node in sorted(present, key=lambda c: _worth(c, busy))[: len(present) - count]:
            _scale_away(group, node)
        return answer(Result(_size(group)))
    gather = _Gather(group, count - len(present), answer)
    for _ in range(count - len(present)):
        assert group.spec.template is not None
        launch(group, group.make(group.copy_of(group.spec.template)), "start", gather)
    return None


def _pending_heir(group: Group) -> Node | None:
    """The one that is to take another's place and does not count yet."""
    swap = group.surge.active
    return swap.heir if swap is not None and not swap.dismissed else None


def _worth(node: Node, busy: Mapping[int, int]) -> tuple[bool, int, int, int]:
    """Least worth keeping first: not running, fewest jobs, oldest generation, oldest."""
    generation = node.spec.generation if isinstance(node, Leaf) else 0
    return node.state is State.RUNNING, busy.get(node.handle, 0), generation, node.handle


def _scale_away(group: Group, node: Node) -> None:
    node.retired = True
    if node.live and node.state is not State.STOPPING:
        node.stop("scale", patience=group.spec.drain)
    elif not node.live:
        node.stay_down()
        group.remove(node)


def _size(group: Group) -> dict[str, Any]:
    running = sum(c.state is State.RUNNING and not c.retired for c in group.children)
    return {"target": group.target, "running": running, "problem": group.problem}


class _Gather:
    """Answers once, when the last of several starts has come to its end."""

    def __init__(self, group: Group, count: int, answer: Answer) -> None:
        self._group, self._left, self._answer = group, count, answer
        self._error = ""

    def __call__(self, result: Result) -> None:
        self._left -= 1
        self._error = self._error or result.detail * bool(result.error) or result.error
        if self._left == 0:
            error = "start_error" if self._error else ""
            self._answer(Result(_size(self._group), error=error, detail=self._error))


# --- new specifications, nothing started or stopped ---------------------------------------------------


def adopt(group: Group, spec: GroupSpec) -> None:
    """Takes new flags and specifications for a group and those below it, as OTP's code change does.

    Live children stay as they are and follow the new rules from now on. New children are known but not started;
    children that the new specification lacks stay until they are deleted.

    Raises:
        SpecError: a child would change between process and group, or a pool would become a static group.
    """
    check_shape(group, spec)
    group.spec = spec
    known = {child.id: child for child in group.children}
    for index, new in enumerate(spec.children):
        node = known.get(new.id)
        if node is None:
            group.children.insert(index, group.make(new))
        elif isinstance(node, Group) and isinstance(new, GroupSpec):
            adopt(node, new)
        elif isinstance(node, Leaf) and isinstance(new, ChildSpec):
            node.spec = new
    order = {new.id: place for place, new in enumerate(spec.children)}
    if not spec.pool:
        group.children.sort(key=lambda child: order.get(child.id, len(order)))


def check_shape(group: Group, spec: GroupSpec) -> None:
    """Refuses a specification that would turn a process into a group, or a pool into a static group.

    Raises:
        SpecError: names the group and the child.
    """
    if group.spec.pool != spec.pool:
        raise SpecError(f"group {spec.id!r}: template: a pool stays a pool, a static group stays static")
    for child in group.children:
        new = next((s for s in spec.children if s.id == child.id), None)
        if new is not None and isinstance(new, GroupSpec) != isinstance(child, Group):
            raise SpecError(f"group {spec.id!r}: {child.id!r}: a process cannot become a group")
        if isinstance(child, Group) and isinstance(new, GroupSpec):
            check_shape(child, new)
