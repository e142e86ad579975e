# SPDX-License-Identifier: MIT
"""What became of one run of a job, as a value; and errors and results turned into text at the spot.

Nothing of the user's leaves the process as an object: an exception is a reason and a stack text here, a result is
JSON bytes. What cannot be turned into text fails that one job with a reason that says why (C105, C112, C113).
"""

from __future__ import annotations

import asyncio
import json
import math
import traceback
from dataclasses import dataclass
from enum import Enum
from types import CodeType, TracebackType
from typing import Any

import orjson

from echomq_pool.errors import (
    DelayedError,
    PoolError,
    RateLimitError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)

MAX_REASON = 16_384  # characters of failedReason
MAX_TRACE = 65_536  # characters of one attempt's stack
MAX_FRAMES = 40  # of a stack whose frames are remembered; deeper ones are mostly one frame repeated
MAX_PLACES = 1_000  # in the code, whose text is remembered
MAX_RESULT = 64 * 1024 * 1024  # bytes of JSON; far below what a server takes in one argument (512 MB)

HEADER = "Traceback (most recent call last):\n"
_FRAMES: dict[tuple[CodeType, str, int], str] = {}
_PLAIN = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


class Fate(Enum):
    """How a run ended."""

    DONE = "done"
    FAILED = "failed"
    MOVED = "moved"  # the processor moved its job itself
    LIMITED = "limited"  # the processor has rate limited the queue
    CANCELLED = "cancelled"  # by a cancellation that we had asked for


@dataclass(slots=True)
class Outcome:
    """The end of one run. `value` holds JSON when done; reason, trace and error belong to a failure.

    Never changed; not frozen, since one is made for every job and freezing takes four times as long.
    """

    fate: Fate
    value: bytes = b"null"
    reason: str = ""
    trace: str = ""
    error: BaseException | None = None
    final: bool = False  # no retry, whatever attempts are left


class ResultError(PoolError):
    """The processor's result cannot be written as JSON."""


NOTHING_TO_SAY = Outcome(Fate.DONE)
MOVED = Outcome(Fate.MOVED)
LIMITED = Outcome(Fate.LIMITED)
CANCELLED = Outcome(Fate.CANCELLED, reason="cancelled")


def done(result: Any) -> Outcome:
    """The outcome of a processor that returned `result`."""
    if result is None:
        return NOTHING_TO_SAY
    try:
        return Outcome(Fate.DONE, value=encode_result(result))
    except ResultError as exc:
        return Outcome(Fate.FAILED, reason=str(exc), trace=f"ResultError: {exc}", error=exc)


def raised(error: BaseException) -> Outcome:
    """The outcome of a processor that raised `error`, be it of any kind."""
    if isinstance(error, DelayedError | WaitingError | WaitingChildrenError):
        return MOVED
    if isinstance(error, RateLimitError):
        return LIMITED
    return Outcome(
        Fate.FAILED,
        reason=reason_of(error),
        trace=trace_of(error),
        error=error,
        final=isinstance(error, UnrecoverableError),
    )


def failed(reason: str, *, final: bool = False) -> Outcome:
    """A failure that is ours to state: no stack of the user's belongs to it."""
    return Outcome(Fate.FAILED, reason=cut(reason, MAX_REASON), trace=cut(reason, MAX_TRACE), final=final)


def encode_result(result: Any) -> bytes:
    """`result` as JSON text that every client can read.

    Raises:
        ResultError: it holds something that is not JSON (named by type), NaN or Infinity, a circle, or too much.
    """
    try:
        text = orjson.dumps(result, option=_PLAIN)
    except (TypeError, RecursionError):
        text = _encode_slowly(result)  # lone surrogates, huge integers, keys that are not strings
    if b"null" in text and (place := _not_finite(result, "$")) is not None:
        raise ResultError(f"result is not JSON: NaN or Infinity at {place}")  # orjson writes them as null
    if len(text) > MAX_RESULT:
        raise ResultError(f"result of {len(text)} bytes exceeds the limit of {MAX_RESULT}")
    return text


def _encode_slowly(result: Any) -> bytes:
    try:
        return json.dumps(result, allow_nan=False, separators=(",", ":")).encode()
    except TypeError as exc:
        raise ResultError(f"result is not JSON: {exc}") from None
    except ValueError as exc:
        text = str(exc)
        if "Circular" in text:
            raise ResultError(
                f"result is not JSON: circular reference in a {type(result).__name__}"
            ) from None
        raise ResultError(f"result is not JSON: NaN or Infinity ({text})") from None
    except RecursionError:
        raise ResultError(f"result is not JSON: a {type(result).__name__} nested too deep") from None


def _not_finite(value: Any, place: str) -> str | None:
    """Where in `value` the first NaN or Infinity sits. The value has just been encoded: it is finite in depth."""
    if isinstance(value, float):
        return None if math.isfinite(value) else place
    if isinstance(value, dict):
        pairs = ((_not_finite(item, f"{place}.{key}")) for key, item in value.items())
    elif isinstance(value, list | tuple):
        pairs = ((_not_finite(item, f"{place}[{index}]")) for index, item in enumerate(value))
    else:
        return None
    return next((found for found in pairs if found is not None), None)


def reason_of(error: BaseException) -> str:
    """One sentence for `failedReason`: the error's own text as in Node, its type where that says nothing."""
    name = type(error).__name__
    text = _text_of(error)
    if isinstance(error, SystemExit):
        return cut(f"job called sys.exit({error.code!r})", MAX_REASON)
    if isinstance(error, asyncio.CancelledError):
        return cut(f"job was cancelled from inside: {text or name}", MAX_REASON)
    if not text:
        return name
    if isinstance(error, KeyError) or not isinstance(error, Exception):
        return cut(f"{name}: {text}", MAX_REASON)  # the text alone would be no sentence
    return cut(text, MAX_REASON)


def trace_of(error: BaseException) -> str:
    """The stack as text, without our own frame at its top; never raises, whatever the exception is made of."""
    try:
        return cut("".join(_lines_of(error)).rstrip(), MAX_TRACE)
    except Exception as problem:
        return f"{type(error).__name__} (its stack cannot be shown: {type(problem).__name__})"


def _lines_of(error: BaseException) -> list[str]:
    """As `traceback.format_exception` has them; those of one place in the code are made once.

    A job that fails mostly fails where others did: 6 µs for such a stack, where the whole of it takes 64.
    """
    entry = error.__traceback__.tb_next if error.__traceback__ else None
    frames: list[str] = []
    while entry is not None and len(frames) < MAX_FRAMES:
        frames.append(_frame_text(entry))
        entry = entry.tb_next
    simple = error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    if not simple or not frames or entry is not None or isinstance(error, BaseExceptionGroup):
        first = error.__traceback__.tb_next if error.__traceback__ else None
        return traceback.format_exception(type(error), error, first)
    return [HEADER, *frames, *traceback.format_exception_only(type(error), error)]


def _frame_text(entry: TracebackType) -> str:
    code = entry.tb_frame.f_code
    place = (code, code.co_filename, entry.tb_lasti)  # codes of two files may be equal
    text = _FRAMES.get(place)
    if text is None:
        if len(_FRAMES) >= MAX_PLACES:
            _FRAMES.clear()
        text = _FRAMES[place] = "".join(traceback.format_tb(entry, limit=1))
    return text


def cut(text: str, limit: int) -> str:
    """`text` with its middle left out when it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2 - 16
    return f"{text[:half]} … {len(text) - 2 * half} more … {text[-half:]}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # user code: __str__ may do anything
        return f"<{type(error).__name__} without text>"
