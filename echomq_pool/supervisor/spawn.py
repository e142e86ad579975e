# SPDX-License-Identifier: MIT
"""Starting a child process from the supervisor: the fork recipe.

    one thread? → flush → block every signal → fork →
        parent: restore the mask, close the child's end of the channel, open a pidfd
        child:  no wakeup fd, default handlers, own session, PDEATHSIG + getppid() check, inherited objects
                let go, descriptors closed by allow-list, mask restored, start function, os._exit always

Each step has its reason beside it. What can fail in the parent comes back as a value: a pool that cannot fork
goes on with the workers it has.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import importlib
import logging
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol
from weakref import WeakSet

from echomq_pool import log
from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.config.schema import PoolConfig
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Failed
from echomq_pool.supervisor.prctl import die_with_parent
from echomq_pool.supervisor.quiet import reset_signals
from echomq_pool.supervisor.status import errno_name
from echomq_pool.supervisor.threads import check_single_thread
from echomq_pool.supervisor.titles import set_title, title

EXIT_BROKEN: Final = 1
EXIT_ORPHANED: Final = 12
EXIT_BOOT_FAILED: Final = 13
FIRST_KEPT: Final = 3  # 0, 1 and 2 stay; what a child keeps besides comes right after them
PER_CHILD, SPARE = 3, 64  # descriptors: channel, pidfd, and one while a fork is under way
FAREWELL_MS: Final = 1_000  # how long a last frame may wait for room
_PARENTS_BUSINESS: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")

logger = logging.getLogger("echomq.spawn")


class Startable(Protocol):
    """What this module needs to know of a child spec."""

    @property
    def id(self) -> str: ...
    @property
    def start(self) -> str: ...
    @property
    def args(self) -> Mapping[str, Any]: ...


class Closable(Protocol):
    """Something of the supervisor's that a forked child must let go."""

    def close(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Spawned:
    """A living child: its pid, the descriptor that is readable once it is dead, our end of its channel."""

    incarnation: int
    slot: int
    pid: int
    pidfd: int
    channel: Channel


@dataclass(frozen=True, slots=True)
class ForkFailed:
    """No child was made. `errno_name`: EAGAIN (process limit), ENOMEM, EMFILE, EDEADLK (we have threads) …"""

    incarnation: int
    errno_name: str
    text: str


@dataclass(frozen=True, slots=True)
class Birth:
    """Everything the child's side needs to know."""

    id: str
    start: str  # "package.module:function", called with a ChildContext, returns the exit code
    args: dict[str, Any]
    slot: int
    incarnation: int
    parent_pid: int  # the supervisor, also when a zygote forks
    config: PoolConfig
    dies_with_parent: bool = True
    extra_fds: tuple[int, ...] = ()
    preloaded: bool = False  # the app is imported already, and may have set up its own logging


@dataclass(eq=False)
class Spawner:
    """Forks children out of the supervisor.

    `own(thing)` names what the supervisor holds open besides channels (selector, control socket, wakeup
    pair): a child closes it before its descriptor number can be used again. Nothing here loops or waits.
    """

    board: Board
    clock: Clock = SYSTEM_CLOCK
    _channels: WeakSet[Channel] = field(default_factory=WeakSet)
    _owned: WeakSet[Any] = field(default_factory=WeakSet)

    def __post_init__(self) -> None:
        allow_descriptors(PER_CHILD * self.board.slots + SPARE)

    def own(self, thing: Closable) -> None:
        """A descriptor owner that children must not keep. Held weakly."""
        self._owned.add(thing)

    def spawn(
        self,
        spec: Startable,
        slot: int,
        incarnation: int,
        config: PoolConfig,
        *,
        dies_with_parent: bool = True,
        extra_fds: Sequence[int] = (),
    ) -> Spawned | ForkFailed:
        """Forks one child. Its first frame on the channel is its ack.

        Args:
            slot: cleared here; the caller makes sure that its former tenant has been reaped.
            dies_with_parent: SIGKILL by the kernel when we end. Not for the lock manager, which has to bury
                the workers then, nor for a wrapper that must take a server down with it: those live by EOF.
            extra_fds: descriptors that the child gets too; it finds their new numbers in args["fds"]. They
                stay open here.
        """
        try:
            check_single_thread()
            ours, theirs = pair()
        except OSError as error:
            return ForkFailed(incarnation, errno_name(error), str(error))
        self.board.clear_slot(slot)
        birth = Birth(
            spec.id, spec.start, dict(spec.args), slot, incarnation, os.getpid(), config, dies_with_parent,
            tuple(extra_fds),
        )  # fmt: skip
        try:
            pid = fork_masked(lambda mask: self._in_child(birth, ours, theirs, mask))
            pidfd = _open_pidfd(pid)
        except OSError as error:  # EAGAIN comes as BlockingIOError
            ours.close()
            return ForkFailed(incarnation, errno_name(error), str(error))
        finally:
            theirs.close()  # two holders per channel, or its end of file would mean nothing
        channel = Channel(ours)
        self._channels.add(channel)
        return Spawned(incarnation, slot, pid, pidfd, channel)

    def adopt(self, channel: Channel) -> None:
        """A channel whose child was forked by a zygote: our later children must let go of it all the same."""
        self._channels.add(channel)

    def _in_child(
        self, birth: Birth, ours: socket.socket, theirs: socket.socket, mask: Iterable[int]
    ) -> NoReturn:
        inherited: list[Any] = [*self._channels, *self._owned]
        live(birth, self.board, theirs, self.clock, mask, lambda: _let_go([*inherited, ours]))


def allow_descriptors(wanted: int) -> None:
    """Raises the soft limit of open files to `wanted`, as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < ceiling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))


def fork_masked(child: Callable[[Iterable[int]], NoReturn]) -> int:
    """Forks with every signal blocked; the child gets the mask to restore. Returns its pid.

    Without the mask a SIGTERM in the moment after the fork runs the parent's handler in the child, unseen.

    Raises:
        OSError: no process could be made.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # what is buffered would be written twice
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            child(mask)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def live(
    birth: Birth,
    board: Board,
    end: socket.socket,
    clock: Clock,
    mask: Iterable[int],
    let_go: Callable[[], None],
) -> NoReturn:
    """The whole life of a forked child. Never returns: the parent's loop lies above us on the stack."""
    code = EXIT_BROKEN
    try:
        reset_signals()
        os.setsid()  # its own group, so that what jobs start can be ended with it
        if birth.dies_with_parent:
            die_with_parent()
        if os.getppid() != birth.parent_pid:  # gone before the kernel was told to watch it
            code = EXIT_ORPHANED
            return  # type: ignore[misc]
        let_go()
        channel, extra = _keep_descriptors(board, end, birth.extra_fds)
        os.register_at_fork(after_in_child=channel.close)  # what a job forks is no holder of our channel
        _settle_in(birth)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        args = {**birth.args, "fds": extra} if extra else birth.args
        context = ChildContext(
            birth.id,
            birth.incarnation,
            birth.slot,
            birth.parent_pid,
            birth.config,
            args,
            channel,
            board,
            clock,
        )
        code = run(birth.start, context)
    except BaseException:  # nothing may climb into the parent's frames
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        # Not sys.exit: that would run the parent's atexit functions and finalizers in here.
        os._exit(code & 0xFF)


def run(start: str, context: ChildContext) -> int:
    """Calls the start function. What escapes from it before its ack is a failed start, later a crash."""
    channel = context.channel
    try:
        code = resolve(start)(context)
        code = code if isinstance(code, int) else EXIT_BROKEN
    except BaseException as error:  # an import may raise anything, SystemExit included
        trace = traceback.format_exc()
        code = EXIT_BROKEN
        if not channel.spoken:
            channel.send(Failed(error=f"{type(error).__name__}: {error}", trace=trace))
            code = EXIT_BOOT_FAILED
        else:
            logger.critical("%s ended by an escaped exception", context.id, exc_info=error)
    _say_farewell(channel)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    return code


def resolve(path: str) -> Callable[..., Any]:
    """The object behind "package.module:name"; imports its module.

    Raises:
        ImportError, AttributeError: there is none. Whatever the module raises comes through.
    """
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{path} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _let_go(things: Iterable[Any]) -> None:
    """Closes inherited objects now: collected later, they would close numbers that are somebody else's.

    A selector is only closed, never told to forget its descriptors: the kernel's set is shared with us.
    """
    for thing in things:
        with contextlib.suppress(Exception):
            thing.close()


def _keep_descriptors(board: Board, end: socket.socket, extra: Sequence[int]) -> tuple[Channel, list[int]]:
    """Moves what we keep to the numbers from 3 on and closes all above: a fork heeds no CLOEXEC."""
    wanted = [end.detach(), board.fd, *extra]
    floor = FIRST_KEPT + len(wanted)
    parked = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, floor) for fd in wanted]
    kept = [os.dup2(fd, FIRST_KEPT + index, inheritable=False) for index, fd in enumerate(parked)]
    os.closerange(floor, _highest_fd() + 1)
    board.fd = kept[1]
    _immortal.append(board)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)  # jobs must not read the operator's terminal
    os.close(null)
    return Channel(socket.socket(fileno=kept[0])), kept[2:]


_immortal: list[Any] = []  # the board's map holds a stale descriptor number: it must never be collected


def _highest_fd() -> int:
    return max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208


def _settle_in(birth: Birth) -> None:
    """Surroundings of a fresh child: no core files, stacks on SIGABRT and SIGUSR2, its own name."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for name in _PARENTS_BUSINESS:
        os.environ.pop(name, None)
    if birth.preloaded:
        log.rename(birth.id)
    else:
        log.setup(birth.config.log.level, birth.config.log.format, process=birth.id)
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True, chain=False)
    set_title(title(birth.config, birth.id, birth.args))


def _say_farewell(channel: Channel) -> None:
    """The last frames may wait for room, within reason."""
    deadline = SYSTEM_CLOCK.mono_ms() + FAREWELL_MS
    while not channel.closed and not channel.flush() and SYSTEM_CLOCK.mono_ms() < deadline:
        channel.wait_writable(10)


def _open_pidfd(pid: int) -> int:
    """The pidfd of a child that nobody has reaped yet.

    Raises:
        OSError: no descriptor left; the child is killed (its pid is still its own) and reaped as a stranger.
    """
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        raise
