# SPDX-License-Identifier: MIT
"""Every message that travels between the processes of a pool, as a dataclass.

A record on the wire is one header and one body (`channel.py` draws it). The body is the JSON
list of the dataclass's fields, in order. The supervisor decodes what is addressed to itself and forwards
the rest by kind and slot alone:

    to the supervisor     Ready Ignore Failed Linked Stats Expired Wish Bye Recovered
    to the lock manager   Held Settled Guards Up Down Stop Quiet Resume
    to one worker         Lost GuardsLost (slot), Cancel (broadcast), Relearn (broadcast), Stop Quiet Resume
    to the observer       Stats Events Tree
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple


class Kind(IntEnum):
    """Record types. 1-19 speak to a child, 20-39 to the supervisor, 40-59 pass through it."""

    STOP = 1
    QUIET = 2
    RESUME = 3
    UP = 5
    DOWN = 6
    RELEARN = 7
    TREE = 8
    READY = 20
    IGNORE = 21
    FAILED = 22
    LINKED = 23
    STATS = 24
    EXPIRED = 25
    WISH = 26
    BYE = 27
    RECOVERED = 28
    HELD = 40
    SETTLED = 41
    LOST = 42
    CANCEL = 43
    EVENTS = 44
    GUARDS = 45
    GUARDS_LOST = 46


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish and leave. What still runs at `deadline_ms` (monotonic) is handed back; `fast` hands back at once."""

    kind: ClassVar[Kind] = Kind.STOP
    deadline_ms: int
    fast: bool = False
    reason: str = "shutdown"


@dataclass(frozen=True, slots=True)
class Quiet:
    """Start nothing new; what runs goes on."""

    kind: ClassVar[Kind] = Kind.QUIET


@dataclass(frozen=True, slots=True)
class Resume:
    """Undoes Quiet."""

    kind: ClassVar[Kind] = Kind.RESUME


@dataclass(frozen=True, slots=True)
class Up:
    """A worker lives: sent to the lock manager at its start and at each new link, and for all at a restart."""

    kind: ClassVar[Kind] = Kind.UP
    worker_id: str
    slot: int
    pid: int
    queues: list[str]
    client_ids: list[int]


@dataclass(frozen=True, slots=True)
class Down:
    """A worker is dead and reaped. Kept by the supervisor until `Recovered` comes back."""

    kind: ClassVar[Kind] = Kind.DOWN
    worker_id: str
    slot: int
    queues: list[str]
    client_ids: list[int]
    planned: bool  # we ended it: hand back without cost, else recover as a stall
    reason: str  # "signal SIGKILL (from outside)", "exit code 3", "oom", "hang", "timeout" …
    expired: list[list[str]]  # [queue, job id, "timeout" | "cancel", text]: settled by their retry policy
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Relearn:
    """A new lock manager has started: every worker tells it all that it holds."""

    kind: ClassVar[Kind] = Kind.RELEARN
    incarnation: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The supervisor's own figures for the observer (the same dict that `status` prints)."""

    kind: ClassVar[Kind] = Kind.TREE
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ready:
    """The child is up. `worker_id` is empty for the singletons. Never waits for Redis."""

    kind: ClassVar[Kind] = Kind.READY
    worker_id: str = ""
    queues: tuple[str, ...] = ()
    info: str = ""


@dataclass(frozen=True, slots=True)
class Ignore:
    """The child has nothing to do and leaves; it is not restarted."""

    kind: ClassVar[Kind] = Kind.IGNORE
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The child could not start. `final` = no restart will help."""

    kind: ClassVar[Kind] = Kind.FAILED
    error: str
    trace: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class Linked:
    """State of the child's links to the server. Sent before the first command on a new connection."""

    kind: ClassVar[Kind] = Kind.LINKED
    connected: bool
    client_ids: list[int]
    detail: str = ""  # "LOADING", "READONLY", "connection refused" …
    server: str = ""  # "valkey 9.1.2"


@dataclass(frozen=True, slots=True)
class Stats:
    """Numbers since the process began, for `status` and `/metrics`. Totals never fall within one process."""

    kind: ClassVar[Kind] = Kind.STATS
    counters: dict[str, float]
    gauges: dict[str, float]
    histograms: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Expired:
    """A job that cannot be stopped from inside: end this process and settle the job. `how`: timeout | cancel."""

    kind: ClassVar[Kind] = Kind.EXPIRED
    worker_id: str
    queue: str
    job_id: str
    how: str
    text: str


@dataclass(frozen=True, slots=True)
class Wish:
    """The worker asks to be replaced (recycling): the heir is started first."""

    kind: ClassVar[Kind] = Kind.WISH
    reason: str


@dataclass(frozen=True, slots=True)
class Bye:
    """The last frame of a child that ends by its own decision. `handed_back`: jobs put back at the stop."""

    kind: ClassVar[Kind] = Kind.BYE
    reason: str
    handed_back: int = 0


@dataclass(frozen=True, slots=True)
class Recovered:
    """The lock manager has dealt with everything a dead worker held."""

    kind: ClassVar[Kind] = Kind.RECOVERED
    worker_id: str
    jobs: list[list[Any]]  # [queue, job id, held for ms, "wait" | "failed" | "delayed"]


class HeldJob(NamedTuple):
    """One lease as the lock manager must know it: how to renew it, and how to settle it without its worker.

    A tuple, since one is made on either side for every job: 0.5 µs, where a frozen dataclass takes 3. The first three
    fields are the key of the lease.
    """

    queue: str
    id: str
    token: str
    ats: int
    atm: int
    attempts: int
    backoff: dict[str, Any] | None
    lifo: bool
    taken_ms: int  # monotonic, before the take was sent
    deadline_ms: int  # monotonic; 0 = no time limit
    name: str


@dataclass(frozen=True, slots=True)
class Held:
    """Jobs taken in this turn of the loop, told before their user code starts. `end` closes a full re-telling.

    `settled` is what a `Settled` just before it would say: a busy worker needs one record for a turn, not two.
    """

    kind: ClassVar[Kind] = Kind.HELD
    worker_id: str
    jobs: list[HeldJob]
    full: bool = False
    end: bool = False
    settled: Sequence[Sequence[str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Settled:
    """Jobs that this worker holds no longer: [queue, job id, token] each."""

    kind: ClassVar[Kind] = Kind.SETTLED
    worker_id: str
    jobs: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Lost:
    """Leases that cannot be renewed or re-acquired: [queue, job id, token] each."""

    kind: ClassVar[Kind] = Kind.LOST
    worker_id: str
    jobs: list[list[str]]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody asked for the end of a job; whoever runs it stops it."""

    kind: ClassVar[Kind] = Kind.CANCEL
    queue: str
    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Events:
    """Events read from the streams, counted by queue and name, for the observer."""

    kind: ClassVar[Kind] = Kind.EVENTS
    counts: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Guards:
    """Users' own leases that jobs of this worker took, [name, token, ttl ms, taken ms (monotonic)], and gave back.

    `number` grows with each of these messages, so that the board can say up to which one it speaks; 0 = more follow.
    """

    kind: ClassVar[Kind] = Kind.GUARDS
    worker_id: str
    number: int
    held: list[list[Any]]
    freed: list[str]  # tokens


@dataclass(frozen=True, slots=True)
class GuardsLost:
    """Users' leases that could not be renewed, by token: they are gone or another's."""

    kind: ClassVar[Kind] = Kind.GUARDS_LOST
    worker_id: str
    tokens: list[str]


Message = (
    Stop | Quiet | Resume | Up | Down | Relearn | Tree | Ready | Ignore | Failed | Linked | Stats | Expired
    | Wish | Bye | Recovered | Held | Settled | Lost | Cancel | Events | Guards | GuardsLost
)  # fmt: skip

_BY_KIND: dict[Kind, type[Any]] = {
    cls.kind: cls
    for cls in (
        Stop, Quiet, Resume, Up, Down, Relearn, Tree, Ready, Ignore, Failed, Linked, Stats, Expired,
        Wish, Bye, Recovered, Held, Settled, Lost, Cancel, Events, Guards, GuardsLost,
    )
}  # fmt: skip


# `fields` builds its tuple anew at every call.
_FIELDS: dict[type[Any], tuple[str, ...]] = {
    cls: tuple(f.name for f in fields(cls)) for cls in _BY_KIND.values()
}


def to_row(message: Message) -> list[Any]:
    """The JSON-able body of a message: its fields in order, held jobs as rows of their own."""
    row = [getattr(message, name) for name in _FIELDS[type(message)]]
    if isinstance(message, Held):
        row[1] = [[*job] for job in message.jobs]
    return row


def from_row(kind: Kind, row: list[Any]) -> Message:
    """Rebuilds a message from its body.

    Raises:
        TypeError: the row does not fit the kind (a sender of another version).
    """
    if kind is Kind.HELD:
        row = [row[0], [HeldJob._make(job) for job in row[1]], *row[2:]]
    message: Message = _BY_KIND[kind](*row)
    return message
