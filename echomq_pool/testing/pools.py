# SPDX-License-Identifier: MIT
"""A server, and a whole pool on it, for as long as a test lasts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echomq_pool.api.queue import server_of
from echomq_pool.api.sync import SyncQueue
from echomq_pool.api.sync_driver import client_of
from echomq_pool.children.embedded_server import find_binary, start_server
from echomq_pool.errors import PoolError
from echomq_pool.supervisor.control import ControlError, call

LOOK_EVERY_S = 0.02


@contextmanager
def embedded_server(*, within: float = 20.0) -> Iterator[str]:
    """A Valkey server on a socket of its own, in memory; gives its url. Needs the extra `embedded`.

    Args:
        within: seconds until it must answer.

    Raises:
        PoolError: it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="echomq-") as folder:
        path = f"{folder}/server.sock"
        with tempfile.TemporaryFile() as log:
            process = start_server(find_binary(), path, "", log)
            try:
                _answers(f"unix://{path}", process, time.monotonic() + within)
                yield f"unix://{path}"
            finally:
                process.kill()
                process.wait()


def _answers(url: str, process: subprocess.Popen[bytes], deadline: float) -> None:
    client = client_of(server_of(url))
    try:
        while True:
            try:
                client.one(("PING",))
                return
            except Exception as error:  # whatever redis-py makes of a socket that is not there yet
                if process.poll() is not None or time.monotonic() > deadline:
                    raise PoolError(f"the embedded server does not answer: {error}") from error
            time.sleep(LOOK_EVERY_S)
    finally:
        client.close()


@dataclass(slots=True)
class RunningPool:
    """A pool at work. `url` is its server's, `folder` its working directory, `log` what it has said so far."""

    url: str
    prefix: str
    hash_tag: bool
    process: subprocess.Popen[bytes]
    control: str
    folder: Path
    _log: Path

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def queue(self, name: str) -> SyncQueue:
        """A producer for one of its queues; close it, or use it as a context manager."""
        return SyncQueue(name, url=self.url, prefix=self.prefix, hash_tag=self.hash_tag)

    def status(self) -> dict[str, Any]:
        """What `echomq-pool status` shows.

        Raises:
            ControlError: it does not answer.
        """
        row = call(self.control, "status")
        found: dict[str, Any] = row["value"]
        return found

    def stop(self, *, within: float = 40.0) -> int:
        """TERM; jobs finish or are handed back. Returns the exit code, 0 when it drained."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=within)


@contextmanager
def pool(
    toml: str,
    *,
    url: str = "",
    prefix: str = "emq",
    hash_tag: bool = True,
    folder: str | os.PathLike[str] = ".",
    within: float = 60.0,
) -> Iterator[RunningPool]:
    """The whole program, `echomq-pool --config …`, until the block ends; entered when every child is ready.

    Args:
        toml: the tables of the configuration but [redis] and [supervisor], usually `[[workers]]`.
        url: of a running server; default is an embedded one, thrown away afterwards.
        folder: the pool's working directory, from which processors are imported.
        within: seconds until it must be ready.

    Raises:
        PoolError: it does not become ready; the message holds its log.
    """
    if not url:
        with (
            embedded_server() as made,
            pool(toml, url=made, prefix=prefix, hash_tag=hash_tag, folder=folder, within=within) as running,
        ):
            yield running
        return
    with tempfile.TemporaryDirectory(prefix="echomq-") as place:
        control, config, log = f"{place}/control.sock", Path(place, "pool.toml"), Path(place, "pool.log")
        head = f'prefix = "{prefix}"\nhash_tag = {str(hash_tag).lower()}\n[redis]\nurl = "{url}"\n'
        config.write_text(f'{head}[supervisor]\ncontrol = "{control}"\n{toml}', encoding="utf-8")
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "echomq_pool", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                start_new_session=True,
            )
        running = RunningPool(url, prefix, hash_tag, process, control, Path(folder), log)
        try:
            _ready(running, time.monotonic() + within)
            yield running
        finally:
            _end(running)


def _ready(running: RunningPool, deadline: float) -> None:
    while not _all_running(running):
        if running.process.poll() is not None or time.monotonic() > deadline:
            raise PoolError(f"the pool is not ready; its log:\n{running.log[-4000:]}")
        time.sleep(LOOK_EVERY_S)


def _all_running(running: RunningPool) -> bool:
    try:
        children = running.status()["children"]
    except (ControlError, KeyError, ValueError):
        return False
    return bool(children) and all(child["state"] == "running" for child in children)


def _end(running: RunningPool) -> None:
    try:
        running.stop()
    except subprocess.TimeoutExpired:
        running.process.kill()
        running.process.wait()
