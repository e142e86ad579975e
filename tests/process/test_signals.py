# SPDX-License-Identifier: MIT
"""Signals become numbers in a socket; a second stop within a second is an echo."""

from __future__ import annotations

import os
import select
import signal
import time

import pytest

from echomq_pool.supervisor.signals import TABLE, Inbox, Request, StopCounter


def test_two_stops_within_a_second_are_one_and_a_later_one_is_fast() -> None:
    """case C064"""
    counter = StopCounter()
    assert counter.press(10_000) is Request.STOP
    assert counter.press(10_050) is None
    assert counter.press(10_999) is None
    assert counter.press(11_000) is Request.FAST
    assert counter.press(20_000) is Request.FAST


@pytest.mark.parametrize(
    ("number", "request_"),
    [
        (signal.SIGTERM, Request.STOP),
        (signal.SIGINT, Request.STOP),
        (signal.SIGQUIT, Request.FAST),
        (signal.SIGHUP, Request.RELOAD),
        (signal.SIGTTIN, Request.MORE),
        (signal.SIGTTOU, Request.FEWER),
        (signal.SIGTSTP, Request.QUIET),
        (signal.SIGCONT, Request.RESUME),
        (signal.SIGUSR2, Request.DUMP),
    ],
)
def test_each_signal_asks_for_one_thing(number: int, request_: Request) -> None:
    assert TABLE[number] is request_


def test_a_signal_wakes_a_sleeping_selector_and_is_read_once() -> None:
    """A handler alone does not wake select: it goes on for the rest of its time."""
    inbox = Inbox()
    try:
        pid = os.fork()
        if pid == 0:
            time.sleep(0.05)
            os.kill(os.getppid(), signal.SIGHUP)
            os._exit(0)
        started = time.monotonic()
        numbers: list[int] = []
        while signal.SIGHUP not in numbers:
            assert select.select([inbox], [], [], 20)[0]
            numbers += inbox.read()
        assert time.monotonic() - started < 10
        os.waitpid(pid, 0)
    finally:
        inbox.close()


def test_merged_signals_are_each_told_once_in_order() -> None:
    inbox = Inbox()
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert inbox.read() == [signal.SIGTERM, signal.SIGHUP]
        assert inbox.read() == []
    finally:
        inbox.close()


def test_a_full_inbox_neither_blocks_nor_warns(capfd: pytest.CaptureFixture[str]) -> None:
    inbox = Inbox()
    try:
        for _ in range(5_000):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert inbox.read() == [signal.SIGUSR1]
        assert capfd.readouterr().err == ""
    finally:
        inbox.close()


def test_signals_that_our_starter_had_blocked_reach_us() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        inbox = Inbox()
        os.kill(os.getpid(), signal.SIGTERM)
        assert inbox.read() == [signal.SIGTERM]
        inbox.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_closing_puts_the_former_handlers_back() -> None:
    before = {n: signal.getsignal(n) for n in TABLE}
    Inbox().close()
    assert {n: signal.getsignal(n) for n in TABLE} == before
