# SPDX-License-Identifier: MIT
"""A web board for BullMQ shows our queues, and its buttons do on them what they do on Node's.

Each button is pressed on both sides: on a queue of ours that a pool works, and on one that BullMQ works. The jobs'
events and fields must come out the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.board.board import Board
from tests.board.browser import Browser
from tests.board.sides import Side
from tests.support.waiting import eventually

pytestmark = [pytest.mark.board, pytest.mark.node]
HOUR_MS = 3_600_000
LATER = {"delay": HOUR_MS}
FAILING = {"do": "fail", "fail_times": 1, "n": 1}  # the first run fails
GIVEN = {"give": {"n": 7}}


@pytest.fixture(scope="session", autouse=True)
def old_jobs(sides: list[Side]) -> None:
    """Jobs for "Clean all", which spares what is younger than five seconds."""
    for side in sides:
        side.add("clean", "done", GIVEN)
        side.add("clean", "broken", FAILING)
        side.add("clean", "later", GIVEN, **LATER)
        side.reaches("clean", done="completed", broken="failed", later="delayed")


def same(sides: list[Side], topic: str) -> None:
    """Both sides have come out the same."""
    ours, theirs = (side.ending(topic) for side in sides)
    assert ours.keys() == theirs.keys()
    for job_id, found in ours.items():
        assert found == theirs[job_id], job_id


def test_the_board_shows_our_queues_and_the_jobs_in_every_state(
    board: Board, browser: Browser, pool_side: Side, photo: Path
) -> None:
    """case C107"""
    name = pool_side.shown("show")
    pool_side.add("show", "good", {"do": "talk", "progress": 40, "row": "a line of the log"})
    pool_side.add("show", "bad", {"do": "cry", "text": "it is raining"})
    pool_side.add("show", "later", {"give": 1}, **LATER)
    pool_side.add("show", "long", {"ms": 60_000})
    pool_side.reaches("show", good="completed", bad="failed", later="delayed", long="active")
    with pool_side.queue("show") as queue:
        queue.pause()
    pool_side.add("show", "next", {"give": 1})
    pool_side.add("show", "urgent", {"give": 1}, priority=2)
    board.visit()
    browser.shows(name, "6 Jobs", pool_side.shown("parts"))
    browser.screenshot(photo / "queues.png")
    for status, words in {
        "completed": ["good", '"talked"', "by pool/board-"],
        "failed": ["bad", "it is raining", "Traceback (most recent call last)", "Failed at"],
        "delayed": ["later", "Will run at"],
        "active": ["long", "Process started at"],
        "waiting": ["next"],
        "prioritized": ["urgent"],
    }.items():
        board.visit(name, status=status)
        browser.shows(*words)
        browser.screenshot(photo / f"{status}.png")
    board.visit(name, job="good")
    browser.click("//button[.='Logs']")
    browser.shows("a line of the log", "40%")
    browser.screenshot(photo / "job.png")


def test_the_board_names_our_workers(board: Board, browser: Browser, pool_side: Side, photo: Path) -> None:
    """case C107"""
    board.visit(pool_side.shown("parts"))
    browser.click("//button[@title='Queue info']")
    browser.click("//*[text()='Connected workers']")
    browser.shows("pool/board-1", "pool/board-2", "connected")
    browser.screenshot(photo / "workers.png")


def test_a_failed_job_that_is_retried_from_the_board_completes(board: Board, sides: list[Side]) -> None:
    """case C107"""
    for side in sides:
        for job_id in ("one", "two", "three"):
            side.add("retry", job_id, FAILING)
        side.add("retry", "again", GIVEN)
        side.reaches("retry", one="failed", two="failed", three="failed", again="completed")
        board.press(side.shown("retry"), "one", "retry")
        side.reaches("retry", one="completed", two="failed")
        board.press_all(side.shown("retry"), "failed", "Retry all")
        side.reaches("retry", two="completed", three="completed")
        board.press(side.shown("retry"), "again", "retry")
        side.runs("retry", 5)
    same(sides, "retry")


def test_a_delayed_job_that_is_promoted_from_the_board_runs(board: Board, sides: list[Side]) -> None:
    for side in sides:
        for job_id in ("one", "two", "three"):
            side.add("promote", job_id, GIVEN, **LATER)
        board.press(side.shown("promote"), "one", "promote")
        side.reaches("promote", one="completed", two="delayed")
        board.press_all(side.shown("promote"), "delayed", "Promote all")
        side.reaches("promote", two="completed", three="completed")
    same(sides, "promote")


def test_a_job_that_is_removed_from_the_board_is_gone(board: Board, sides: list[Side]) -> None:
    for side in sides:
        side.add("remove", "done", GIVEN)
        side.add("remove", "broken", FAILING)
        side.add("remove", "later", GIVEN, **LATER)
        side.reaches("remove", done="completed", broken="failed", later="delayed")
        for job_id in ("done", "broken", "later"):
            board.press(side.shown("remove"), job_id, "remove")
            side.reaches("remove", **{job_id: "unknown"})
        side.add("remove", "after", GIVEN)
        side.reaches("remove", after="completed")
    same(sides, "remove")


def test_a_paused_queue_waits_until_the_board_resumes_it(
    board: Board, browser: Browser, sides: list[Side], photo: Path
) -> None:
    for side in sides:
        board.choose(side.shown("pause"), "Pause")
        side.paused("pause")
        side.add("pause", "patient", GIVEN)
        side.add("pause", "urgent", GIVEN, priority=1)
        board.visit(side.shown("pause"), status="waiting")
        browser.shows("patient", "Paused")
        browser.screenshot(photo / f"paused-{side.label}.png")
        assert [side.state("pause", job_id) for job_id in ("patient", "urgent")] == ["waiting", "prioritized"]
        board.choose(side.shown("pause"), "Resume")
        side.reaches("pause", patient="completed", urgent="completed")
    same(sides, "pause")


def test_a_queue_that_the_board_emptied_and_obliterated_works_on(board: Board, sides: list[Side]) -> None:
    for side in sides:
        name = side.shown("empty")
        board.choose(name, "Pause")
        side.paused("empty")
        side.add("empty", "waiting", GIVEN)
        side.add("empty", "later", GIVEN, **LATER)
        board.choose(name, "Empty")
        side.reaches("empty", waiting="unknown", later="delayed")
        board.choose(name, "Obliterate")
        side.reaches("empty", later="unknown")
        side.add("empty", "after", GIVEN)
        side.reaches("empty", after="completed")
    same(sides, "empty")


def test_the_board_shows_a_flow_and_lets_go_of_its_children(
    board: Board, browser: Browser, sides: list[Side], photo: Path
) -> None:
    for side in sides:
        for family in ("a", "b"):
            children = [
                {"name": "kid", "queueName": "parts", "data": GIVEN, "opts": {"jobId": f"kid-{family}"}},
                {
                    "name": "slow",
                    "queueName": "parts",
                    "data": GIVEN,
                    "opts": {"jobId": f"slow-{family}", **LATER},
                },
            ]
            side.add_flow(
                {"name": f"parent {family}", "queueName": "flow", "data": GIVEN, "children": children,
                 "opts": {"jobId": f"parent-{family}"}}
            )  # fmt: skip
        side.reaches("parts", **{"kid-a": "completed", "kid-b": "completed"})
        board.visit(side.shown("flow"), job="parent-a")
        browser.shows(
            "Job flow", "parent a", "WAITING-CHILDREN", "kid", "COMPLETED", "slow", "DELAYED", "1 unfinished"
        )
        browser.screenshot(photo / f"flow-{side.label}.png")
        board.press(side.shown("flow"), "parent-a", "remove unprocessed children")
        side.reaches("flow", **{"parent-a": "completed"})
        board.press(side.shown("flow"), "parent-b", "remove")
        side.reaches("flow", **{"parent-b": "unknown"})
        side.reaches("parts", **{"slow-a": "unknown", "slow-b": "unknown", "kid-b": "unknown"})
    same(sides, "flow")
    same(sides, "parts")


def test_the_board_shows_runs_and_removes_our_schedulers(
    board: Board, browser: Browser, sides: list[Side], photo: Path
) -> None:
    for side in sides:
        name = side.shown("plans")
        side.schedule("plans", "ticks", HOUR_MS, "tick", GIVEN)
        side.runs("plans", 1)
        board.press_at_scheduler("ticks", name, "Run now")
        side.runs("plans", 2)
        browser.shows("ticks", "tick", "every 1h")
        browser.screenshot(photo / f"schedulers-{side.label}.png")
        board.press_at_scheduler("ticks", name, "Remove scheduler")
        side.planless("plans")


def test_the_board_cleans_jobs_by_state(board: Board, sides: list[Side]) -> None:
    for side in sides:
        for status, job_id in {"completed": "done", "failed": "broken", "delayed": "later"}.items():

            def cleaned(side: Side = side, status: str = status, job_id: str = job_id) -> bool:
                # What is younger than five seconds stays.
                board.press_all(side.shown("clean"), status, "Clean all")
                return side.state("clean", job_id) == "unknown"

            eventually(cleaned)
    same(sides, "clean")
