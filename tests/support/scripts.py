# SPDX-License-Identifier: MIT
"""Small scripts for tests of the transport."""

from __future__ import annotations

import hashlib

from echomq_pool.redisio.scripts import Script, ScriptLibrary


def script_of(name: str, text: str, keys: int = 0) -> Script:
    """A script without a file."""
    raw = text.encode()
    return Script(name, keys, raw, hashlib.sha1(raw, usedforsecurity=False).hexdigest())


ECHO = script_of("echo", "return ARGV[1]")
PUSH = script_of("push", "return redis.call('RPUSH', KEYS[1], ARGV[1])", 1)
LIBRARY = ScriptLibrary({"echo": ECHO, "push": PUSH})
