# SPDX-License-Identifier: MIT
"""What every lease shows, whoever keeps it alive: inside a job or outside, asynchronous or not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from echomq_pool.api.ask import Op, ask_script
from echomq_pool.config.units import UnitError, duration_ms
from echomq_pool.errors import InputError, LeaseExpired, LeaseTaken
from echomq_pool.plane.calls import Call
from echomq_pool.plane.guard import MAX_TTL_MS, MIN_TTL_MS, Guard

log = logging.getLogger("echomq.lease")

TTL = "30s"
PACE_S = (0.02, 0.05, 0.1, 0.25)  # between tries at a lease that somebody has; then the last of them
RENEWALS = 3  # per time to live …
RETRY = 12  # … and one that failed is tried again after a twelfth of it


class LeaseView:
    """A lease as its holder sees it."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._trying = threading.Lock()

    @property
    def name(self) -> str:
        """What it is a lock for: the same name, the same lock."""
        return self._guard.name

    @property
    def ttl_ms(self) -> int:
        """How long it lasts without renewal."""
        return self._guard.ttl_ms

    @property
    def fencing_token(self) -> int:
        """The number of this holding, 0 before the first. It grows with every acquisition, whoever makes it.

        Hand it to what the lease protects, and let that refuse a smaller number than it has seen.
        """
        return self._guard.fencing_token

    @property
    def held(self) -> bool:
        """Whether it is surely ours at this moment, by the monotonic clock.

        Its time counts from before the call was sent that acquired or last renewed it.
        """
        return self._guard.held

    @property
    def lost(self) -> bool:
        """Whether it was acquired, not given back, and may be another's now.

        Time alone makes it so, and only the server's word that nobody else had it in between undoes that.
        """
        return self._guard.taken and not self._guard.held

    def check(self) -> None:
        """Goes on only while it is held.

        Raises:
            LeaseExpired: it is not, or may not be.
        """
        if not self.held:
            raise LeaseExpired(f"lease {self.name!r} is not held" + (" any more" if self.lost else ""))

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Two who tried with one object would try with one token, and both would get the lease."""
        if self._guard.held or not self._trying.acquire(blocking=False):
            raise InputError(
                f"lease {self.name!r}: it has a holder already; another one needs another object"
            )
        try:
            yield
        finally:
            self._trying.release()

    def _taken(self) -> LeaseTaken:
        return LeaseTaken(f"lease {self.name!r} is held by somebody else")

    def __repr__(self) -> str:
        state = f"held, fencing token {self.fencing_token}" if self.held else "lost" if self.lost else "free"
        return f"{type(self).__name__}({self.name!r}, {state})"


def asked(call: Call) -> Op[Any]:
    """One call as an operation."""
    (reply,) = yield [ask_script(call)]
    return reply


def ttl_of(ttl: object) -> int:
    """A time to live in ms.

    Raises:
        InputError: no text with a unit, or out of range.
    """
    ms = _duration("ttl", ttl)
    if not MIN_TTL_MS <= ms <= MAX_TTL_MS:
        raise InputError(f'ttl: expected from "{MIN_TTL_MS}ms" to "{MAX_TTL_MS // 86_400_000}d", got {ttl!r}')
    return ms


def wait_of(wait: object) -> int | None:
    """How long to wait for a lease that somebody has, ms; None = as long as it takes.

    Raises:
        InputError: neither None nor 0 nor a text with a unit.
    """
    return (
        None if wait is None else _duration("wait", "0" if wait == 0 and not isinstance(wait, bool) else wait)
    )


def _duration(argument: str, value: object) -> int:
    try:
        if isinstance(value, str):
            return duration_ms(value)
    except UnitError:
        pass
    raise InputError(
        f'{argument}: expected a text with a unit (ms, s, m, h, d, w) such as "30s", got {value!r}'
    )


def pace_s(tries: int, left_ms: float | None) -> float:
    """How long to sleep before the next try; `left_ms` of the wait are left."""
    pause = PACE_S[min(tries, len(PACE_S) - 1)]
    return pause if left_ms is None else min(pause, left_ms / 1000)


def call_on_lost(on_lost: Callable[[], None] | None, name: str) -> None:
    """Tells the holder. An error of his own must not end the renewing: the lease may yet turn out to be ours."""
    if on_lost is None:
        return
    try:
        on_lost()
    except Exception:
        log.exception("on_lost of lease %s failed", name)
