# SPDX-License-Identifier: MIT
"""What people ask of the pool, by signal or over the control socket, and what they are told."""

from __future__ import annotations

import faulthandler
import logging
import selectors
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from echomq_pool.config.schema import PoolConfig
from echomq_pool.errors import ConfigError
from echomq_pool.ipc.messages import Cancel
from echomq_pool.ipc.messages import Tree as TreeMessage
from echomq_pool.supervisor.actions import Action, Result
from echomq_pool.supervisor.control import Asked, ControlServer, Conversation
from echomq_pool.supervisor.family import Member
from echomq_pool.supervisor.picture import Pictured, picture
from echomq_pool.supervisor.reaper import signal_child
from echomq_pool.supervisor.signals import TABLE, Request, StopCounter
from echomq_pool.supervisor.spec import GroupSpec
from echomq_pool.supervisor.switchboard import Switchboard

log = logging.getLogger("echomq.supervisor")

DUMP_APART_MS = 50  # a process writes its stacks in a millisecond or two

Answer = Callable[[Result], None]


class Reading(Protocol):
    """A configuration that is being read: `supervisor/loader.py`."""

    def fileno(self) -> int: ...
    def read(self) -> PoolConfig | None: ...


class Root(Pictured, Protocol):
    """The part of the supervisor that this module works with."""

    control: ControlServer | None
    generation: int
    quiet: bool
    selector: selectors.BaseSelector
    stopping: bool
    switchboard: Switchboard

    def busy(self) -> dict[int, int]: ...
    def deaths(self) -> None: ...
    def perform(self, actions: list[Action]) -> None: ...
    def set_quiet(self, quiet: bool) -> None: ...
    def stop(self, *, fast: bool = False) -> None: ...
    def tree_of(self, config: PoolConfig, generation: int) -> GroupSpec: ...


class Desk:
    """Requests in, answers out. A request that takes time is answered when it is done."""

    def __init__(self, root: Root, reload: Callable[[], Reading] | None) -> None:
        self._root = root
        self._reload = reload
        self._waiting: dict[int, Answer] = {}
        self._ticket = 0
        self._stops = StopCounter()
        self._reading: Reading | None = None
        self._reloading = False
        self._once_more: list[Answer] = []  # asked for a reload while one was going on
        self._started_ms = root.now()
        self._to_dump: list[int] = []  # handles of those whose stacks are still to be asked for
        self._dump_at_ms = 0

    # --- signals -----------------------------------------------------------------------------------------

    def signals(self, numbers: list[int]) -> None:
        """One look at what came; each is an order."""
        root = self._root
        for request in (TABLE[number] for number in numbers):
            match request:
                case Request.DEATHS:
                    root.deaths()
                case Request.STOP:
                    pressed = self._stops.press(root.now())
                    if pressed is not None:
                        self._stop(pressed is Request.FAST)
                case Request.FAST:
                    self._stop(True)
                case Request.RELOAD:
                    self.reload(lambda result: None)
                case Request.MORE:
                    self._one(1)
                case Request.FEWER:
                    self._one(-1)
                case Request.QUIET | Request.RESUME:
                    if not root.stopping and root.quiet != (request is Request.QUIET):
                        log.info(
                            "%s", "quiet: nothing new is started" if request is Request.QUIET else "resumed"
                        )
                        root.set_quiet(request is Request.QUIET)
                case Request.DUMP:
                    self.dump()

    def _stop(self, fast: bool) -> None:
        log.info("stopping%s", " fast: running jobs are handed back" if fast else "")
        self._root.stop(fast=fast)

    def _one(self, step: int) -> None:
        """One worker more or less in the first group."""
        workers = self._root.config.workers
        if workers:
            group = self._root.tree.group(workers[0].name)
            count = max(0, (group.target if group is not None else 0) + step)
            self.scale(
                workers[0].name, count, lambda result: log.info("%s: %s", workers[0].name, _word(result))
            )

    # --- requests that the tree answers ------------------------------------------------------------------

    def answer(self, ticket: int, result: Result) -> None:
        """The tree's reply to a request of ours."""
        if ticket in self._waiting:
            self._waiting.pop(ticket)(result)

    def replace(self, member: Member, why: str, answer: Answer = lambda _: None) -> None:
        """A new process for a running one, the heir first where two may live."""
        root = self._root
        log.info("%s (pid %d) is to be replaced: %s", member.id, member.pid, why)
        short = why if why in ("memory", "reload") else "recycle"
        root.perform(root.tree.replace_child(root.now(), self._take_ticket(answer), member.handle, short))

    def scale(self, group: str, count: int, answer: Answer) -> None:
        root = self._root
        root.perform(root.tree.scale(root.now(), self._take_ticket(answer), group, count, root.busy()))

    def _take_ticket(self, answer: Answer) -> int:
        self._ticket += 1
        self._waiting[self._ticket] = answer
        return self._ticket

    # --- reload --------------------------------------------------------------------------------------------

    def reload(self, answer: Answer) -> None:
        """Reads the configuration anew in a process of its own; what does not boot leaves the old ones running."""
        root = self._root
        if self._reload is None or root.stopping:
            answer(Result(error="refused", detail="nothing to reload, or a stop is going on"))
            return
        if self._reloading:  # it may have read what was there before this request: once more, when it is over
            log.info("reload: once more when the one that is going on is over")
            self._once_more.append(answer)
            return
        log.info("reloading")
        self._reloading = True
        try:
            self._reading = reading = self._reload()
        except OSError as error:
            self._reloaded(Result(error="fork_failed", detail=str(error)), answer)
            return
        root.selector.register(reading.fileno(), selectors.EVENT_READ, lambda _: self._read(reading, answer))

    def _reloaded(self, result: Result, answer: Answer) -> None:
        """One reload is over; those who asked meanwhile share the next one."""
        self._reloading = False
        answer(result)
        askers, self._once_more = self._once_more, []
        if askers:
            self.reload(lambda shared: _tell_all(askers, shared))

    def _read(self, reading: Reading, answer: Answer) -> None:
        fd = reading.fileno()
        try:
            config = reading.read()
        except ConfigError as error:
            self._reading_done(fd)
            log.error("reload refused, everything stays as it is:\n%s", "\n".join(error.problems))
            self._reloaded(Result(error="config", detail="; ".join(error.problems)), answer)
            return
        if config is not None:
            self._reading_done(fd)
            self._adopt(config, lambda result: self._reloaded(result, answer))

    def _reading_done(self, fd: int) -> None:
        self._root.selector.unregister(fd)
        self._reading = None

    def _adopt(self, config: PoolConfig, answer: Answer) -> None:
        root = self._root
        # A queue keeps its place on the board for the life of the pool; new ones come behind.
        config = replace(config, queue_order=root.config.queues(), redis=_same_server(root.config, config))
        if len(config.queues()) > root.board.queues:
            refusal = Result(error="refused", detail=f"more than {root.board.queues} queues need a restart")
            log.error("reload: %s", _word(refusal))
            answer(refusal)
            return
        before, root.config = root.config, config
        root.generation += 1

        def done(result: Result) -> None:
            if not result.ok:
                root.config = before
            level = logging.INFO if result.ok else logging.ERROR
            log.log(level, "reload: %s", _word(result))
            answer(result)

        spec = root.tree_of(config, root.generation)
        root.perform(root.tree.reconfigure(root.now(), self._take_ticket(done), spec))

    # --- the control socket ----------------------------------------------------------------------------------

    def clients(self) -> None:
        """New clients at the control socket."""
        root = self._root
        assert root.control is not None
        for conversation in root.control.accept():
            root.selector.register(
                conversation, selectors.EVENT_READ, lambda events, c=conversation: self._talk(c, events)
            )

    def next_ms(self) -> int | None:
        """When a silent client is to be dropped, or the next stacks are to be asked for (monotonic ms)."""
        dropping = None if self._root.control is None else self._root.control.next_deadline()
        asking = self._dump_at_ms if self._to_dump else None
        return min((at for at in (dropping, asking) if at is not None), default=None)

    def on_time(self, now_ms: int) -> None:
        """Drops clients that are done, or neither ask nor read; asks the next process for its stacks."""
        if self._to_dump and now_ms >= self._dump_at_ms:
            self._dump_next(now_ms)
        control = self._root.control
        if control is not None:
            for conversation in control.overdue(now_ms):
                conversation.done = True
                self._watch(conversation)
                control.drop(conversation)

    def _talk(self, conversation: Conversation, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            conversation.write()
        if events & selectors.EVENT_READ and conversation.asking:
            asked = conversation.read()
            if asked is not None:
                self._serve(asked, conversation)
        self._watch(conversation)

    def _watch(self, conversation: Conversation) -> None:
        """Waits for what comes next; for nothing while the answer is being worked on: that would spin the loop."""
        selector = self._root.selector
        reading = selectors.EVENT_READ if conversation.asking else 0
        wanted = selectors.EVENT_WRITE if conversation.replying else reading
        if conversation in selector.get_map():
            selector.unregister(conversation)
        if wanted and not conversation.done:
            selector.register(conversation, wanted, lambda events: self._talk(conversation, events))

    def _serve(self, asked: Asked, conversation: Conversation) -> None:
        def reply(result: Result) -> None:
            if not conversation.done:
                conversation.reply(
                    result.value, error=result.error, detail=result.detail, now_ms=self._root.now()
                )
                self._watch(conversation)

        verb = _VERBS.get(asked.verb)
        if verb is None:
            reply(Result(error="unknown_verb", detail=f"expected one of {', '.join(sorted(_VERBS))}"))
            return
        try:
            verb(self, asked.args, reply)
        except KeyError as missing:
            text = f'{asked.verb}: the argument "{missing.args[0]}" is missing'
            reply(Result(error="bad_request", detail=text))
        except (TypeError, ValueError) as error:
            reply(Result(error="bad_request", detail=f"{asked.verb}: {error}"))

    # --- verbs -------------------------------------------------------------------------------------------------

    def _status(self, args: dict[str, Any], reply: Answer) -> None:
        reply(Result(self.status()))

    def _health(self, args: dict[str, Any], reply: Answer) -> None:
        """Does every group have a worker; with `ready`, can work be done now as well.

        An outage of the server or a quiet pool must not make a platform kill the container, so these are matters of
        readiness only (cases C154, C160).
        """
        status = self.status()
        ready = bool(args.get("ready"))
        reasons = [f"the pool is {status['state']}"] if ready and status["state"] != "running" else []
        for group in (g for g in status["groups"] if g["dynamic"] and g["target"]):
            rows = [c for c in status["children"] if c["group"] == group["id"] and c["state"] == "running"]
            if not rows:
                reasons.append(f"group {group['id']}: no worker is ready")
            elif ready and not any(c["connected"] for c in rows):
                reasons.append(f"group {group['id']}: not connected: {rows[0]['detail'] or 'no link'}")
        reply(Result({"ok": not reasons, "reasons": reasons}))

    def _quiet(self, args: dict[str, Any], reply: Answer) -> None:
        self._root.set_quiet(True)
        reply(Result(True))

    def _resume(self, args: dict[str, Any], reply: Answer) -> None:
        self._root.set_quiet(False)
        reply(Result(True))

    def _scale(self, args: dict[str, Any], reply: Answer) -> None:
        self.scale(str(args["group"]), int(args["n"]), reply)

    def _restart(self, args: dict[str, Any], reply: Answer) -> None:
        member = self._root.family.named(str(args["child"]))
        if member is None:
            reply(Result(error="not_found", detail=f"no running child {args['child']!r}"))
            return
        self.replace(member, "asked for", reply)

    def _stop_verb(self, args: dict[str, Any], reply: Answer) -> None:
        reply(Result(True))
        self._stop(bool(args.get("fast")))

    def _reload_verb(self, args: dict[str, Any], reply: Answer) -> None:
        self.reload(reply)

    def _dump(self, args: dict[str, Any], reply: Answer) -> None:
        self.dump()
        reply(Result(True))

    def _cancel(self, args: dict[str, Any], reply: Answer) -> None:
        """Ends one running job, wherever in this pool it runs."""
        order = Cancel(str(args["queue"]), str(args["id"]), str(args.get("reason") or "cancelled"))
        for member in self._root.family.workers():
            self._root.switchboard.tell(member, order)
        self._root.switchboard.tell_lock_manager(order)
        reply(Result(True))

    # --- what is told --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        return picture(self._root, self._root.now() - self._started_ms)

    def tell_observer(self) -> None:
        self._root.switchboard.tell_observer(TreeMessage(self.status()))

    def dump(self) -> None:
        """States to the log, stacks of every process to stderr."""
        for row in self.status()["children"]:
            log.info("%s", " ".join(f"{key}={value}" for key, value in row.items()))
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        self._to_dump = [member.handle for member in self._root.family]
        self._dump_at_ms = self._root.now() + DUMP_APART_MS

    def _dump_next(self, now_ms: int) -> None:
        """One process at a time: they all write to the same stderr, and none says in its stacks who it is."""
        handle = self._to_dump.pop(0)
        self._dump_at_ms = now_ms + DUMP_APART_MS
        for member in self._root.family:
            if member.handle == handle:
                log.info("%s (pid %d): its stacks follow", member.id, member.pid)
                signal_child(member.pidfd, signal.SIGUSR2)


_VERBS: dict[str, Callable[[Desk, dict[str, Any], Answer], None]] = {
    "status": Desk._status,
    "health": Desk._health,
    "quiet": Desk._quiet,
    "resume": Desk._resume,
    "scale": Desk._scale,
    "restart": Desk._restart,
    "stop": Desk._stop_verb,
    "reload": Desk._reload_verb,
    "dump": Desk._dump,
    "cancel": Desk._cancel,
}


def _tell_all(askers: list[Answer], result: Result) -> None:
    for tell in askers:
        tell(result)


def _word(result: Result) -> str:
    if result.ok:
        return "done"
    return f"{result.error}: {result.detail}" if result.detail else result.error


def _same_server(before: PoolConfig, config: PoolConfig) -> Any:
    """An embedded server lives on where it is; any other address may change."""
    return before.redis if before.redis.embedded is not None else config.redis
