# SPDX-License-Identifier: MIT
"""The demo's jobs: facts about one source file each. Every run leaves its start and end in a ledger."""

from __future__ import annotations

import ast
import io
import os
import time
import tokenize
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

Facts = dict[str, Any]

warnings.filterwarnings("ignore", category=SyntaxWarning)  # what others wrote is not to be commented on here


def measure(job: Any) -> Facts:
    """Reads the file and works out what this job is about; a plain function, so it runs in a thread."""
    path, ledger = Path(job.data["path"]), Path(job.data["ledger"])
    _note(ledger, "start", job.id)
    facts = KINDS[job.name](path.read_bytes())
    _note(ledger, "end", job.id)
    return facts


def lines(source: bytes) -> Facts:
    """How many lines, how many of them empty or comments, and how well they compress."""
    rows = source.splitlines()
    bare = [row.strip() for row in rows]
    return {
        "lines": len(rows),
        "empty": bare.count(b""),
        "comments": sum(row.startswith(b"#") for row in bare),
        "compressed": len(zlib.compress(source, 6)),
        "bytes": len(source),
    }


def syntax(source: bytes) -> Facts:
    """Functions, classes and imports, and the depth of the tree."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # some of the test data is wrong on purpose
        return {"unreadable": 1}
    kinds = Counter(type(node).__name__ for node in ast.walk(tree))
    return {
        "functions": kinds["FunctionDef"] + kinds["AsyncFunctionDef"],
        "classes": kinds["ClassDef"],
        "imports": kinds["Import"] + kinds["ImportFrom"],
        "nodes": kinds.total(),
    }


def tokens(source: bytes) -> Facts:
    """Tokens by kind, of the first 16 KiB."""
    counted: Counter[str] = Counter()
    try:
        for token in tokenize.tokenize(io.BytesIO(source[:16_384]).readline):
            counted[tokenize.tok_name[token.type].lower()] += 1
    except (tokenize.TokenError, SyntaxError):
        counted["unreadable"] += 1
    return {"tokens": counted.total(), "names": counted["name"], "strings": counted["string"]}


KINDS: dict[str, Callable[[bytes], Facts]] = {"lines": lines, "syntax": syntax, "tokens": tokens}


def _note(ledger: Path, word: str, job_id: str) -> None:
    """One line, appended in one write: no other process's line can come in between."""
    line = f"{word} {job_id} {os.getpid()} {time.monotonic_ns() // 1_000_000}\n".encode()
    fd = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
