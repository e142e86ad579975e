# SPDX-License-Identifier: MIT
"""One real child process, and a test in the supervisor's place at the other end of its channel.

The hub stands in for what a lone child lacks: it hears its frames, answers for the supervisor, and keeps the leases
of what it is told to be held, as the lock manager would (unless `keep_leases` is off).
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import redis

from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.config.schema import PoolConfig, RedisConfig, WorkersConfig, from_plain, to_plain
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Expired, Failed, Held, HeldJob, Message, Ready, Settled, Stop
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.support.wire import Wire

M = TypeVar("M")
REPOSITORY = Path(__file__).resolve().parents[2]
SLOT = 1
RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"


def config_for(server: Server, queues: tuple[str, ...], processor: str, **options: Any) -> PoolConfig:
    """A pool of one group called `main`; options of `WorkersConfig`, and `prefix`, `hash_tag`, `top`."""
    top = {name: options.pop(name) for name in ("prefix", "hash_tag", "supervisor") if name in options}
    if "." not in processor.partition(":")[0]:
        processor = f"tests.support.{processor}"
    if "lock_duration_ms" in options:
        options.setdefault("lock_renew_time_ms", options["lock_duration_ms"] // 2)
    workers = WorkersConfig(name="main", queues=queues, processor=processor, **options)
    link = RedisConfig(url=server.url, port=server.port)
    return PoolConfig(name="test", redis=link, workers=(workers,), **top)


class Jobs(Wire):
    """A producer on real time, and questions about what became of its jobs."""

    def __init__(self, server: Server, queue: str, prefix: str = "emq") -> None:
        super().__init__(server.client(), queue, prefix)
        self.now = SYSTEM_CLOCK.now_ms()

    def put(
        self, name: str = "job", *, job_id: str = "", opts: dict[str, Any] | None = None, **data: Any
    ) -> str:
        """Adds a job with `data` and returns its id."""
        self.now = SYSTEM_CLOCK.now_ms()
        return str(self.add(job_id, name, json.dumps(data), **(opts or {})))

    def field(self, job_id: str, name: str) -> str | None:
        value = self.client.hget(self.key(job_id), name)
        return None if value is None else value.decode()

    def count(self, state: str) -> int:
        size = self.client.llen if state in ("wait", "active", "paused") else self.client.zcard
        return int(size(self.key(state)))

    def done(self, n: int, *, within: float = 20) -> None:
        """Waits for `n` jobs to be in a final state."""
        eventually(
            lambda: self.count("completed") + self.count("failed") >= n, within=within, why=f"{n} done"
        )

    def ended(self, job_id: str, state: str, *, within: float = 20) -> None:
        """Waits until this job is completed or failed."""
        where = self.key(state)
        eventually(
            lambda: self.client.zscore(where, job_id) is not None, within=within, why=f"{job_id} {state}"
        )

    def result(self, job_id: str) -> Any:
        return json.loads(self.field(job_id, "returnvalue") or "null")

    def forget_scripts(self) -> None:
        """After the server was restarted."""
        self._loaded.clear()

    def blocked(self) -> bool:
        """Some client of the server waits in a blocking call."""
        return any("b" in client["flags"] for client in self.client.client_list())

    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not any(self.count(state) for state in ("wait", "active", "prioritized", "delayed"))


class Hub:
    """`with Hub(config) as hub:` – the child runs; at the end it is stopped, by force if need be."""

    def __init__(
        self,
        config: PoolConfig,
        start: str = "worker",
        *,
        args: dict[str, Any] | None = None,
        keep_leases: bool = True,
        board: Board | None = None,
    ) -> None:
        self.config = config
        self.start_name = start
        self.args = {"group": "main"} if args is None else args
        self.keep_leases = keep_leases
        self.own_board = board is None
        self.board = board or Board.create(4, max(1, len(config.queues())))
        self.heard: list[Message] = []
        self.held: dict[tuple[str, str, str], HeldJob] = {}
        self.log_path = Path(f"/tmp/hub-{os.getpid()}-{id(self):x}.log")

    def __enter__(self) -> Hub:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if error is not None:
            print(self.log())
        self.log_path.unlink(missing_ok=True)

    def start(self, *, ready: bool = True) -> Hub:
        """Starts the child and waits until it is ready (or has failed, with `ready=False`)."""
        ours, theirs = pair()
        self.channel = Channel(ours)
        os.set_inheritable(theirs.fileno(), True)
        plan = {
            "start": self.start_name,
            "args": self.args,
            "channel": theirs.fileno(),
            "board": self.board.fd,
            "config": to_plain(self.config),
        }
        log = self.log_path.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.hub", json.dumps(plan)],
            cwd=REPOSITORY,
            pass_fds=(theirs.fileno(), self.board.fd),
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        log.close()
        theirs.close()
        self._on = True
        self._pump = threading.Thread(target=self._listen, daemon=True)
        self._pump.start()
        if ready:
            eventually(lambda: self.of(Ready) or self.of(Failed) or self.process.poll() is not None)
            assert self.of(Ready), f"{self.of(Failed)}\n{self.log()}"
        return self

    @property
    def worker_id(self) -> str:
        return self.of(Ready)[0].worker_id

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def of(self, kind: type[M]) -> list[M]:
        """Messages of one type, in the order in which they came."""
        return [message for message in list(self.heard) if isinstance(message, kind)]

    def send(self, message: Message) -> None:
        self.channel.send(message, slot=SLOT)

    def ask_stop(self, within_ms: int = 10_000, *, fast: bool = False, reason: str = "shutdown") -> None:
        self.send(Stop(SYSTEM_CLOCK.mono_ms() + within_ms, fast, reason))

    def stop(self, within_ms: int = 10_000, *, fast: bool = False, reason: str = "shutdown") -> int:
        """Asks the child to leave and returns its exit code; it must go by itself."""
        self.ask_stop(within_ms, fast=fast, reason=reason)
        return self.exit_code(within_ms / 1000 + 5)

    def exit_code(self, within_s: float = 10) -> int:
        code = self.process.wait(timeout=within_s)
        eventually(lambda: not self._pump.is_alive())
        return code

    @property
    def bye(self) -> Bye:
        return eventually(lambda: self.of(Bye))[0]

    @property
    def expired(self) -> Expired:
        return eventually(lambda: self.of(Expired), why=self.log())[0]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=10)
        self._on = False
        self._pump.join(timeout=10)
        self.channel.close()
        if self.own_board:
            self.board.close()

    # --- the other side ---------------------------------------------------------------------------

    def _listen(self) -> None:
        group = self.config.workers[0]
        tick_s = group.tick_ms / 1000
        due = time.monotonic() + tick_s
        with redis.Redis(host="127.0.0.1", port=self.config.redis.port) as client:
            while self._on and not self.channel.closed:
                select.select([self.channel.sock], [], [], max(0, min(due - time.monotonic(), 0.05)))
                for frame in self.channel.receive(100):
                    self._hear(frame.message())
                if time.monotonic() >= due:
                    due += tick_s
                    if self.keep_leases:
                        self._renew(client, group.lock_duration_ms, group.tick_ms)

    def _hear(self, message: Message) -> None:
        if isinstance(message, Held | Settled):
            for row in message.settled if isinstance(message, Held) else message.jobs:
                self.held.pop((row[0], row[1], row[2]), None)
        if isinstance(message, Held):
            self.held.update({(job.queue, job.id, job.token): job for job in message.jobs})
        self.heard.append(message)

    def _renew(self, client: redis.Redis, duration_ms: int, tick_ms: int) -> None:
        now = SYSTEM_CLOCK.mono_ms()
        tag = "{%s}" if self.config.hash_tag else "%s"
        try:
            for job in self.held.values():
                if job.taken_ms <= now - tick_ms:
                    key = f"{self.config.prefix}:{tag % job.queue}:{job.id}:lock"
                    client.eval(RENEW, 1, key, job.token, duration_ms)
        except redis.RedisError:
            return
        for index in range(len(self.config.queues())):
            self.board.set_renewed(SLOT, index, now)


def main() -> None:
    """The child's side: what the supervisor's spawner does after the fork, in a fresh interpreter."""
    from echomq_pool import log
    from echomq_pool.children import entry

    plan = json.loads(sys.argv[1])
    log.setup("debug", process="child")
    context = ChildContext(
        id="main-1",
        incarnation=1,
        slot=SLOT,
        parent_pid=os.getppid(),
        config=from_plain(PoolConfig, plan["config"]),
        args=plan["args"],
        channel=Channel(socket.socket(fileno=plan["channel"])),
        board=Board.attach(plan["board"]),
        clock=SYSTEM_CLOCK,
    )
    code = 1
    try:
        code = getattr(entry, plan["start"])(context)
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
