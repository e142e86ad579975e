# SPDX-License-Identifier: MIT
"""A job as its hash holds it, read tolerantly: other clients, other versions and other languages wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

Raw = bytes | str


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
        if isinstance(flat, Mapping):
            raw = {_bytes(key): _bytes(value) for key, value in flat.items()}
        else:
            raw = {_bytes(flat[i]): _bytes(flat[i + 1]) for i in range(0, len(flat) - 1, 2)}
        get = raw.get
        return cls(
            id=job_id,
            name=codec.to_text(get(b"name", b"")),
            data=get(b"data") or b"{}",
            opts=decode_opts(get(b"opts")),
            timestamp=int(number(get(b"timestamp"))),
            delay=number(get(b"delay")),
            priority=int(number(get(b"priority"))),
            processed_on=_time(get(b"processedOn")),
            finished_on=_time(get(b"finishedOn")),
            ats=int(number(get(b"ats"))),
            # Ancient versions wrote attemptsMade; where it is present it is what readers go by.
            atm=int(number(get(b"attemptsMade", get(b"atm")))),
            stc=int(number(get(b"stc"))),
            defa=_optional(get(b"defa")),
            rjk=_optional(get(b"rjk")),
            deid=_optional(get(b"deid")),
            parent_key=_optional(get(b"parentKey")),
            parent=_mapping(get(b"parent")),
            progress=_json(get(b"progress"), 0),
            returnvalue=get(b"returnvalue"),
            failed_reason=_reason(get(b"failedReason")),
            stacktrace=_strings(get(b"stacktrace")),
            processed_by=_optional(get(b"pb")),
        )

    @property
    def attempts(self) -> int:
        """How often the job may be tried; 0 behaves as 1."""
        return int(number(self.opts.get("attempts")))

    @property
    def backoff(self) -> dict[str, Any] | None:
        """`{type, delay, jitter?}`; a bare number is a fixed delay."""
        backoff = self.opts.get("backoff")
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
    value = _json(text, {})
    return long_opts(value) if isinstance(value, dict) else {}


def long_opts(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Options with long names from those with wire names."""
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


def _time(value: bytes | None) -> int | None:
    return int(number(value)) if value else None


def _optional(value: bytes | None) -> str | None:
    return codec.to_text(value) if value else None


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


def _reason(text: bytes | None) -> str | None:
    """The failed reason; the official Python port stores it as a JSON string."""
    if text is None:
        return None
    if len(text) >= 2 and text[:1] == text[-1:] == b'"':
        value = _json(text, None)
        if isinstance(value, str):
            return value
    return codec.to_text(text)
