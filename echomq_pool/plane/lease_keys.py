# SPDX-License-Identifier: MIT
"""The keys of a queue on the lease plane.

emq:{orders}:pending                     queue-level      LeaseKeys.key("pending")
emq:{orders}:job:JOB0NgWEfAEJfs          a job's row      LeaseKeys.job("JOB…")
emq:{orders}:job:JOB0NgWEfAEJfs:lock     its marker       LeaseKeys.lock("JOB…")
emq:{orders}:g:PRT0NgWEfAEJfs:pending    a lane           LeaseKeys.lane("PRT…")
"""

from __future__ import annotations

import re

from echomq_pool.errors import InputError
from echomq_pool.plane import branded
from echomq_pool.plane.keys import QueueKeys

RESERVED = "{emq}:"
VERSION_KEY = RESERVED + "version"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_DEDUP = re.compile(r"[A-Za-z0-9._-]{1,255}")


class LeaseKeys(QueueKeys):
    """Key builder of one queue; the name is always in braces.

    Raises:
        InputError: a name that the plane does not allow.
    """

    __slots__ = ("rows",)

    def __init__(self, queue: str, prefix: str = "emq") -> None:
        name = queue[1:-1] if queue[:1] == "{" and queue[-1:] == "}" else queue
        check_lease_queue(name)
        super().__init__(prefix, name)
        self.rows = self.base + "job:"

    def job(self, job_id: str) -> str:
        """The row."""
        return self.rows + job_id

    def lock(self, job_id: str) -> str:
        """The presence marker. It is not the lease: that is the score in `active`."""
        return f"{self.rows}{job_id}:lock"

    def logs(self, job_id: str) -> str:
        return f"{self.rows}{job_id}:logs"

    def dependencies(self, job_id: str) -> str:
        """A counter of the children still outstanding."""
        return f"{self.rows}{job_id}:dependencies"

    def processed(self, job_id: str) -> str:
        return f"{self.rows}{job_id}:processed"

    def failed(self, job_id: str) -> str:
        return f"{self.rows}{job_id}:failed"

    def unsuccessful(self, job_id: str) -> str:
        return f"{self.rows}{job_id}:unsuccessful"

    def lane(self, group: str) -> str:
        """The waiting jobs of one group."""
        return f"{self.base}g:{group}:pending"

    def repeat(self, name: str) -> str:
        return f"{self.base}repeat:{name}"


def check_lease_queue(name: object) -> None:
    """Refuses a queue name outside the plane's grammar.

    Raises:
        InputError: with the reason.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"queue name: on the lease plane 1 to 128 of A-Z a-z 0-9 . _ -, got {name!r}")
    if name == "emq":
        raise InputError("queue name: 'emq' is reserved, its keys would be those of the plane itself")


def check_dedup_id(dedup_id: object) -> None:
    """Refuses a deduplication id outside the grammar.

    Raises:
        InputError: with the reason.
    """
    if not isinstance(dedup_id, str) or not _DEDUP.fullmatch(dedup_id):
        raise InputError(f"deduplication id: 1 to 255 of A-Z a-z 0-9 . _ -, got {dedup_id!r}")


def check_id(job_id: object) -> str:
    """A well-formed id of any namespace; the server compares the namespace.

    Raises:
        InputError: it is no branded id.
    """
    return branded.check(job_id)


def slot(key: str) -> int:
    """The cluster slot of a key: CRC16 (XMODEM) of its hash tag, or of the whole of it."""
    _, brace, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    data = (tag if brace and closed and tag else key).encode()
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % 16384
