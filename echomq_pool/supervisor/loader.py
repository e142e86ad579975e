# SPDX-License-Identifier: MIT
"""Reads the configuration in a short-lived child that hands over plain data.

Parser, validator and whatever they drag in live and die there (law 8); first start and reload alike.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from echomq_pool.config.schema import PoolConfig, from_plain, to_plain
from echomq_pool.errors import ConfigError
from echomq_pool.supervisor.quiet import reset_signals
from echomq_pool.supervisor.spawn import fork_masked, resolve


class Loader:
    """One reading under way. Watch `fileno()`; `read()` gives the configuration once the child has said all.

    Args:
        start: dotted path of a function that takes `arguments` and returns a PoolConfig.
        let_go: run in the child first: closes what it must not keep.

    Raises:
        OSError: no process could be made.
    """

    def __init__(self, start: str, arguments: list[Any], let_go: Callable[[], None] = lambda: None) -> None:
        self._read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        self._said = b""
        try:
            self.pid = fork_masked(lambda mask: _in_child(start, arguments, write_fd, let_go, mask))
        except OSError:
            os.close(self._read_fd)
            raise
        finally:
            os.close(write_fd)

    def fileno(self) -> int:
        return self._read_fd

    def wait(self) -> PoolConfig:
        """Reads to the end, blocking; for the first start, when there is nothing else to do."""
        while True:
            found = self.read()
            if found is not None:
                os.waitpid(self.pid, 0)
                return found

    def read(self) -> PoolConfig | None:
        """What is there now. None: more is to come.

        Raises:
            ConfigError: the configuration cannot be used, or the child died over it.
        """
        chunk = os.read(self._read_fd, 65_536)
        self._said += chunk
        if chunk:
            return None
        os.close(self._read_fd)
        if not self._said:
            raise ConfigError(["the configuration could not be read: its reader died"])
        row = json.loads(self._said)
        if "problems" in row:
            raise ConfigError(row["problems"])
        return from_plain(PoolConfig, row["config"])


def _in_child(
    start: str, arguments: list[Any], write_fd: int, let_go: Callable[[], None], mask: Iterable[int]
) -> NoReturn:
    try:
        reset_signals()
        let_go()
        try:
            row: dict[str, Any] = {"config": to_plain(resolve(start)(*arguments))}
        except ConfigError as error:
            row = {"problems": error.problems}
        except BaseException:
            row = {"problems": [f"the configuration could not be read:\n{traceback.format_exc()}"]}
        said = json.dumps(row).encode()
        while said:
            said = said[os.write(write_fd, said) :]
    finally:
        os._exit(0)
