# SPDX-License-Identifier: MIT
"""The board's own interface, without a browser, in every layout of keys: what it shows, what its buttons do.

Each button is pressed on a queue of ours and on one of Node's, and then every key of both is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.board.board import Served
from tests.support.node import Node
from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.wire.fleet import Layout
from tests.wire.ground import Ground, Side
from tests.wire.test_same_records import differences, settled_dump

pytestmark = [pytest.mark.board, pytest.mark.node]

HOUR_MS = 3_600_000
FAILING = {"do": "fail", "fail_times": 1, "n": 1}
LAYOUTS = {
    "emq-braces": Layout("emq", True),
    "emq-plain": Layout("emq", False),
    "bull-plain": Layout("bull", False),
    "bull-braces": Layout("bull", True),
}


@pytest.fixture(scope="session")
def peer(board_server: Server) -> Iterator[Node]:
    node = Node("bullmq-6", board_server.port)
    yield node
    node.close()


@pytest.fixture(scope="module", params=LAYOUTS)
def ground(request: pytest.FixtureRequest, board_server: Server, peer: Node) -> Ground:
    return Ground(board_server, peer, LAYOUTS[request.param])


@pytest.fixture(scope="module")
def board(ground: Ground) -> Iterator[Served]:
    """One board a layout, for the queues of all tests."""
    topics = ["reading", *map(topic_of, BUTTONS)]
    names = [side.keys.wire_name for topic in topics for side in twins_of(ground, topic)]
    board = Served(ground.server.port, ground.layout.prefix, names)
    yield board
    board.close()


def topic_of(button: str) -> str:
    return button.replace(" ", "-")


def twins_of(ground: Ground, topic: str) -> tuple[Side, Side]:
    """A queue of Node's and one of ours."""
    return ground.side(f"api-{topic}-x"), ground.side(f"api-{topic}-y")


@contextmanager
def worked(twins: tuple[Side, Side]) -> Iterator[None]:
    """Each by its own side."""
    theirs, ours = twins
    theirs.node_worker(concurrency=1)
    with ours.worker(concurrency=1):
        yield
    ours.ground.node("reset")


def add(side: Side, job_id: str, data: dict[str, Any], **opts: Any) -> None:
    with side.ours() as queue:
        queue.add("n", data, job_id=job_id, **opts)


def reaches(side: Side, **states: str) -> None:
    with side.ours() as queue:
        eventually(
            lambda: {job_id: queue.get_state(job_id) for job_id in states} == states,
            why=f"{states} in {side.queue}",
        )


def rests(side: Side) -> None:
    """Waits until nothing runs or is about to."""
    idle = {"active": 0, "waiting": 0}
    with side.ours() as queue:
        eventually(lambda: queue.get_job_counts(*idle) == idle, why=f"{side.queue} is at rest")


def alike(twins: tuple[Side, Side]) -> None:
    theirs, ours = (settled_dump(side) for side in twins)
    assert differences(ours, theirs) == []


def shown(board: Served, side: Side, status: str) -> dict[str, Any]:
    """Our queue as the board has it, with the jobs in one state."""
    found = board.get("queues", activeQueue=side.keys.wire_name, status=status, page=1, jobsPerPage=50)
    (queue,) = (one for one in found["queues"] if one["name"] == side.keys.wire_name)
    view: dict[str, Any] = queue
    return view


def test_the_board_reads_queues_jobs_workers_and_series(board: Served, ground: Ground) -> None:
    """case C107"""
    twins = twins_of(ground, "reading")
    with worked(twins):
        check_reading(board, twins)


def check_reading(board: Served, twins: tuple[Side, Side]) -> None:
    views = []
    for side in twins:
        add(side, "good", {"do": "talk", "progress": 40, "row": "a row"})
        add(side, "bad", {"do": "fail"})
        reaches(side, good="completed", bad="failed")
        add(side, "later", {"give": 1}, delay=HOUR_MS)
        with side.ours() as queue:
            queue.upsert_job_scheduler("s", pattern="0 0 29 2 *", tz="UTC", name="tick")
        views.append({status: shown(board, side, status) for status in ("completed", "failed", "delayed")})
    theirs, ours = views
    for status, job_id in (("completed", "good"), ("failed", "bad"), ("delayed", "later")):
        assert ours[status]["counts"] == theirs[status]["counts"]
        assert ids(ours[status]) == ids(theirs[status])
        assert job_id in ids(ours[status])
    name = twins[1].keys.wire_name
    assert board.get("queues", name, "good", "logs") == ["a row"]
    workers = board.get("queues", name, "workers")
    assert len(workers["workers"] if isinstance(workers, dict) else workers) == 1
    found = str(board.get("job-schedulers"))
    assert all(side.keys.wire_name in found for side in twins)


def ids(view: dict[str, Any]) -> list[str]:
    return [job["id"] for job in view["jobs"]]


Press = Callable[[Served, str], Any]
# Made before: one completed, one failed (its next run succeeds), one for later. Then a button, then where they are.
BUTTONS: dict[str, tuple[Press, dict[str, str]]] = {
    "retry": (lambda b, q: b.put("queues", q, "bad", "retry"), {"bad": "completed"}),
    "retry completed": (lambda b, q: b.put("queues", q, "good", "retry"), {"good": "completed"}),
    "retry all": (lambda b, q: b.put("queues", q, "retry", "failed"), {"bad": "completed"}),
    "promote": (lambda b, q: b.put("queues", q, "later", "promote"), {"later": "completed"}),
    "promote all": (lambda b, q: b.put("queues", q, "promote"), {"later": "completed"}),
    "remove": (lambda b, q: b.put("queues", q, "bad", "clean"), {"bad": "unknown"}),
    "pause": (lambda b, q: b.put("queues", q, "pause"), {"later": "delayed"}),
    "resume": (
        lambda b, q: (b.put("queues", q, "pause"), b.put("queues", q, "resume")),
        {"later": "delayed"},
    ),
    "empty": (lambda b, q: b.put("queues", q, "empty"), {"later": "delayed"}),
    "obliterate": (
        lambda b, q: (b.put("queues", q, "pause"), b.put("queues", q, "obliterate")),
        {"good": "unknown", "bad": "unknown", "later": "unknown"},
    ),
}


@pytest.mark.parametrize("button", BUTTONS)
def test_a_button_does_on_our_queue_what_it_does_on_nodes(board: Served, ground: Ground, button: str) -> None:
    """case C107"""
    press, states = BUTTONS[button]
    twins = twins_of(ground, topic_of(button))
    with worked(twins):
        for side in twins:
            add(side, "good", {"give": {"n": 7}})
            reaches(side, good="completed")
            add(side, "bad", FAILING)
            reaches(side, bad="failed")
            add(side, "later", {"give": 1}, delay=HOUR_MS)
            press(board, side.keys.wire_name)
            rests(side)
            reaches(side, **states)
        alike(twins)
