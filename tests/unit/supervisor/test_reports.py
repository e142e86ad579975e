# SPDX-License-Identifier: MIT
"""What is reported about ends and starts, and in which words."""

from __future__ import annotations

import logging

import pytest

from echomq_pool.supervisor.reason import ExitReason, Why
from echomq_pool.supervisor.report import Report, brief, clip
from echomq_pool.supervisor.spec import Restart
from tests.support.fake_world import CRASH, NORMAL, Fake, Script, child, group


def test_a_report_is_one_line_of_bounded_length_and_depth() -> None:
    """acceptance: format_log_1, format_log_2"""
    deep = {"id": "a", "args": {"x": {"y": {"z": [1]}}}}
    report = Report(
        "root", "child_terminated", "line one\nline two\n" + "x" * 5_000 + "\nthe last line", deep
    )
    line = report.line(limit=300)
    assert len(line) <= 300
    assert "\n" not in line
    assert line.startswith("root: child_terminated: line one line two")
    assert "{…}" in Report("r", "c", "w", deep).line(depth=2)
    assert len(report.line()) <= 600


def test_many_are_folded_to_a_count() -> None:
    """acceptance: format_log_1"""
    line = Report("w", "shutdown_error", "killed", {"count": 900, "ids": ["w-1"]}).line()
    assert line == "w: shutdown_error: killed [count=900 ids=[w-1]]"


def test_long_texts_keep_their_first_and_last_words() -> None:
    text = clip("Traceback (most recent call last):\n" + "  File …\n" * 500 + "ValueError: no", 120)
    assert len(text) <= 120
    assert text.startswith("Traceback")
    assert text.endswith("ValueError: no")
    assert brief([{"a": 1}], 0) == "[…]"


def test_every_report_has_the_four_fields() -> None:
    """otp-supervisor 1.2.13"""
    fake = Fake(group("root", child("a"), budget=0), {"a": Script(reason=CRASH)}).boot()
    fake.call("terminate_child", "root", "a")
    fake.call("restart_child", "root", "a")
    fake.crash("a")
    contexts = {r.context for r in fake.reports}
    assert {"progress", "child_terminated", "shutdown_error", "shutdown"} <= contexts
    for report in fake.reports:
        assert report.supervisor
        assert report.reason
        assert report.offender["id"]


def test_a_planned_end_is_information_and_a_crash_is_an_error() -> None:
    fake = Fake(group("root", child("a"), child("t", "transient"), budget=9)).boot()
    fake.reports.clear()
    fake.crash("a", ExitReason(Why.RECYCLE, code=11)).crash("a", CRASH).crash("t", NORMAL)
    ends = [(r.offender["id"], r.level) for r in fake.reports if r.context == "child_terminated"]
    assert ends == [("a", logging.INFO), ("a", logging.ERROR), ("t", logging.INFO)]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (ExitReason(Why.NORMAL, code=0), "normal"),
        (ExitReason(Why.CRASH, code=3), "exit code 3"),
        (ExitReason(Why.CRASH, code=0), "exit code 0 without a bye"),
        (ExitReason(Why.SIGNAL, signal=11, core=True), "signal SIGSEGV (core dumped)"),
        (ExitReason(Why.SIGNAL, signal=9, detail="from outside"), "signal SIGKILL: from outside"),
        (ExitReason(Why.SIGNAL, signal=60), "signal 60"),
        (ExitReason(Why.OOM, signal=9), "oom"),
        (ExitReason(Why.BOOT_FAILED, detail="ImportError: shop"), "boot_failed: ImportError: shop"),
    ],
)
def test_reasons_in_words(reason: ExitReason, text: str) -> None:
    assert reason.text == text


TABLE = {  # kind: restarts a transient child, costs no budget, its jobs go back without cost
    Why.NORMAL: (False, False, True), Why.SHUTDOWN: (False, False, True), Why.RECYCLE: (True, True, True),
    Why.BOOT_FAILED: (True, False, False), Why.CRASH: (True, False, False), Why.SIGNAL: (True, False, False),
    Why.KILLED: (True, False, True), Why.OOM: (True, False, False), Why.ORPHANED: (True, False, False),
    Why.UNKNOWN: (True, False, False), Why.HANG: (True, True, False), Why.TIMEOUT: (True, True, True),
    Why.CANCEL: (True, True, True), Why.MEMORY: (True, True, True), Why.SCALE: (True, True, True),
    Why.RELOAD: (True, True, True), Why.GAVE_UP: (True, False, False), Why.FORK_FAILED: (True, False, False),
}  # fmt: skip


@pytest.mark.parametrize("why", list(Why))
def test_every_row_of_the_reason_table(why: Why) -> None:
    """acceptance: every row of the reason table"""
    reason = ExitReason(why)
    transient, planned, back = TABLE[why]
    assert reason.restarts(Restart.PERMANENT)
    assert not reason.restarts(Restart.TEMPORARY)
    assert (reason.restarts(Restart.TRANSIENT), reason.planned, reason.hands_back) == (
        transient,
        planned,
        back,
    )


def test_78_means_that_no_restart_will_help() -> None:
    assert ExitReason(Why.CRASH, code=78).final
    assert not ExitReason(Why.CRASH, code=1).final
