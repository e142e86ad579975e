# SPDX-License-Identifier: MIT
"""What a link knows and says: its state, and which server it talks to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from echomq_pool.clock import Clock
from echomq_pool.redisio.pace import QuietLog
from echomq_pool.redisio.replies import as_text

log = logging.getLogger("echomq.link")

NEW = "not connected yet"


@dataclass(frozen=True, slots=True)
class LinkState:
    """Reported at every change. `detail` is a sentence; `condition` the code while it cannot serve."""

    connected: bool
    detail: str
    client_id: int | None = None
    server: str = ""
    condition: str = ""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Kind ("redis", "valkey", "keydb", "dragonfly") and version; (0,) when the server would not say."""

    kind: str = ""
    version: tuple[int, ...] = (0,)
    role: str = ""
    cluster: bool = False

    @classmethod
    def from_info(cls, text: str) -> ServerInfo:
        """Reads the sections `server` and `replication` of an INFO reply."""
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        mode = fields.get("server_mode") or fields.get("redis_mode", "")
        kind, version = "redis", fields.get("redis_version", "")
        if fields.get("server_name") == "valkey" or "valkey_version" in fields:
            kind, version = "valkey", fields.get("valkey_version", version)
        elif "dragonfly_version" in fields:
            kind = "dragonfly"
        return cls(kind, parse_version(version), fields.get("role", ""), mode == "cluster")

    @property
    def min_block_ms(self) -> int:
        """The shortest blocking timeout that this server does not round to 0, which would mean for ever.

        Redis took fractions since 6.0, and rounds below a millisecond up since 7.0.8.
        """
        if self.kind == "valkey" or self.version >= (7, 0, 8):
            return 1
        return 2 if self.version >= (6,) else 1_000

    def block_seconds(self, block_ms: float) -> str:
        """A timeout argument in seconds, never 0; whole seconds for servers that take nothing else."""
        ms = max(float(block_ms), self.min_block_ms)
        if self.min_block_ms >= 1_000:
            return str(max(1, round(ms / 1_000)))
        return f"{ms / 1_000:.3f}"

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.version))}" if self.kind else "unknown server"


def parse_version(text: str) -> tuple[int, ...]:
    """`7.0.15` → (7, 0, 15); anything that is not a number ends it."""
    numbers: list[int] = []
    for part in as_text(text).strip().lstrip("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers) or (0,)


DESCRIPTOR_GONE = "other code of this process has closed the descriptor of this connection"
CANCELLED = "a blocked call was cancelled"  # our own doing, the only way to end such a call: no trouble


class Teller:
    """Passes changes of state on, and logs those that a person would call a change.

    Failed attempts during an outage are none, whatever their reasons: a pool has many links, and an outage
    should cost each two lines (case C003).
    """

    def __init__(self, name: str, clock: Clock, on_state: Callable[[LinkState], None] | None) -> None:
        self._name = name
        self._clock = clock
        self._on_state = on_state
        self._log = QuietLog(log)
        self.quiet = False

    def tell(self, old: LinkState, new: LinkState, *, refused: bool) -> None:
        """Reports `new`; `refused`: the server turns us away, and the reason is always worth a line."""
        over = not new.condition and (not new.connected or not old.condition)
        same = old.connected == new.connected and (old.condition == new.condition or over)
        if not self.quiet and (not same or refused or old.detail == NEW):
            fine = (new.connected and not new.condition) or new.detail == CANCELLED
            level = logging.INFO if fine else logging.WARNING
            self._line(level, new.detail or f"{old.condition} is over")
        if self._on_state is not None:
            try:
                self._on_state(new)
            except Exception:
                self.trouble("on_state failed")

    def trouble(self, what: str) -> None:
        """Logs the exception being handled."""
        self._line(logging.ERROR, what, exc_info=True)

    def _line(self, level: int, text: str, *, exc_info: bool = False) -> None:
        self._log.line(self._clock.mono_ms(), level, "link %s: %s", self._name, text, exc_info=exc_info)
