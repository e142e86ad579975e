# SPDX-License-Identifier: MIT
"""What to supervise, as data: frozen child and group specifications, and their checks.

A group is a supervisor in the OTP sense (strategy, budget, ordered children), but no process of its own.
Groups nest. A group with a `template` is a pool: its children are copies of one specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

from echomq_pool.errors import SpecError


class Restart(StrEnum):
    """When a child that ended is started again: always, after an abnormal end, never."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class Strategy(StrEnum):
    """Who else is restarted with a dead child."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"
    DYNAMIC = "dynamic"  # one template, children come and go, no order


class AutoShutdown(StrEnum):
    """Whether a group ends by itself when significant children have ended for good."""

    NEVER = "never"
    ANY = "any_significant"
    ALL = "all_significant"


Patience = int | Literal["brutal_kill", "infinity"]
NEVER_MS = 1 << 53  # a deadline that does not come: what `infinity` means on the wire


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay between restart attempts: 0, then initial · 2ⁿ up to max (ms), ± jitter (a share of it)."""

    initial_ms: int = 100
    max_ms: int = 30_000
    jitter: float = 0.25


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process.

    `start` is a dotted path, so the supervisor imports no child. `shutdown` is the patience of a stop in ms,
    `brutal_kill` (no question asked) or `infinity` (until the deadline of a global stop). `spawner` is `fork` or
    `zygote:<group>`. `surge`: a replacement may live beside the one it replaces (always so in pools).
    `stop_first`: a global stop asks this child at once instead of in its turn.
    """

    id: str
    start: str
    args: Mapping[str, Any] = field(default_factory=dict)
    restart: Restart = Restart.PERMANENT
    shutdown: Patience = 5_000
    significant: bool = False
    start_timeout_ms: int = 60_000
    backoff: Backoff = field(default_factory=Backoff)
    generation: int = 0
    spawner: str = "fork"
    surge: bool = False
    stop_first: bool = False

    def __post_init__(self) -> None:
        _refuse(self.id, _CHILD_CHECKS, self)
        if self.significant and self.restart is Restart.PERMANENT:
            raise SpecError(f"child {self.id!r}: significant: a permanent child cannot be significant")


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A strategy, a budget, and children in start order, or a template and how many copies of it.

    `max_restarts` in `period_ms` is the budget of restart attempts. `drain` is the patience with a pool child that
    is replaced or scaled away. `shutdown` caps the stop of everything inside when this group is a child.
    """

    id: str
    strategy: Strategy = Strategy.ONE_FOR_ONE
    children: tuple[ChildSpec | GroupSpec, ...] = ()
    template: ChildSpec | None = None
    count: int = 0
    max_children: int | None = None
    max_restarts: int = 1
    period_ms: int = 5_000
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER
    restart: Restart = Restart.PERMANENT
    significant: bool = False
    shutdown: Patience = "infinity"
    drain: Patience = "infinity"
    backoff: Backoff = field(default_factory=Backoff)
    generation: int = 0
    stop_first: bool = False

    def __post_init__(self) -> None:
        _refuse(self.id, _GROUP_CHECKS, self)
        for problem in _group_problems(self):
            raise SpecError(f"group {self.id!r}: {problem}")

    @property
    def pool(self) -> bool:
        """Whether the children are copies of one template."""
        return self.template is not None


Spec = ChildSpec | GroupSpec


def child_spec(plain: Mapping[str, Any]) -> ChildSpec:
    """A child specification from a plain mapping, words instead of enums.

    Raises:
        SpecError: a field is missing, unknown or wrong; the message names it.
    """
    values = _known(ChildSpec, plain)
    _require("child", values, "id", "start")
    _enum(values, "restart", Restart)
    if isinstance(values.get("backoff"), Mapping):
        values["backoff"] = Backoff(**_known(Backoff, values["backoff"]))
    return ChildSpec(**values)


def group_spec(plain: Mapping[str, Any]) -> GroupSpec:
    """A group specification from a plain mapping; children are mappings too (those with `start` are processes).

    Raises:
        SpecError: as for `child_spec`.
    """
    values = _known(GroupSpec, plain)
    _require("group", values, "id")
    _enum(values, "strategy", Strategy)
    _enum(values, "auto_shutdown", AutoShutdown)
    _enum(values, "restart", Restart)
    children = values.get("children", ())
    if not isinstance(children, (list, tuple)):
        raise SpecError(f"group {values['id']!r}: children: expected a list, got {children!r}")
    values["children"] = tuple(_either(c) for c in children)
    if isinstance(values.get("template"), Mapping):
        values["template"] = child_spec(values["template"])
    if isinstance(values.get("backoff"), Mapping):
        values["backoff"] = Backoff(**_known(Backoff, values["backoff"]))
    return GroupSpec(**values)


def check_tree(root: GroupSpec) -> None:
    """Refuses a tree in which two groups bear the same name: groups are addressed by it.

    Raises:
        SpecError: names the group.
    """
    seen: set[str] = set()
    for group in groups_of(root):
        if group.id in seen:
            raise SpecError(f"group {group.id!r}: id: used by two groups")
        seen.add(group.id)


def groups_of(root: GroupSpec) -> list[GroupSpec]:
    """The group and all groups below it, in start order."""
    found = [root]
    for child in root.children:
        if isinstance(child, GroupSpec):
            found += groups_of(child)
    return found


def _either(plain: Any) -> Spec:
    if isinstance(plain, (ChildSpec, GroupSpec)):
        return plain
    if not isinstance(plain, Mapping):
        raise SpecError(f"child: expected a mapping, got {plain!r}")
    return group_spec(plain) if {"strategy", "children", "template"} & set(plain) else child_spec(plain)


def _known(cls: type[Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    for key in plain:
        if key not in names:
            raise SpecError(f"{plain.get('id', cls.__name__)!r}: {key}: unknown field")
    return dict(plain)


def _require(what: str, values: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if name not in values:
            raise SpecError(f"{what} {values.get('id', '?')!r}: {name}: missing")


def _enum(values: dict[str, Any], name: str, enum: type[StrEnum]) -> None:
    if name not in values or isinstance(values[name], enum):
        return
    try:
        values[name] = enum(values[name])
    except ValueError:
        words = ", ".join(enum)
        raise SpecError(
            f"{values.get('id')!r}: {name}: expected one of {words}, got {values[name]!r}"
        ) from None


# --- one check per field -------------------------------------------------------------------------

_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 64


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_positive(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_patience(value: Any) -> bool:
    return value in ("brutal_kill", "infinity") or _is_count(value)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_backoff(value: Any) -> bool:
    if not isinstance(value, Backoff):
        return False
    return _is_count(value.initial_ms) and _is_count(value.max_ms) and 0 <= value.jitter < 1


def _is_spawner(value: Any) -> bool:
    return isinstance(value, str) and (value == "fork" or value.startswith("zygote:"))


def _is_limit(value: Any) -> bool:
    return value is None or _is_count(value)


_Checks = dict[str, tuple[Callable[[Any], bool], str]]

_COMMON: _Checks = {
    "id": (_is_id, "a short string"),
    "restart": (lambda v: isinstance(v, Restart), "permanent, transient or temporary"),
    "shutdown": (_is_patience, "ms, brutal_kill or infinity"),
    "significant": (_is_bool, "true or false"),
    "backoff": (_is_backoff, "a Backoff with initial_ms, max_ms >= 0 and 0 <= jitter < 1"),
    "generation": (_is_count, "a number >= 0"),
    "stop_first": (_is_bool, "true or false"),
}
_CHILD_CHECKS: _Checks = _COMMON | {
    "start": (lambda v: isinstance(v, str) and bool(_PATH.fullmatch(v)), "a dotted path module:function"),
    "args": (lambda v: isinstance(v, Mapping), "a mapping"),
    "start_timeout_ms": (_is_positive, "ms > 0"),
    "spawner": (_is_spawner, "fork or zygote:<group>"),
    "surge": (_is_bool, "true or false"),
}
_GROUP_CHECKS: _Checks = _COMMON | {
    "strategy": (lambda v: isinstance(v, Strategy), "one_for_one, one_for_all, rest_for_one or dynamic"),
    "children": (lambda v: isinstance(v, tuple), "a tuple of specifications"),
    "template": (lambda v: v is None or isinstance(v, ChildSpec), "a child specification"),
    "count": (_is_count, "a number >= 0"),
    "max_children": (_is_limit, "a number >= 0 or None"),
    "max_restarts": (_is_count, "a number >= 0"),
    "period_ms": (_is_positive, "ms > 0"),
    "auto_shutdown": (lambda v: isinstance(v, AutoShutdown), "never, any_significant or all_significant"),
    "drain": (_is_patience, "ms, brutal_kill or infinity"),
}


def _refuse(name: Any, checks: _Checks, spec: Any) -> None:
    for key, (fits, expected) in checks.items():
        value = getattr(spec, key)
        if not fits(value):
            raise SpecError(f"{name!r}: {key}: expected {expected}, got {value!r}")


def _group_problems(spec: GroupSpec) -> list[str]:
    problems = []
    ids = [c.id for c in spec.children]
    problems += [f"children: duplicate id {i!r}" for i in dict.fromkeys(ids) if ids.count(i) > 1]
    if spec.strategy is Strategy.DYNAMIC and (spec.template is None or spec.children):
        problems.append(
            f"template: a dynamic group has exactly one template and no children, got {len(ids)} children"
        )
    if spec.template is not None and spec.children:
        problems.append("children: a group has children or a template, not both")
    if spec.template is None and spec.count:
        problems.append("count: only a group with a template has a count")
    if spec.strategy is Strategy.DYNAMIC and spec.auto_shutdown is not AutoShutdown.NEVER:
        problems.append("auto_shutdown: a dynamic group never shuts down by itself")
    if spec.significant and spec.restart is Restart.PERMANENT:
        problems.append("significant: a permanent group cannot be significant")
    if spec.max_children is not None and spec.count > spec.max_children:
        problems.append(f"count: {spec.count} is more than max_children {spec.max_children}")
    members = [*spec.children, *([spec.template] if spec.template else [])]
    if spec.auto_shutdown is AutoShutdown.NEVER:
        problems += [
            f"significant: {m.id!r} cannot be significant where auto_shutdown is never"
            for m in members
            if m.significant
        ]
    return problems
