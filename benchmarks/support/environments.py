# SPDX-License-Identifier: MIT
"""Throw-away environments: a venv for each Python peer, the packages of `tests/wire` for Node."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.catalog import Peer

REPOSITORY = Path(__file__).resolve().parents[2]
ADAPTERS = REPOSITORY / "benchmarks" / "peers"
WIRE = REPOSITORY / "tests" / "wire"


class Unavailable(Exception):
    """The peer cannot be installed here. The message says what was tried."""


@dataclass(frozen=True)
class Environment:
    """How to run a peer's adapter. `command` is its start, `variables` are added to the environment."""

    command: tuple[str, ...]
    variables: dict[str, str]
    version: str


def prepare(peer: Peer, base: Path) -> Environment:
    """Installs what `peer` needs below `base`, unless it is there already.

    Raises:
        Unavailable: it could not be installed.
    """
    if peer.node:
        return _node(peer)
    if not peer.packages:
        return _python(Path(sys.executable), peer, "this checkout")
    python = base / peer.adapter / "bin" / "python"
    if not python.exists():
        venv.create(base / peer.adapter, with_pip=True)
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages])
    names = [package.partition("[")[0] for package in peer.packages]
    return _python(python, peer, ", ".join(_version(python, name) for name in names))


def python_command() -> list[str]:
    """This interpreter."""
    return [sys.executable]


def _python(python: Path, peer: Peer, version: str) -> Environment:
    variables = {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
    return Environment((str(python), "-m", f"benchmarks.peers.{peer.adapter}"), variables, version)


def _node(peer: Peer) -> Environment:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Unavailable("node and npm are missing: apt-get install nodejs npm")
    package = WIRE / "node_modules" / "bullmq-6"
    if not package.is_dir():
        _run([npm, "ci", "--prefix", str(WIRE), "--no-audit", "--no-fund", "--loglevel=error"])
    version = json.loads((package / "package.json").read_text())["version"]
    own = _run([node, "--version"]).strip()
    variables = {"NODE_PATH": str(WIRE / "node_modules"), "NODE_ENV": "production"}
    return Environment((node, str(ADAPTERS / peer.adapter)), variables, f"bullmq {version}, node {own}")


def _version(python: Path, name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return f"{name} {_run([str(python), '-c', code]).strip()}"


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command[:4])} …: {done.stderr.strip()[-300:]}")
    return done.stdout
