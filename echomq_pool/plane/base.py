# SPDX-License-Identifier: MIT
"""What a plane is: the transitions of one queue's jobs, whatever their keys look like.

Callers speak of jobs and tokens; a plane knows lists, locks and scripts. `lock.py` fulfils this Protocol for
BullMQ's layout, `lease.py` for that of leases by score.

Three rules hold for every plane:

* A token is `<worker id>:<counter>`; the worker id is a UUID. Every transition of a held job compares it in
  the script (law 5). With `fetch=True` the next job comes under the *same* token.
* `take` and the transitions of a held job (`complete`, `fail`, `retry`, `delay`, `release`, `wait_children`)
  outlive an outage: they wait for the link and find out what became of a call whose reply was lost
  (`repeat.py`). Cancel the task to give up. Everything else raises `LinkDown`: repeat it or not, as it suits.
* When the lock of a held job has lapsed, the transition first re-acquires it atomically, and raises
  `LeaseLost` when that is refused (law 4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from echomq_pool.config.schema import KeepConfig, LimiterConfig, WorkersConfig
from echomq_pool.errors import InputError
from echomq_pool.ipc.messages import HeldJob
from echomq_pool.plane.job_record import JobRecord
from echomq_pool.plane.keys import QueueKeys

__all__ = ["HeldRow", "JobRecord", "Nothing", "Plane", "PlaneOptions", "Recovery", "Taken", "block_ms"]


@dataclass(frozen=True, slots=True)
class Nothing:
    """No job. `limited_ms`: when the rate limit ends. `next_due_ms`: wall time of the next delayed job."""

    limited_ms: int = 0
    next_due_ms: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A job of ours: it is in `active`, and its lock holds `token`.

    `then`: what another take would have found in that moment, where it is known to be nothing.
    """

    job: JobRecord
    token: str
    then: Nothing | None = None


@dataclass(frozen=True, slots=True)
class HeldRow:
    """One lease as `recover` and `reacquire` compare it: same token, same `ats` (number of takes)."""

    id: str
    token: str
    ats: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """One job given back.

    `where`: wait | prioritized | failed (over its limit: in wait, and the next taker fails it) | missing.
    """

    id: str
    where: str
    stc: int


@dataclass(frozen=True, slots=True)
class PlaneOptions:
    """What the scripts need to know about the workers of a queue."""

    lock_duration_ms: int = 30_000
    worker_name: str = ""
    limiter: LimiterConfig | None = None
    keep_completed: KeepConfig = field(default_factory=KeepConfig)
    keep_failed: KeepConfig = field(default_factory=KeepConfig)
    metrics_points: int = 0  # minutes of per-minute counts kept in Redis; 0 = off
    max_stalled_count: int = 1
    stalled_interval_ms: int = 30_000
    # The lease plane alone:
    recovery: str = "sweep"  # what `sweep` does with lapsed leases: "sweep" counts them, "reap" does not
    marker_ms: int = 0  # how long a renewal's presence markers last; 0 = none are written
    cluster: bool = False  # who listens to events may do so at another node
    publish: bool = True  # transitions are published on the queue's channel

    def __post_init__(self) -> None:
        """Raises:
        InputError: a value that would make the scripts fail or loop.
        """
        for name, low in (("lock_duration_ms", 1), ("max_stalled_count", 0), ("stalled_interval_ms", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InputError(f"{name}: expected a whole number from {low}, got {value!r}")
        if self.recovery not in ("sweep", "reap"):
            raise InputError(f"recovery: expected 'sweep' or 'reap', got {self.recovery!r}")

    @classmethod
    def from_workers(cls, workers: WorkersConfig, *, worker_name: str = "") -> PlaneOptions:
        """The options of one `[[workers]]` entry."""
        return cls(
            lock_duration_ms=workers.lock_duration_ms,
            worker_name=worker_name,
            limiter=workers.limiter,
            keep_completed=workers.remove_on_complete,
            keep_failed=workers.remove_on_fail,
            metrics_points=workers.metrics_points,
            max_stalled_count=workers.max_stalled_count,
            stalled_interval_ms=workers.stalled_interval_ms,
            recovery=workers.recovery,
        )


class Blocking(Protocol):
    """The part of a blocking link that `Plane.wait` uses."""

    async def blocking_call(self, *args: bytes | str | int | float, block_ms: float) -> Any: ...


class Plane(Protocol):
    """One queue. Methods raise `JobError` subclasses for refusals, `LinkError` subclasses for the server."""

    keys: QueueKeys
    options: PlaneOptions
    kind: ClassVar[str]  # lock | lease
    # Whether a take makes due jobs ready. Else one process does that for all, and wakes whoever waits.
    promotes: ClassVar[bool]

    async def open(self) -> None:
        """Makes sure that the queue belongs to this plane; before anything else is done with it.

        Raises:
            WrongPlane: it belongs to the other one.
        """

    async def take(self, token: str, *, quiet: bool = False) -> Taken | Nothing:
        """Claims the next job under `token`. A lost reply is resolved by looking for it in `active`.

        Args:
            quiet: behind the last job wake nobody, and say that it was the last; Node's workers always wake one.
        """

    async def complete(
        self, job: JobRecord, token: str, returnvalue: bytes, *, fetch: bool = False
    ) -> Taken | Nothing | None:
        """Completes with JSON text. Returns the next job when `fetch`, None when not asked for one.

        Raises:
            ChildrenFailed, DependenciesPending: the lock is still held, so the job can be failed or retried.
            LeaseLost: the job is no longer ours; nothing was written.
        """

    async def fail(
        self, job: JobRecord, token: str, reason: str, stacktrace: Sequence[str], *, fetch: bool = False
    ) -> Taken | Nothing | None:
        """Fails for good. `stacktrace` is the whole list to store, oldest first, already cut to its limit."""

    async def retry(self, job: JobRecord, token: str, reason: str, stacktrace: Sequence[str]) -> None:
        """Back to wait (atm + 1): the back of the line, or the front when the job is lifo."""

    async def delay(
        self,
        job: JobRecord,
        token: str,
        delay_ms: float,
        *,
        skip_attempt: bool = False,
        reason: str | None = None,
        stacktrace: Sequence[str] | None = None,
        fetch: bool = False,
    ) -> Taken | Nothing | None:
        """To delayed for `delay_ms` from now, atm + 1 unless `skip_attempt`; stores reason and stacktrace."""

    async def release(self, job: JobRecord, token: str) -> int:
        """Back to the front of the line, no attempt counted. Returns ms until the rate limit ends."""

    async def wait_children(self, job: JobRecord, token: str, child_key: str = "") -> bool:
        """To waiting-children. False: nothing to wait for, the job is still ours and goes on."""

    async def extend(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Renews all (id, token) leases in one call. Returns the ids that could not be renewed."""

    async def reacquire(self, rows: Sequence[HeldRow]) -> list[str]:
        """Sets lapsed locks again where the job is still in active with the same `ats`; renews live ones.

        Returns the ids that were refused: those jobs are not ours any more.
        """

    async def recover(
        self, owner: str, held: Sequence[HeldRow] = (), *, planned: bool, evidence: str = ""
    ) -> list[Recovery]:
        """Gives back every active job of a *dead* worker: locks starting `<owner>:`, lapsed `held` ones.

        `planned` = we ended it: no attempt, no stall, front of the line. Else a stall: stc + 1, `evidence`
        goes to the job's stacktrace and log, and past max_stalled_count the next taker fails the job.
        """

    async def settle_for(self, held: HeldJob, how: str, text: str) -> str:
        """Settles a job in the name of its ended worker: "timeout" by its retry policy, "cancel" fails it.

        Returns "wait", "delayed" or "failed"; "gone" when the token no longer holds the job.
        """

    async def claimed_by(self, owner: str, job_id: str) -> Taken | None:
        """The job as `owner` holds it, read from the server; None when it does not."""

    async def unknown_claims(self, owner: str, known: Iterable[tuple[str, str]]) -> list[Taken]:
        """Active jobs under a token of `owner` not among `known` (id, token): claims whose reply was lost.

        Only for a moment when no take and no fetch of this owner is under way.
        """

    async def sweep(self, max_stalled: int | None = None, interval_ms: int | None = None) -> list[str]:
        """One pass of the two-phase stalled check; returns the ids put back (empty inside the interval)."""

    async def probe(self) -> list[str]:
        """Ids in active without a lock. Reads only."""

    async def produce_next(self, job: JobRecord) -> str | None:
        """For a scheduler's job just taken: makes its successor. Returns its id, None when there is none."""

    async def wait(self, blocking: Blocking, block_ms: float) -> int | None:
        """Blocks on the marker. None = nothing came, 0 = there may be work, else when the next job is due."""

    def wake(self) -> asyncio.Future[Any]:
        """Gives back what `wait` has consumed, so that somebody else wakes for the job."""

    async def progress(self, job_id: str, progress: bytes) -> None:
        """Stores progress (JSON text) and publishes it."""

    async def log(self, job_id: str, row: str, keep: int | None = None) -> int:
        """Appends a log row; keeps the last `keep`. Returns how many there are."""

    async def update_data(self, job_id: str, data: bytes) -> None:
        """Replaces the job's data (JSON text)."""

    async def rate_limit(self, duration_ms: int) -> None:
        """Stops takes for `duration_ms`, where a maximum is configured."""

    async def state(self, job_id: str) -> str:
        """completed | failed | delayed | prioritized | active | waiting | waiting-children | unknown."""

    async def load(self, job_id: str) -> JobRecord | None:
        """The job as stored, None when there is none."""

    async def counts(self, *names: str) -> dict[str, int]:
        """Sizes of the states asked for (all when none is named)."""

    def ask(
        self, script: str, keys: Sequence[bytes | str], args: Sequence[bytes | str | int | float]
    ) -> Awaitable[Any]:
        """Any script of the library, for verbs that need no judgement of a lost reply."""

    def command(self, *args: bytes | str | int | float) -> Awaitable[Any]:
        """Any command, likewise."""


def block_ms(
    now_ms: int, until_ms: int, drain_delay_ms: int, minimum_ms: int = 1, maximum_ms: int = 10_000
) -> int:
    """How long to block on the marker; 0 = do not block, look at once.

    Args:
        now_ms: wall clock.
        until_ms: wall time of the next delayed job as last heard; 0 = none known.
        drain_delay_ms: how long to block on an empty queue.
        minimum_ms: the shortest block the server keeps reliably (2 before Redis 7.0.8).
    """
    if not until_ms:
        return max(drain_delay_ms, minimum_ms)
    remaining = until_ms - now_ms
    if remaining <= 0:
        return 0
    return min(max(remaining, minimum_ms), maximum_ms)
