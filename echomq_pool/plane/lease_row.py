# SPDX-License-Identifier: MIT
"""A row of the lease plane as a `JobRecord`, and the fields that a new row gets besides the plane's own three."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from echomq_pool.errors import InputError
from echomq_pool.plane import branded, codec
from echomq_pool.plane.base import Taken
from echomq_pool.plane.job_record import READERS, JobRecord, encode_opts, number

_packer = msgpack.Packer(use_bin_type=False, autoreset=True)


def record(job_id: str, flat: Sequence[bytes]) -> JobRecord:
    """The row (field, value, …) as callers know jobs.

    `ats` is the token. `atm` counts the deliveries of the present budget that are over: for a job in hand, those
    before this one.
    """
    job = JobRecord(job_id)
    spent, active, group = 0, False, b""
    fields = iter(flat)
    for field, value in zip(fields, fields, strict=False):
        reader = _READERS.get(field)
        if reader is not None:
            setattr(job, reader[0], reader[1](value))
        elif field == b"state":
            active = value == b"active"
        elif field == b"budget_base":
            spent = int(number(value))
        elif field == b"group":
            group = value
    job.atm = max(0, job.ats - spent - active)
    job.timestamp = job.timestamp or branded.unix_ms(job_id)
    if group:
        job.opts["group"] = codec.to_text(group)
    return job


# Fields of a row, and the names of the same things in the rows of the lock plane.
_NAMES = {
    b"attempts": b"ats",
    b"stalled": b"stc",
    b"payload": b"data",
    b"name": b"name",
    b"opts": b"opts",
    b"timestamp": b"timestamp",
    b"last_error": b"failedReason",
    b"stacktrace": b"stacktrace",
    b"progress": b"progress",
    b"deid": b"deid",
    b"owner": b"pb",
    b"repeat": b"rjk",
}
_READERS = {field: READERS[name] for field, name in _NAMES.items()}


def taken(job_id: Any, flat: Sequence[bytes]) -> Taken:
    """A claimed row; its token is the number of its deliveries."""
    job = record(codec.to_text(job_id), flat)
    return Taken(job, str(job.ats))


def extra_fields(name: str = "", opts: Mapping[str, Any] | None = None) -> list[bytes | str]:
    """Further fields of a new row: none for a job without name and options."""
    fields: list[bytes | str] = []
    if name:
        fields += ["name", codec.to_wire(name)]
    if opts:
        fields += ["opts", codec.encode(encode_opts(opts))]
    return fields


def pack(value: Any) -> bytes:
    """MessagePack in which bytes and text are the same, as Lua sees them.

    Raises:
        InputError: it cannot be packed.
    """
    try:
        packed: bytes = _packer.pack(value)
    except (OverflowError, TypeError, ValueError) as error:
        _packer.reset()
        raise InputError(f"cannot be sent: {error}") from None
    return packed


def owner_of(text: str) -> str:
    """The worker id in `<worker id>:<anything>`."""
    return text.partition(":")[0]
