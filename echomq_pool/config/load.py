# SPDX-License-Identifier: MIT
"""`pool.toml` → `PoolConfig`: read, fill in the environment, check everything, freeze.

Every problem is found in one go and becomes one sentence with file and line. Runs in a short-lived
process: the supervisor and its children never import the validator behind this.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from echomq_pool.config.build import build
from echomq_pool.config.cpus import CpuCount
from echomq_pool.config.env import fill_in
from echomq_pool.config.lines import key_lines, line_of
from echomq_pool.config.models import File
from echomq_pool.config.problems import path_text, prune, sentences
from echomq_pool.config.schema import PoolConfig
from echomq_pool.errors import ConfigError

KeyPath = tuple[str | int, ...]
Problems = list[tuple[KeyPath, str]]


def load(path: Path, environ: Mapping[str, str], *, cpus: CpuCount | None = None) -> PoolConfig:
    """Reads and checks the file at `path`.

    Args:
        environ: what `${NAME}` refers to.
        cpus: what `processes = "auto"` means; looked up when None.

    Raises:
        ConfigError: with one sentence per problem, each naming file, line and key.
    """
    text = _read(path)
    data = _parse(text, path)
    problems: Problems = []
    config = _check(data, path, environ, cpus, problems)
    if config is None or problems:
        raise ConfigError(_located(problems, text, path))
    return config


def load_file(path: str) -> PoolConfig:
    """`load` with this process's environment: what the supervisor's short-lived reader runs.

    Raises:
        ConfigError: see `load`.
    """
    return load(Path(path), os.environ)


def _check(
    data: dict[str, Any], path: Path, environ: Mapping[str, str], cpus: CpuCount | None, problems: Problems
) -> PoolConfig | None:
    unfilled: dict[KeyPath, str] = {}
    data = fill_in(data, environ, unfilled)
    problems.extend(unfilled.items())
    spoilt: set[KeyPath] = {where[:-1] for where in unfilled}
    for _ in range(3):  # a second look without what is wrong finds the contradictions among the rest
        try:
            file = File.model_validate(data)
        except ValidationError as error:
            # What a missing variable left empty has its own sentence already.
            seen = {where for where, _ in problems}
            problems.extend((where, words) for where, words in sentences(error).items() if where not in seen)
            spoilt |= prune(data, error)
            continue
        found: Problems = []
        config = build(file, path.absolute().parent, environ, cpus, found)
        problems.extend((where, words) for where, words in found if not _is_spoilt(where, spoilt))
        return config
    return None


def _is_spoilt(where: KeyPath, spoilt: set[KeyPath]) -> bool:
    """Whether a contradiction may only come from a value that was taken out."""
    return any(where[: len(table)] == table for table in spoilt)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")  # editors on Windows put a mark in front
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError([f"{path}:{line}: the file is not UTF-8 text"]) from error


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        words, _, place = str(error).rpartition(" (at ")
        line = place.removeprefix("line ").partition(",")[0]
        number = int(line) if line.isdigit() else text.count("\n") + 1
        raise ConfigError([f"{path}:{number}: not valid TOML: {words or error}"]) from error


def _located(problems: Problems, text: str, path: Path) -> list[str]:
    lines = key_lines(text)
    placed = [(line_of(where, lines) or 1, path_text(where), words) for where, words in problems]
    return [
        f"{path}:{line}: {where}: {words}" if where else f"{path}:{line}: {words}"
        for line, where, words in sorted(dict.fromkeys(placed))
    ]
