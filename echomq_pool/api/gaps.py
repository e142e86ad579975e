# SPDX-License-Identifier: MIT
"""Whether a reader of an event stream has missed entries that were trimmed before it came to them. Pure.

The server counts all entries ever added (`entries-added`) and those still there (`length`): the difference is how many
were trimmed. A reader that counts along knows the number of its own last entry, so what was trimmed beyond it is what
it has missed. Servers before Redis 7 do not count; there only *that* something may be missing can be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echomq_pool.plane import codec
from echomq_pool.plane.events import parse_id

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What XINFO STREAM tells. `added` is None where the server does not count."""

    length: int
    last: str
    first: str  # "" in an empty stream
    added: int | None

    @classmethod
    def from_reply(cls, reply: Any) -> StreamInfo:
        pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=False)
        fields = {codec.to_text(key): value for key, value in pairs}
        first, added = fields.get("first-entry"), fields.get("entries-added")
        return cls(
            int(fields["length"]),
            codec.to_text(fields["last-generated-id"]),
            codec.to_text(first[0]) if first else "",
            None if added is None else int(added),
        )


class GapFinder:
    """Counts along with the server.

    `position` is the id of the last entry seen; `number` its place among all ever added, None until it is known.
    """

    def __init__(self, position: str) -> None:
        self.position = position
        self.number: int | None = None

    def fix(self, info: StreamInfo | None) -> None:
        """Learns the number of `position`, which is the stream's last entry (or there is no stream yet)."""
        if info is None:
            self.number = 0
        elif info.added is not None and parse_id(self.position) >= parse_id(info.last):
            self.number = info.added

    def read(self, ids: list[str], info: StreamInfo | None) -> int:
        """Entries `ids` came after `position`; `info` was asked for afterwards.

        Returns how many are missing, 0 when none are, UNKNOWN when some may be.
        """
        before, self.position = self.position, ids[-1] if ids else self.position
        if info is None:  # the whole stream was thrown away
            self.number = 0
            return 0
        if info.added is None or self.number is None:
            return self._guess(before, ids, info)
        expected = self.number + len(ids)
        if info.added < expected:  # a new stream in the place of the old one: nothing to compare with
            self.number = None
            self.fix(info)
            return 0
        missing = max(0, info.added - info.length - self.number)
        at_end = parse_id(self.position) >= parse_id(info.last)
        if at_end:
            missing = info.added - expected
            self.number = info.added
        elif missing:
            # What was trimmed may have come before or after these entries; it is counted once, here.
            overlap = sum(parse_id(entry) < parse_id(info.first) for entry in ids) if info.first else len(ids)
            missing = max(0, missing - overlap)
            self.number = expected + missing
        else:
            self.number = expected
        return max(0, missing)

    def _guess(self, before: str, ids: list[str], info: StreamInfo) -> int:
        self.fix(info)
        if not ids or before in ("", "0", "0-0"):
            return 0
        return UNKNOWN if info.first and parse_id(info.first) >= parse_id(ids[0]) else 0
