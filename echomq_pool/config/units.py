# SPDX-License-Identifier: MIT
"""Durations and sizes as people write them: a number and its unit, never a bare number.

A bare number is refused because every reader would guess another unit; zero needs none.
"""

from __future__ import annotations

import re

DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SIZE_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
DURATION_FORM = 'a duration as text with a unit (ms, s, m, h, d, w) such as "30s"'
SIZE_FORM = 'a size as text with a unit (B, KB, MB, GB, KiB, MiB, GiB) such as "512MB"'

_NUMBER_UNIT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?\s*([A-Za-z]*)\Z", re.ASCII)


class UnitError(ValueError):
    """A text that is no duration or size; the message says what was expected."""


def duration_ms(text: str) -> int:
    """ "30s" → 30 000 milliseconds.

    Raises:
        UnitError: no unit, an unknown one, or less than a millisecond.
    """
    return _amount(text, DURATION_MS, DURATION_FORM)


def size_bytes(text: str) -> int:
    """ "512MB" → 512 000 000 bytes; MiB and its kin count in 1024s.

    Raises:
        UnitError: no unit, an unknown one, or less than a byte.
    """
    return _amount(text, {unit.upper(): size for unit, size in SIZE_BYTES.items()}, SIZE_FORM, fold=True)


def _amount(text: str, units: dict[str, int], form: str, *, fold: bool = False) -> int:
    match = _NUMBER_UNIT.match(text.strip())
    if match is None:
        raise UnitError(form)
    whole, fraction, unit = match.group(1), match.group(2) or "", match.group(3)
    factor = units.get(unit.upper() if fold else unit)
    if factor is None:
        if unit == "" and int(whole + fraction) == 0:
            return 0
        raise UnitError(form)
    scaled = int(whole + fraction) * factor
    if scaled % 10 ** len(fraction):
        raise UnitError(form)
    return int(scaled // 10 ** len(fraction))


def show_duration(ms: int) -> str:
    """The shortest text that `duration_ms` reads back: 30 000 → "30s"."""
    return _show(ms, DURATION_MS, "s")


def show_size(size: int) -> str:
    """The shortest text that `size_bytes` reads back."""
    return _show(size, SIZE_BYTES, "B")


def _show(amount: int, units: dict[str, int], zero_unit: str) -> str:
    if amount == 0:
        return f"0{zero_unit}"
    fitting = [(amount // factor, unit) for unit, factor in units.items() if amount % factor == 0]
    number, unit = min(fitting)
    return f"{number}{unit}"
