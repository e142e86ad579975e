# SPDX-License-Identifier: MIT
"""Two queues that get the same calls, one by our scripts and one by BullMQ's own, and how to compare them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.support.wire import Wire, text

PACKAGES = Path(__file__).resolve().parents[1] / "wire" / "node_modules"
LOADER = Path(__file__).with_name("load_scripts.js")


def load_theirs(package: str, port: int) -> dict[str, dict[str, Any]]:
    """Loads the package's scripts into the server: {name: {keys, sha}}. Their text is not looked at.

    Raises:
        FileNotFoundError: node or the package is missing; the message says what to run.
    """
    node = shutil.which("node")
    if node is None or not (PACKAGES / package).is_dir():
        raise FileNotFoundError("node or its packages are missing: run `npm ci` in tests/wire")
    answer = subprocess.check_output([node, str(LOADER), str(PACKAGES / package), str(port)])
    found: dict[str, dict[str, Any]] = json.loads(answer)
    return found


class Theirs(Wire):
    """A queue whose scripts are BullMQ's."""

    def __init__(self, client: Any, queue: str, scripts: dict[str, dict[str, Any]]) -> None:
        super().__init__(client, queue)
        self.scripts = scripts

    def run(self, name: str, keys: list[str], args: list[Any], numkeys: int | None = None) -> Any:
        script = self.scripts[name]
        if name == "moveStalledJobsToWait" and script["keys"] == 9:
            keys = [*keys, self.key("repeat")]
        assert len(keys) == script["keys"], f"{name}: {len(keys)} keys, theirs takes {script['keys']}"
        values = ["" if value is None else value for value in args]
        return text(self.client.evalsha(script["sha"], len(keys), *keys, *values))


def comparable(value: Any, base: str) -> Any:
    """Without the queue's name; JSON texts as objects, since the order of their keys is arbitrary."""
    if isinstance(value, str):
        plain = value.replace(base, "KB:").replace(base[:-1], "KB")
        if plain[:1] in ("{", "["):
            try:
                return {"json": comparable(json.loads(plain), base)}
            except ValueError:
                return plain
        return plain
    if isinstance(value, list):
        return [comparable(item, base) for item in value]
    if isinstance(value, dict):
        return {str(comparable(key, base)): comparable(item, base) for key, item in value.items()}
    return value


def answer_of(value: Any, base: str) -> Any:
    """A reply in comparable form: flat hashes as dicts, rate limits by their presence (they are real time)."""
    if isinstance(value, list) and len(value) == 4 and isinstance(value[2], int):
        job = _as_dict(value[0]) if isinstance(value[0], list) else value[0]
        return comparable([job, value[1], value[2] > 0, value[3]], base)
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], list):
        return comparable([_as_dict(value[0]), value[1]], base)
    return comparable(value, base)


def _as_dict(flat: list[Any]) -> dict[Any, Any]:
    assert len(flat) == 2 * len(set(flat[::2])), "a field comes twice"
    return dict(zip(flat[::2], flat[1::2], strict=True))


def expiries(wire: Wire, keys: list[str]) -> dict[str, bool]:
    """Which keys have a time to live."""
    pipe = wire.client.pipeline(transaction=False)
    for key in keys:
        pipe.pttl(wire.key(key))
    return {key: ttl >= 0 for key, ttl in zip(keys, pipe.execute(), strict=True)}
