# SPDX-License-Identifier: MIT
"""Framing between the processes of a pool; the only encoder.

One record of a SOCK_SEQPACKET pair carries one message:

    +------+---------+-------+------+-----+-----------------------------------+
    | kind | version | count | slot | seq | body: JSON list of the fields     |
    |  u8  |   u8    |  u16  | u32  | u32 | (orjson; stdlib where it refuses) |
    +------+---------+-------+------+-----+-----------------------------------+

`count` is the number of jobs inside (1 for a message without a job list), `slot` the board slot of the
worker concerned. The supervisor routes by kind and slot and passes `Frame.raw` on undecoded.

Nothing here blocks: what the kernel does not take waits in a bounded outbox. Telemetry is dropped from it
first, control frames never.
"""

from __future__ import annotations

import errno
import json
import logging
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import orjson

from echomq_pool.errors import PoolError
from echomq_pool.ipc.messages import Held, Kind, Lost, Message, Recovered, Settled, from_row, to_row

NO_SLOT: Final = 0xFFFF_FFFF
VERSION: Final = 1
HEADER: Final = struct.Struct("<BBHII")
RECORD_CAP: Final = 64 * 1024  # job lists are split here
HARD_CAP: Final = 200_000  # the kernel takes 212 960 bytes at most with a stock wmem_max
READ_BUFFER: Final = 256 * 1024  # a buffer smaller than the record would lose its rest
FLUSH_MESSAGES: Final = 32
FLUSH_BYTES: Final = 32 * 1024
SEND_BUFFER: Final = 1024 * 1024
TRIMMED_TEXT: Final = 8_000

TELEMETRY: Final = frozenset({Kind.STATS, Kind.EVENTS, Kind.TREE})
_KINDS: Final = {int(kind): kind for kind in Kind}
_buffer = bytearray(READ_BUFFER)  # shared: one loop per process reads, one record at a time
_AGAIN: Final = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM})

logger = logging.getLogger("echomq.ipc")


class ProtocolError(PoolError):
    """A record that is no message of this version, or a message that fits no record."""


@dataclass(slots=True)
class Frame:
    """One received record. `raw` is the whole of it, ready to be forwarded."""

    kind: Kind
    count: int
    slot: int
    seq: int
    raw: bytes

    def message(self) -> Message:
        """Decodes the body, now.

        Raises:
            ProtocolError: the body is not JSON, or not the fields of this kind.
        """
        try:
            return from_row(self.kind, _loads(self.raw[HEADER.size :]))
        except (ValueError, TypeError, IndexError) as error:
            raise ProtocolError(f"{self.kind.name} record cannot be decoded: {error}") from error


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected SEQPACKET ends: non-blocking, close-on-exec, with as much send buffer as we are given."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        # The default holds just 278 records of 64 bytes; the kernel caps what we ask at wmem_max.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return ends


class Channel:
    """One end of a pair: messages in, frames out, never waiting.

    The owner watches `fileno()` for reading, for writing too while `pending` is not zero, and calls
    `flush()` by a timer (5 ms) if it sends telemetry.
    """

    def __init__(self, sock: socket.socket, *, max_outbox: int = 10_000) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.closed = False  # end of file was read: the peer is gone and nothing more will come
        self.broken = False  # a send found the peer gone; what it had sent can still be read
        self.dropped = 0  # telemetry records thrown away
        self.refused = 0  # records that were no frames of ours
        self._max_outbox = max_outbox
        self._outbox: deque[tuple[bool, bytes]] = deque()  # (is telemetry, record)
        self._outbox_bytes = 0
        self._seq = 0

    def fileno(self) -> int:
        """The descriptor, -1 after `close()` or `detach()`."""
        return self.sock.fileno()

    @property
    def pending(self) -> int:
        """Records that wait in the outbox."""
        return len(self._outbox)

    @property
    def overfull(self) -> bool:
        """More control records wait than the outbox is to hold: the peer does not read (a missed beat)."""
        return len(self._outbox) > self._max_outbox

    @property
    def spoken(self) -> bool:
        """Something was sent: in a child, its ack is out."""
        return self._seq > 0

    def wait_writable(self, ms: int) -> None:
        """Blocks until there may be room, `ms` at most; only for a process about to end."""
        poller = select.poll()
        poller.register(self.sock, select.POLLOUT)
        poller.poll(ms)

    def send(self, message: Message, *, slot: int = NO_SLOT) -> None:
        """Encodes and queues; control kinds leave at once, telemetry at 32 messages, 32 KiB or `flush()`.

        Raises:
            ProtocolError: the message fits no record (telemetry is dropped with a warning instead).
        """
        telemetry = message.kind in TELEMETRY
        for count, body in self._bodies(message, telemetry):
            self._seq = (self._seq + 1) & NO_SLOT
            header = HEADER.pack(message.kind, VERSION, min(count, 0xFFFF), slot, self._seq)
            self._queue(telemetry, header + body)
        self._flush_if_due(telemetry)

    def forward(self, frame: Frame) -> None:
        """Queues a received record as it is."""
        telemetry = frame.kind in TELEMETRY
        self._queue(telemetry, frame.raw)
        self._flush_if_due(telemetry)

    def flush(self) -> bool:
        """Hands the kernel what it takes now. True when nothing is left. Never blocks."""
        while self._outbox:
            try:
                self.sock.send(self._outbox[0][1], socket.MSG_NOSIGNAL)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno in _AGAIN:
                    return False
                if error.errno == errno.EMSGSIZE:
                    self._drop_head(error)
                    continue
                self._break_off()
                return True
            self._outbox_bytes -= len(self._outbox.popleft()[1])
        return True

    def receive(self, limit: int = 32) -> list[Frame]:
        """Up to `limit` frames; fewer when no more are there now. Sets `closed` at end of file."""
        frames: list[Frame] = []
        while len(frames) < limit and not self.closed:
            try:
                size = self.sock.recv_into(_buffer, 0, socket.MSG_TRUNC)  # the record's size, cut or not
            except BlockingIOError:
                break
            except (ConnectionResetError, InterruptedError):
                # A peer that died with unread input answers ECONNRESET first; its last records come after it.
                continue
            except OSError:
                self.closed = True
                break
            if size == 0:
                self.closed = True
            elif size > READ_BUFFER:
                self._refuse(f"a record of more than {READ_BUFFER} bytes was cut")
            else:
                self._append(frames, bytes(memoryview(_buffer)[:size]))
        return frames

    def close(self) -> None:
        """Closes this end. In the supervisor: unregister it from the selector first."""
        self.sock.close()
        self.closed = True
        self._break_off()

    def detach(self) -> int:
        """Lets go of the descriptor without closing it; for the far side of a fork."""
        self.closed = True
        self._break_off()
        return self.sock.detach()

    def _append(self, frames: list[Frame], raw: bytes) -> None:
        if len(raw) < HEADER.size:
            self._refuse(f"a record of {len(raw)} bytes")
            return
        number, version, count, slot, seq = HEADER.unpack_from(raw)
        kind = _KINDS.get(number)
        if kind is None or version != VERSION:
            self._refuse(f"a record of kind {number}, version {version}")
            return
        frames.append(Frame(kind, count, slot, seq, raw))

    def _bodies(self, message: Message, telemetry: bool) -> Iterator[tuple[int, bytes]]:
        try:
            yield from _encode(message)
        except ProtocolError as error:
            if not telemetry:
                raise
            self.dropped += 1
            logger.warning("telemetry dropped: %s", error)

    def _queue(self, telemetry: bool, record: bytes) -> None:
        if self.broken or not record:  # an empty record would read as end of file
            return
        if len(self._outbox) >= self._max_outbox and not self._make_room(telemetry):
            self.dropped += 1
            return
        self._outbox.append((telemetry, record))
        self._outbox_bytes += len(record)

    def _make_room(self, telemetry: bool) -> bool:
        """Drops the oldest telemetry. False: there is none, and the newcomer is telemetry itself."""
        for index, (droppable, record) in enumerate(self._outbox):
            if droppable:
                del self._outbox[index]
                self._outbox_bytes -= len(record)
                self.dropped += 1
                return True
        return not telemetry

    def _flush_if_due(self, telemetry: bool) -> None:
        if not telemetry or len(self._outbox) >= FLUSH_MESSAGES or self._outbox_bytes >= FLUSH_BYTES:
            self.flush()

    def _drop_head(self, error: OSError) -> None:
        _, record = self._outbox.popleft()
        self._outbox_bytes -= len(record)
        self.dropped += 1
        logger.error("a record of %d bytes cannot be sent: %s", len(record), error)

    def _break_off(self) -> None:
        self.broken = True
        self._outbox.clear()
        self._outbox_bytes = 0

    def _refuse(self, what: str) -> None:
        self.refused += 1
        logger.warning("record refused: %s", what)


def _encode(message: Message) -> Iterator[tuple[int, bytes]]:
    """(jobs inside, body) of each record that the message needs, in order."""
    body = _dumps(to_row(message))
    jobs = message.jobs if isinstance(message, Held | Settled | Lost | Recovered) else None
    if HEADER.size + len(body) <= RECORD_CAP:
        yield (1 if jobs is None else len(jobs)), body
    elif jobs is not None and len(jobs) > 1:
        for part in _halves(message):
            yield from _encode(part)
    else:
        yield 1, _fitted(message, body)


def _halves(message: Any) -> tuple[Any, Any]:
    middle = len(message.jobs) // 2
    first, second = replace(message, jobs=message.jobs[:middle]), replace(message, jobs=message.jobs[middle:])
    if isinstance(message, Held):
        # The mark closes the last record of a re-telling; what was settled was so before any of these jobs was held.
        return replace(first, end=False), replace(second, settled=[])
    return first, second


def _fitted(message: Message, body: bytes) -> bytes:
    """A body under the hard cap, its long texts shortened if need be."""
    if HEADER.size + len(body) <= HARD_CAP:
        return body
    changes = {
        f.name: text[:TRIMMED_TEXT] + " … cut"
        for f in fields(message)
        if isinstance(text := getattr(message, f.name), str) and len(text) > TRIMMED_TEXT
    }
    shortened: Any = message
    body = _dumps(to_row(replace(shortened, **changes)))
    if HEADER.size + len(body) > HARD_CAP:
        raise ProtocolError(f"{message.kind.name} of {len(body)} bytes exceeds {HARD_CAP}")
    return body


def _dumps(row: list[Any]) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # lone surrogates, integers past 64 bits: stdlib writes both
        return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return json.loads(body.decode("utf-8", "surrogatepass"))
