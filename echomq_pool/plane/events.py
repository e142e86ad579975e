# SPDX-License-Identifier: MIT
"""Entries of a queue's event stream, decoded as BullMQ's own readers decode them (protocol, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from echomq_pool.plane import codec

_JSON_FIELDS = {("progress", "data"), ("completed", "returnvalue")}
_NUMBER_FIELDS = {("delayed", "delay"), ("retries-exhausted", "attemptsMade"), ("cleaned", "count")}

CANCEL_EVENT = "cancel"


@dataclass(frozen=True, slots=True)
class Event:
    """One transition of one job, or of the queue (`job_id` is then empty).

    `data` holds the other fields: JSON values decoded, times in epoch ms. `id` is the position in the
    stream, from which a reader can resume.
    """

    queue: str
    name: str
    job_id: str
    data: dict[str, Any]
    id: str


def decode(queue: str, entry_id: bytes, flat: list[bytes]) -> Event:
    """An XREAD entry as an Event. Text that is not what it should be is passed through, never refused."""
    fields = {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in zip(flat[::2], flat[1::2], strict=False)
    }
    name = fields.pop("event", "unknown")
    job_id = fields.pop("jobId", "")
    data = {key: _value(name, key, text) for key, text in fields.items()}
    return Event(queue, name, job_id, data, entry_id.decode())


def name_of(flat: list[bytes]) -> str:
    """The name alone, for who only counts: writers put it first, so that the rest need not be looked at."""
    if flat and flat[0] == b"event":
        return flat[1].decode(errors="replace")
    return dict(zip(flat[::2], flat[1::2], strict=False)).get(b"event", b"unknown").decode(errors="replace")


def parse_id(entry_id: str | bytes) -> tuple[int, int]:
    """A stream id `<ms>-<seq>` as two numbers, which compare as the server compares them."""
    text = entry_id.decode() if isinstance(entry_id, bytes) else entry_id
    ms, _, seq = text.partition("-")
    return int(ms), int(seq or 0)


def _value(event: str, key: str, text: str) -> Any:
    if (event, key) in _JSON_FIELDS:
        try:
            return codec.decode(text)
        except (ValueError, RecursionError):
            return text
    if (event, key) in _NUMBER_FIELDS:
        try:
            return int(float(text))
        except ValueError:
            return text
    return text
