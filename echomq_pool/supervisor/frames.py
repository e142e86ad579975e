# SPDX-License-Identifier: MIT
"""What children tell the supervisor itself, frame by frame; everything else is passed on undecoded."""

from __future__ import annotations

import logging
from typing import Protocol

from echomq_pool.ipc.channel import Frame, ProtocolError
from echomq_pool.ipc.messages import (
    Bye,
    Expired,
    Failed,
    Ignore,
    Linked,
    Message,
    Quiet,
    Ready,
    Recovered,
    Stats,
    Wish,
)
from echomq_pool.metrics import Totals
from echomq_pool.supervisor.actions import Action
from echomq_pool.supervisor.family import Family, Member
from echomq_pool.supervisor.guard import Guard
from echomq_pool.supervisor.reason import Why
from echomq_pool.supervisor.switchboard import FORWARDED, LOCK_MANAGER, Switchboard
from echomq_pool.supervisor.tree import Tree

log = logging.getLogger("echomq.supervisor")


class Hearer(Protocol):
    """The part of the supervisor that acts on what was heard."""

    changed: bool
    family: Family
    guard: Guard
    quiet: bool
    server: str
    switchboard: Switchboard
    totals: Totals
    tree: Tree

    def now(self) -> int: ...
    def perform(self, actions: list[Action]) -> None: ...
    def end_for(self, member: Member, why: Why, how: str = "kill") -> None: ...
    def replace(self, member: Member, why: str) -> None: ...
    def is_quieted(self, member: Member) -> bool: ...


class Frames:
    """One `take` per frame."""

    def __init__(self, root: Hearer) -> None:
        self._root = root

    def take(self, member: Member, frame: Frame) -> bool:
        """Passes the frame on (False), or acts on it (True). One that cannot be read is logged and forgotten."""
        if frame.kind in FORWARDED:
            self._root.switchboard.forward(frame)
            return False
        try:
            self._hear(member, frame.message())
        except ProtocolError as error:
            log.error("%s sent a frame that cannot be read: %s", member.id, error)
        return True

    def _hear(self, member: Member, message: Message) -> None:
        root = self._root
        match message:
            case Ready():
                self._ready(member, message)
            case Ignore():
                root.perform(root.tree.ignored(root.now(), member.handle))
            case Failed():
                self._failed(member, message)
            case Linked():
                self._linked(member, message)
            case Stats():
                root.totals.update(member.handle, message.counters, message.gauges, message.histograms)
                root.changed = True
            case Expired():
                self._expired(message)
            case Wish():
                root.replace(member, message.reason)
            case Bye():
                member.bye = message.reason
            case Recovered():
                root.changed = root.family.recovered(message.worker_id) is not None or root.changed
            case _:
                log.error("%s sent %s, which is not for the supervisor", member.id, message.kind.name)

    def _ready(self, member: Member, ready: Ready) -> None:
        root = self._root
        root.family.acked(member, ready)
        log.debug("%s is ready (pid %d) %s", member.id, member.pid, ready.info)
        if member.id == LOCK_MANAGER:
            root.switchboard.introduce(member)
        elif member.worker_id:
            root.switchboard.tell_lock_manager(member.up())
        if root.quiet and root.is_quieted(member):
            root.switchboard.tell(member, Quiet())
        root.guard.look_again()
        root.perform(root.tree.acked(root.now(), member.handle, ready.info))

    def _failed(self, member: Member, failed: Failed) -> None:
        log.error("%s cannot start: %s", member.id, failed.error)
        for line in failed.trace.rstrip().splitlines():
            log.error("%s | %s", member.id, line)
        root = self._root
        cause = f"{member.id}: {failed.error}"
        root.perform(root.tree.start_failed(root.now(), member.handle, cause, failed.final))

    def _linked(self, member: Member, linked: Linked) -> None:
        root = self._root
        member.linked = linked
        member.client_ids = list(linked.client_ids) or member.client_ids
        if linked.server and not root.server:
            root.server = linked.server
            log.info("server: %s", linked.server)
        if member.worker_id:
            root.switchboard.tell_lock_manager(member.up())
        root.changed = True

    def _expired(self, expired: Expired) -> None:
        """A job that cannot be stopped from inside: its process ends, the lock manager settles it."""
        member = self._root.family.by_worker_id(expired.worker_id)
        if member is None or member.killed:
            return
        log.warning("%s: job %s/%s: %s", member.id, expired.queue, expired.job_id, expired.text)
        member.expired.append([expired.queue, expired.job_id, expired.how, expired.text])
        self._root.end_for(member, Why.CANCEL if expired.how == "cancel" else Why.TIMEOUT)
