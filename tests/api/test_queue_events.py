# SPDX-License-Identifier: MIT
"""The reader of a queue's events, on real servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from echomq_pool import InputError, Job, Queue, QueueEvents
from echomq_pool.api.event_types import (
    Active,
    Added,
    Cleaned,
    Completed,
    Deduplicated,
    Delayed,
    Failed,
    Gap,
    Other,
    Progress,
    QueueEvent,
    Waiting,
)
from echomq_pool.api.gaps import UNKNOWN, GapFinder, StreamInfo
from tests.support.planes import Bench
from tests.support.servers import Server
from tests.support.waiting import eventually_async


async def collect(events: QueueEvents, until: type[QueueEvent], most: int = 100_000) -> list[QueueEvent]:
    """Iterates until an event of this type came."""
    found: list[QueueEvent] = []
    async with asyncio.timeout(20):
        async for event in events:
            found.append(event)
            if isinstance(event, until) or len(found) >= most:
                break
    return found


async def done(bench: Bench, value: Any = 1) -> None:
    taken = await bench.taken()
    await Job(taken.job, bench.plane, taken.token).move_to_completed(value)


async def test_events_are_typed_and_decoded(server: Server, queue: Queue, bench: Bench) -> None:
    async with QueueEvents(queue.name, url=server.url) as events:
        job = await queue.add("pay", deduplication={"id": "d"})
        await queue.add("pay", deduplication={"id": "d"})
        later = await queue.add("late", delay=60_000)
        await job.update_progress({"done": 5})
        await done(bench, {"ok": True})
        await queue.publish_event("hello", {"to": "you"})
        await queue.clean(0)
        found = await collect(events, Cleaned)
    kinds = [type(event) for event in found]
    assert kinds[:2] == [Added, Waiting]
    by_kind = {type(event): event for event in found if event.job_id != later.id}
    assert by_kind[Added].job_name == "pay"  # type: ignore[attr-defined]
    assert by_kind[Deduplicated].deduplication_id == "d"  # type: ignore[attr-defined]
    assert by_kind[Progress].progress == {"done": 5}  # type: ignore[attr-defined]
    assert by_kind[Active].prev == "waiting"  # type: ignore[attr-defined]
    completed = by_kind[Completed]
    assert isinstance(completed, Completed)
    assert (completed.returnvalue, completed.prev, completed.queue) == ({"ok": True}, "active", queue.name)
    other = by_kind[Other]
    assert isinstance(other, Other)
    assert (other.event, other.fields) == ("hello", {"to": "you"})
    due = next(event for event in found if isinstance(event, Delayed))
    assert due.due_ms == later.timestamp + 60_000


@pytest.mark.parametrize("round_", range(20))
async def test_nothing_is_missed_from_the_moment_it_is_entered(
    valkey_server: Server, queue_name: str, round_: int
) -> None:
    """case C119"""
    async with Queue(queue_name, url=valkey_server.url) as queue:
        async with QueueEvents(queue_name, url=valkey_server.url) as events:
            job = await queue.add("n")
            (first,) = await collect(events, Added, 1)
        assert (first.name, first.job_id) == ("added", job.id)


async def test_a_later_reader_goes_on_where_the_first_one_stopped(server: Server, queue: Queue) -> None:
    async with QueueEvents(queue.name, url=server.url) as events:
        await queue.add("n", job_id="a")
        await collect(events, Added)
        assert [event.name for event in await collect(events, Waiting)] == ["waiting"], (
            "a read is not cut short"
        )
        position = events.position
    await queue.add("n", job_id="b")
    async with QueueEvents(queue.name, url=server.url, last_event_id=position) as events:
        assert [event.job_id for event in await collect(events, Waiting)] == ["b", "b"]
    async with QueueEvents(queue.name, url=server.url, last_event_id="0-0") as events:
        assert [event.job_id for event in await collect(events, Waiting)] == ["a", "a"]


async def test_handlers_are_called_by_name_type_and_job(server: Server, queue: Queue, bench: Bench) -> None:
    seen: list[tuple[str, str]] = []

    async def later(event: Completed) -> None:
        await asyncio.sleep(0)
        seen.append(("completed", event.job_id))

    def broken(event: QueueEvent) -> None:
        raise ValueError("no luck")

    events = QueueEvents(queue.name, url=server.url)
    events.on("added", broken)
    events.on("added", lambda event: seen.append(("added", event.job_id)), job_id="b")
    async with events:
        events.on(Completed, later)
        for job_id in ("a", "b"):
            await queue.add("n", job_id=job_id)
        for _ in range(2):
            await done(bench)
        await eventually_async(lambda: len(seen) == 3)
        assert seen == [("added", "b"), ("completed", "a"), ("completed", "b")]
        events.off(Completed, later)
        with pytest.raises(InputError, match="not both"):
            await collect(events, Added)
    with pytest.raises(InputError, match="there is no 'complete'"):
        events.on("complete", broken)


async def test_a_reader_left_behind_tells_of_one_gap_and_how_wide_it_is(
    server: Server, queue_name: str, bench: Bench
) -> None:
    """case C124"""
    jobs = 500
    async with (
        Queue(queue_name, url=server.url, max_len_events=20) as queue,
        QueueEvents(queue_name, url=server.url) as events,
    ):
        await queue.add("n", job_id="first")
        assert len(await collect(events, Waiting)) == 2
        # Nobody reads while far more happens than the stream keeps.
        await queue.add_bulk([("n", None)] * jobs)
        for _ in range(jobs + 1):
            await done(bench)
        await queue.clean(0)
        found = await collect(events, Cleaned)
        with server.client() as client:
            added = client.xinfo_stream(queue.keys.key("events"))["entries-added"]
    gaps = [event for event in found if isinstance(event, Gap)]
    assert len(gaps) == 1
    assert found[0] is gaps[0]
    assert gaps[0].before == found[1].id
    assert 2 + gaps[0].lost + len(found) - 1 == added, "what was read and what was lost is all there ever was"


async def test_a_reader_that_keeps_step_never_tells_of_a_gap(server: Server, queue_name: str) -> None:
    """case C124"""
    async with Queue(queue_name, url=server.url) as queue, QueueEvents(queue_name, url=server.url) as events:
        reading = asyncio.create_task(collect(events, Failed, 2_000))
        for _ in range(10):
            await queue.add_bulk([("n", None)] * 100)
        found = await reading
    assert len(found) == 2_000
    assert not any(isinstance(event, Gap) for event in found)


async def test_reading_goes_on_after_the_server_was_away(own_server: Server, queue_name: str) -> None:
    """case C121"""
    async with (
        Queue(queue_name, url=own_server.url) as queue,
        QueueEvents(queue_name, url=own_server.url) as events,
    ):
        await queue.add("n", job_id="a")
        assert [event.job_id for event in await collect(events, Waiting)] == ["a", "a"]
        reading = asyncio.create_task(collect(events, Waiting))
        own_server.stop()
        own_server.start()
        await queue.add("n", job_id="b")
        assert [event.job_id for event in await reading] == ["b", "b"]


async def test_a_queue_thrown_away_and_begun_anew_is_no_gap(server: Server, queue: Queue) -> None:
    async with QueueEvents(queue.name, url=server.url) as events:
        await queue.add("n")
        await collect(events, Waiting)
        await queue.obliterate()
        await asyncio.sleep(0.01)  # ids are times in ms: an entry of the same one would count as read
        await queue.add("n", job_id="new")
        found = await collect(events, Waiting)
    assert [event.job_id for event in found] == ["new", "new"]


@pytest.mark.parametrize("bad", ["x", "1-b", 5])
def test_a_position_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(InputError, match="last_event_id"):
        QueueEvents("q", url="redis://127.0.0.1:1/0", last_event_id=bad)


def info(first: int, last: int, added: int | None) -> StreamInfo:
    return StreamInfo(last - first + 1 if first else 0, f"{last}-0", f"{first}-0" if first else "", added)


# position and its number, ids read, stream afterwards → missing
GAPS = [
    (10, 10, [11, 12], info(1, 12, 12), 0),
    (10, 10, [11, 12], info(11, 12, 12), 0),
    (10, 10, [15, 16], info(15, 16, 16), 4),
    (10, 10, [15, 16], info(16, 20, 20), 4),
    (10, 10, [15, 16], info(30, 40, 40), 17),  # 11–14 and 17–29: told once
    (10, 10, [11, 12], info(1, 40, 40), 0),
    (10, 10, [], info(0, 40, 40), 30),
    (10, 10, [11], info(5, 11, None), 0),
    (10, 10, [15], info(15, 15, None), UNKNOWN),
    (10, 10, [15], info(15, 15, 1), 0),  # a new stream
]


@pytest.mark.parametrize(("at", "number", "ids", "after", "missing"), GAPS)
def test_what_is_missing_is_counted(
    at: int, number: int, ids: list[int], after: StreamInfo, missing: int
) -> None:
    finder = GapFinder(f"{at}-0")
    finder.number = number
    assert finder.read([f"{n}-0" for n in ids], after) == missing
    if after.added and after.added > number:
        # Whatever was told, the next read starts from a true number.
        assert finder.read([], after) == 0
