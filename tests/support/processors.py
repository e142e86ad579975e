# SPDX-License-Identifier: MIT
"""Job functions for the tests of the worker. What they do is in the job's name or data."""

from __future__ import annotations

import asyncio
import ctypes
import datetime
import functools
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from echomq_pool.api.queue import Queue
from echomq_pool.errors import DelayedError, JobCancelled, RateLimitError, UnrecoverableError, WaitingError


def note(job: Any, word: str) -> None:
    """One line in the file that the job's data names: word, id, pid, monotonic ms."""
    path = job.data.get("notes")
    if path:
        line = f"{word} {job.id} {os.getpid()} {time.monotonic_ns() // 1_000_000}\n".encode()
        fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.write(fd, line)
        os.close(fd)


def notes(path: Path) -> list[tuple[str, str, int, int]]:
    """What `note` wrote: (word, id, pid, ms)."""
    if not path.exists():
        return []
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]


async def work(job: Any) -> Any:
    """Async: sleeps `ms`, returns `give` or the job's number."""
    note(job, "start")
    await asyncio.sleep(job.data.get("ms", 0) / 1000)
    note(job, "end")
    return job.data.get("give")


def work_sync(job: Any) -> Any:
    """The same in a thread."""
    note(job, "start")
    time.sleep(job.data.get("ms", 0) / 1000)
    note(job, "end")
    return job.data.get("give")


async def noop(job: Any) -> None:
    """Nothing at all."""


def burn(job: Any) -> str:
    """Holds the GIL as much as pure Python can."""
    note(job, "start")
    end = time.monotonic() + job.data["ms"] / 1000
    while time.monotonic() < end:
        sum(range(1000))
    note(job, "end")
    return "burnt"


async def burn_loop(job: Any) -> str:
    """An `async def` that never gives the loop back."""
    return burn(job)


class Odd(Exception):
    """Needs two arguments and holds a lock: nothing that could be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")
        self.lock = threading.Lock()


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Bare(BaseException):
    """Not even an Exception."""


def _raise(error: BaseException) -> None:
    raise error


def _chained() -> None:
    try:
        raise Odd("one", "two")
    except Odd as exc:
        raise RuntimeError("the outer") from exc


def _deep(n: int) -> int:
    return 1 + _deep(n + 1)


def _thread_exit() -> str:
    thread = threading.Thread(target=lambda: _raise(SystemExit(3)))
    thread.start()
    thread.join()
    return "survived"


def _circle() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    return circle


def _nest(depth: int) -> list[Any]:
    nest: list[Any] = []
    for _ in range(depth):
        nest = [nest]
    return nest


def _forked(end: Any) -> str:
    """The child comes back from here too, in its own way; the parent says which process it was."""
    pid = os.fork()
    if pid == 0:
        return str(end())
    return str(pid)


TRICKS: dict[str, Any] = {
    "fork_return": lambda: _forked(lambda: "I am the child"),
    "fork_raise": lambda: _forked(lambda: _raise(ValueError("the child"))),
    "fork_exit": lambda: _forked(lambda: sys.exit(0)),
    "ok": lambda: "fine",
    "odd": lambda: _raise(Odd("one", "two")),
    "chain": _chained,
    "mute": lambda: _raise(Mute()),
    "bare": lambda: _raise(Bare("bare bones")),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "generator": lambda: _raise(GeneratorExit()),
    "cancelled": lambda: _raise(asyncio.CancelledError()),
    "exit0": lambda: sys.exit(0),
    "exitx": lambda: sys.exit("x"),
    "thread_exit": _thread_exit,
    "os_exit": lambda: os._exit(0),
    "segfault": lambda: ctypes.string_at(0),
    "memory": lambda: _raise(MemoryError()),
    "deep": lambda: _deep(0),
    "long": lambda: _raise(ValueError("x" * 8_000_000)),
    "big": lambda: "y" * 8_000_000,
    "fatal": lambda: _raise(UnrecoverableError("never again")),
    "missing": lambda: __import__("no_such_module_anywhere"),
    "object": object,
    "set": lambda: {1, 2},
    "date": lambda: datetime.datetime(2026, 1, 1),
    "circle": _circle,
    "nest": lambda: _nest(60),
    "abyss": lambda: _nest(100_000),
    "nan": lambda: float("nan"),
    "inf": lambda: {"a": [1, float("inf")]},
    "text": lambda: "foo",
    "list": lambda: ["a"],
    "none": lambda: None,
    "true": lambda: True,
    "zero": lambda: 0,
    "empty": lambda: "",
    "dict": lambda: {"k": 1},
    "surrogate": lambda: "\ud800",
    "huge": lambda: 2**70,
}


def trick(job: Any) -> Any:
    """Does what the job's name says, in a thread."""
    return TRICKS[job.name]()


async def trick_async(job: Any) -> Any:
    """The same on the loop; more tricks that only tasks can play."""
    if job.name == "fork_await":
        if (pid := os.fork()) == 0:
            await asyncio.sleep(600)
        return str(pid)
    if job.name == "close_sockets":
        for connection in psutil.Process().net_connections("tcp"):
            os.close(connection.fd)
        await asyncio.sleep(600)
    if job.name == "self_cancel":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if job.data.get("then") == "wait":
            await asyncio.sleep(10)
        return "cancelled myself"
    if job.name == "inner_cancel":
        inner = asyncio.ensure_future(asyncio.sleep(10))
        asyncio.get_running_loop().call_soon(inner.cancel)
        return await inner
    if job.name == "wait_for":
        return await asyncio.wait_for(asyncio.sleep(10), 0.01)
    if job.name == "stray_task":
        asyncio.get_running_loop().create_task(_exits(), name="stray")
        await asyncio.sleep(0.05)
        return "survived"
    return trick(job)


async def _exits() -> None:
    sys.exit(5)


async def stubborn(job: Any) -> None:
    """Does not care about cancellation."""
    note(job, "start")
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            note(job, "refused")


async def flaky(job: Any) -> str:
    """Fails in its first `fails` runs."""
    note(job, "start")
    if job.attempts_made < job.data.get("fails", 1):
        raise ValueError(f"attempt {job.attempts_made + 1} failed")
    return "at last"


async def moves(job: Any) -> str:
    """Moves itself on its first run: to delayed, to wait, or limits its queue; succeeds on the second."""
    note(job, "start")
    if job.attempts_started > 1:
        return "second"
    if job.name == "delay":
        await job.move_to_delayed(time.time_ns() // 1_000_000 + 200)
        raise DelayedError
    if job.name == "wait":
        await job.move_to_wait()
        raise WaitingError
    await job.rate_limit(500)
    raise RateLimitError


class Callable:
    """An instance that can be called; its call is `async def`."""

    async def __call__(self, job: Any) -> str:
        return f"called {job.id}"


instance = Callable()
partial = functools.partial(lambda greeting, job: f"{greeting} {job.id}", "hello")
not_callable = 3


def disguised(job: Any) -> Any:
    """A plain function that hands out a coroutine, as careless decorators do."""
    return work(job)


def _twice(attempt: int, job: Any, error: BaseException | None) -> float:
    return -1 if attempt > 2 else 20 * attempt


backoff_strategies = {"twice": _twice}


async def grow(job: Any) -> int:
    """Leaks `mb` megabytes per run."""
    _leak.append(os.urandom(1) * (job.data["mb"] << 20))
    return len(_leak)


_leak: list[bytes] = []


async def fails_late(job: Any) -> None:
    """Raises after half a second."""
    note(job, "start")
    await asyncio.sleep(0.5)
    raise ValueError("too late")


async def watchful(job: Any) -> list[bool]:
    """Runs `ms` and returns every change of `lease_lost` that it saw; notes the same."""
    note(job, "start")
    seen = [job.lease_lost]
    end = time.monotonic() + job.data["ms"] / 1000
    while time.monotonic() < end:
        await asyncio.sleep(0.01)
        if job.lease_lost != seen[-1]:
            seen.append(job.lease_lost)
            note(job, "lost" if job.lease_lost else "regained")
    note(job, "end")
    return seen


def watchful_sync(job: Any) -> None:
    """Waits in its thread until its lease is lost, then goes on for a while."""
    note(job, "start")
    while not job.lease_lost:
        time.sleep(0.01)
    note(job, "lost")
    time.sleep(0.3)
    note(job, "end")


async def flaky_slowly(job: Any) -> str:
    """As `flaky`, with time to pull a cable before its end."""
    note(job, "start")
    await asyncio.sleep(0.4)
    if job.attempts_made < job.data["fails"]:
        raise ValueError("not yet")
    return "at last"


def obedient_sync(job: Any) -> None:
    """Waits in its thread until it is told to stop."""
    while not job.cancelled:
        time.sleep(0.01)
    raise JobCancelled(job.cancel_reason)


async def reschedules(job: Any) -> str:
    """Upserts the scheduler that it comes from while it runs."""
    note(job, f"run:{job.name}")
    async with Queue(job.queue_name, url=job.data["url"]) as queue:
        await queue.upsert_job_scheduler("own", every=300, name="ticker", data=job.data)
    return "again"


async def deadlock(job: Any) -> None:
    """Waits on the loop for a lock that nobody will release; says which process it is first."""
    (Path(job.data["folder"]) / "locked").write_text(str(os.getpid()))
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
