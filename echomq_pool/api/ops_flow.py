# SPDX-License-Identifier: MIT
"""Flows: trees of jobs that are added at once and read back. Written once for both producers.

A parent stands before its children, so that they find it; siblings stand in the order given. Every node without an id
of its own gets a UUID, because its children must name it before it exists.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from echomq_pool.api.ask import Ask, Made, Op
from echomq_pool.api.job_view import JobView
from echomq_pool.api.operations import Operations
from echomq_pool.api.ops_add import Tell, added_id, merged, record_of
from echomq_pool.api.options import check_job, check_options
from echomq_pool.errors import InputError
from echomq_pool.plane import adding
from echomq_pool.plane.adding import NewJob, Parent
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.redisio.scripts import Script

MAX_DEPTH = (
    100  # levels of a flow to be added: deeper is a mistake, and Python's recursion ends not far beyond
)

# The operations of a queue by its name and prefix ("" = the producer's own). True: the name is as it stands in keys.
OpsOf = Callable[[str, str, bool], Operations]

_NODE = {"name": "name", "queue": "queue", "queueName": "queue", "queue_name": "queue", "data": "data",
         "opts": "opts", "prefix": "prefix", "children": "children"}  # fmt: skip


@dataclass(slots=True)
class Node:
    """A checked node of a flow to be added."""

    ops: Operations
    queue: str
    prefix: str
    job: NewJob
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """Itself and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(slots=True)
class Found:
    """A stored node of a flow: its record, where it is, and its children as far as they were asked for."""

    queue: str
    prefix: str
    wire: bool  # the queue's name is as it stands in keys
    record: JobRecord
    children: list[Found] = field(default_factory=list)


class FlowOps:
    """Operations of a producer of flows.

    Args:
        script: made by `adding.flow_script`.
        ops_of: gives the operations of a queue.
        now: wall ms.
    """

    def __init__(self, script: Script, ops_of: OpsOf, now: Callable[[], int]) -> None:
        self._script = script
        self._ops_of = ops_of
        self._now = now
        self._tell: Tell = lambda options: options

    def add(
        self, flows: Sequence[Any], queues: Mapping[str, Any], tell: Tell = lambda options: options
    ) -> Op[list[Found]]:
        """Adds all flows in one step, or none of them. `tell` adds to a job's options.

        Raises:
            InputError: a node that cannot be added, with its place in the tree.
            ParentMissing: the root's own parent does not exist.
        """
        defaults = _defaults(queues)
        now, self._tell = self._now(), tell
        roots = [
            self._checked(flow, _place(i, flows), defaults, now, None, 0) for i, flow in enumerate(flows)
        ]
        nodes = [node for root in roots for node in root.walk()]
        if not nodes:
            return []
        calls = [adding.add(node.ops.keys, node.job, children=bool(node.children)) for node in nodes]
        keys, args = adding.flow(self._script, calls)
        (replies,) = yield [Ask(Made(self._script, keys, args), repeat=False)]
        ids = {id(node): reply for node, reply in zip(nodes, replies, strict=True)}
        for root in roots:
            added_id(ids[id(root)], root.job)
        return [_shown(root) for root in roots]

    def _checked(
        self,
        flow: Any,
        place: str,
        defaults: Mapping[str, Mapping[str, Any]],
        now: int,
        parent: Parent | None,
        depth: int,
    ) -> Node:
        if depth >= MAX_DEPTH:
            raise InputError(f"{place}: a flow may be {MAX_DEPTH} levels deep")
        given = _fields(flow, place)
        children = given.get("children") or []
        if not isinstance(children, Sequence) or isinstance(children, str | bytes):
            raise InputError(f"{place}.children: expected a list, got {children!r}")
        queue, prefix = given.get("queue"), given.get("prefix") or ""
        try:
            ops = self._ops_of(queue, prefix, False)  # type: ignore[arg-type]  # refuses what is no name
            options = dict(merged(defaults.get(str(queue), {}), given.get("opts") or {}))
            job = _node_job(given, dict(self._tell(options)), parent, now)
            if children and job.dedup_id:
                raise InputError("deduplication: a job with children cannot have one")
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
        node = Node(ops, str(queue), prefix, job)
        above = Parent(job.job_id, ops.keys.qualified)
        node.children = [
            self._checked(child, f"{place}.children[{i}]", defaults, now, above, depth + 1)
            for i, child in enumerate(children)
        ]
        return node

    def get(
        self, queue: str, prefix: str, job_id: str, depth: int, most: int, *, wire: bool = False
    ) -> Op[Found | None]:
        """A job and its children, `depth` levels of at most about `most` of each kind per parent."""
        ops = self._ops_of(queue, prefix, wire)
        record = yield from ops.load(job_id)
        if record is None:
            return None
        found = Found(queue, prefix, wire, record)
        if depth > 1:
            for key in (yield from _child_keys(ops, job_id, most)):
                child = yield from self._child(key, depth - 1, most)
                if child is not None:
                    found.children.append(child)
        return found

    def _child(self, key: str, depth: int, most: int) -> Op[Found | None]:
        head, _, job_id = key.rpartition(":")
        prefix, _, queue = head.rpartition(":")
        return (yield from self.get(queue, prefix, job_id, depth, most, wire=True))


def _child_keys(ops: Operations, job_id: str, most: int) -> Op[list[str]]:
    view = JobView(JobRecord(job_id))
    keys: dict[str, None] = {}
    for kind in ("processed", "unprocessed", "ignored", "failed"):
        _, items = yield from ops.of_job.get_dependencies_page(view, kind, 0, most)
        keys |= dict.fromkeys(list(items)[:most])
    return list(keys)


def _node_job(given: Mapping[str, Any], options: dict[str, Any], parent: Parent | None, now: int) -> NewJob:
    if parent is not None:
        if options.get("parent") is not None:
            raise InputError("parent: a node below another has that one")
        options["parent"] = {"id": parent.id, "queue": parent.queue}
    job = check_job(given.get("name"), given.get("data"), options, now)
    return job if job.job_id else replace(job, job_id=str(uuid.uuid4()))


def _fields(flow: Any, place: str) -> dict[str, Any]:
    if not isinstance(flow, Mapping):
        raise InputError(f"{place}: expected {{name, queue, data, opts, children}}, got {flow!r}")
    for key in flow:
        if key not in _NODE:
            raise InputError(
                f"{place}.{key}: there is no such field; known are {', '.join(sorted(set(_NODE)))}"
            )
    return {_NODE[key]: value for key, value in flow.items()}


def _defaults(queues: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options of the jobs by queue: `{"orders": {"job_options": {…}}}`, checked."""
    found: dict[str, dict[str, Any]] = {}
    for queue, given in queues.items():
        options = (
            given.get("job_options", given.get("defaultJobOptions")) if isinstance(given, Mapping) else None
        )
        if options is None or set(given) - {"job_options", "defaultJobOptions"}:
            raise InputError(f"queues_options.{queue}: expected {{job_options: {{…}}}}, got {given!r}")
        found[queue] = check_options(options)
    return found


def _place(index: int, flows: Sequence[Any]) -> str:
    return "flow" if len(flows) == 1 else f"flow {index}"


def _shown(node: Node) -> Found:
    record = record_of(node.job.job_id, node.job)
    return Found(node.queue, node.prefix, False, record, [_shown(child) for child in node.children])
