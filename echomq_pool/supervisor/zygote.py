# SPDX-License-Identifier: MIT
"""The zygote: a process that has imported the app once and forks workers from that.

One per preloaded group and generation, itself forked from the lean supervisor by the recipe of `spawn.py`. It
runs no job. Workers forked from it share its memory and are up in milliseconds.

    supervisor ── request: JSON + the worker's channel end (SCM_RIGHTS) ──▶ zygote
                                                                             ├─ fork → helper ─ fork → worker
    supervisor ◀── reply: JSON pid + pidfd (SCM_RIGHTS) ─────────────────────┴──── helper, then it exits

The double fork makes the supervisor, a subreaper, the worker's parent, so its exit status arrives there and
the zygote may die without harm. The helper replies before it exits: the reply lies in the supervisor's
socket before the worker can show up among its children.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from echomq_pool.config.schema import PoolConfig
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Failed, Ready, Stop
from echomq_pool.supervisor.spawn import (
    EXIT_BOOT_FAILED,
    EXIT_ORPHANED,
    Birth,
    ForkFailed,
    Spawned,
    Spawner,
    Startable,
    fork_masked,
    live,
)
from echomq_pool.supervisor.status import errno_name
from echomq_pool.supervisor.threads import other_threads

RECORD_CAP: Final = 64 * 1024
THREADS_LEAVE_MS: Final = 500  # a thread that ends with the import may take so long
# Named, not imported: what every worker imports besides the app, and what costs it most of its start.
WORKER_MODULES: Final = ("echomq_pool.children.preload",)

Born = Spawned | ForkFailed


# --- the supervisor's side ------------------------------------------------------------------------


class Zygote:
    """Asks one zygote process for workers; answers come later.

    Watch `fileno()` for reading and call `read()`; call `read()` as well before strangers are reaped (`Reaper`'s
    `learn`). After the zygote's death call `lost()`: what was not answered has failed and may be tried again.
    """

    def __init__(self, process: Spawned, sock: socket.socket, spawner: Spawner) -> None:
        self.process = process
        self.sock = sock
        self.closed = False
        self._spawner = spawner
        self._waiting: dict[int, tuple[int, socket.socket]] = {}  # incarnation → (slot, our end)

    @classmethod
    def start(
        cls, spawner: Spawner, spec: Startable, slot: int, incarnation: int, config: PoolConfig
    ) -> Zygote | ForkFailed:
        """Forks the zygote process itself. `process` is an ordinary child: it acks once the app is imported."""
        try:
            ours, theirs = pair()
        except OSError as error:
            return ForkFailed(incarnation, errno_name(error), str(error))
        with theirs:
            born = spawner.spawn(spec, slot, incarnation, config, extra_fds=[theirs.fileno()])
        if isinstance(born, ForkFailed):
            ours.close()
            return born
        zygote = cls(born, ours, spawner)
        spawner.own(zygote)
        return zygote

    def fileno(self) -> int:
        return self.sock.fileno()

    def request(
        self, spec: Startable, slot: int, incarnation: int, *, dies_with_parent: bool = True
    ) -> ForkFailed | None:
        """Asks for one worker. None: the answer comes by `read`. May be called before the zygote has acked."""
        row = [spec.id, spec.start, dict(spec.args), slot, incarnation, dies_with_parent]
        try:
            ours, theirs = pair()
        except OSError as error:
            return ForkFailed(incarnation, errno_name(error), str(error))
        self._spawner.board.clear_slot(slot)
        try:
            socket.send_fds(self.sock, [json.dumps(row).encode()], [theirs.fileno()], socket.MSG_NOSIGNAL)
        except OSError as error:
            ours.close()
            return ForkFailed(incarnation, errno_name(error), f"the zygote cannot be asked: {error}")
        finally:
            theirs.close()
        self._waiting[incarnation] = (slot, ours)
        return None

    def read(self) -> list[Born]:
        """Workers that were born, or not, since the last call."""
        born: list[Born] = []
        while not self.closed:
            try:
                # recv_fds alone does not set close-on-exec on what it receives.
                record, fds, _, _ = socket.recv_fds(self.sock, RECORD_CAP, 1, socket.MSG_CMSG_CLOEXEC)
            except (ConnectionResetError, InterruptedError):
                continue
            except BlockingIOError:
                break
            except OSError:
                record, fds = b"", []
            if not record:
                self.closed = True
            else:
                born += self._settle(json.loads(record), fds)
        return born

    def lost(self) -> list[Born]:
        """Everything still to come from a zygote that is dead, then its failures. Closes this end."""
        born = self.read()
        for incarnation, (_, ours) in self._waiting.items():
            ours.close()
            born.append(ForkFailed(incarnation, "ESRCH", "the zygote ended"))
        self._waiting.clear()
        self.close()
        return born

    def close(self) -> None:
        """Closes our ends. Unregister first."""
        self.closed = True
        for _, ours in self._waiting.values():
            ours.close()
        self.sock.close()

    def _settle(self, row: list[Any], fds: list[int]) -> list[Born]:
        incarnation, pid, error, text = row
        slot, ours = self._waiting.pop(incarnation, (0, None))
        if ours is None:
            for fd in fds:
                os.close(fd)
            return []
        if not fds:
            ours.close()
            return [ForkFailed(incarnation, error or "EPROTO", text)]
        channel = Channel(ours)
        self._spawner.adopt(channel)
        return [Spawned(incarnation, slot, pid, fds[0], channel)]


# --- the zygote's side ----------------------------------------------------------------------------


def serve(context: ChildContext) -> int:
    """Start function of a zygote. args: group, fds (the request socket), preload (modules beside the app's)."""
    requests = socket.socket(fileno=context.args["fds"][0])
    requests.setblocking(True)
    group = context.config.group(context.args["group"])
    app = group.processor or ", ".join(group.tasks)
    code = [path.partition(":")[0] for path in (group.processor, *group.tasks, *group.middleware) if path]
    _import_all([*context.args.get("preload", WORKER_MODULES), *code])
    _freeze()
    problems = _unfit({0, 1, 2, context.channel.fileno(), context.board.fd, requests.fileno()})
    if problems:
        error = f"{app} cannot be preloaded: {'; '.join(problems)}"
        context.channel.send(Failed(error=error, final=True))
        return EXIT_BOOT_FAILED
    context.channel.send(Ready(info=f"preloaded {app}"))
    return _serve(context, requests)


def _import_all(modules: Iterable[str]) -> None:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    for module in modules:
        importlib.import_module(module)


def _freeze() -> None:
    """Nothing that is shared is touched by a later collection; workers switch theirs on again."""
    gc.collect()
    gc.disable()
    gc.freeze()


def _unfit(allowed: set[int]) -> list[str]:
    """What the import left behind that no fork may carry on."""
    problems = []
    if threads := _stayers():
        problems.append(f"its import leaves a thread running: {', '.join(threads)}")
    for path in list(Path("/proc/self/fd").iterdir()):
        if int(path.name) not in allowed:
            with contextlib.suppress(OSError):  # the one that reads this folder is gone
                problems.append(f"its import leaves open: {path.readlink()}")
    return problems


def _stayers() -> list[str]:
    deadline = time.monotonic() + THREADS_LEAVE_MS / 1000
    while other_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    if not other_threads():
        return []
    named = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    return named or other_threads()  # threads of C libraries are known to the kernel only


def _serve(context: ChildContext, requests: socket.socket) -> int:
    poller = select.poll()
    poller.register(context.channel.fileno(), select.POLLIN)
    poller.register(requests.fileno(), select.POLLIN)
    beat_ms = max(50, context.config.supervisor.hang_timeout_ms // 4)
    while True:
        context.board.beat(context.slot, context.clock.mono_ms())
        ready = [fd for fd, _ in poller.poll(beat_ms)]
        if context.channel.fileno() in ready:
            stops = [m for f in context.channel.receive() if isinstance(m := f.message(), Stop)]
            if stops:
                context.channel.send(Bye(stops[0].reason))
                return 0
            if context.channel.closed:
                return EXIT_ORPHANED
        if requests.fileno() in ready and not _answer(context, requests):
            return EXIT_ORPHANED


def _answer(context: ChildContext, requests: socket.socket) -> bool:
    """Serves one request; False at end of file."""
    try:
        record, fds, _, _ = socket.recv_fds(requests, RECORD_CAP, 1, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return True
    if not record:
        return False
    birth = _birth(context, json.loads(record))
    end = socket.socket(fileno=fds[0])
    try:
        helper = fork_masked(lambda mask: _helper(context, birth, end, requests, mask))
    except OSError as error:
        _reply(requests, [birth.incarnation, 0, errno_name(error), str(error)], [])
    else:
        os.waitpid(helper, 0)
    finally:
        end.close()
    return True


def _birth(context: ChildContext, row: list[Any]) -> Birth:
    name, start, args, slot, incarnation, dies_with_parent = row
    return Birth(
        name, start, args, slot, incarnation, context.parent_pid, context.config, dies_with_parent,
        preloaded=True,
    )  # fmt: skip


def _helper(
    context: ChildContext, birth: Birth, end: socket.socket, requests: socket.socket, mask: Iterable[int]
) -> NoReturn:
    """Forks the worker, reports it while it is still our own child (its pid cannot be reused), and leaves."""
    helper = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            _worker(context, birth, end, requests, mask, helper)
        _reply(requests, [birth.incarnation, pid, "", ""], [os.pidfd_open(pid)])
    except OSError as error:
        _reply(requests, [birth.incarnation, 0, errno_name(error), str(error)], [])
    finally:
        os._exit(0)


def _worker(
    context: ChildContext,
    birth: Birth,
    end: socket.socket,
    requests: socket.socket,
    mask: Iterable[int],
    helper: int,
) -> NoReturn:
    try:
        while os.getppid() == helper:  # it only has to send its reply
            time.sleep(0.0002)
        gc.enable()
        _reseed(sys.modules)
    except BaseException:
        os._exit(EXIT_BOOT_FAILED)
    live(birth, context.board, end, context.clock, mask, _letting_go(context.channel, requests))


def _letting_go(channel: Channel, requests: socket.socket) -> Callable[[], None]:
    def let_go() -> None:
        channel.close()
        requests.close()

    return let_go


def _reseed(modules: Mapping[str, Any]) -> None:
    """Workers must not draw the same numbers. `random` reseeds itself at a fork, numpy does not."""
    numpy_random = getattr(modules.get("numpy"), "random", None)
    if numpy_random is not None:
        numpy_random.seed()


def _reply(requests: socket.socket, row: list[Any], fds: list[int]) -> None:
    with contextlib.suppress(OSError):  # the supervisor is gone: the worker sees that itself
        socket.send_fds(requests, [json.dumps(row).encode()], fds, socket.MSG_NOSIGNAL)
