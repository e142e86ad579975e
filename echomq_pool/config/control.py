# SPDX-License-Identifier: MIT
"""Where a pool's control socket is, found without checking the whole configuration.

`health` runs every few seconds in a container and must not pay for a validator.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from echomq_pool.config.env import fill_in
from echomq_pool.errors import ConfigError

SUN_PATH_MAX = 107  # bytes that fit into the kernel's socket address
SERVER_SUFFIX = ".valkey"
CONTROL_MAX = SUN_PATH_MAX - len(SERVER_SUFFIX)


def embedded_socket(control: str) -> str:
    """Where the embedded server of the pool with this control socket listens."""
    return control + SERVER_SUFFIX


def default_control(name: str, environ: Mapping[str, str]) -> str:
    """The socket of the pool called `name`, where only this user can reach it."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return str(Path(runtime) / f"echomq-pool-{name}.sock")
    return str(Path(tempfile.gettempdir()) / f"echomq-pool-{os.getuid()}-{name}.sock")


def peek_control(path: Path, environ: Mapping[str, str]) -> str:
    """The control socket that the pool of the file `path` listens on.

    Raises:
        ConfigError: the file cannot be read as TOML.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([f"{path}: cannot be read ({error})"]) from error
    data = fill_in({key: data.get(key) for key in ("name", "supervisor")}, environ, {})
    supervisor = data["supervisor"] if isinstance(data["supervisor"], dict) else {}
    control = supervisor.get("control")
    name = data["name"] if isinstance(data["name"], str) else "pool"
    return control if isinstance(control, str) and control else default_control(name, environ)
