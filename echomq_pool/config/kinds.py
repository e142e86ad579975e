# SPDX-License-Identifier: MIT
"""The kinds of value that `pool.toml` knows, each refusing what is not its own in the same words.

Nothing is converted in silence: "4" is no number and `true` is no 1. Only a text that came out of an
environment variable may stand for a number or a boolean, since it cannot be anything but text there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic_core import PydanticCustomError

from echomq_pool.config.env import EnvText
from echomq_pool.config.units import (
    DURATION_FORM,
    SIZE_FORM,
    UnitError,
    duration_ms,
    show_duration,
    size_bytes,
)

Check = Callable[[Any], Any]
YEAR_MS = 365 * 86_400_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
_BIND = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]*):([0-9]{1,5})\Z")


def refusal(expected: str) -> PydanticCustomError:
    """The error that becomes "expected …, got …" with the value's place in front."""
    return PydanticCustomError("expected", "{expected}", {"expected": expected})


def whole(low: int, high: int) -> Check:
    """A whole number within [low, high]."""
    expected = f"a whole number from {low} to {high}"

    def check(value: Any) -> int:
        if isinstance(value, EnvText) and re.fullmatch(r"-?[0-9]{1,15}", value.strip()):
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise refusal(expected)
        return value

    return check


def share(value: Any) -> float:
    """A number from 0 to 1."""
    if isinstance(value, EnvText) and re.fullmatch(r"[01](\.[0-9]{1,9})?", value.strip()):
        value = float(value)
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise refusal("a number from 0 to 1")
    return float(value)


def flag(value: Any) -> bool:
    """true or false."""
    if isinstance(value, EnvText) and value.strip() in ("true", "false"):
        return value.strip() == "true"
    if type(value) is not bool:
        raise refusal("true or false")
    return value


def duration(low_ms: int, high_ms: int = YEAR_MS) -> Check:
    """A duration with its unit, in milliseconds, within [low_ms, high_ms]."""

    def check(value: Any) -> int:
        if not isinstance(value, str):
            raise refusal(f"{DURATION_FORM} (a bare number says no unit)")
        try:
            amount = duration_ms(value)
        except UnitError as error:
            raise refusal(str(error)) from error
        if not low_ms <= amount <= high_ms:
            raise refusal(f"a duration from {show_duration(low_ms)} to {show_duration(high_ms)}")
        return amount

    return check


def size(value: Any) -> int:
    """A size with its unit, in bytes."""
    if not isinstance(value, str):
        raise refusal(f"{SIZE_FORM} (a bare number says no unit)")
    try:
        return size_bytes(value)
    except UnitError as error:
        raise refusal(str(error)) from error


def word(*words: str) -> Check:
    """One of a few words."""
    expected = "one of " + ", ".join(f'"{w}"' for w in words)

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise refusal(expected)
        return str(value)

    return check


def text(value: Any) -> str:
    """Any text that is not blank."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise refusal("a text that is not empty")
    return str(value)


def name(value: Any) -> str:
    """A name that fits into process titles, file names and metric labels."""
    if not isinstance(value, str) or not _NAME.match(value):
        raise refusal("a name of letters, digits, '_', '-' and '.', at most 64, a letter or digit first")
    return str(value)


def queue(value: Any) -> str:
    """A queue's name: Node's rules (not empty, no colon), and no blank one or one of over 255 characters."""
    if not isinstance(value, str) or not value.strip() or ":" in value or len(value) > 255:
        raise refusal("a queue name: not empty, no ':', at most 255 characters")
    return str(_encodable(value))


def prefix(value: Any) -> str:
    """The first part of every key."""
    if not isinstance(value, str) or not value.strip() or ":" in value:
        raise refusal("a key prefix: not empty, no ':'")
    return str(_encodable(value))


def _encodable(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise refusal("a text that can be written as UTF-8") from error
    return value


def dotted(value: Any) -> str:
    """Where a function is: `package.module:function`."""
    if not isinstance(value, str) or not _DOTTED.match(value):
        raise refusal('a function as "package.module:function"')
    return str(value)


def module(value: Any) -> str:
    """An importable module: `package.module`."""
    if not isinstance(value, str) or not _MODULE.match(value):
        raise refusal('a module as "package.module"')
    return str(value)


def layer(value: Any) -> str:
    """Where a middleware is: a module, or an object in one."""
    if not isinstance(value, str) or not (_MODULE.match(value) or _DOTTED.match(value)):
        raise refusal('a module as "package.module", or an object in it as "package.module:name"')
    return str(value)


def bind(value: Any) -> str:
    """host:port, or "off" (kept as ""); port 0 lets the system choose."""
    if value == "off":
        return ""
    match = _BIND.match(value) if isinstance(value, str) else None
    if match is None or int(match.group(1)) > 65_535:
        raise refusal('"host:port" such as "127.0.0.1:8080", or "off"')
    return str(value)


def processes(value: Any) -> int:
    """A number of processes; 0 stands for "auto" until it is looked up."""
    if value == "auto":
        return 0
    try:
        return int(whole(1, 1024)(value))
    except PydanticCustomError as error:
        raise refusal('a whole number from 1 to 1024, or "auto"') from error


def moment(value: Any) -> int:
    """A date and time with its offset, as epoch milliseconds."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise refusal("a date and time with its offset, such as 2026-12-31T23:00:00Z")
    return int(value.timestamp() * 1000)
