# SPDX-License-Identifier: MIT
"""An app whose import leaves a descriptor open."""

from __future__ import annotations

import socket

CONNECTION = socket.socket()


def handle(job: object) -> None:
    pass
