# SPDX-License-Identifier: MIT
"""`python -m echomq_pool.demo`: adds jobs to a running pool, kills a worker, counts what came of it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from echomq_pool.api.queue import Queue
from echomq_pool.demo.jobs import KINDS
from echomq_pool.demo.ledger import Run, overlaps, read_runs, recovery_times, running
from echomq_pool.demo.program import DemoError, Program
from echomq_pool.demo.view import Summary, View

QUEUE = "demo"
EVENTS = "emq:{demo}:events"
BATCH = 50
AHEAD = 1_000  # jobs added but not done at most, so that adding goes on while the pool works
KILL_AT = 0.4  # of all jobs done
GIVE_UP_S = 100.0
SHOWN_FACTS = ("lines", "functions", "classes", "tokens")


class Demo:
    """One run: the producer, the watcher of events and the killer work at the same time."""

    def __init__(
        self, folder: Path, program: Program, jobs: list[tuple[str, dict[str, Any]]], view: View
    ) -> None:
        self.ledger = folder / "ledger"
        self.program = program
        self.jobs = jobs
        self.view = view
        self.ids: list[str] = []
        self.completed: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.facts: Counter[str] = Counter()
        self.moved = asyncio.Event()  # set whenever the watcher saw something
        self.killed: tuple[str, int, int] = ("", 0, 0)  # name, pid, when

    async def run(self) -> Summary:
        """The whole of it, up to the end of the last job."""
        began = time.monotonic()
        async with asyncio.timeout(GIVE_UP_S):
            await asyncio.gather(self._produce(), self._watch(), self._kill_somebody())
        return await self._count(time.monotonic() - began)

    async def _produce(self) -> None:
        async with Queue(QUEUE, url=self.program.server_url) as queue:
            for first in range(0, len(self.jobs), BATCH):
                added = await queue.add_bulk(self.jobs[first : first + BATCH])
                self.ids.extend(str(job.id) for job in added)
                while len(self.ids) - self._ended() > AHEAD:
                    await self._movement()

    async def _watch(self) -> None:
        """Follows the event stream, as any client may, until every job has ended."""
        async with self._client() as client:
            position: Any = "0-0"
            while self._ended() < len(self.jobs):
                answer: Any = await client.xread({EVENTS: position}, count=1_000, block=200)
                entries = dict(answer or {}).get(EVENTS.encode(), [])
                for position, fields in entries:  # noqa: B007 - the last one is where to go on
                    self._take_in(fields)
                self.view.show(self._ended())
                self.moved.set()

    def _take_in(self, fields: dict[bytes, bytes]) -> None:
        event, job_id = fields[b"event"], fields.get(b"jobId", b"").decode()
        if event == b"completed":
            self.completed[job_id] += 1
            facts = json.loads(fields[b"returnvalue"])
            self.facts.update({name: facts[name] for name in SHOWN_FACTS if name in facts})
        elif event == b"failed":
            self.failed[job_id] += 1
            self.view.say(f"job {job_id} failed: {fields.get(b'failedReason', b'').decode()}")

    async def _kill_somebody(self) -> None:
        """SIGKILL for the worker that holds the most jobs, once enough are done."""
        while self._ended() < KILL_AT * len(self.jobs):
            await self._movement()
        names = {child.get("pid"): str(child.get("id")) for child in self.program.children()}
        while not (held := self._held_by(names)):
            await self._movement()
        pid = max(held, key=lambda pid: len(held[pid]))
        moment = time.monotonic_ns() // 1_000_000
        os.kill(pid, signal.SIGKILL)
        self.killed = (names[pid], pid, moment)
        cut = len(running(read_runs(self.ledger)).get(pid, []))
        self.view.say(f"killed {names[pid]} (pid {pid}) with SIGKILL in the middle of {cut} jobs")

    def _held_by(self, names: dict[Any, str]) -> dict[int, list[Run]]:
        return {pid: runs for pid, runs in running(read_runs(self.ledger)).items() if pid in names}

    def _ended(self) -> int:
        return len(self.completed) + len(self.failed)

    async def _movement(self) -> None:
        self.moved.clear()
        await self.moved.wait()

    async def _count(self, seconds: float) -> Summary:
        async with self._client() as client:
            done, failed = await self._members(client, "completed"), await self._members(client, "failed")
        name, pid, moment = self.killed
        runs = read_runs(self.ledger)
        settled_twice = {job_id for job_id, times in (self.completed + self.failed).items() if times > 1}
        return Summary(
            added=len(self.ids),
            done=len(done),
            failed=len(failed),
            lost=len(set(self.ids) - done - failed),
            doubled=len(settled_twice.union(overlaps(runs, pid, moment)) | (done & failed)),
            seconds=seconds,
            killed=f"{name} (pid {pid})",
            recovered_ms=recovery_times(runs, pid, moment),
            facts={name: self.facts[name] for name in SHOWN_FACTS},
        )

    async def _members(self, client: Redis, state: str) -> set[str]:
        members: Any = await client.zrange(f"emq:{{{QUEUE}}}:{state}", 0, -1)
        return {member.decode() for member in members}

    def _client(self) -> Redis:
        return Redis(unix_socket_path=self.program.server_url.removeprefix("unix://"))


def jobs_for(ledger: Path, most: int) -> list[tuple[str, dict[str, Any]]]:
    """A job of every kind for each source file of the standard library, `most` at most (0: all)."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(path for path in library.rglob("*.py") if "site-packages" not in path.parts)
    jobs = [(kind, {"path": str(path), "ledger": str(ledger)}) for path in files for kind in KINDS]
    return jobs[:most] if most else jobs


async def demo(folder: Path, most: int) -> int:
    """Runs it all; 0 when nothing was lost or doubled."""
    jobs = jobs_for(folder / "ledger", most)
    program = Program(folder)
    try:
        with View(len(jobs)) as view:
            await program.ready()
            view.say(f"pool is up: {', '.join(str(child.get('id')) for child in program.children())}")
            summary = await Demo(folder, program, jobs, view).run()
    finally:
        code = program.stop()
    summary.pool_exit = code
    view.summary(summary)
    return 0 if summary.good else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m echomq_pool.demo", description=__doc__)
    parser.add_argument("--jobs", type=int, default=0, help="so many at most (default: all, a few thousand)")
    most: int = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="echomq-demo-") as folder:
        try:
            return asyncio.run(demo(Path(folder), most))
        except (DemoError, TimeoutError) as error:
            sys.stderr.write(f"{error or f'not done within {GIVE_UP_S:.0f} s'}\n")
            return 1


if __name__ == "__main__":
    sys.exit(main())
