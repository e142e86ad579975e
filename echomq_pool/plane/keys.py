# SPDX-License-Identifier: MIT
"""Every Redis key of a queue, and the rules for the names that keys are made of.

Pure functions of prefix, queue and id: nothing else in the package builds a key by hand.

    emq:{orders}:wait            queue-level        QueueKeys.key("wait")
    emq:{orders}:17              a job's hash       QueueKeys.job("17")
    emq:{orders}:17:lock         its lease          QueueKeys.lock("17")
    emq:{orders}:repeat:nightly  a scheduler        QueueKeys.scheduler("nightly")
"""

from __future__ import annotations

import base64
import re
from decimal import Decimal

from echomq_pool.errors import InputError

# Queue-level suffixes, as `lock-plane` clients know them.
SUFFIXES = (
    "id", "wait", "paused", "active", "prioritized", "pc", "delayed", "waiting-children", "completed",
    "failed", "stalled", "stalled-check", "meta", "events", "marker", "limiter", "repeat",
    "metrics:completed", "metrics:failed", "metrics:completed:data", "metrics:failed:data",
)  # fmt: skip

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")


class QueueKeys:
    """Key builder of one queue.

    Args:
        prefix: first part of every key, `emq` (or `bull` for an existing BullMQ queue).
        queue: the queue's name; braces around the whole name are accepted and not doubled.
        hash_tag: put the name in braces, so that all keys of the queue share one cluster slot.

    Raises:
        InputError: a prefix or name that makes unusable keys.
    """

    __slots__ = ("base", "prefix", "qualified", "queue", "wire_name")

    def __init__(self, prefix: str, queue: str, hash_tag: bool = True) -> None:
        check_prefix(prefix)
        check_queue_name(queue)
        self.prefix = prefix
        self.queue = queue
        self.wire_name = tagged(queue) if hash_tag else queue
        self.qualified = f"{prefix}:{self.wire_name}"
        self.base = self.qualified + ":"

    def key(self, suffix: str) -> str:
        """A queue-level key, e.g. `wait`."""
        return self.base + suffix

    def job(self, job_id: str) -> str:
        """The job's hash."""
        return self.base + job_id

    def lock(self, job_id: str) -> str:
        """The job's lease: a string with the holder's token under PX."""
        return f"{self.base}{job_id}:lock"

    def logs(self, job_id: str) -> str:
        return f"{self.base}{job_id}:logs"

    def dependencies(self, job_id: str) -> str:
        return f"{self.base}{job_id}:dependencies"

    def processed(self, job_id: str) -> str:
        return f"{self.base}{job_id}:processed"

    def failed(self, job_id: str) -> str:
        return f"{self.base}{job_id}:failed"

    def unsuccessful(self, job_id: str) -> str:
        return f"{self.base}{job_id}:unsuccessful"

    def dedup(self, dedup_id: str) -> str:
        return f"{self.base}de:{dedup_id}"

    def dedup_next(self, dedup_id: str) -> str:
        return f"{self.base}dn:{dedup_id}"

    def scheduler(self, scheduler_id: str) -> str:
        return f"{self.base}repeat:{scheduler_id}"

    def occurrence(self, scheduler_id: str, at_ms: int) -> str:
        """Id (not key) of a scheduler's job at `at_ms`."""
        return f"repeat:{scheduler_id}:{at_ms}"

    def worker_client_name(self, worker_name: str = "") -> str:
        """CLIENT SETNAME of a worker's blocking connection, as BullMQ's getWorkers looks for it."""
        name = f"{self.prefix}:{_b64(self.wire_name)}"
        return f"{name}:w:{worker_name}" if worker_name else name

    def events_client_name(self) -> str:
        """CLIENT SETNAME of a reader of the event stream."""
        return f"{self.prefix}:{_b64(self.wire_name)}:qe"

    def __repr__(self) -> str:
        return f"QueueKeys({self.base!r})"


def tagged(queue: str) -> str:
    """The queue name in braces, unless it already is nothing but a non-empty hash tag."""
    already = len(queue) > 2 and queue[0] == "{" and queue.find("}") == len(queue) - 1
    return queue if already else "{" + queue + "}"


def job_id_of(job_key: str) -> str:
    """The id in a job's key as flows read it: what follows the last colon."""
    return job_key.rpartition(":")[2]


def check_prefix(prefix: object) -> None:
    """Refuses a key prefix that is not plain text.

    Raises:
        InputError: with the reason.
    """
    if not isinstance(prefix, str) or not prefix.strip():
        raise InputError(f"prefix: expected a non-empty text such as 'emq', got {prefix!r}")
    _encodable("prefix", prefix)


def check_queue_name(name: object) -> None:
    """Refuses a queue name that makes unusable keys (as Node does, and blank names too).

    Raises:
        InputError: with the reason.
    """
    if not isinstance(name, str):
        raise InputError(f"queue name: expected a text, got {type(name).__name__} {name!r}")
    if not name.strip():
        raise InputError(f"queue name: it must not be empty or blank, got {name!r}")
    if ":" in name:
        raise InputError(f"queue name: it must not contain ':', got {name!r}")
    _encodable("queue name", name)


def check_job_id(job_id: object) -> None:
    """Refuses a custom job id by Node's rules, and one whose hash would be a key of the queue itself.

    Raises:
        InputError: with the reason.
    """
    if not isinstance(job_id, str):
        raise InputError(f"job id: expected a text, got {type(job_id).__name__} {job_id!r}")
    if not job_id:
        raise InputError("job id: it must not be empty; leave it out for an automatic one")
    if _is_integer(job_id):
        raise InputError(f"job id: a plain integer could collide with automatic ids, got {job_id!r}")
    if job_id.startswith("0:"):
        raise InputError(f"job id: it must not start with '0:', got {job_id!r}")
    if ":" in job_id and job_id.count(":") != 2:
        raise InputError(f"job id: ':' is allowed only in three-part ids (as 'a:b:c'), got {job_id!r}")
    if job_id in SUFFIXES:
        raise InputError(f"job id: the queue has a key of its own of that name, got {job_id!r}")
    _encodable("job id", job_id)


def _is_integer(text: str) -> bool:
    """True when JavaScript's parseInt gives back the same text, which is how Node recognises integers."""
    if not _INTEGER.match(text) or text == "-0" or len(text) > 21:
        return False
    return format(Decimal(repr(float(text))), "f").removesuffix(".0") == text


def _encodable(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what}: {text!r} holds a lone surrogate and cannot be a key") from None


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
