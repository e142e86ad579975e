# SPDX-License-Identifier: MIT
"""What the supervisor has to say: four fields each, one line of text, bounded."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_TEXT = 600  # characters of a line; a child's last words may be a whole traceback
MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Report:
    """supervisor, context, reason, offender. `asked`: an operator wanted it, so it is no news to anybody.

    Contexts: progress, start_error, child_terminated, shutdown_error, shutdown, replaced, not_replaced.
    """

    supervisor: str
    context: str
    reason: str
    offender: Mapping[str, Any] = field(default_factory=dict)
    asked: bool = False
    trouble: bool = True

    @property
    def level(self) -> int:
        """Level of the log line."""
        if self.context == "progress":
            return logging.DEBUG if self.asked else logging.INFO
        return logging.ERROR if self.trouble else logging.INFO

    def line(self, limit: int = MAX_TEXT, depth: int = MAX_DEPTH) -> str:
        """One line, at most `limit` characters, nested values down to `depth`."""
        offender = " ".join(f"{k}={brief(v, depth)}" for k, v in self.offender.items())
        return clip(f"{self.supervisor}: {self.context}: {self.reason} [{offender}]", limit)


def brief(value: Any, depth: int = MAX_DEPTH) -> str:
    """A value on one line; what lies deeper than `depth` is shown as `…`."""
    if isinstance(value, Mapping):
        if depth <= 0:
            return "{…}"
        return "{" + ", ".join(f"{k}: {brief(v, depth - 1)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        if depth <= 0:
            return "[…]"
        return "[" + ", ".join(brief(v, depth - 1) for v in value) + "]"
    return str(value)


def clip(text: str, limit: int) -> str:
    """The text without line breaks, cut in the middle: first and last words of a traceback tell most."""
    flat = " ".join(part for part in (p.strip() for p in text.splitlines()) if part)
    if len(flat) <= limit:
        return flat
    half = (limit - 3) // 2
    return f"{flat[:half]} … {flat[len(flat) - (limit - 3 - half) :]}"
