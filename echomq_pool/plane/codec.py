# SPDX-License-Identifier: MIT
"""JSON and text as they go on the wire.

orjson does the work; the standard library takes over where orjson refuses what Node writes (lone surrogates,
integers beyond 64 bits). NaN and Infinity are refused: they are no JSON, and orjson would write `null`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from echomq_pool.errors import InputError

# orjson reads integers beyond 64 bits as floats; such texts go to the standard library.
_LONG = 19
_LONG_NUMBER = re.compile(rb"\d{%d}" % _LONG)
_WORD = str | bytes | bytearray | memoryview


def encode(value: Any) -> bytes:
    """`value` as JSON text.

    Raises:
        InputError: it is not JSON (NaN, Infinity, a cycle, an unknown type); the message names the place.
    """
    try:
        text = orjson.dumps(value)
    except (TypeError, RecursionError):
        return _encode_slowly(value)
    # A NaN has become `null`; only a text with a null in it can hide one.
    if b"null" in text:
        _refuse_nan(value)
    return text


def _encode_slowly(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        _refuse_nan(value)
        raise InputError(f"not JSON: {error}") from None


def _refuse_nan(value: Any) -> None:
    """Walks without recursion: what comes here may be as deep as memory, or a circle."""
    stack: list[tuple[str, Any]] = [("$", value)]
    seen: set[int] = set()
    while stack:
        place, item = stack.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise InputError(f"not JSON: NaN or Infinity at {place}")
        if not isinstance(item, dict | list | tuple) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            stack += [(f"{place}.{key}", inner) for key, inner in item.items()]
        else:
            stack += [(f"{place}[{index}]", inner) for index, inner in enumerate(item)]


def decode(text: _WORD) -> Any:
    """The value of a JSON text, read as tolerantly as Node and older Python producers wrote it.

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    raw: bytes = text if text.__class__ is bytes else _raw(text)
    if len(raw) >= _LONG and _LONG_NUMBER.search(raw):
        return _decode_slowly(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _decode_slowly(raw)


def _decode_slowly(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except RecursionError as error:  # Node reads and writes any depth
        raise ValueError(f"nested too deep: {error}") from None


def _raw(text: _WORD) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)


def to_wire(text: str) -> bytes:
    """UTF-8 as Node writes it: a lone surrogate becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def to_text(value: Any) -> str:
    """Text from a reply; bytes that are no UTF-8 become U+FFFD."""
    if isinstance(value, bytes) or isinstance(value, bytearray):  # noqa: SIM101 - a union costs three times as much
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else str(value)
