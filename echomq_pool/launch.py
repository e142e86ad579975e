# SPDX-License-Identifier: MIT
"""The two things the command line does most, kept light: become a pool, and ask one how it is.

The supervisor keeps for its whole life whatever is imported before it starts, and `health` runs every few
seconds in a container. So nothing here imports click, rich or pydantic, and each function imports what it
needs where it needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

EXIT_UNHEALTHY = 1
EXIT_USAGE = 64
EXIT_CONFIG = 78
CONFIG_VARIABLE = "ECHOMQ_CONFIG"
NO_CONFIG = f"no configuration: give --config PATH or set {CONFIG_VARIABLE}"


def run(path: Path) -> int:
    """Becomes the supervisor of the pool that `path` describes; the exit code once it has ended."""
    if sys.platform != "linux":  # elsewhere a fork without exec is not safe, and there is no pidfd
        return refuse([f"a pool runs on Linux only, and this is {sys.platform!r}; producers run anywhere"])
    from echomq_pool import pool
    from echomq_pool.errors import ConfigError

    try:
        return pool.run(path)
    except ConfigError as error:
        return refuse(error.problems)


def refuse(problems: Sequence[str]) -> int:
    """Prints what is wrong with a configuration, one sentence per key."""
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return EXIT_CONFIG


def health(words: Sequence[str]) -> int:
    """0 when the pool answers and every group has a worker, 1 with a sentence when not. For HEALTHCHECK and probes.

    With `--ready` it must also be able to work now: linked to its server, not quiet, not stopping.
    """
    from echomq_pool.errors import PoolError
    from echomq_pool.supervisor.control import call

    ready = "--ready" in words
    options = _options([word for word in words if word != "--ready"], ("--config", "-c", "--control"))
    if options is None:
        return _complain("usage: echomq-pool health [--ready] [--config PATH | --control PATH]", EXIT_USAGE)
    config, control = options.get("--config") or options.get("-c"), options.get("--control")
    try:
        row = call(control or find_control(config), "health", {"ready": ready}, timeout_s=5.0)
    except PoolError as error:
        return _complain(str(error), EXIT_UNHEALTHY)
    verdict = row.get("value")
    if row.get("ok") and (not isinstance(verdict, dict) or verdict.get("ok", True)):
        return 0
    return _complain(_why_unhealthy(row), EXIT_UNHEALTHY)


def find_control(config: str | Path | None) -> str:
    """The control socket of the pool of this configuration (or of $ECHOMQ_CONFIG).

    Raises:
        ConfigError: there is no configuration, or it cannot be read.
    """
    from echomq_pool.config.control import peek_control
    from echomq_pool.errors import ConfigError

    path = config or os.environ.get(CONFIG_VARIABLE)
    if not path:
        raise ConfigError([NO_CONFIG])
    return peek_control(Path(path), os.environ)


def plain_run(words: Sequence[str]) -> Path | None:
    """The configuration, when the words ask for a run and for nothing else."""
    options = _options(words, ("--config", "-c"))
    if options is None:
        return None
    path = options.get("--config") or options.get("-c") or os.environ.get(CONFIG_VARIABLE)
    return Path(path) if path else None


def _options(words: Sequence[str], known: Sequence[str]) -> dict[str, str] | None:
    """`--name value` and `--name=value` of the known names; None when there is anything else."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in known or (not equals and not rest):
            return None
        found[name] = value if equals else rest.pop(0)
    return found


def _why_unhealthy(row: dict[str, object]) -> str:
    verdict = row.get("value")
    reasons = verdict.get("reasons") if isinstance(verdict, dict) else None
    if isinstance(reasons, list) and reasons:
        return "unhealthy: " + "; ".join(str(reason) for reason in reasons)
    return f"unhealthy: {row.get('detail') or row.get('error') or verdict}"


def _complain(sentence: str, code: int) -> int:
    sys.stderr.write(f"{sentence}\n")
    return code
