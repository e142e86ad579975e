# SPDX-License-Identifier: MIT
"""The board: one shared memory map of 64-bit words, made before the first fork, read by everyone.

Every word has one writer at a time and is stored by one aligned 8-byte move, so nothing is locked
and nobody reads half a value. All times are CLOCK_MONOTONIC milliseconds, one line for the whole host.

    word 0..3          magic, slots, queues, the LockManager's last full pass
    per slot, 5 words  beat, earliest job deadline (0 = none), jobs running; users' leases: last word
                       heard, and the time before the renewal of all of them was sent
    per slot × queue   the monotonic time before the last successful renewal was sent
    per queue          position in the event stream: milliseconds << 22 | sequence
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Final

_MAGIC: Final = 0x6563686F_6D710001
_HEAD: Final = 4
_PASS: Final = 3
_PER_SLOT: Final = 5
_BEAT, _DEADLINE, _BUSY, _GUARD_NUMBER, _GUARD_RENEWED = 0, 1, 2, 3, 4
_SEQ_BITS: Final = 22
_SEQ_MAX: Final = (1 << _SEQ_BITS) - 1
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Board:
    """Fixed slots over an anonymous memory file. Slot 0 is the supervisor's own.

    The map survives the fork. A forked child must keep the inherited object alive for ever: collecting
    it would close a descriptor number that somebody else may own by then (spawn.py keeps it).
    """

    def __init__(self, fd: int, slots: int, queues: int) -> None:
        self.fd = fd
        self.slots = slots
        self.queues = queues
        self._map = mmap.mmap(fd, _words(slots, queues) * 8)
        self._words = memoryview(self._map).cast("Q")
        self._renewed = _HEAD + slots * _PER_SLOT
        self._positions = self._renewed + slots * queues

    @classmethod
    def create(cls, slots: int, queues: int) -> Board:
        """A new board, all zero. `slots` counts the supervisor's.

        Raises:
            ValueError: no slot at all, or a negative number of queues.
            OSError: no memory file can be made.
        """
        if slots < 1 or queues < 0:
            raise ValueError(f"a board needs slots >= 1 and queues >= 0, got {slots} and {queues}")
        fd = os.memfd_create("echomq-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, _words(slots, queues) * 8)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)  # a shrunk file would kill every reader by SIGBUS
        board = cls(fd, slots, queues)
        board._words[0], board._words[1], board._words[2] = _MAGIC, slots, queues
        return board

    @classmethod
    def attach(cls, fd: int) -> Board:
        """The board behind an inherited descriptor.

        Raises:
            ValueError: the descriptor is no board.
        """
        if os.fstat(fd).st_size < _HEAD * 8:
            raise ValueError(f"descriptor {fd} is no board")
        with (
            mmap.mmap(fd, _HEAD * 8, prot=mmap.PROT_READ) as head,
            memoryview(head) as raw,
            raw.cast("Q") as words,
        ):
            magic, slots, queues = words[0], words[1], words[2]
        if magic != _MAGIC:
            raise ValueError(f"descriptor {fd} is no board")
        return cls(fd, slots, queues)

    def beat(self, slot: int, mono_ms: int) -> None:
        """The loop of `slot` turned at `mono_ms`."""
        self._words[self._slot(slot) + _BEAT] = mono_ms

    def beat_ms(self, slot: int) -> int:
        """Last beat of `slot`, 0 before the first."""
        return self._words[self._slot(slot) + _BEAT]

    def set_deadline(self, slot: int, mono_ms: int) -> None:
        """The earliest time limit among the jobs of `slot`; 0 = none."""
        self._words[self._slot(slot) + _DEADLINE] = mono_ms

    def deadline_ms(self, slot: int) -> int:
        return self._words[self._slot(slot) + _DEADLINE]

    def set_busy(self, slot: int, n: int) -> None:
        """Jobs that run in `slot` now."""
        self._words[self._slot(slot) + _BUSY] = n

    def busy(self, slot: int) -> int:
        return self._words[self._slot(slot) + _BUSY]

    def set_renewed(self, slot: int, queue_index: int, mono_ms: int) -> None:
        """All leases of this worker and queue were renewed by a call sent after `mono_ms`."""
        self._words[self._renewal(slot, queue_index)] = mono_ms

    def renewed_ms(self, slot: int, queue_index: int) -> int:
        return self._words[self._renewal(slot, queue_index)]

    def set_guards(self, slot: int, number: int, mono_ms: int) -> None:
        """All users' leases that this worker's words up to `number` told of were renewed by a call sent after that."""
        start = self._slot(slot)
        # In this order, and read in the other: what a reader gets for `number` is never from before it was heard.
        self._words[start + _GUARD_RENEWED] = mono_ms
        self._words[start + _GUARD_NUMBER] = number

    def guards(self, slot: int) -> tuple[int, int]:
        """(number, monotonic ms) as last set, (0, 0) before the first."""
        start = self._slot(slot)
        number = self._words[start + _GUARD_NUMBER]
        return number, self._words[start + _GUARD_RENEWED]

    def set_position(self, queue_index: int, ms: int, seq: int) -> None:
        """Last stream entry whose hooks have run. A sequence past 22 bits is stored too low."""
        self._words[self._position(queue_index)] = ms << _SEQ_BITS | min(seq, _SEQ_MAX)

    def position(self, queue_index: int) -> tuple[int, int]:
        """(ms, seq) of the last entry, (0, 0) before the first."""
        word = self._words[self._position(queue_index)]
        return word >> _SEQ_BITS, word & _SEQ_MAX

    def set_pass(self, mono_ms: int) -> None:
        """The LockManager has renewed everything it knows, by calls sent after `mono_ms`."""
        self._words[_PASS] = mono_ms

    def pass_ms(self) -> int:
        return self._words[_PASS]

    def clear_slot(self, slot: int) -> None:
        """Forgets the former tenant of `slot`; only between its reaping and the next fork."""
        start = self._slot(slot)
        for word in range(start, start + _PER_SLOT):
            self._words[word] = 0
        for queue_index in range(self.queues):
            self._words[self._renewal(slot, queue_index)] = 0

    def close(self) -> None:
        """Unmaps and closes; for the process that made it, and for tests."""
        self._words.release()
        self._map.close()
        os.close(self.fd)

    def _slot(self, slot: int) -> int:
        if not 0 <= slot < self.slots:
            raise IndexError(f"slot {slot} of {self.slots}")
        return _HEAD + slot * _PER_SLOT

    def _renewal(self, slot: int, queue_index: int) -> int:
        self._slot(slot)
        if not 0 <= queue_index < self.queues:
            raise IndexError(f"queue {queue_index} of {self.queues}")
        return self._renewed + slot * self.queues + queue_index

    def _position(self, queue_index: int) -> int:
        if not 0 <= queue_index < self.queues:
            raise IndexError(f"queue {queue_index} of {self.queues}")
        return self._positions + queue_index


def _words(slots: int, queues: int) -> int:
    return _HEAD + slots * _PER_SLOT + slots * queues + queues
