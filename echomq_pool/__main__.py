# SPDX-License-Identifier: MIT
"""`python -m echomq_pool`: the same as the command `echomq-pool`."""

from __future__ import annotations

from echomq_pool.cli import main

if __name__ == "__main__":
    main()
