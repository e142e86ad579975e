# SPDX-License-Identifier: MIT
"""On which line of a TOML file a key stands, for error messages.

`tomllib` keeps no positions. The text has already been parsed by it, so a scan for headers and keys at
the start of lines is enough; where it finds nothing, the line of the nearest enclosing key is given.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
_KEY = re.compile(
    r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_PART = re.compile(r"""\s*("[^"]*"|'[^']*'|[^."']+)\s*\.?""")
_STRINGS = re.compile(r"""\"\"\"|'''|"(?:\\.|[^"\\])*"|'[^']*'|#.*""")


def key_lines(text: str) -> dict[Path, int]:
    """Line numbers, from 1, of every header and key of `text`; list entries carry their place."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    depth, fence = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not fence and depth == 0:
            table = _note(line, number, table, found, counts)
        depth, fence = _nesting(line, depth, fence)
    return found


def line_of(path: Path, lines: dict[Path, int]) -> int | None:
    """The line of `path`, or of the nearest table or key that encloses it."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _note(line: str, number: int, table: Path, found: dict[Path, int], counts: dict[Path, int]) -> Path:
    header = _HEADER.match(line)
    if header is not None:
        names = _parts(header.group(2))
        table = _placed(names, counts)
        if header.group(1) == "[[":
            place = counts.get(table, -1) + 1
            counts[table] = place
            table = (*table, place)
            found.setdefault(table[:-1], number)
        found[table] = number
        return table
    key = _KEY.match(line)
    if key is not None:
        found[(*table, *_parts(key.group(1)))] = number
    return table


def _placed(names: tuple[str, ...], counts: dict[Path, int]) -> Path:
    """The header's names with the place of every list entry that they run through (the last one)."""
    path: Path = ()
    for index, name in enumerate(names):
        path = (*path, name)
        if index < len(names) - 1 and path in counts:
            path = (*path, counts[path])
    return path


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in _PART.findall(text))


def _nesting(line: str, depth: int, fence: str) -> tuple[int, str]:
    """Bracket depth and open triple quote behind this line."""
    position = 0
    while True:
        if fence:
            end = line.find(fence, position)
            if end < 0:
                return depth, fence
            position, fence = end + 3, ""
        match = _STRINGS.search(line, position)
        plain = line[position : match.start() if match else None]
        depth = max(0, depth + sum(plain.count(c) for c in "[{") - sum(plain.count(c) for c in "]}"))
        if match is None:
            return depth, ""
        position = match.end()
        if match.group(0) in ('"""', "'''"):
            fence = match.group(0)
