# SPDX-License-Identifier: MIT
"""A row of the lease plane as a `JobRecord`, and the fields that a new row gets besides the plane's own three."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from echomq_pool.errors import InputError
from echomq_pool.plane import branded, codec
from echomq_pool.plane.base import Taken
from echomq_pool.plane.job_record import JobRecord, encode_opts, number

_packer = msgpack.Packer(use_bin_type=False, autoreset=True)


def record(job_id: str, flat: Sequence[bytes] | Mapping[bytes, bytes]) -> JobRecord:
    """The row as callers know jobs.

    `ats` is the token. `atm` counts the deliveries of the present budget that are over: for a job in hand, those
    before this one.
    """
    row = dict(flat) if isinstance(flat, Mapping) else dict(zip(flat[::2], flat[1::2], strict=False))
    text = {codec.to_text(name): value for name, value in row.items()}
    standard = JobRecord.from_flat(job_id, _standard(text))
    standard.ats = int(number(text.get("attempts")))
    used = standard.ats - int(number(text.get("budget_base")))
    standard.atm = max(0, used - 1 if text.get("state") == b"active" else used)
    standard.stc = int(number(text.get("stalled")))
    standard.timestamp = branded.parse(job_id).unix_ms if standard.timestamp == 0 else standard.timestamp
    if "group" in text:
        standard.opts["group"] = codec.to_text(text["group"])
    return standard


def _standard(text: Mapping[str, bytes]) -> dict[bytes | str, bytes | str]:
    """The row under the names that a `JobRecord` is read from."""
    found: dict[bytes | str, bytes | str] = {
        long: text[short] for short, long in _NAMES.items() if short in text
    }
    return found


_NAMES = {
    "payload": b"data",
    "name": b"name",
    "opts": b"opts",
    "timestamp": b"timestamp",
    "last_error": b"failedReason",
    "stacktrace": b"stacktrace",
    "progress": b"progress",
    "deid": b"deid",
    "owner": b"pb",
    "repeat": b"rjk",
}


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
