# SPDX-License-Identifier: MIT
"""A job as its hash holds it, read tolerantly: other clients, other versions and other languages wrote it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from echomq_pool.plane import codec

# Short names inside `opts` on the wire, long names everywhere else.
SHORT_NAMES = {
    "failParentOnFailure": "fpof",
    "continueParentOnFailure": "cpof",
    "ignoreDependencyOnFailure": "idof",
    "removeDependencyOnFailure": "rdof",
    "deduplication": "de",
    "keepLogs": "kl",
}
_LONG_NAMES = {short: long for long, short in SHORT_NAMES.items()}
_TELEMETRY = {"tm": "metadata", "omc": "omitContext"}
_SHORT = frozenset(_LONG_NAMES) | frozenset(_TELEMETRY)

Raw = bytes | str

# The jobs of a queue mostly have the same few options, so flat ones are read once: a copy costs a seventh of that.
MOST_OPTS, MOST_KNOWN = 256, 256  # bytes of such a text, and texts
_KNOWN_OPTS: dict[Raw | None, dict[str, Any]] = {}


@dataclass(slots=True)
class JobRecord:
    """The stored fields of one job. Times are wall ms; `data` and `returnvalue` are JSON text, unparsed."""

    id: str
    name: str = ""
    data: bytes = b"{}"
    opts: dict[str, Any] = field(default_factory=dict)  # long option names, as users know them
    timestamp: int = 0
    delay: float = 0
    priority: int = 0
    processed_on: int | None = None
    finished_on: int | None = None
    ats: int = 0  # attempts started: the fencing token
    atm: int = 0  # attempts made
    stc: int = 0  # stalls
    defa: str | None = None  # deferred failure: whoever takes the job fails it with this text
    rjk: str | None = None  # id of the scheduler that made it
    deid: str | None = None
    parent_key: str | None = None
    parent: dict[str, Any] | None = None
    progress: Any = 0
    returnvalue: bytes | None = None
    failed_reason: str | None = None
    stacktrace: list[str] = field(default_factory=list)
    processed_by: str | None = None

    @classmethod
    def from_flat(cls, job_id: str, flat: Sequence[Raw] | Mapping[Raw, Raw]) -> JobRecord:
        """Reads `[field, value, …]` or a mapping; unknown fields are ignored, odd values read leniently."""
        quick = _quick(job_id, flat)
        if quick is not None:
            return quick
        job = cls(job_id)
        pairs = flat.items() if isinstance(flat, Mapping) else zip(flat[::2], flat[1::2], strict=False)
        legacy: int | None = None
        for key, value in pairs:
            found = READERS.get(key if isinstance(key, bytes) else _bytes(key))
            if found is not None:
                setattr(job, found[0], found[1](value if isinstance(value, bytes) else _bytes(value)))
            elif key in _LEGACY_ATTEMPTS:
                legacy = _whole(_bytes(value))
        # Ancient versions wrote attemptsMade; where it is present it is what readers go by.
        if legacy is not None:
            job.atm = legacy
        return job

    @property
    def is_ghost(self) -> bool:
        """True when only an id was found: a take of it makes a hash, but no add has written that one."""
        return not self.name and not self.timestamp

    @property
    def attempts(self) -> int:
        """How often the job may be tried; 0 behaves as 1."""
        attempts = self.opts.get("attempts")
        return attempts if attempts.__class__ is int else int(number(attempts))

    @property
    def backoff(self) -> dict[str, Any] | None:
        """`{type, delay, jitter?}`; a bare number is a fixed delay."""
        backoff = self.opts.get("backoff")
        if backoff is None:
            return None
        if isinstance(backoff, int | float) and not isinstance(backoff, bool):
            return {"type": "fixed", "delay": backoff}
        return backoff if isinstance(backoff, dict) else None

    @property
    def lifo(self) -> bool:
        return bool(self.opts.get("lifo"))

    def stacktrace_with(self, trace: str) -> list[str]:
        """The stacktrace list with one more entry, cut to the job's stackTraceLimit (the newest stay)."""
        traces = [*self.stacktrace, trace]
        limit = self.opts.get("stackTraceLimit")
        if limit is None:
            return traces
        kept = max(0, int(number(limit)))
        return traces[-kept:] if kept else []

    @property
    def has_attempts_left(self) -> bool:
        """True when the run that just failed may be followed by another."""
        return self.atm + 1 < self.attempts


def encode_opts(opts: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the names they have on the wire; None entries vanish."""
    encoded: dict[str, Any] = {}
    for name, value in opts.items():
        if name == "telemetry" and isinstance(value, Mapping):
            encoded.update(_telemetry(value))
        elif value is not None:
            encoded[SHORT_NAMES.get(name, name)] = value
    return encoded


def decode_opts(text: Raw | None) -> dict[str, Any]:
    """Options from the hash's JSON, with long names."""
    known = _KNOWN_OPTS.get(text)
    if known is not None:
        return known.copy()
    value = _json(text, {})
    opts = long_opts(value) if isinstance(value, dict) else {}
    if text and len(text) <= MOST_OPTS and not any(isinstance(item, dict | list) for item in opts.values()):
        if len(_KNOWN_OPTS) >= MOST_KNOWN:
            _KNOWN_OPTS.clear()
        _KNOWN_OPTS[text] = opts.copy()
    return opts


def long_opts(wire: dict[str, Any]) -> dict[str, Any]:
    """Options with long names from those with wire names."""
    if _SHORT.isdisjoint(wire):
        return wire
    telemetry = {long: wire[short] for short, long in _TELEMETRY.items() if short in wire}
    opts: dict[str, Any] = {
        _LONG_NAMES.get(str(name), str(name)): item for name, item in wire.items() if name not in _TELEMETRY
    }
    if telemetry:
        opts["telemetry"] = telemetry
    return opts


def _telemetry(value: Mapping[str, Any]) -> dict[str, Any]:
    return {short: value[long] for short, long in _TELEMETRY.items() if value.get(long) is not None}


def number(value: Any) -> float:
    """A number from whatever stands there; 0 when it is none."""
    try:
        found = float(value) if value not in (None, b"", "") else 0.0
    except (TypeError, ValueError):
        return 0.0
    return found if found == found and abs(found) != float("inf") else 0.0


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return codec.to_wire(value if isinstance(value, str) else str(value))


def _whole(value: bytes) -> int:
    try:
        return int(value)
    except ValueError:
        return int(number(value))


def _optional(value: bytes) -> str | None:
    return codec.to_text(value) if value else None


def _optional_time(value: bytes) -> int | None:
    return _whole(value) if value else None


def _data(value: bytes) -> bytes:
    return value or b"{}"


def _json(text: Raw | None, default: Any) -> Any:
    if not text:
        return default
    try:
        return codec.decode(text)
    except ValueError:
        return default


def _mapping(text: bytes | None) -> dict[str, Any] | None:
    value = _json(text, None)
    return value if isinstance(value, dict) else None


def _strings(text: bytes | None) -> list[str]:
    value = _json(text, [])
    return [item if isinstance(item, str) else str(item) for item in value] if isinstance(value, list) else []


def _reason(text: bytes) -> str:
    """The failed reason; the official Python port stores it as a JSON string."""
    if len(text) >= 2 and text[:1] == text[-1:] == b'"':
        value = _json(text, None)
        if isinstance(value, str):
            return value
    return codec.to_text(text)


def _quick(job_id: str, flat: Sequence[Raw] | Mapping[Raw, Raw]) -> JobRecord | None:
    """The record when every field is one that scripts write, as they write it; else None.

    The way of nearly every job, once per job: 35 000 instructions, where reading leniently needs 50 000.
    """
    if not isinstance(flat, list):
        return None
    fields = iter(flat)
    values: dict[str, Any] = {}
    try:
        for key, value in zip(fields, fields, strict=True):
            name, read = _QUICK_READERS[key]
            values[name] = read(value)
    except (KeyError, ValueError, TypeError):
        return None
    return JobRecord(job_id, **values) if isfinite(values.get("delay", 0)) else None


_LEGACY_ATTEMPTS = (b"attemptsMade", "attemptsMade")
READERS: dict[bytes, tuple[str, Callable[[bytes], Any]]] = {
    b"name": ("name", codec.to_text),
    b"data": ("data", _data),
    b"opts": ("opts", decode_opts),
    b"timestamp": ("timestamp", _whole),
    b"delay": ("delay", number),
    b"priority": ("priority", _whole),
    b"processedOn": ("processed_on", _optional_time),
    b"finishedOn": ("finished_on", _optional_time),
    b"ats": ("ats", _whole),
    b"atm": ("atm", _whole),
    b"stc": ("stc", _whole),
    b"defa": ("defa", _optional),
    b"rjk": ("rjk", _optional),
    b"deid": ("deid", _optional),
    b"parentKey": ("parent_key", _optional),
    b"parent": ("parent", _mapping),
    b"progress": ("progress", lambda value: _json(value, 0)),
    b"returnvalue": ("returnvalue", bytes),
    b"failedReason": ("failed_reason", _reason),
    b"stacktrace": ("stacktrace", _strings),
    b"pb": ("processed_by", _optional),
}
_QUICK_READERS = READERS | {
    b"name": ("name", bytes.decode),
    b"timestamp": ("timestamp", int),
    b"delay": ("delay", float),
    b"priority": ("priority", int),
    b"processedOn": ("processed_on", int),
    b"finishedOn": ("finished_on", int),
    b"ats": ("ats", int),
    b"atm": ("atm", int),
    b"stc": ("stc", int),
}
