# SPDX-License-Identifier: MIT
"""Names of processes, as ps shows them. Optional: whatever goes wrong costs only the name."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from echomq_pool.config.schema import PoolConfig

logger = logging.getLogger("echomq.titles")


def title(config: PoolConfig, child: str, args: Mapping[str, Any]) -> str:
    """What ps shows: "echomq: web orders-3 [orders,mail]"."""
    queues: tuple[str, ...] = ()
    with contextlib.suppress(KeyError):
        queues = config.group(str(args.get("group", ""))).queues
    return f"echomq: {config.name} {child}" + (f" [{','.join(queues)}]" if queues else "")


def set_title(text: str) -> None:
    """Names the process if the extra is installed; failing costs only the name."""
    try:
        import setproctitle  # an extra, and native code: only ever loaded in a fresh child

        setproctitle.setproctitle(text)
    except ImportError:
        pass
    except Exception as error:
        logger.debug("no process title: %s", error)
