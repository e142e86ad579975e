# SPDX-License-Identifier: MIT
"""The worker inside a program of one's own."""

from __future__ import annotations

from echomq_pool.worker.embedded import Worker

__all__ = ["Worker"]
