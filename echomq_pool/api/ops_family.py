# SPDX-License-Identifier: MIT
"""Parents and children: pages of a parent's children, parents that wait in vain, and what a flow is read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from echomq_pool.api.ask import Base, Op, ask_read, ask_script, text_id
from echomq_pool.api.ops_look import decode_value
from echomq_pool.errors import InputError
from echomq_pool.plane import codec, upkeep
from echomq_pool.plane.codes import check
from echomq_pool.plane.job_record import JobRecord


@dataclass(frozen=True, slots=True)
class ChildrenPage:
    """One page of a parent's children.

    `items`: per child its key, and for a processed one its return value. `jobs`: what is stored of them, None for one
    that is gone. `total`: how many there are altogether.
    """

    items: list[tuple[str, Any]]
    jobs: list[JobRecord | None]
    total: int


@dataclass(frozen=True, slots=True)
class BlockedParent:
    """A parent in waiting-children, and the keys of its pending children that have failed."""

    id: str
    children: list[str]


class FamilyOps(Base):
    """Reads only, but for two verbs of jobs known by id alone."""

    def children_of(self, parent_id: str, kind: str, start: int, end: int) -> Op[ChildrenPage]:
        if kind not in ("processed", "pending"):
            raise InputError(f"children: expected 'processed' or 'pending', got {kind!r}")
        keys = self.keys
        key = keys.processed(parent_id) if kind == "processed" else keys.dependencies(text_id(parent_id))
        items: list[tuple[str, Any]] = []
        jobs: list[JobRecord | None] = []
        cursor, offset, total = "0", 0, 0
        while True:
            call = upkeep.paginate(key, start + len(items), end, cursor, offset, True)
            (reply,) = yield [ask_script(call)]
            found_cursor, found_offset, rows, total, *more = reply
            found = [_item(row) for row in rows]
            items += found
            jobs += [
                JobRecord.from_flat(name.rpartition(":")[2], flat) if flat else None
                for (name, _), flat in zip(found, more[0] if more else [], strict=False)
            ]
            cursor, offset = codec.to_text(found_cursor), int(found_offset)
            if cursor == "0" or (end >= 0 and len(items) >= end - start + 1):
                return ChildrenPage(items, jobs, int(total))

    def blocked_parents(self, start: int, end: int) -> Op[list[BlockedParent]]:
        (ids,) = yield [ask_read("ZRANGE", self.keys.key("waiting-children"), start, end)]
        found: list[BlockedParent] = []
        for parent_id in map(codec.to_text, ids):
            (members,) = yield [ask_read("SMEMBERS", self.keys.dependencies(parent_id))]
            children = sorted(map(codec.to_text, members))
            failed = yield from self._failed(children)
            if failed:
                found.append(BlockedParent(parent_id, failed))
        return found

    def _failed(self, children: Sequence[str]) -> Op[list[str]]:
        if not children:
            return []
        asks = []
        for key in children:
            queue, _, job_id = key.rpartition(":")
            asks.append(ask_read("ZSCORE", f"{queue}:failed", job_id))
        scores = yield asks
        return [key for key, score in zip(children, scores, strict=True) if score is not None]

    # --- by id ----------------------------------------------------------------------------------------

    def add_log(self, job_id: str, row: str, keep: int | None) -> Op[int]:
        (reply,) = yield [ask_script(self._calls.log(text_id(job_id), str(row), keep))]
        check(reply, job_id, "log for")
        return int(reply)

    def update_progress(self, job_id: str, progress: Any) -> Op[None]:
        (reply,) = yield [ask_script(self._calls.progress(text_id(job_id), codec.encode(progress)))]
        check(reply, job_id, "update the progress of")


def _item(row: Any) -> tuple[str, Any]:
    if isinstance(row, list | tuple):
        return codec.to_text(row[0]), decode_value(row[1])
    return codec.to_text(row), None
