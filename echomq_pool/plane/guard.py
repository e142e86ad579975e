# SPDX-License-Identifier: MIT
"""A lock for users' own critical sections, as its holder knows it: what to send, and what the answers prove.

Pure but for its clock; `api/lease.py` and its neighbours do the asking. All locks of a prefix and the one counter of
their fencing numbers share a hash tag, so they live in one slot of a cluster: one link and one call renew them all, and
a name that is never used again leaves nothing behind.

    emq:guard:{emq}:lock:<name>     "<token>:<fencing number>" under PX
    emq:guard:{emq}:fence           the last fencing number given
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from echomq_pool.clock import Clock
from echomq_pool.errors import InputError
from echomq_pool.plane.calls import Call
from echomq_pool.plane.keys import check_prefix
from echomq_pool.plane.pack import pack

MAX_NAME = 200  # bytes
MIN_TTL_MS = 100
MAX_TTL_MS = 366 * 86_400_000
SCRIPTS = ("lease/guardAcquire", "lease/guardExtend", "lease/guardRelease", "lease/guardRenew")


class GuardKeys:
    """The keys of all locks of a prefix. One with a hash tag of its own, such as `{bull}`, keeps it: the first counts.

    Raises:
        InputError: a prefix that is no plain text.
    """

    __slots__ = ("base", "fence")

    def __init__(self, prefix: str) -> None:
        check_prefix(prefix)
        self.base = f"{prefix}:guard:{{{prefix}}}:lock:"
        self.fence = f"{prefix}:guard:{{{prefix}}}:fence"


class Guard:
    """One lock, and one holder of it at a time. Times are monotonic ms.

    Args:
        name: what is locked, up to 200 bytes.
        ttl_ms: how long it lasts without renewal.
        word: since when it is surely good by somebody else's word; 0 = there is none.

    Raises:
        InputError: a name or time that makes no lock.
    """

    __slots__ = (
        "_clock",
        "_sent_ms",
        "_word",
        "fencing_token",
        "gone",
        "keys",
        "name",
        "number",
        "token",
        "ttl_ms",
    )

    def __init__(
        self,
        name: str,
        ttl_ms: int,
        keys: GuardKeys,
        clock: Clock,
        word: Callable[[Guard], int] = lambda guard: 0,
    ) -> None:
        self.name = check_name(name)
        self.ttl_ms = ttl_ms
        self.keys = keys
        self.token = ""  # of the present holding or of the try at it; empty = neither
        self.fencing_token = 0  # of the present or last holding
        self.gone = False  # the server said that it is not ours any more
        self.number = 0  # of the word by which the lock manager heard of it
        self._clock = clock
        self._word = word
        self._sent_ms = 0  # before the call was sent that last proved it; 0 = nothing has yet

    # --- what is known --------------------------------------------------------------------------------

    @property
    def stamp_ms(self) -> int:
        """Before the last call that proved it was sent: from then on its time counts."""
        return max(self._sent_ms, self._word(self))

    @property
    def taken(self) -> bool:
        """It was taken and not given back, whatever became of it meanwhile."""
        return bool(self.token) and self._sent_ms > 0

    @property
    def held(self) -> bool:
        """Whether it is surely ours at this moment."""
        return self.taken and not self.gone and self._clock.mono_ms() < self.stamp_ms + self.ttl_ms

    @property
    def left_ms(self) -> int:
        """How long it is surely ours without another proof."""
        return max(0, self.stamp_ms + self.ttl_ms - self._clock.mono_ms())

    # --- what is asked and answered -------------------------------------------------------------------

    def acquiring(self) -> Call:
        """The call that takes it. Repeated before its answer was heard, it is the same try."""
        if not self.token or self.gone:
            self.token, self.gone, self.number, self._sent_ms = str(uuid.uuid4()), False, 0, 0
        return Call("lease/guardAcquire", (self._key, self.keys.fence), (self.token, self.ttl_ms))

    def acquired(self, reply: int, sent_ms: int) -> bool:
        """The answer to it; False: somebody else has it, or the answer came too late to be worth anything."""
        if reply:
            self.fencing_token, self._sent_ms = int(reply), sent_ms
        return self.held

    def extending(self) -> Call:
        """The call that renews it alone."""
        return Call("lease/guardExtend", (self._key,), (self.token, self.ttl_ms))

    def extended(self, renewed: bool, sent_ms: int) -> bool:
        """The answer to that, or to a call that renews many."""
        if renewed:
            self._sent_ms = max(self._sent_ms, sent_ms)
        else:
            self.gone = True
        return renewed

    def releasing(self) -> Call:
        """The call that gives it back."""
        return Call("lease/guardRelease", (self._key,), (self.token,))

    def forget(self) -> None:
        """It is given back, or no longer wanted: the next try is a new one."""
        self.token = ""

    @property
    def _key(self) -> str:
        return self.keys.base + self.name


def renewing(keys: GuardKeys, rows: Sequence[tuple[str, str, int]]) -> Call:
    """The call that renews many, each a (name, token, ms); it answers with the tokens that were refused."""
    return Call("lease/guardRenew", (keys.fence,), (keys.base, pack(rows)))


def check_name(name: object) -> str:
    """The name of a lock.

    Raises:
        InputError: no text, none that can be a key, empty, or too long.
    """
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"lease name: expected a non-empty text, got {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InputError(f"lease name: {name!r} holds a lone surrogate and cannot be a key") from None
    if size > MAX_NAME:
        raise InputError(f"lease name: expected at most {MAX_NAME} bytes, got {size} in {name[:40]!r}…")
    return name
