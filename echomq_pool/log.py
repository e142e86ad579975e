# SPDX-License-Identifier: MIT
"""Log lines of every process of the pool: whole lines, one write each, to the inherited stderr.

A write of at most 4096 bytes (PIPE_BUF) to a pipe is atomic, so lines of different processes never mix. No
process waits for a reader that has stopped reading: such lines are counted and dropped. Nothing here raises,
whatever text a job brings along.

Loggers are called "echomq.<part>"; the handler sits on the root logger, so an app's own loggers come out too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import stat
import time
import traceback
from typing import Any, Final

LINE_CAP: Final = 4096
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
FORMATS: Final = ("console", "json")
_STDERR: Final = 2
_CUT: Final = " … cut"
_CONTROLS: Final = {n: f"\\x{n:02x}" for n in (*range(9), *range(11, 32), 127)} | {10: "\\n", 13: "\\r"}


class LineHandler(logging.Handler):
    """Writes each record as one line (console: its traceback as further lines)."""

    def __init__(self, form: str, process: str, fd: int) -> None:
        super().__init__()
        self.json = form == "json"
        self.process = process
        self.fd = fd
        self.lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = [_json_line(record, self.process)] if self.json else _console_lines(record, self.process)
            for chunk in _chunks(lines):
                self._write(chunk)
        except Exception:  # a log line is never worth the process that wrote it
            self.lost += 1

    def _write(self, chunk: bytes) -> None:
        if not _writable(self.fd):
            self.lost += 1
            return
        if self.lost:
            lost, self.lost = self.lost, 0
            note = logging.LogRecord("echomq.log", logging.WARNING, "", 0, "%d log lines lost", (lost,), None)
            line = _json_line(note, self.process) if self.json else _console_lines(note, self.process)[0]
            os.write(self.fd, line + b"\n")
        with contextlib.suppress(OSError):
            os.write(self.fd, chunk)


def setup(
    level: str = "info", form: str = "console", *, process: str = "", own_fd: bool = False
) -> LineHandler:
    """Sends every logger of this process to stderr; called once per process, again after a fork.

    Args:
        level: one of LEVELS; an unknown word means info.
        form: one of FORMATS.
        process: shown in every line: "supervisor", "lock_manager", "orders-3".
        own_fd: open stderr a second time, non-blocking; the mode of the shared one stays as it is.
            For the supervisor, which must not block even in a race for the pipe's last page.
    """
    handler = LineHandler(form, process, _reopened() if own_fd else _STDERR)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(getattr(logging, level.upper(), logging.INFO) if level in LEVELS else logging.INFO)
    logging.captureWarnings(True)
    return handler


def rename(process: str) -> None:
    """A forked child goes on with the handlers of its parent (the app's may be among them) under its own name."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineHandler):
            handler.process = process


def _reopened() -> int:
    try:
        mode = os.fstat(_STDERR).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return os.open(
                f"/proc/self/fd/{_STDERR}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            )
    except OSError:
        pass  # a socket, or one that belongs to somebody else
    return _STDERR


def _writable(fd: int) -> bool:
    """Room for one line: poll calls a pipe writable when a whole page is free."""
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poller.poll(0))


def _message(record: logging.LogRecord) -> str:
    try:
        return str(record.getMessage())
    except Exception:
        return f"{_safe(record.msg)} {_safe(record.args)}"


def _safe(thing: object) -> str:
    try:
        return str(thing)
    except Exception:
        return f"<unprintable {type(thing).__name__}>"


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return _safe(record.exc_text) if record.exc_text else ""
    try:
        return "".join(traceback.format_exception(*record.exc_info)).rstrip()
    except Exception:
        return f"<traceback of {type(record.exc_info[1]).__name__} cannot be shown>"


def _stamp(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _name(record: logging.LogRecord) -> str:
    return record.name.removeprefix("echomq.").removeprefix("echomq_pool.")


def _console_lines(record: logging.LogRecord, process: str) -> list[bytes]:
    who = f"{process} {_name(record)}" if process else _name(record)
    # A line break inside a job's name must not look like a second log line.
    head = f"{_stamp(record)} {record.levelname:<7} {who}: {_message(record)}".translate(_CONTROLS)
    trace = [f"    {line}".translate(_CONTROLS) for line in _trace(record).splitlines()]
    return [_capped(line) for line in (head, *trace)]


def _json_line(record: logging.LogRecord, process: str) -> bytes:
    row: dict[str, Any] = {
        "time": _stamp(record),
        "level": record.levelname.lower(),
        "process": process,
        "pid": record.process,
        "logger": _name(record),
        "message": _message(record),
    }
    if trace := _trace(record):
        row["trace"] = trace
    line = json.dumps(row).encode()
    room = LINE_CAP // 2
    while len(line) >= LINE_CAP and room > 16:  # an escaped character takes up to twelve bytes
        row = {key: _shortened(value, room) for key, value in row.items()}
        line = json.dumps(row).encode()
        room //= 2
    return line


def _shortened(value: Any, room: int) -> Any:
    """The head of a text; of a traceback, its end is what tells."""
    if not isinstance(value, str) or len(value) <= room:
        return value
    return value[: room // 2] + _CUT + " " + value[-(room // 2) :]


def _capped(line: str) -> bytes:
    raw = line.encode("utf-8", "backslashreplace")
    if len(raw) < LINE_CAP:
        return raw
    return raw[: LINE_CAP - 32].decode("utf-8", "ignore").encode() + _CUT.encode()


def _chunks(lines: list[bytes]) -> list[bytes]:
    """Whole lines, as many to a write as fit."""
    chunks = [b""]
    for line in lines:
        if chunks[-1] and len(chunks[-1]) + len(line) + 1 > LINE_CAP:
            chunks.append(b"")
        chunks[-1] += line + b"\n"
    return chunks
