# SPDX-License-Identifier: MIT
"""Writes the lock plane's scripts, expanded, for other runtimes to load."""

from __future__ import annotations

from pathlib import Path

from echomq_pool.errors import PoolError
from echomq_pool.redisio.scripts import load_library


class ExportError(PoolError):
    """The scripts cannot be written. The message names the folder and the cause."""


def export_scripts(folder: Path, root: Path | None = None) -> list[Path]:
    """Writes every script of the lock plane as `<name>-<number of keys>.lua`, as the server gets it.

    What a file holds is byte for byte what this package loads, so its SHA-1 is the one that a server knows.
    Files of the same names are replaced, others stay.

    Args:
        folder: made with its parents when it is missing.
        root: the Lua folder; found by itself when not given.

    Returns:
        The files, in the order of their names.

    Raises:
        ExportError: the folder or a file cannot be written.
        ScriptError: the scripts themselves are not in order.
    """
    library = load_library("lock", root=root)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for script in library.values():
            path = folder / f"{script.name}-{script.keys}.lua"
            path.write_bytes(script.text)
            written.append(path)
    except OSError as error:
        raise ExportError(f"{folder}: the scripts cannot be written: {error.strerror or error}") from error
    return written
