# SPDX-License-Identifier: MIT
"""Small numbers for the children of a pool."""

from __future__ import annotations

import heapq


class Numbers:
    """The lowest free number comes first, so that names stay short for ever."""

    def __init__(self) -> None:
        self._next = 1
        self._free: list[int] = []

    def take(self) -> int:
        """The lowest number that nobody has."""
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def give_back(self, child_id: str) -> None:
        """Frees the number at the end of `child_id`."""
        _, _, number = child_id.rpartition("-")
        if number.isdigit() and int(number) < self._next:
            heapq.heappush(self._free, int(number))
