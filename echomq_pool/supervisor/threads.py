# SPDX-License-Identifier: MIT
"""Whoever forks has one thread."""

from __future__ import annotations

import contextlib
import errno
import os


def check_single_thread() -> None:
    """A lock that another thread holds at the fork stays held in the child for ever.

    Looks at the kernel's list: C libraries start threads that `threading` does not know.

    Raises:
        OSError: EDEADLK, with the names of the other threads.
    """
    others = other_threads()
    if others:
        raise OSError(errno.EDEADLK, f"will not fork beside other threads: {', '.join(others)}")


def other_threads() -> list[str]:
    """Names of this process's threads besides the main one, as the kernel has them."""
    names = []
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208 - a Path per entry costs more than the fork
        if int(task) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:  # noqa: PTH123
                names.append(file.read().strip())
    return names
