# SPDX-License-Identifier: MIT
"""Finds, expands, checks and hashes the Lua scripts. The folder is the list: no second one can be forgotten.

A script is a file `<name>-<number of keys>.lua` that opens with a `--[[ … ]]` header naming every `KEYS[n]`,
what is in `ARGV`, and what the script `Returns`. A line `--- @include "name"` stands for `include/name.lua`.
Anything that does not fit stops the load: a script that is quietly left out fails much later, in production.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from echomq_pool.errors import PoolError

FOLDERS = ("lock", "pool", "lease")
QUALIFIED = (
    "lease",
)  # the other plane has the same verbs, so its scripts are named with their folder: "lease/claim"

_FILE_NAME = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9]*)-(?P<keys>\d+)\.lua")
_INCLUDE = re.compile(r'---\s*@include\s+"(?P<name>[A-Za-z0-9_]+)"\s*')
_KEY = re.compile(r"KEYS\[(\d+)\]")


class ScriptError(PoolError):
    """A script that cannot be used. The message names the file and the fault."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script as the server gets it: `text` is expanded and stripped, `sha` is its lower-case SHA-1."""

    name: str
    keys: int
    text: bytes
    sha: str


class ScriptLibrary:
    """The scripts by name, without the key count: `library["moveToActive"]`."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self._scripts = scripts

    def __getitem__(self, name: str) -> Script:
        """Raises:
        ScriptError: no file of the loaded folders has this name.
        """
        try:
            return self._scripts[name]
        except KeyError:
            raise ScriptError(f"no script named {name}: the loaded folders have {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._scripts)

    def __len__(self) -> int:
        return len(self._scripts)

    def __contains__(self, name: object) -> bool:
        return name in self._scripts

    def values(self) -> list[Script]:
        """Every script, in the order of the folders and of the file names."""
        return list(self._scripts.values())


def load_library(*folders: str, root: Path | None = None) -> ScriptLibrary:
    """Loads every script of the named folders (default: all that this package ships).

    Args:
        folders: names below the Lua folder, such as `lock`.
        root: the Lua folder; found by itself when not given.

    Raises:
        ScriptError: no Lua folder, or a missing, misnamed, doubled, headerless or contradictory file.
    """
    base = root or find_root()
    scripts: dict[str, Script] = {}
    for folder in folders or FOLDERS:
        for path in _files(base / folder):
            script = load_script(path, base / "include")
            if folder in QUALIFIED:
                script = replace(script, name=f"{folder}/{script.name}")
            if script.name in scripts:
                raise ScriptError(f"{path}: a script named {script.name} was loaded already")
            scripts[script.name] = script
    return ScriptLibrary(scripts)


def find_root(package: Path | None = None) -> Path:
    """The Lua folder: inside an installed package `_lua`, in a checkout `lua` beside the package.

    Raises:
        ScriptError: neither exists; the message names both.
    """
    package = package or Path(__file__).resolve().parent.parent
    places = (package / "_lua", package.parent / "lua")
    for place in places:
        if place.is_dir():
            return place
    raise ScriptError(f"no Lua scripts: neither {places[0]} nor {places[1]} exists")


def load_script(path: Path, include: Path) -> Script:
    """Reads, checks, expands and hashes one script file.

    Raises:
        ScriptError: the name, the header, a key or an include is wrong.
    """
    match = _FILE_NAME.fullmatch(path.name)
    if match is None:
        raise ScriptError(f"{path}: misnamed, expected <name>-<number of keys>.lua")
    keys = int(match["keys"])
    header, body = _split(path)
    _check_header(path, header, keys)
    text = "\n".join(_expand(path, body, include, done=set(), open_files=[path.name])) + "\n"
    stray = sorted({int(n) for n in _KEY.findall(text)} - set(range(1, keys + 1)))
    if stray:
        raise ScriptError(f"{path}: uses KEYS[{stray[0]}], but the name promises {keys} keys")
    raw = text.encode()
    return Script(match["name"], keys, raw, hashlib.sha1(raw, usedforsecurity=False).hexdigest())


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ScriptError(f"{folder}: there is no such folder of scripts")
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _split(path: Path) -> tuple[str, str]:
    """The text of the opening `--[[ … ]]` block (empty when there is none), and what follows it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"{path}: cannot be read: {error}") from error
    lines = text.splitlines()
    while lines and (not lines[0].strip() or lines[0].startswith("-- SPDX-")):
        del lines[0]
    text = "\n".join(lines) + "\n"
    if not text.startswith("--[["):
        return "", text
    header, closed, body = text[4:].partition("]]\n")
    if not closed:
        raise ScriptError(f"{path}: the header is not closed by ]] at the end of a line")
    return header, body


def _check_header(path: Path, header: str, keys: int) -> None:
    if not header.strip():
        raise ScriptError(f"{path}: no header; a script opens with --[[ KEYS, ARGV, Returns ]]")
    for word in ("ARGV", "Returns"):
        if word not in header:
            raise ScriptError(f"{path}: the header does not mention {word}")
    named = {int(n) for n in _KEY.findall(header)}
    if named != set(range(1, keys + 1)):
        listed = ", ".join(map(str, sorted(named))) or "none"
        raise ScriptError(f"{path}: the name promises {keys} keys, the header lists {listed}")


def _expand(path: Path, body: str, include: Path, done: set[str], open_files: list[str]) -> Iterator[str]:
    """The lines of `body` with includes in their places, each once, and without whole-line comments.

    An indented include is known only as far as its block goes, which the indentation tells: in another block the
    same piece may be included again. Trailing comments stay: telling them from text needs a Lua parser. Long
    brackets are refused for the same reason, so that a line that starts with `--` is always a comment.
    """
    if "[[" in body or "[=" in body:
        raise ScriptError(f"{path}: long brackets are allowed in the header only")
    blocks: list[tuple[int, set[str]]] = []
    for line in body.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        while stripped and blocks and blocks[-1][0] > indent:
            done -= blocks.pop()[1]
        match = _INCLUDE.fullmatch(stripped)
        if match is not None:
            before = set(done)
            yield from _included(path, match["name"], include, done, open_files)
            if indent:
                blocks.append((indent, done - before))
        elif stripped.startswith("---") and "@include" in stripped:
            raise ScriptError(f"{path}: cannot read the line {stripped}")
        elif stripped and not stripped.startswith("--"):
            yield stripped
    for _, names in blocks:
        done -= names


def _included(path: Path, name: str, include: Path, done: set[str], open_files: list[str]) -> Iterator[str]:
    part = include / f"{name}.lua"
    if part.name in open_files:
        raise ScriptError(f"{path}: includes go round in a circle: {' > '.join([*open_files, part.name])}")
    if name in done:
        return
    if not part.is_file():
        raise ScriptError(f"{path}: includes {name}, but {part} does not exist")
    done.add(name)
    yield from _expand(part, _split(part)[1], include, done, [*open_files, part.name])
