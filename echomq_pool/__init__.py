# SPDX-License-Identifier: MIT
"""echomq-pool: a supervised pool of Python processes for BullMQ-compatible queues."""

from __future__ import annotations

__version__ = "0.1.0"
