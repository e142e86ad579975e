# SPDX-License-Identifier: MIT
"""An app to preload: remembers who imported it."""

from __future__ import annotations

import os

IMPORTED_BY = os.getpid()
BALLAST = [str(n) for n in range(20_000)]


def handle(job: object) -> int:
    return IMPORTED_BY
