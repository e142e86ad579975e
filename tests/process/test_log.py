# SPDX-License-Identifier: MIT
"""Log lines: whole, short enough to be atomic, never a reason to fail or to wait."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.log import LINE_CAP, LineHandler, setup


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield read, write
    os.close(read)
    os.close(write)


def record(message: object, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("echomq.worker", logging.INFO, "x.py", 1, message, args, info)


def lines_of(form: str, item: logging.LogRecord, pipe: tuple[int, int]) -> list[bytes]:
    read, write = pipe
    LineHandler(form, "orders-1", write).handle(item)
    raw = os.read(read, 1 << 20)
    assert raw.endswith(b"\n")
    return raw.splitlines()


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no words for it")


def test_a_console_line_tells_when_how_grave_who_and_what(pipe: tuple[int, int]) -> None:
    (line,) = lines_of("console", record("took %d jobs", 3), pipe)
    assert line.decode().split(" ", 1)[1] == "INFO    orders-1 worker: took 3 jobs"
    assert line.decode()[23] == "Z"


def test_a_json_line_is_one_object(pipe: tuple[int, int]) -> None:
    (line,) = lines_of("json", record("took %d jobs", 3), pipe)
    row = json.loads(line)
    assert (row["level"], row["process"], row["logger"], row["message"]) == (
        "info",
        "orders-1",
        "worker",
        "took 3 jobs",
    )


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize(
    "item",
    [
        record("💥 中文"),
        record("lone \ud83d surrogate"),
        record("two\nlines \x1b[31m and a bell \a"),
        record("wrong %d arguments", "x"),
        record("missing %s %s", 1),
        record(Unprintable()),
        record("%s", Unprintable()),
        record(b"bytes \xff"),
        record("x" * 1_000_000),
        record("\x00" * 10_000),
        record("failed", error=ValueError(Unprintable())),
        record("failed", error=ValueError("中" * 50_000)),
    ],
)
def test_any_text_makes_short_whole_lines_and_no_trouble(
    form: str, item: logging.LogRecord, pipe: tuple[int, int]
) -> None:
    """case C110"""
    lines = lines_of(form, item, pipe)
    assert all(0 < len(line) < LINE_CAP for line in lines)
    assert b"\x1b" not in b"".join(lines)
    if form == "json":
        assert [isinstance(json.loads(line), dict) for line in lines] == [True]
    elif item.exc_info is None:
        assert len(lines) == 1


@given(st.text(alphabet=st.characters()))
def test_no_message_ever_raises_or_makes_two_lines(text: str) -> None:
    read, write = os.pipe()
    for form in ("console", "json"):
        LineHandler(form, "p", write).handle(record("%s", text))
    os.close(write)
    raw = os.read(read, 1 << 20)
    os.close(read)
    assert raw.count(b"\n") == 2


def test_a_traceback_follows_its_line(pipe: tuple[int, int]) -> None:
    try:
        raise KeyError("missing")
    except KeyError as error:
        lines = lines_of("console", record("failed", error=error), pipe)
    assert lines[0].endswith(b"failed")
    assert lines[1].strip() == b"Traceback (most recent call last):"
    assert lines[-1].strip() == b"KeyError: 'missing'"


def test_a_reader_that_has_stopped_costs_lines_and_not_the_process(pipe: tuple[int, int]) -> None:
    """case C043: a full log pipe freezes nobody; what was lost is counted."""
    read, write = pipe
    handler = LineHandler("console", "p", write)
    for _ in range(1_000):
        handler.handle(record("x" * 1_000))
    lost = handler.lost
    assert lost > 900
    while os.read(read, 4_096).count(b"\n") and handler.lost:
        handler.handle(record("again"))
    text = b""
    try:
        while chunk := os.read(read, 1 << 20):
            text += chunk
    except BlockingIOError:
        pass
    assert b"log lines lost" in text


def test_a_closed_stderr_is_no_trouble() -> None:
    read, write = os.pipe()
    os.close(read)
    handler = LineHandler("console", "p", write)
    handler.handle(record("nobody listens"))
    os.close(write)
    handler.handle(record("not even a pipe"))


def test_the_supervisor_never_blocks_and_leaves_the_shared_stderr_as_it_was() -> None:
    program = (
        "import logging, sys\n"
        "from echomq_pool.log import setup\n"
        "handler = setup('info', process='supervisor', own_fd=True)\n"
        "for n in range(2_000): logging.getLogger('echomq.x').info('y' * 500)\n"
        "sys.stdout.write(f'{handler.lost > 1000} {handler.fd}')\n"
    )
    read, write = os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=write, check=True, timeout=60
    )
    assert done.stdout.split()[0] == b"True"
    assert int(done.stdout.split()[1]) > 2
    assert not fcntl.fcntl(write, fcntl.F_GETFL) & os.O_NONBLOCK
    os.close(read)
    os.close(write)


def test_text_comes_out_whole_whatever_the_locale() -> None:
    """case C110: LANG=C, PYTHONIOENCODING=ascii."""
    program = "import logging\nfrom echomq_pool.log import setup\nsetup()\nlogging.getLogger('a').warning('💥 中文')\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    )
    assert done.stderr.decode().endswith("a: 💥 中文\n")


@pytest.mark.parametrize(("level", "expected"), [("debug", 10), ("warning", 30), ("nonsense", 20)])
def test_the_level_counts_for_every_logger(level: str, expected: int) -> None:
    root = logging.getLogger()
    before, handlers = root.level, root.handlers[:]
    try:
        setup(level)
        assert root.level == expected
    finally:
        root.setLevel(before)
        root.handlers[:] = handlers
        logging.captureWarnings(False)
