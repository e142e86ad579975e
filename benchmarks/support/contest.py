# SPDX-License-Identifier: MIT
"""The measures of the comparison: each takes a contestant and returns a row."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from benchmarks.peers.catalog import Peer
from benchmarks.support import runs
from benchmarks.support.environments import REPOSITORY, Environment
from benchmarks.support.meter import percentile, pss_mb
from tests.support.servers import Server

POKE_S = 2.0  # other jobs go on coming: some look for lost ones only then
VERSIONS = "Newest releases that the registry gave; each in an environment of its own."


@dataclass(frozen=True)
class Sizes:
    """How much of everything. `limit_s`: a drain that is not through by then is rated by what it did."""

    noop: int
    io: int
    cpu: int
    bulk: int
    one: int
    marks: int
    rounds: int
    limit_s: float
    default_wait_s: float
    quickest_wait_s: float


SIZES = {
    "tiny": Sizes(300, 200, 50, 200, 50, 10, 1, 20, 3, 15),
    "quick": Sizes(20_000, 2_000, 1_000, 5_000, 1_000, 100, 1, 15, 10, 20),
    "full": Sizes(50_000, 4_000, 3_000, 20_000, 5_000, 300, 2, 30, 90, 45),
}


class Arena:
    """The one server that all use, emptied between two turns."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.server.destroy()

    def empty(self) -> None:
        with self.server.client() as client:
            client.flushall()
            client.config_resetstat()


class Contestant:
    """One peer in its environment: its producer's verbs, and its workers as processes."""

    def __init__(self, peer: Peer, environment: Environment, arena: Arena) -> None:
        self.peer = peer
        self.environment = environment
        self.arena = arena
        self.folder = Path()
        self.settings = ""
        self._options: dict[str, str] = {}
        self._running: list[psutil.Process] = []
        self._groups: list[int] = []

    @contextmanager
    def turn(self, concurrency: int = 32, *, quickest: bool = False) -> Iterator[None]:
        """A fresh folder and an empty server; everything that was started is ended."""
        self.folder = Path(tempfile.mkdtemp(prefix="echomq-turn-"))
        self._options = {"BENCH_CONCURRENCY": str(concurrency), "BENCH_QUICKEST": "1" if quickest else "0"}
        self.arena.empty()
        try:
            yield
        finally:
            self.end()
            shutil.rmtree(self.folder, ignore_errors=True)

    def verb(self, *args: Any, timeout_s: float = 300) -> Any:
        """One verb of the adapter, and the line of JSON that it prints.

        Raises:
            RuntimeError: it failed; the message is the end of its error output.
        """
        command = [*self.environment.command, *map(str, args)]
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=self._env(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{args[0]}: {last_words(done.stderr)}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def work(self, kind: str, processes: int, concurrency: int) -> None:
        """Starts its workers."""
        plan = self.verb("describe", kind, processes, concurrency)
        self.settings = plan["settings"]
        self._commands: list[list[str]] = plan["commands"]
        for command in self._commands:
            self._start(command)

    def _start(self, command: Sequence[str]) -> None:
        log = (self.folder / "workers.log").open("ab")
        process = psutil.Popen(
            command, cwd=REPOSITORY, env=self._env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        log.close()
        self._running.append(process)
        self._groups.append(process.pid)

    def restart_what_ended(self) -> None:
        """What an init system does for those that end when one of their processes is killed."""
        for process in [p for p in self._running if not p.is_running() or p.status() == psutil.STATUS_ZOMBIE]:
            index = self._running.index(process)
            del self._running[index]
            self._start(self._commands[min(index, len(self._commands) - 1)])

    def tree(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in self._running:
            try:
                found += [process, *process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found

    def log(self) -> str:
        path = self.folder / "workers.log"
        return last_words(path.read_text(errors="replace")) if path.exists() else ""

    def end(self) -> None:
        family = self.tree()
        for group in self._groups:  # orphans of a killed parent too: they would eat the next turn's jobs
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._groups.clear()
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family, timeout=10)
        self._running.clear()

    def _env(self) -> dict[str, str]:
        run = {"BENCH_URL": self.arena.server.url, "BENCH_DIR": str(self.folder)}
        return {**os.environ, **self.environment.variables, **self._options, **run}


def last_words(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-250:] if lines else ""


def until(condition: Callable[[], Any], within_s: float) -> Any:
    """The condition's value once it is true, or its last one when the time is up."""
    deadline = time.monotonic() + within_s
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value


# --- the measures


def _drain(
    contestant: Contestant, sizes: Sizes, kind: str, jobs: int, processes: int, slots: int
) -> runs.Drain:
    contestant.verb("bulk", kind, jobs)
    contestant.work(kind, processes, slots)
    server = contestant.arena.server
    try:
        return runs.watch_drain(server, contestant.folder, jobs, contestant.tree, sizes.limit_s, partial=True)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; {contestant.log()}") from None


def noop_drain(contestant: Contestant, sizes: Sizes) -> dict[str, Any]:
    with contestant.turn(32):
        drain = _drain(contestant, sizes, "noop", sizes.noop, 2, 32)
        return {
            "jobs_per_s": drain.rate,
            "pool_us": drain.pool_us,
            "server_us": drain.server_us,
            "commands_per_job": drain.commands,
            "settings": contestant.settings,
        }


def io_drain(contestant: Contestant, sizes: Sizes) -> dict[str, Any]:
    with contestant.turn(100):
        drain = _drain(contestant, sizes, "io", sizes.io, 1, 100)
        share = drain.rate / (100 / 0.05)
        return {"jobs_per_s": drain.rate, "of_ideal": share, "settings": contestant.settings}


def cpu_drain(contestant: Contestant, sizes: Sizes) -> dict[str, Any]:
    with contestant.turn(32):
        drain = _drain(contestant, sizes, "cpu", sizes.cpu, 2, 32)
        return {
            "jobs_per_s": drain.rate,
            "of_two_free_cores": drain.rate / 1_000,
            "settings": contestant.settings,
        }


def enqueue(contestant: Contestant, sizes: Sizes) -> dict[str, Any]:
    with contestant.turn():
        bulk = sizes.bulk / contestant.verb("bulk", "noop", sizes.bulk)["seconds"]
    with contestant.turn():
        one = sizes.one / contestant.verb("one", "noop", sizes.one)["seconds"]
    return {"bulk_per_s": bulk, "one_by_one_per_s": one}


def idle_latency(contestant: Contestant, sizes: Sizes) -> dict[str, Any]:
    with contestant.turn(32):
        contestant.work("mark", 2, 32)
        contestant.verb("hold", "ready", 0)
        if not until(lambda: runs.starts(contestant.folder, "ready"), 30):
            raise TimeoutError(f"no job was taken; {contestant.log()}")
        contestant.verb("timed", sizes.marks, 20)
        until(lambda: len(runs.latencies_ms(contestant.folder)) >= sizes.marks, 15)
        values = runs.latencies_ms(contestant.folder)
        return {
            "jobs": len(values),
            "p50_ms": percentile(values, 0.5),
            "p99_ms": percentile(values, 0.99),
            "settings": contestant.settings,
        }


def idle_memory(contestant: Contestant, sizes: Sizes) -> dict[str, Any]:
    with contestant.turn(32):
        contestant.work("noop", 4, 32)
        contestant.verb("bulk", "noop", 200)
        if not until(lambda: runs.ticks(contestant.folder).done >= 200, 30):
            raise TimeoutError(f"no job was taken; {contestant.log()}")
        tree = contestant.tree()
        return {
            "processes": len(tree),
            "PSS_MB": pss_mb(p.pid for p in tree),
            "settings": contestant.settings,
        }


def recovery(contestant: Contestant, sizes: Sizes) -> dict[str, Any]:
    default, settings = _recovery(contestant, sizes.default_wait_s, quickest=False)
    quickest, quick_settings = _recovery(contestant, sizes.quickest_wait_s, quickest=True)
    return {"default": default, "quickest": quickest, "settings": f"{settings}; quickest: {quick_settings}"}


def _recovery(contestant: Contestant, wait_s: float, *, quickest: bool) -> tuple[str, str]:
    """How long the job of a killed process lies before it runs again, as text: ms, or the time we waited."""
    with contestant.turn(4, quickest=quickest):
        contestant.work("hold", 2, 4)
        contestant.verb("hold", "ready", 0)
        if not until(lambda: runs.starts(contestant.folder, "ready"), 30):
            raise TimeoutError(f"no job was taken; {contestant.log()}")
        contestant.verb("hold", "victim", 2)
        first = until(lambda: runs.starts(contestant.folder, "victim"), 10)
        if not first:
            raise TimeoutError(f"the job was not taken; {contestant.log()}")
        os.kill(first[0][0], signal.SIGKILL)
        killed_ns = time.monotonic_ns()

        poked = time.monotonic()

        def again() -> list[tuple[int, int]]:
            nonlocal poked
            contestant.restart_what_ended()
            if time.monotonic() - poked > POKE_S:
                contestant.verb("hold", "poke", 0)
                poked = time.monotonic()
            return runs.starts(contestant.folder, "victim")[1:]

        found = until(again, wait_s)
        text = f"{(found[0][1] - killed_ns) / 1e6:.0f} ms" if found else f"not within {wait_s:.0f} s"
        return text, contestant.settings


NOOP = "noop: drain of no-op jobs, 2 processes × 32"
MEASURES: dict[str, tuple[Callable[[Contestant, Sizes], dict[str, Any]], str]] = {
    NOOP: (
        noop_drain,
        "All jobs are added before the workers start; the rate between a tenth and 95 % of them, median of the "
        "rounds. Every job counts itself at the same cost. Pool µs, server µs: CPU per job of all the peer's "
        "processes and of the server; commands: with those inside scripts.",
    ),
    "io: jobs that wait 50 ms, 100 at once": (io_drain, "One process where it can have a hundred at once."),
    "cpu: jobs of 2 ms of CPU, 2 processes": (
        cpu_drain,
        "2 ms of the thread's CPU; ideal is two free cores.",
    ),
    "enqueue: one producer": (
        enqueue,
        "Bulk: its call for many jobs where it has one, else a hundred in flight where it is asynchronous, else one "
        "by one. One by one: each after the reply to the one before. Ours: `SyncQueue` in bulk, `Queue` on uvloop one "
        "by one.",
    ),
    "latency: add → start, idle": (idle_latency, "A job every 20 ms, wall clock of one machine."),
    "memory: 4 idle workers": (idle_memory, "PSS of all processes after 200 jobs."),
    "recovery: kill -9 → runs again": (
        recovery,
        "The process that runs the job is killed; where the whole program ends with it, it is started again at once. "
        "Another job is added every 2 s meanwhile.",
    ),
}
REPEATED = {title for title in MEASURES if title.split(":")[0] in ("noop", "io", "cpu", "enqueue")}


def median_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the numbers, the last of the texts."""
    if not rows:
        return {}
    return {
        name: value if isinstance(value, str) else statistics.median(row[name] for row in rows)
        for name, value in rows[-1].items()
    }
