# SPDX-License-Identifier: MIT
"""Where a blocking command wants its timeout, in which unit, and that it is never 0 (0 = wait for ever)."""

from __future__ import annotations

from echomq_pool.errors import InputError
from echomq_pool.redisio.protocol import Arg
from echomq_pool.redisio.state import ServerInfo

_LAST = frozenset({"BZPOPMIN", "BZPOPMAX", "BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH"})
_FIRST = frozenset({"BLMPOP", "BZMPOP"})


def with_timeout(args: tuple[Arg, ...], block_ms: float, server: ServerInfo) -> tuple[Arg, ...]:
    """The command with its timeout put in: seconds for pops, BLOCK milliseconds for streams.

    A timeout that is there already (a number where keys are text, or BLOCK) gives way to `block_ms`.

    Raises:
        InputError: a command of which we do not know where its timeout goes.
    """
    raw = args[0]
    command = (raw.decode() if isinstance(raw, bytes) else str(raw)).upper()
    if command in _LAST:
        given = isinstance(args[-1], int | float)
        return (*(args[:-1] if given else args), server.block_seconds(block_ms))
    if command in _FIRST:
        return (args[0], server.block_seconds(block_ms), *args[1:])
    block = ("BLOCK", max(1, int(block_ms)))
    if "BLOCK" in args:
        at = args.index("BLOCK")
        return (*args[:at], *block, *args[at + 2 :])
    if command == "XREAD":
        return (args[0], *block, *args[1:])
    if command == "XREADGROUP":
        return (*args[:4], *block, *args[4:])
    raise InputError(f"{command} is not a blocking command that this link knows")
