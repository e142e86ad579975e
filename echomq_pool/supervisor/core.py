# SPDX-License-Identifier: MIT
"""The supervisor's loop: one thread; everything that happens arrives as a readiness or a deadline.

    signals, deaths (pidfd), frames, control clients, zygotes, a configuration being read
        ↓
    Tree (pure)  →  actions  →  fork, Stop frame, signal, log line, answer

It does no work of its own (law 8): no Redis, no user code, no thread, no call that blocks.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
from collections.abc import Callable
from random import Random

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import PoolConfig
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.messages import Quiet, Resume, Stop
from echomq_pool.metrics import Totals
from echomq_pool.supervisor.actions import Action, AskStop, Finished, Kill, Reply, Spawn
from echomq_pool.supervisor.control import ControlServer
from echomq_pool.supervisor.desk import Desk, Reading
from echomq_pool.supervisor.ears import FORWARDED, Ears
from echomq_pool.supervisor.family import Family, Member
from echomq_pool.supervisor.frames import Frames
from echomq_pool.supervisor.guard import Guard
from echomq_pool.supervisor.node import State
from echomq_pool.supervisor.nursery import Born, Nursery
from echomq_pool.supervisor.reaper import Reaper, kill_group, signal_child
from echomq_pool.supervisor.reason import ExitReason, Why
from echomq_pool.supervisor.report import Report
from echomq_pool.supervisor.signals import Inbox
from echomq_pool.supervisor.spawn import ForkFailed, Spawned
from echomq_pool.supervisor.spec import NEVER_MS, ChildSpec, GroupSpec
from echomq_pool.supervisor.status import OomMeter, WaitStatus, judge
from echomq_pool.supervisor.switchboard import Switchboard
from echomq_pool.supervisor.tree import Tree

log = logging.getLogger("echomq.supervisor")

EXIT_DRAINED = 0
EXIT_BOOT_FAILED = 13
EXIT_GAVE_UP = 70
EXIT_WORK_KILLED = 75
TELL_TREE_MS = 1_000
ABANDON_MS = 5_000  # after the stop deadline; the tree itself is through with everything 2.5 s after it
QUIETED = ("stalled_checker", "job_scheduler")  # besides the workers: they start nothing new either
ASKED_FOR = {"scale": Why.SCALE, "reload": Why.RELOAD, "recycle": Why.RECYCLE, "memory": Why.MEMORY}


class Supervisor:
    """One pool's root process.

    Args:
        config: the whole configuration.
        tree_of: configuration and generation → specification of the tree.
        board: made before the first fork.
        reload: starts a new reading of the configuration (see `Desk`); None: there is nothing to reload.
        control: path of the control socket, "" = none.

    Raises:
        ControlError: the control socket cannot be had.
    """

    def __init__(
        self,
        config: PoolConfig,
        tree_of: Callable[[PoolConfig, int], GroupSpec],
        board: Board,
        *,
        reload: Callable[[], Reading] | None = None,
        control: str = "",
        clock: Clock = SYSTEM_CLOCK,
        rng: Random | None = None,
    ) -> None:
        self.config = config
        self._tree_of = tree_of
        self.board = board
        self.clock = clock
        self.generation = 0
        self.ears = Ears(clock)
        self.selector: selectors.BaseSelector = self.ears.urgent
        self.inbox = Inbox()
        self.control = ControlServer(control, clock) if control else None
        self.family = Family(board)
        self.switchboard = Switchboard(self.family, self.ears.watch_writable)
        self.nursery = Nursery(board, clock)
        self.reaper = Reaper(lambda pid: self.family.by_pid(pid) is not None, self._learn)
        self.guard = Guard(board, self.end_for, self.replace)
        self.frames = Frames(self)
        self.desk = Desk(self, reload)
        self.tree = Tree(tree_of(config, 0), rng=rng, drain_ms=config.supervisor.shutdown_timeout_ms)
        self.totals = Totals()
        self.oom = OomMeter()
        self.restarts: dict[str, int] = {}
        self.unborn: dict[int, int] = {}  # slots of children that a zygote has been asked for, by handle
        self.finished: Finished | None = None
        self.quiet = False
        self.stopping = False
        self.work_killed = False
        self.server = ""
        self.tree_told_ms = 0
        self.changed = True

    # --- the loop --------------------------------------------------------------------------------------

    def run(self) -> int:
        """Starts the tree, works until it has finished, returns the exit code of the program."""
        self._open()
        try:
            self.perform(self.tree.start(self.now()))
            while self.finished is None and not self._abandoned():
                self.ears.serve(self._due_ms())
                self._on_time(self.now())
            return self._exit_code(self.finished or Finished("stopped"))
        finally:
            self._close()

    def _abandoned(self) -> bool:
        """Past everything that a stop may take: what SIGKILL has not ended by now hangs in the kernel."""
        closing = self.tree.closing_ms
        if closing is None or self.now() < closing + ABANDON_MS:
            return False
        log.critical("left behind, for SIGKILL does not reach them: %s", [(m.id, m.pid) for m in self.family])
        self.work_killed = True
        return True

    def now(self) -> int:
        """Monotonic ms."""
        return self.clock.mono_ms()

    def _open(self) -> None:
        for thing in (*self.ears.parts(), self.inbox, self.control):
            if thing is not None:
                self.nursery.own(thing)
        self.selector.register(
            self.inbox, selectors.EVENT_READ, lambda _: self.desk.signals(self.inbox.read())
        )
        if self.control is not None:
            self.selector.register(self.control, selectors.EVENT_READ, lambda _: self.desk.clients())

    def _close(self) -> None:
        for member in self.family:  # only after an error of our own: nobody may outlive us
            signal_child(member.pidfd, signal.SIGKILL)
            kill_group(member.pid)
        if self.control is not None:
            self.control.close()
        self.ears.close()
        self.inbox.close()

    def _due_ms(self) -> int:
        """When something is due. The own beat is always due some time: it shows that this loop turns."""
        beat = self.now() + self.config.supervisor.hang_timeout_ms // 4
        tell = self.tree_told_ms + TELL_TREE_MS if self.changed else None
        end = None if self.tree.closing_ms is None else self.tree.closing_ms + ABANDON_MS
        times = [beat, tell, end, self.tree.next_deadline(), self.guard.next_ms(), self.desk.next_ms()]
        return min(t for t in times if t is not None)

    def _on_time(self, now: int) -> None:
        self.board.beat(0, now)
        self.perform(self.tree.tick(now))
        self.guard.look(now, self.config, self.family)
        self.desk.on_time(now)
        if self.changed and now - self.tree_told_ms >= TELL_TREE_MS:
            self.tree_told_ms, self.changed = now, False
            self.desk.tell_observer()

    def _exit_code(self, finished: Finished) -> int:
        if finished.outcome == "boot_failed":
            log.error("the pool cannot start: %s", finished.cause)
            return EXIT_BOOT_FAILED
        if finished.outcome == "gave_up":
            log.error("the pool gave up: %s", finished.cause)
            return EXIT_GAVE_UP
        if self.work_killed:
            log.error("the stop deadline passed: work was killed and given back")
            return EXIT_WORK_KILLED
        log.info("drained")
        return EXIT_DRAINED

    # --- actions of the tree -----------------------------------------------------------------------------

    def perform(self, actions: list[Action]) -> None:
        """Carries out what the tree decided."""
        for action in actions:
            self.changed = True
            match action:
                case Spawn():
                    self._spawn(action)
                case AskStop():
                    self._ask_stop(action)
                case Kill():
                    self._kill(action)
                case Reply():
                    self.desk.answer(action.ticket, action.result)
                case Finished():
                    self.finished = action
                case Report():
                    # A death has its line already (`_log_death`, with the pid); the report adds who supervises it.
                    told = action.context in ("child_terminated", "shutdown_error")
                    log.log(logging.DEBUG if told else action.level, "%s", action.line())

    def _spawn(self, action: Spawn) -> None:
        slot = self.family.take_slot()
        if slot is None:
            self._fork_failed(action.handle, "ENOSPC", "no place is left on the board")
            return
        self.unborn[action.handle] = slot
        born = self.nursery.spawn(action.spec, slot, action.handle, self.config)
        if born is not None:
            self._delivered(born, action.spec)

    def _delivered(self, born: Born, spec: ChildSpec) -> None:
        slot = self.unborn.pop(born.incarnation)
        if isinstance(born, ForkFailed):
            self.family.free_slot(slot)
            self._fork_failed(born.incarnation, born.errno_name, born.text)
        else:
            self._born(born, spec)

    def _fork_failed(self, handle: int, name: str, text: str) -> None:
        log.error("no process for child %d: %s (%s)", handle, text, name)
        self.perform(self.tree.fork_failed(self.now(), handle, name))

    def _born(self, born: Spawned, spec: ChildSpec) -> None:
        leaf = self.tree.leaf(born.incarnation)
        group = leaf.parent.id if leaf is not None else ""
        member = Member(
            born.incarnation, spec, group, born.slot, born.pid, born.pidfd, born.channel, self.now()
        )
        self.family.add(member)
        self.selector.register(born.pidfd, selectors.EVENT_READ, lambda _: self._bury_the_dead())
        self.ears.listen(member, lambda events: self._ready(member, events))
        zygote = self.nursery.zygote_of(born.incarnation)
        if zygote is not None:
            self.selector.register(zygote, selectors.EVENT_READ, lambda _: self._learn())
        if leaf is None or leaf.state is State.STOPPING or leaf.failure:
            member.asked = True  # while a zygote was still at it, it was given up or asked to stop
            self._end(member, "kill")

    def _learn(self) -> None:
        """Reads what zygotes have answered: workers born, or not."""
        for born, spec in self.nursery.read():
            self._delivered(born, spec)

    def _ask_stop(self, action: AskStop) -> None:
        member = self.family.members.get(action.handle)
        if member is None:
            return
        member.asked = True
        member.unhurried_ms = self.now() if action.deadline_ms >= NEVER_MS else 0
        member.why = ASKED_FOR.get(action.reason)
        self.switchboard.tell(member, Stop(action.deadline_ms, action.fast, action.reason))

    def _kill(self, action: Kill) -> None:
        member = self.family.members.get(action.handle)
        if member is not None:
            self._end(member, action.how)

    def _end(self, member: Member, how: str) -> None:
        if how == "abort":
            member.aborted = True
            signal_child(member.pidfd, signal.SIGABRT)
        else:
            member.killed = True
            signal_child(member.pidfd, signal.SIGKILL)

    def end_for(self, member: Member, why: Why, how: str = "kill") -> None:
        """Ends a child for a reason of ours that costs no budget."""
        if not member.killed:
            member.why = why
            self._end(member, how)
            member.abort_ms = self.now() if how == "abort" else 0

    # --- frames ------------------------------------------------------------------------------------------

    def _ready(self, member: Member, events: int) -> object:
        if events & selectors.EVENT_WRITE:
            member.channel.flush()
            self.ears.watch_writable(member)
        if not events & selectors.EVENT_READ:
            return FORWARDED
        acted = [self.frames.take(member, frame) for frame in member.channel.receive()]
        if member.channel.closed:
            self.ears.unwatch(member)
        return None if any(acted) or member.channel.closed else FORWARDED

    # --- deaths --------------------------------------------------------------------------------------------

    def _bury_the_dead(self) -> None:
        """Looks for dead processes; ours are read to the end, while they are still zombies, and then reaped."""
        for end in self.reaper.collect(self._last_words):
            member = self.family.by_pid(end.pid)
            if member is not None:
                self._dead(member, end)

    def deaths(self) -> None:
        """A signal said: look."""
        self._bury_the_dead()

    def _last_words(self, pid: int) -> None:
        """The zombie's group is killed (nothing that a job started may outlive it), its frames are forwarded."""
        member = self.family.by_pid(pid)
        if member is None:
            return
        kill_group(pid)
        while not member.channel.closed and (frames := member.channel.receive()):
            for frame in frames:
                self.frames.take(member, frame)

    def _dead(self, member: Member, end: WaitStatus) -> None:
        reason = judge(end, member.evidence(self.oom.rose() if end.signum == signal.SIGKILL else False))
        self._log_death(member, reason)
        self.ears.unwatch(member)
        self.selector.unregister(member.pidfd)
        os.close(member.pidfd)
        member.channel.close()
        down = member.down(reason, end) if member.worker_id else None
        self.family.remove(member, down)
        self.totals.end(member.handle)
        if down is not None:
            self.switchboard.mourn(down)
        for born, spec in self.nursery.lost(member.handle, self.selector):
            self._delivered(born, spec)
        if self.stopping and reason.kind is Why.KILLED and member.worker_id:
            self.work_killed = True
        self.perform(self.tree.exited(self.now(), member.handle, reason))

    def _log_death(self, member: Member, reason: ExitReason) -> None:
        calm = not reason.abnormal or (reason.planned and reason.kind is not Why.HANG)
        level = logging.INFO if calm else logging.ERROR
        log.log(level, "%s (pid %d) ended: %s", member.id, member.pid, reason.text)
        self.restarts[reason.kind.value] = self.restarts.get(reason.kind.value, 0) + 1

    # --- orders that reach many ----------------------------------------------------------------------------

    def set_quiet(self, quiet: bool) -> None:
        """Nobody starts anything new, or all may again. Those born later are told as well."""
        self.quiet = quiet
        self.changed = True
        for member in self.family:
            if member.ready is not None and self.is_quieted(member):
                self.switchboard.tell(member, Quiet() if quiet else Resume())

    def stop(self, *, fast: bool = False) -> None:
        """The global stop; fast: running jobs are handed back instead of waited for."""
        self.stopping = True
        self.set_quiet(True)
        deadline = self.now() + (0 if fast else self.config.supervisor.shutdown_timeout_ms)
        self.perform(self.tree.stop(self.now(), deadline, fast=fast))

    def replace(self, member: Member, why: str) -> None:
        """A new process for a running one."""
        self.desk.replace(member, why)

    def is_quieted(self, member: Member) -> bool:
        """Whether `quiet` concerns that child."""
        return bool(member.worker_id) or member.id in QUIETED

    def state(self) -> str:
        return "stopping" if self.stopping else "quiet" if self.quiet else "running"

    def tree_of(self, config: PoolConfig, generation: int) -> GroupSpec:
        """The tree that a configuration asks for."""
        return self._tree_of(config, generation)

    def busy(self) -> dict[int, int]:
        """Running jobs by handle, from the board."""
        return {m.handle: self.board.busy(m.slot) for m in self.family if m.worker_id}
