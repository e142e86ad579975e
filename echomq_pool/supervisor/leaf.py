# SPDX-License-Identifier: MIT
"""One supervised process, as the tree sees it: asked to start, acked, asked to stop, insisted on, gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from echomq_pool.supervisor.actions import AskStop, Kill, Result, Spawn
from echomq_pool.supervisor.node import Node, Parent, State, World
from echomq_pool.supervisor.reason import SHUTDOWN, ExitReason
from echomq_pool.supervisor.spec import NEVER_MS, ChildSpec, Patience, Restart

ABORT_MS = 2_000  # from SIGABRT (stacks are printed) to SIGKILL


class Leaf(Node):
    """A process. Never two incarnations at once: a restart waits for `exited`."""

    kind = "worker"

    def __init__(self, world: World, parent: Parent, spec: ChildSpec) -> None:
        super().__init__(world, parent, spec)
        self.spec = spec
        self.failure = ""  # why this start is doomed, though the process has not ended yet
        self.final = False
        self.ignoring = False
        self.deadline = NEVER_MS

    @property
    def restart(self) -> Restart:
        return self.spec.restart

    @property
    def significant(self) -> bool:
        return self.spec.significant

    @property
    def stop_first(self) -> bool:
        return self.spec.stop_first

    def start(self) -> None:
        self.handle = self.world.new_handle()
        self.world.live[self.handle] = self
        self.state = State.STARTING
        self.info, self.failure, self.final, self.ignoring = None, "", False, False
        self.deadline = NEVER_MS
        self.world.emit(Spawn(self.handle, self.spec))
        self.set_timer(self.world.now + self.spec.start_timeout_ms, self._no_ack)
        if self.spec.restart is Restart.TEMPORARY:
            self.spec = replace(self.spec, args={})  # never started again: big arguments need not be kept

    def _no_ack(self) -> None:
        self.failure = f"boot timeout: no ack within {self.spec.start_timeout_ms} ms"
        self._insist("abort")

    def _insist(self, how: str) -> None:
        self.world.emit(Kill(self.handle, "abort" if how == "abort" else "kill"))
        again = (lambda: self._insist("kill")) if how == "abort" else None
        self.set_timer(self.world.now + ABORT_MS, again)

    # --- what the process does -------------------------------------------------------------------

    def acked(self, info: Any) -> None:
        """The first frame. One that comes after the start was given up, or after a stop, changes nothing."""
        if self.state is State.STARTING and not self.failure:
            self.info = info
            self.came_up()
            self.parent.child_started(self)

    def ignored(self) -> None:
        """It has nothing to do and leaves by itself."""
        self.ignoring = True
        self._leaving()

    def start_failed(self, cause: str, final: bool) -> None:
        """It said why it cannot start, and leaves by itself."""
        self.failure, self.final = cause, final
        self._leaving()

    def _leaving(self) -> None:
        if self.state is State.STARTING:
            self.set_timer(self.world.now + ABORT_MS, lambda: self._insist("kill"))

    def exited(self, reason: ExitReason) -> None:
        before = self._gone(reason)
        if before is State.STOPPING:
            self.parent.child_stopped(self, reason)
        elif before is State.RUNNING:
            self.parent.child_ended(self, reason)
        elif self.ignoring:
            self.parent.child_ignored(self)
        else:
            self.last_failure = self.failure or reason.text
            self.parent.child_failed(self, self.last_failure, self.final or reason.final)

    def fork_failed(self, errno_name: str) -> None:
        """There never was a process."""
        before = self._gone(None)
        if before is State.STOPPING:
            self.parent.child_stopped(self, SHUTDOWN)
        else:
            self.last_failure = f"fork failed: {errno_name}"
            self.parent.child_failed(self, self.last_failure, False, forked=False)

    def _gone(self, reason: ExitReason | None) -> State:
        self.world.live.pop(self.handle, None)
        self.set_timer(0, None)
        before, self.state = self.state, State.DOWN
        self.last = reason or self.last
        return before

    # --- stopping --------------------------------------------------------------------------------

    def stop(self, why: str, *, patience: Patience | None = None, cap_ms: int = NEVER_MS) -> None:
        """Asks it to leave, and insists when the patience is over."""
        patience = self.spec.shutdown if patience is None else patience
        self.state = State.STOPPING
        self.tell_starters(Result(error="terminated"))
        self.set_timer(0, None)
        if patience == "brutal_kill" or cap_ms <= self.world.now or self.failure:
            self.world.emit(Kill(self.handle, "kill"))
            return
        self._ask(why, self.world.deadline(patience, cap_ms))

    def hurry(self, why: str) -> None:
        """The global stop reaches a child that is being stopped already."""
        self._ask(why, min(self.deadline, self.world.global_cap()))

    def _ask(self, why: str, deadline: int) -> None:
        self.deadline = deadline
        self.world.emit(AskStop(self.handle, deadline, self.world.fast, why))
        self.set_timer(deadline, (lambda: self._insist("kill")) if deadline < NEVER_MS else None)

    def offender(self) -> dict[str, Any]:
        return {
            "handle": self.handle,
            "id": self.id,
            "start": self.spec.start,
            "restart": self.spec.restart.value,
            "shutdown": self.spec.shutdown,
            "type": self.kind,
        }
