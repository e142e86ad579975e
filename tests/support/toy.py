# SPDX-License-Identifier: MIT
"""Small children for the process tests, and a supervisor's hands without its head.

Start functions here are named by dotted path in `ToySpec.start`, as the real ones are.
"""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.config.schema import PoolConfig
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel, Frame
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Message, Ready, Stats, Stop
from echomq_pool.supervisor.reaper import Reaper, kill_group, signal_child
from echomq_pool.supervisor.spawn import ForkFailed, Spawned, Spawner
from echomq_pool.supervisor.status import WaitStatus
from tests.support.waiting import eventually

CONFIG = PoolConfig(name="toys")


@dataclass(frozen=True)
class ToySpec:
    """A child spec in the eyes of the spawner."""

    start: str
    id: str = "toy"
    args: dict[str, Any] = field(default_factory=dict)


def toy(name: str, **args: Any) -> ToySpec:
    """The toy of that name from this module."""
    return ToySpec(f"{__name__}:{name}", args=args)


# --- start functions ----------------------------------------------------------------------------


def _ready(context: ChildContext, info: str = "") -> None:
    context.channel.send(Ready(info=info))


def _serve(context: ChildContext) -> Iterator[Frame]:
    """Frames from the supervisor until the end of file; beats in between."""
    poller = select.poll()
    poller.register(context.channel.fileno(), select.POLLIN)
    while not context.channel.closed:
        context.board.beat(context.slot, context.clock.mono_ms())
        poller.poll(50)
        yield from context.channel.receive()


def good(context: ChildContext) -> int:
    """Acks, answers Quiet with Quiet, leaves on Stop with a bye."""
    _ready(context)
    for frame in _serve(context):
        message = frame.message()
        if isinstance(message, Stop):
            context.channel.send(Bye(message.reason))
            return 0
        context.channel.send(message)
    return 12


def surroundings(context: ChildContext) -> int:
    """Tells how it was born, then serves like `good`."""
    handled = [n for n in signal.valid_signals() if signal.getsignal(n) not in (signal.SIG_DFL, None)]
    facts = {
        "fds": _descriptors(),
        "mask": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "handled": [int(n) for n in handled],
        "wakeup": signal.set_wakeup_fd(-1),
        "pgid": os.getpgid(0),
        "sid": os.getsid(0),
        "ppid": os.getppid(),
        "notify": os.environ.get("NOTIFY_SOCKET"),
        "gc": gc.isenabled(),
        "frozen": gc.get_freeze_count(),
        "cmdline": Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode(),
        "modules": sorted(sys.modules),
        "extra": context.args.get("fds", []),
    }
    context.channel.send(_stats(facts))
    context.channel.flush()
    return good(context)


def _stats(facts: dict[str, Any]) -> Message:
    return Stats({}, {}, facts)


def _descriptors() -> dict[str, str]:
    """Open descriptors and what they are; the one that reads the folder is gone again."""
    names = [path.name for path in Path("/proc/self/fd").iterdir()]
    return {n: str(p.readlink()) for n in names if (p := Path(f"/proc/self/fd/{n}")).is_symlink()}


def undertaker(context: ChildContext) -> int:
    """Outlives the supervisor by a moment: sees the end of file, leaves with 12."""
    _ready(context)
    for _ in _serve(context):
        pass
    return 12


def raises(context: ChildContext) -> int:
    raise ValueError("no such thing as a good start")


def raises_later(context: ChildContext) -> int:
    _ready(context)
    raise ValueError("it went well for a while")


def exits(context: ChildContext) -> int:
    """sys.exit with whatever args say, after its ack."""
    _ready(context)
    sys.exit(context.args["with"])


def returns(context: ChildContext) -> int:
    """Speaks as told, returns as told."""
    if context.args.get("ready", True):
        _ready(context)
    if bye := context.args.get("bye"):
        context.channel.send(Bye(bye))
    return int(context.args["code"])


def draws(context: ChildContext) -> int:
    """Tells a random number."""
    _ready(context, str(random.random()))
    return _stay()


def mute(context: ChildContext) -> int:
    """Acks, closes its socket, stays."""
    _ready(context)
    context.channel.close()
    return _stay()


def parent_of_sleepers(context: ChildContext) -> int:
    """Starts processes as a job would, tells their pids, and stays."""
    forked = os.fork()
    if forked == 0:
        time.sleep(300)
        os._exit(0)
    executed = subprocess.Popen(["sleep", "300"])
    context.channel.send(Ready(info=f"{forked} {executed.pid}"))
    return _stay()


def orphan_maker(context: ChildContext) -> int:
    """Leaves a grandchild behind that exits with `code` once we are gone."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(write, b"x")
        while os.getppid() != context.parent_pid:
            time.sleep(0.002)
        os._exit(int(context.args["code"]))
    os.read(read, 1)  # out of our group, which is killed with us
    _ready(context)
    return 0


def deadlocked(context: ChildContext) -> int:
    """Holds a lock and waits for it."""
    lock = threading.Lock()
    lock.acquire()
    context.board.beat(context.slot, context.clock.mono_ms())
    _ready(context)
    lock.acquire()
    return 0


def busy(context: ChildContext) -> int:
    """Burns its core and never beats again."""
    context.board.beat(context.slot, context.clock.mono_ms())
    _ready(context)
    while True:
        sum(range(10_000))


def outside(context: ChildContext) -> int:
    """Blocks in recv on a socket that never speaks."""
    here, there = socket.socketpair()
    context.board.beat(context.slot, context.clock.mono_ms())
    _ready(context)
    here.recv(1)
    there.close()
    return 0


def slept(context: ChildContext) -> int:
    """A blocking time.sleep in the loop."""
    context.board.beat(context.slot, context.clock.mono_ms())
    _ready(context)
    return _stay()


def waits_for_the_gil(context: ChildContext) -> int:
    """A job in a thread hogs the interpreter; the loop queues for it."""
    context.board.beat(context.slot, context.clock.mono_ms())
    _ready(context)
    threading.Thread(target=sum, args=(range(10**12),), daemon=True).start()  # one call into C
    while True:
        time.sleep(0.001)


def idle_without_beat(context: ChildContext) -> int:
    """Waits in its selector but has stopped beating: its beat is broken."""
    context.board.beat(context.slot, context.clock.mono_ms())
    _ready(context)
    select.epoll().poll()
    return 0


def _stay() -> int:
    while True:
        time.sleep(300)


# --- hands --------------------------------------------------------------------------------------


class Hands:
    """Spawns, watches and buries toys, one at a time, without a loop."""

    def __init__(self, slots: int = 16, config: PoolConfig = CONFIG) -> None:
        self.board = Board.create(slots, 2)
        self.spawner = Spawner(self.board)
        self.config = config
        self.children: dict[int, Spawned] = {}
        self.ends: dict[int, WaitStatus] = {}
        self.last_words: dict[int, list[Frame]] = {}
        self.reaper = Reaper(lambda pid: pid in self.children)
        self._next = 1

    def start(self, spec: ToySpec, **options: Any) -> Spawned:
        """Forks one; fails the test if that fails."""
        slot = self._next % (self.board.slots - 1) + 1
        born = self.spawner.spawn(spec, slot, self._next, self.config, **options)
        self._next += 1
        assert not isinstance(born, ForkFailed), born
        self.children[born.pid] = born
        return born

    def ready(self, spec: ToySpec, **options: Any) -> tuple[Spawned, Ready]:
        """Forks one and waits for its ack."""
        born = self.start(spec, **options)
        message = self.message(born)
        assert isinstance(message, Ready), message
        return born, message

    def message(self, born: Spawned) -> Message:
        """The next message from that child."""

        def look() -> list[Frame]:
            frames = born.channel.receive(1)
            assert frames or not born.channel.closed, "it closed without a word"
            return frames

        frames: list[Frame] = eventually(look)
        return frames[0].message()

    def end(self, born: Spawned) -> WaitStatus:
        """Waits until that child is dead and buried; says how it ended."""

        def look() -> WaitStatus | None:
            self.collect()
            return self.ends.get(born.pid)

        status: WaitStatus = eventually(look)
        return status

    def collect(self) -> None:
        for status in self.reaper.collect(self._bury):
            self.ends[status.pid] = status
            born = self.children.pop(status.pid)
            born.channel.close()
            os.close(born.pidfd)

    def kill(self, born: Spawned, number: int = signal.SIGKILL) -> None:
        signal_child(born.pidfd, number)

    def stop(self, born: Spawned) -> WaitStatus:
        born.channel.send(Stop(deadline_ms=SYSTEM_CLOCK.mono_ms() + 5_000))
        return self.end(born)

    def _bury(self, pid: int) -> None:
        kill_group(pid)
        channel: Channel = self.children[pid].channel
        words = self.last_words.setdefault(pid, [])
        while not channel.closed:
            got = channel.receive()
            if not got and not channel.closed:
                break
            words += got

    def close(self) -> None:
        for born in list(self.children.values()):
            self.kill(born, signal.SIGKILL)
        for born in list(self.children.values()):
            self.end(born)
        self.board.close()


@contextmanager
def hands(**options: Any) -> Iterator[Hands]:
    """Hands that leave no child behind."""
    held = Hands(**options)
    try:
        yield held
    finally:
        held.close()


def gone(pid: int) -> bool:
    """No such process, or only its zombie under somebody else."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rsplit(")", 1)[1].split()[0] in "ZX"
