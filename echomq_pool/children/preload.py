# SPDX-License-Identifier: MIT
"""Imported by a zygote for the workers that it will fork: what each would else load after the fork, for itself alone.

Of 9 MB that a preloaded worker had of its own, the library of the loop and the scripts were 2.
"""

from __future__ import annotations

from echomq_pool.api.ask import library
from echomq_pool.children.base import fast_loop
from echomq_pool.children.worker import Worker

__all__ = ["Worker"]

fast_loop()
library()
