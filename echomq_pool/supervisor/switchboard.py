# SPDX-License-Identifier: MIT
"""The hub: who gets which frame. What is not addressed to the supervisor is passed on undecoded.

worker → Held, Settled, Guards → lock_manager → Lost, GuardsLost → that worker
queue_events → Cancel → every worker, lock_manager
queue_events → Events → observer
worker dead → Down → lock_manager → Recovered → forgotten
lock_manager new → Up and Down of all, Relearn to all workers
"""

from __future__ import annotations

from collections.abc import Callable

from echomq_pool.ipc.channel import Frame
from echomq_pool.ipc.messages import Down, Kind, Message, Relearn
from echomq_pool.supervisor.family import Family, Member

LOCK_MANAGER = "lock_manager"
OBSERVER = "observer"
TO_ONE_WORKER = frozenset({Kind.LOST, Kind.GUARDS_LOST})
FORWARDED = TO_ONE_WORKER | {Kind.HELD, Kind.SETTLED, Kind.GUARDS, Kind.CANCEL, Kind.EVENTS}


class Switchboard:
    """Forwards and tells. `watch` is called after every write, since a socket may have had no room."""

    def __init__(self, family: Family, watch: Callable[[Member], None]) -> None:
        self._family = family
        self._watch = watch

    def forward(self, frame: Frame) -> None:
        """Passes a frame on by kind and slot alone. Nobody there: a new lock manager asks for all anew."""
        for member in self._receivers(frame):
            member.channel.forward(frame)
            self._watch(member)

    def tell(self, member: Member, message: Message) -> None:
        """One message from the supervisor itself."""
        if not member.channel.closed:
            member.channel.send(message, slot=member.slot)
            member.channel.flush()
            self._watch(member)

    def tell_lock_manager(self, message: Message) -> None:
        manager = self._family.named(LOCK_MANAGER)
        if manager is not None:
            self.tell(manager, message)

    def tell_observer(self, message: Message) -> None:
        observer = self._family.named(OBSERVER)
        if observer is not None:
            self.tell(observer, message)

    def introduce(self, manager: Member) -> None:
        """Tells a new lock manager who lives and who has died, and asks the living what they hold."""
        for worker in self._family.workers():
            self.tell(manager, worker.up())
        for down in list(self._family.buried.values()):
            self.tell(manager, down)
        for worker in self._family.workers():
            self.tell(worker, Relearn(manager.handle))

    def mourn(self, down: Down) -> None:
        self.tell_lock_manager(down)

    def _receivers(self, frame: Frame) -> list[Member]:
        family = self._family
        if frame.kind in TO_ONE_WORKER:
            worker = family.by_slot(frame.slot)
            return [] if worker is None else [worker]
        named = family.named(OBSERVER if frame.kind is Kind.EVENTS else LOCK_MANAGER)
        workers = family.workers() if frame.kind is Kind.CANCEL else []
        return workers if named is None else [*workers, named]
