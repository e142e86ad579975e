# SPDX-License-Identifier: MIT
"""The command `echomq-pool`: runs a pool, or hands over to `commands.py`.

Only the second way imports the libraries of a command line; see `launch.py` for why.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from echomq_pool.launch import health, plain_run, run


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script. Ends the process with the exit code of what was asked."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["health"] and set(words[1:]).isdisjoint({"--help", "-h"}):
        sys.exit(health(words[1:]))
    path = plain_run(words)
    if path is not None:
        sys.exit(run(path))
    from echomq_pool.commands import dispatch

    sys.exit(dispatch(words))
