# SPDX-License-Identifier: MIT
"""Branded ids: three capital letters and a snowflake in base 62, fourteen bytes that sort as they were made.

    JOB 0NgWEfAEJfs         namespace, payload
    bits 22..62 ms since 2024-01-01 · bits 12..21 node · bits 0..11 sequence

Within one namespace the order of the texts is the order of the numbers, so a sorted set with equal scores serves
jobs in the order of their making. Ids are made by producers; the server never makes one.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from echomq_pool.clock import SYSTEM_CLOCK, Clock
from echomq_pool.errors import InputError

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
EPOCH_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z
LARGEST = 2**63 - 1
NODES = 1024
NODE_VARIABLE = "ECHOMQ_NODE_ID"

_WIDTH = 11
_SHAPE = re.compile(r"[A-Z]{3}[0-9A-Za-z]{11}")
_NAMESPACE = re.compile(r"[A-Z]{3}")
_DIGITS = {letter: value for value, letter in enumerate(ALPHABET)}


@dataclass(frozen=True, slots=True)
class BrandedId:
    """An id taken apart. `unix_ms` is when it was made, on its maker's clock."""

    namespace: str
    value: int

    @property
    def unix_ms(self) -> int:
        return (self.value >> 22) + EPOCH_MS

    @property
    def node(self) -> int:
        return self.value >> 12 & 0x3FF

    @property
    def sequence(self) -> int:
        return self.value & 0xFFF

    @property
    def tail(self) -> int:
        """Node and sequence: the second part of the id of a stream entry."""
        return self.value & 0x3FFFFF

    def __str__(self) -> str:
        return encode(self.namespace, self.value)


def encode(namespace: str, value: int) -> str:
    """The id of a number.

    Raises:
        InputError: a namespace that is not three capitals, or a number outside 0 .. 2⁶³ - 1.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise InputError(f"namespace: expected three capital letters, got {namespace!r}")
    if not 0 <= value <= LARGEST:
        raise InputError(f"id: the number must be within 0 and 2^63 - 1, got {value}")
    letters = []
    for _ in range(_WIDTH):
        value, digit = divmod(value, 62)
        letters.append(ALPHABET[digit])
    return namespace + "".join(reversed(letters))


def parse(text: object, what: str = "id") -> BrandedId:
    """Takes an id apart.

    Raises:
        InputError: it is not one.
    """
    if not isinstance(text, str) or not _SHAPE.fullmatch(text):
        raise InputError(f"{what}: expected three capitals and eleven letters or digits, got {text!r}")
    value = _number(text)
    if value > LARGEST:
        raise InputError(f"{what}: {text!r} is beyond the largest number, 2^63 - 1")
    return BrandedId(text[:3], value)


def unix_ms(text: str) -> int:
    """When an id that was read from a queue was made; a third of the cost of `parse`, which refuses what is none."""
    return (_number(text) >> 22) + EPOCH_MS


def _number(text: str) -> int:
    value = 0
    for letter in text[3:]:
        value = value * 62 + _DIGITS[letter]
    return value


def check(text: object, what: str = "id") -> str:
    """`text` when it is a branded id, without computing its number twice. `what` it is for, when it is refused.

    Raises:
        InputError: it is not one.
    """
    return str(parse(text, what))


def node_number(environ: Mapping[str, str] | None = None) -> int:
    """The node of this process: `ECHOMQ_NODE_ID`, else drawn from host, process and the process's start.

    Raises:
        InputError: the variable does not hold a number from 0 to 1023.
    """
    named = (os.environ if environ is None else environ).get(NODE_VARIABLE)
    if named:
        if not named.isascii() or not named.isdigit() or int(named) >= NODES:
            raise InputError(f"{NODE_VARIABLE}: expected a number from 0 to {NODES - 1}, got {named!r}")
        return int(named)
    # Siblings have successive pids, so the pid itself keeps a thousand of them apart; the host only shifts it.
    shift = hashlib.blake2b(socket.gethostname().encode(), digest_size=8).digest()
    return (os.getpid() + int.from_bytes(shift)) % NODES


class _Cell:
    """The last number made: milliseconds and sequence. One per node, or two makers would make the same id."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = 0


_CELL = _Cell()


class Mint:
    """Makes ids that only grow, also when the clock steps back or 4 096 were made within one millisecond.

    Args:
        node: 0 .. 1023, for this maker alone; None = this process's own, found anew after a fork and shared by
            all makers of the process.
        clock: wall time.

    Raises:
        InputError: a node out of range.
    """

    def __init__(self, node: int | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        if node is not None and not 0 <= node < NODES:
            raise InputError(f"node: expected 0 to {NODES - 1}, got {node}")
        self._fixed = node
        self._clock = clock
        self._cell = _CELL if node is None and clock is SYSTEM_CLOCK else _Cell()
        self._pid = 0
        self._node = 0

    @property
    def node(self) -> int:
        """The node that the next id carries."""
        self._settle_down()
        return self._node

    def new(self, namespace: str = "JOB") -> str:
        """A fresh id, above all that this object has made."""
        cell = self._cell
        with cell.lock:
            self._settle_down()
            cell.last = max((self._clock.now_ms() - EPOCH_MS) << 12, cell.last + 1)
            ms, sequence = cell.last >> 12, cell.last & 0xFFF
            return encode(namespace, ms << 22 | self._node << 12 | sequence)

    def _settle_down(self) -> None:
        """A child of a fork has its parent's last number; it needs a node of its own."""
        pid = os.getpid()
        if pid != self._pid:
            self._pid = pid
            self._node = node_number() if self._fixed is None else self._fixed


MINT = Mint()


def _after_fork() -> None:
    """The parent may have forked while another thread held the lock."""
    _CELL.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
