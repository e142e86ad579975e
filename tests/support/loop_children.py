# SPDX-License-Identifier: MIT
"""Children for tests of the supervisor's loop: they speak the frames of real ones and need no server.

`args["diary"]` (a folder) is where they write down what they hear, one JSON line each, in a file of their name.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import (
    Bye,
    Down,
    Expired,
    Held,
    HeldJob,
    Message,
    Ready,
    Recovered,
    Relearn,
    Stop,
    Wish,
    to_row,
)

QUEUE = "toys"
Hear = Callable[[Message], None]


def note(context: ChildContext, what: str, *more: Any) -> None:
    """One line in the diary."""
    folder = Path(context.args["diary"])
    with (folder / f"{context.id}.jsonl").open("a") as file:
        file.write(json.dumps([what, os.getpid(), *more], default=str) + "\n")


def serve(context: ChildContext, hear: Hear = lambda message: None) -> int:
    """Writes down what it hears and leaves on Stop, after `args["stop_ms"]` unless it is in a hurry."""
    poller = select.poll()
    poller.register(context.channel.fileno(), select.POLLIN)
    while not context.channel.closed:
        context.board.beat(context.slot, context.clock.mono_ms())
        poller.poll(100)
        for frame in context.channel.receive():
            message = frame.message()
            note(context, frame.kind.name, *to_row(message))
            if isinstance(message, Stop):
                if not _linger(context, message):
                    context.channel.send(Bye(message.reason))
                    return 0
            else:
                hear(message)
    return 12


def _linger(context: ChildContext, stop: Stop) -> bool:
    """Whether it goes on for now. `stop_ms` < 0: deaf, unless the stop is fast."""
    patience = int(context.args.get("stop_ms", 0))
    if stop.fast or patience == 0:
        return False
    if patience > 0:
        threading.Timer(patience / 1000, lambda: os._exit(0)).start()
    return True


def plain(context: ChildContext) -> int:
    """A singleton without duties."""
    note(context, "born")
    context.channel.send(Ready())
    return serve(context)


def broken(context: ChildContext) -> int:
    raise RuntimeError("there is no shop module")


def mute(context: ChildContext) -> int:
    """Never acks."""
    select.select([], [], [])
    return 0


def flag(context: ChildContext) -> int:
    """Starts only while the file `args["flag"]` is there."""
    note(context, "born")
    if not Path(context.args["flag"]).exists():
        raise RuntimeError("the flag is down")
    return worker(context)


def worker(context: ChildContext) -> int:
    """Says that it is a worker and does what `args["does"]` says."""
    me = f"{context.id}.{context.incarnation}"
    note(context, "born")
    context.channel.send(Ready(worker_id=me, queues=(QUEUE,)))
    does = str(context.args.get("does", ""))
    if does == "die holding":
        context.channel.send(Held(me, [_job(str(n)) for n in range(200)]), slot=context.slot)
        context.channel.flush()
        os._exit(3)
    if does == "overdue" and context.incarnation <= context.args["until"]:
        context.channel.send(Expired(me, QUEUE, "7", "timeout", "timed out after 100 ms"))
    if does == "wish" and context.incarnation <= context.args["until"]:
        context.channel.send(Wish("max_jobs"))
    if does == "beget":
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        note(context, "begot", sleeper.pid)

    def hear(message: Message) -> None:
        if isinstance(message, Relearn):
            context.channel.send(Held(me, [_job("1")], full=True, end=True), slot=context.slot)

    return serve(context, hear)


def lock_manager(context: ChildContext) -> int:
    """Answers every Down, unless `args["lazy"]`."""
    note(context, "born")
    context.channel.send(Ready())

    def hear(message: Message) -> None:
        if isinstance(message, Down) and not Path(context.args.get("lazy", "/nowhere")).exists():
            context.channel.send(Recovered(message.worker_id, []))

    return serve(context, hear)


def stopped(context: ChildContext) -> int:
    """Acks and stops itself by SIGSTOP, once."""
    note(context, "born")
    context.channel.send(Ready())
    context.channel.flush()
    if context.args["until"] >= context.incarnation:
        os.kill(os.getpid(), 19)
    return serve(context)


def _job(number: str) -> HeldJob:
    return HeldJob(QUEUE, number, f"t:{number}", 1, 0, 1, None, False, 1, 0, "toy")
