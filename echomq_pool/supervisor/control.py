# SPDX-License-Identifier: MIT
"""The control socket: one JSON line asks, one JSON line answers, then the connection ends.

    → {"verb": "scale", "args": {"group": "orders", "n": 6}}
    ← {"ok": true, "value": …}      or      {"ok": false, "error": "not_found", "detail": "…"}

Server side: `ControlServer` and one `Conversation` per client, driven by the supervisor's loop, never
blocking. Client side: `call`. Only the pool's own user and root are heard.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import PoolError

REQUEST_CAP: Final = 64 * 1024
ASK_MS: Final = 5_000  # a client must have asked within this
REPLY_MS: Final = 10_000  # … and read its answer within this once it is there
MAX_CLIENTS: Final = 32
PATH_CAP: Final = 107
_PEER: Final = struct.Struct("3i")


class ControlError(PoolError):
    """The control socket cannot be opened, or the pool behind it cannot be asked."""


class PoolRunning(ControlError):
    """Another pool answers on this control socket."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as read from the wire."""

    verb: str
    args: dict[str, Any]


class Conversation:
    """One client. Watch it for reading while `asking`, for writing while `replying`, drop it when `done`."""

    def __init__(self, sock: socket.socket, now_ms: int) -> None:
        self.sock = sock
        self.deadline_ms = now_ms + ASK_MS  # past it, drop the client; none while we work on the answer
        self.asking = True
        self.done = False
        self._in = bytearray()
        self._out = b""

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def replying(self) -> bool:
        return bool(self._out)

    def read(self) -> Asked | None:
        """The request once it is whole. A bad one is answered here and None returned."""
        try:
            chunk = self.sock.recv(REQUEST_CAP)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            self.done = True
            return None
        self._in += chunk
        line, found, _ = bytes(self._in).partition(b"\n")
        if found or (not chunk and line):
            return self._parse(line)
        if not chunk:
            self.done = True
        elif len(self._in) > REQUEST_CAP:
            self.reply(error="too_long", detail=f"a request has at most {REQUEST_CAP} bytes")
        return None

    def reply(
        self, value: Any = None, *, error: str = "", detail: str = "", now_ms: int | None = None
    ) -> None:
        """Answers and starts sending; call `write` when the socket is writable while `replying`."""
        row = {"ok": False, "error": error, "detail": detail} if error else {"ok": True, "value": value}
        self.asking = False
        self.deadline_ms = (SYSTEM_CLOCK.mono_ms() if now_ms is None else now_ms) + REPLY_MS
        self._out = json.dumps(row, default=str).encode() + b"\n"
        self.write()

    def write(self) -> None:
        """Sends what the kernel takes; `done` once all of it is out, or nobody listens."""
        try:
            while self._out:
                self._out = self._out[self.sock.send(self._out, socket.MSG_NOSIGNAL) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._out = b""
        self.done = True

    def close(self) -> None:
        self.sock.close()
        self.done = True

    def _parse(self, line: bytes) -> Asked | None:
        self.asking = False
        self.deadline_ms = 0
        try:
            row = json.loads(line)
            verb, args = row["verb"], row.get("args") or {}
        except (ValueError, TypeError, KeyError, AttributeError):
            verb, args = None, None
        if not isinstance(verb, str) or not isinstance(args, dict):
            self.reply(error="bad_request", detail='expected {"verb": "…", "args": {…}}')
            return None
        return Asked(verb, args)


class ControlServer:
    """The listening socket at `path`, mode 0600. Readable means: call `accept`.

    Raises:
        PoolRunning: a pool answers there already.
        ControlError: the path cannot be used; the message says why.
    """

    def __init__(self, path: str | Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = Path(path)
        self.clock = clock
        self.conversations: set[Conversation] = set()
        self.sock = _listen(self.path)
        self._inode = self.path.stat().st_ino
        self._owner = os.getpid()

    def fileno(self) -> int:
        return self.sock.fileno()

    def accept(self) -> list[Conversation]:
        """New clients. Strangers and clients past the limit are hung up on."""
        new: list[Conversation] = []
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.sock.accept()
                if not _trusted(sock) or len(self.conversations) >= MAX_CLIENTS:
                    sock.close()
                    continue
                sock.setblocking(False)
                new.append(Conversation(sock, self.clock.mono_ms()))
                self.conversations.add(new[-1])
        return new

    def drop(self, conversation: Conversation) -> None:
        """Ends one; unregister it from the selector before."""
        conversation.close()
        self.conversations.discard(conversation)

    def overdue(self, now_ms: int) -> list[Conversation]:
        """Clients that neither ask nor read; the caller drops them."""
        return [c for c in self.conversations if c.done or 0 < c.deadline_ms <= now_ms]

    def next_deadline(self) -> int | None:
        """When `overdue` may find one, monotonic ms."""
        return min((c.deadline_ms for c in self.conversations if c.deadline_ms), default=None)

    def close(self) -> None:
        """Closes everything; its maker removes the file too, if it is still its own. A child only closes."""
        for conversation in list(self.conversations):
            self.drop(conversation)
        self.sock.close()
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                if self.path.stat().st_ino == self._inode:
                    self.path.unlink()


def call(
    path: str | Path, verb: str, args: dict[str, Any] | None = None, *, timeout_s: float = 10.0
) -> dict[str, Any]:
    """Asks the pool behind `path` and returns its reply row (`ok`, `value` or `error`, `detail`).

    Raises:
        ControlError: nobody there, somebody else's socket, no answer in time, or an answer that is none.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect(_checked(Path(path)))
            if not _trusted(sock) and os.geteuid() != 0:  # root may ask anybody's pool
                raise ControlError(f"{path} belongs to another user")
            sock.sendall(json.dumps({"verb": verb, "args": args or {}}).encode() + b"\n")
            reply = _read_line(sock)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise ControlError(f"no pool answers on {path}: is it running?") from error
        except TimeoutError as error:
            raise ControlError(f"the pool on {path} did not answer within {timeout_s:g} s") from error
        except OSError as error:
            raise ControlError(f"the pool on {path} cannot be asked: {error.strerror or error}") from error
    try:
        row: dict[str, Any] = json.loads(reply)
    except ValueError as error:
        raise ControlError(f"the pool on {path} hung up without an answer") from error
    return row


def _read_line(sock: socket.socket) -> bytes:
    reply = b""
    while not reply.endswith(b"\n") and (chunk := sock.recv(65_536)):
        reply += chunk
    return reply


def _listen(path: Path) -> socket.socket:
    name = _checked(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _starting(path):
            if path.exists() or path.is_symlink():
                _remove_stale(path)
            return _bind(name)
    except OSError as error:
        raise ControlError(f"control socket {path}: {error.strerror or error}") from error


def _bind(name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # 0600 from its first instant; a chmod afterwards would leave a gap
    try:
        sock.bind(name)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    sock.listen(MAX_CLIENTS)
    sock.setblocking(False)
    return sock


def _remove_stale(path: Path) -> None:
    """Removes a socket at which nobody answers.

    Raises:
        PoolRunning: somebody does (a full backlog counts).
        ControlError: it is no socket.
    """
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise ControlError(f"control socket {path}: a file that is no socket is in the way")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
    if code in (0, errno.EAGAIN):
        raise PoolRunning(f"a pool is running already: its control socket {path} answers")
    if code != errno.ECONNREFUSED:
        raise OSError(code, os.strerror(code))
    path.unlink()


@contextmanager
def _starting(path: Path) -> Iterator[None]:
    """Only one pool at a time looks at and takes the path: two starters must not remove each other's socket."""
    lock = path.with_name(path.name + ".lock")
    while True:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if lock.exists() and os.fstat(fd).st_ino == lock.stat().st_ino:  # not removed meanwhile
                try:
                    yield
                finally:
                    lock.unlink()
                return
        finally:
            os.close(fd)


def _checked(path: Path) -> str:
    name = str(path)
    if len(os.fsencode(name)) > PATH_CAP:
        raise ControlError(
            f"control socket {path}: a socket's path has at most {PATH_CAP} bytes; set control"
        )
    return name


def _trusted(sock: socket.socket) -> bool:
    """The other side runs as us, or as root."""
    return _peer_uid(sock) in (os.geteuid(), 0)


def _peer_uid(sock: socket.socket) -> int:
    _, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)
