# SPDX-License-Identifier: MIT
"""What the tree wants done. The loop carries it out and tells the tree how it went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from echomq_pool.supervisor.report import Report
from echomq_pool.supervisor.spec import ChildSpec


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process. Answered by acked, ignored, start_failed, fork_failed or exited."""

    handle: int
    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class AskStop:
    """Send `Stop`. May come twice for one child: the second time it is in more of a hurry."""

    handle: int
    deadline_ms: int
    fast: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """`abort` lets the child print its stacks (SIGABRT), `kill` is SIGKILL."""

    handle: int
    how: Literal["kill", "abort"]


@dataclass(frozen=True, slots=True)
class Result:
    """Answer to a request: `error` is "" or a word such as `running`, `restarting`, `not_found`."""

    value: Any = None
    error: str = ""
    detail: str = ""

    @property
    def ok(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the request that carried `ticket`."""

    ticket: int
    result: Result


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing lives any more. `outcome`: stopped, shutdown (by itself), gave_up, boot_failed."""

    outcome: str
    cause: str = ""


Action = Spawn | AskStop | Kill | Report | Reply | Finished
