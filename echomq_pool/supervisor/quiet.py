# SPDX-License-Identifier: MIT
"""Signals in a child: default actions, and no orders by signal, since those come as frames."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

QUIET: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1})
_PYTHONS_OWN: Final = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored in every Python process

_forking = threading.local()
_hooked = False


def reset_signals() -> None:
    """Undoes what the supervisor has set up, and makes this process deaf to the stop signals.

    They get a handler that does nothing rather than SIG_IGN, which would survive exec: a job's own
    subprocesses could then not be terminated. For what a job forks without exec, the default comes back at the
    fork.
    """
    signal.set_wakeup_fd(-1)  # or our signals would be written into the parent's inbox
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, None) and number not in _PYTHONS_OWN:
            signal.signal(number, signal.SIG_DFL)
    for number in QUIET:
        signal.signal(number, _do_nothing)
    _hook_forks()


def _hook_forks() -> None:
    """Once per line of descent: a fork inherits the hooks."""
    global _hooked
    if not _hooked:
        _hooked = True
        os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_default_again)


def _do_nothing(number: int, frame: object) -> None:
    pass


def _hold() -> None:
    """A signal that arrives between the fork and `_default_again` must wait, or it would be swallowed."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, QUIET)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _default_again() -> None:
    if threading.current_thread() is threading.main_thread():  # only there may Python set a handler
        for number in QUIET:
            if signal.getsignal(number) is _do_nothing:
                signal.signal(number, signal.SIG_DFL)
    _release()
