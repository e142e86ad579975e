# SPDX-License-Identifier: MIT
"""What a producer or operator does with one job, on real servers."""

from __future__ import annotations

import pytest

from echomq_pool import InputError, Job, Queue, SyncQueue
from echomq_pool.errors import (
    DependenciesPending,
    JobLocked,
    JobMissing,
    LeaseLost,
    ParentMissing,
    WrongState,
)
from tests.support.planes import Bench


async def held(queue: Queue, bench: Bench) -> Job:
    """The next job, taken by hand."""
    taken = await bench.taken()
    return Job(taken.job, bench.plane, taken.token)


async def test_its_state_is_asked_by_name(queue: Queue, bench: Bench) -> None:
    job = await queue.add("n")
    assert await job.is_waiting()
    later = await queue.add("n", delay=60_000)
    assert (await later.is_delayed(), await later.is_waiting()) == (True, False)
    assert await (await queue.add("n", priority=3)).is_prioritized()
    mine = await held(queue, bench)
    assert await mine.is_active()
    await mine.move_to_completed(1)
    assert (await job.is_completed(), await job.is_failed(), await job.is_waiting_children()) == (
        True,
        False,
        False,
    )


async def test_a_delayed_job_is_promoted_or_moved_in_time(queue: Queue, bench: Bench) -> None:
    job = await queue.add("n", delay=60_000)
    await job.change_delay(5_000)
    assert bench.get(job.id)["delay"] == "5000"
    await job.promote()
    assert (await job.state(), job.delay) == ("waiting", 0)
    for again in (job.promote, lambda: job.change_delay(1)):
        with pytest.raises(WrongState) as caught:
            await again()
        assert (caught.value.code, caught.value.expected, caught.value.found) == (-3, "delayed", "waiting")
    with pytest.raises(InputError):
        await job.change_delay(-1)


async def test_a_priority_is_changed_in_place(queue: Queue) -> None:
    first, second = await queue.add("n", priority=5), await queue.add("n", priority=5)
    await second.change_priority(5, lifo=True)
    assert [job.id for job in await queue.get_prioritized()] == [second.id, first.id]
    await first.change_priority(0)
    assert await first.state() == "waiting"
    with pytest.raises(InputError):
        await first.change_priority(2**21)


async def test_a_finished_job_is_tried_again(queue: Queue, bench: Bench) -> None:
    job = await queue.add("n")
    await (await held(queue, bench)).move_to_failed(ValueError("no luck"))
    await job.refresh()
    assert (job.failed_reason, job.attempts_made) == ("no luck", 1)
    with pytest.raises(WrongState, match=r"expected completed, found failed"):
        await job.retry("completed")
    await job.retry(reset_attempts_made=True, reset_attempts_started=True)
    assert (job.failed_reason, job.attempts_made, job.attempts_started) == (None, 0, 0)
    await job.refresh()
    assert (job.failed_reason, job.attempts_made, await job.state()) == (None, 0, "waiting")
    with pytest.raises(InputError):
        await job.retry("active")


async def test_a_job_is_removed_unless_it_is_at_work(queue: Queue, bench: Bench) -> None:
    job = await queue.add("n")
    mine = await held(queue, bench)
    with pytest.raises(JobLocked):
        await job.remove()
    await mine.move_to_wait()
    await job.remove()
    assert not await job.refresh()
    with pytest.raises(JobMissing):
        await job.change_priority(1)


async def test_a_job_processed_by_hand_keeps_its_lock_and_brings_the_next(queue: Queue, bench: Bench) -> None:
    for job_id in ("a", "b"):
        await queue.add("n", job_id=job_id)
    mine = await held(queue, bench)
    await mine.extend_lock(duration_ms=90_000)
    assert bench.client.pttl(bench.keys.lock("a")) > 60_000
    with pytest.raises(LeaseLost):
        await mine.extend_lock("other:1")
    following = await mine.move_to_completed({"x": 1}, fetch_next=True)
    assert following is not None
    assert (following.id, following.token) == ("b", mine.token)
    assert await following.move_to_failed("no luck", stacktrace="line 1") is None
    assert bench.get("b")["stacktrace"] == '["line 1"]'
    gone = await queue.add("n", job_id="c")
    await gone.remove()
    with pytest.raises(JobMissing):
        await gone.move_to_completed(1, "some:1")
    with pytest.raises(InputError, match="not held"):
        await (await queue.add("n")).extend_lock()


# --- children ----------------------------------------------------------------------------------------


async def test_a_running_job_adds_children_and_waits_for_them(queue: Queue, bench: Bench) -> None:
    await queue.add("parent", job_id="P")
    parent = await held(queue, bench)
    for n in range(2):
        child = await queue.add("child", n, parent=parent, job_id=f"c{n}")
        assert child.parent_key == bench.keys.job("P")
    with pytest.raises(DependenciesPending):
        await parent.move_to_completed(None)
    assert await parent.move_to_waiting_children()
    assert await parent.is_waiting_children()
    assert await parent.get_dependencies_count() == {
        "processed": 0,
        "unprocessed": 2,
        "ignored": 0,
        "failed": 0,
    }
    for n in range(2):
        await (await held(queue, bench)).move_to_completed({"n": n})
    assert await parent.is_waiting()
    found = await parent.get_children_values()
    assert found == {bench.keys.job("c0"): {"n": 0}, bench.keys.job("c1"): {"n": 1}}
    again = await held(queue, bench)
    assert (again.id, await again.move_to_waiting_children()) == ("P", False)
    page = await queue.get_dependencies("P")
    assert page.total == 2
    assert dict(page.items) == found
    assert sorted(job.name for job in page.jobs if job) == ["child", "child"]


async def test_a_parent_sees_what_became_of_each_child(queue: Queue, bench: Bench) -> None:
    await queue.add("parent", job_id="P")
    parent = await held(queue, bench)
    fates = {
        "good": {},
        "ignored": {"ignore_dependency_on_failure": True},
        "bad": {"fail_parent_on_failure": True},
    }
    for job_id, fate in fates.items():
        await queue.add("child", parent={"id": "P", "queue": bench.keys.qualified}, job_id=job_id, **fate)
    await queue.add("child", parent=parent, job_id="open", delay=60_000)
    for _ in fates:
        child = await held(queue, bench)
        await (
            child.move_to_completed(1) if child.id == "good" else child.move_to_failed(f"{child.id} failed")
        )
    key = bench.keys.job
    found = await parent.get_dependencies()
    assert found.processed == {key("good"): 1}
    assert found.ignored == await parent.get_ignored_children_failures() == {key("ignored"): "ignored failed"}
    assert found.failed == await parent.get_failed_children() == [key("bad")]
    assert found.unprocessed == [key("open")]
    assert await parent.get_dependencies_count("processed", "failed") == {"processed": 1, "failed": 1}
    for kind in ("processed", "unprocessed", "ignored", "failed"):
        cursor, items = await parent.get_dependencies_page(kind, 0, 10)
        assert (cursor, len(items)) == (0, 1)
    pending = await queue.get_dependencies("P", "pending")
    assert [name for name, _ in pending.items] == [key("open")]
    with pytest.raises(InputError):
        await parent.get_dependencies_count("lost")


async def test_children_in_pages(queue: Queue, bench: Bench) -> None:
    await queue.add("parent", job_id="P")
    parent = await held(queue, bench)
    await queue.add_bulk([("child", n, {"parent": parent}) for n in range(300)])
    seen: list[str] = []
    cursor = -1
    while cursor:
        cursor, items = await parent.get_dependencies_page("unprocessed", max(cursor, 0), 50)
        seen += items
    assert len(set(seen)) == 300
    page = await queue.get_dependencies("P", "pending", 10, 29)
    assert (len(page.items), page.total) == (20, 300)


async def test_a_child_is_freed_from_its_parent(queue: Queue, bench: Bench) -> None:
    await queue.add("parent", job_id="P")
    parent = await held(queue, bench)
    child = await queue.add("child", parent=parent, job_id="c")
    await parent.move_to_waiting_children()
    assert await child.remove_child_dependency()
    assert not await child.remove_child_dependency()
    assert await parent.is_waiting()


async def test_unprocessed_children_go_without_their_parent(queue: Queue, bench: Bench) -> None:
    await queue.add("parent", job_id="P")
    parent = await held(queue, bench)
    await queue.add_bulk([("child", None, {"parent": parent, "job_id": f"c{n}"}) for n in range(3)])
    await (await held(queue, bench)).move_to_completed(1)
    await parent.remove_unprocessed_children()
    assert await parent.get_dependencies_count("unprocessed", "processed") == {
        "unprocessed": 0,
        "processed": 1,
    }
    assert await queue.get_job("c2") is None


async def test_a_parent_that_waits_in_vain_is_listed(queue: Queue, bench: Bench) -> None:
    """case C125"""
    await queue.add("parent", job_id="P")
    parent = await held(queue, bench)
    await queue.add_bulk([("child", None, {"parent": parent, "job_id": f"c{n}"}) for n in range(2)])
    await parent.move_to_waiting_children()
    assert await queue.get_blocked_parents() == []
    await (await held(queue, bench)).move_to_failed("no luck")
    (blocked,) = await queue.get_blocked_parents()
    assert (blocked.id, blocked.children) == ("P", [bench.keys.job("c0")])


async def test_a_parent_must_be_there(queue: Queue, bench: Bench) -> None:
    with pytest.raises(ParentMissing) as caught:
        await queue.add("child", parent={"id": "no", "queue": bench.keys.qualified})
    assert caught.value.code == -5
    for bad in ({"id": "P"}, {"id": "P", "queue": "plain"}, "P", {"id": "P", "queue": "a:b", "x": 1}):
        with pytest.raises(InputError, match="parent"):
            await queue.add("child", parent=bad)
    with pytest.raises(InputError, match="only one of"):
        await queue.add("n", fail_parent_on_failure=True, ignore_dependency_on_failure=True)
    with pytest.raises(InputError, match="deduplication"):
        await queue.add("n", parent={"id": "P", "queue": bench.keys.qualified}, deduplication={"id": "d"})


async def test_a_parent_of_another_is_not_taken_over(queue: Queue, bench: Bench) -> None:
    for job_id in ("P", "Q"):
        await queue.add("parent", job_id=job_id)
    one, other = await held(queue, bench), await held(queue, bench)
    await queue.add("child", job_id="c", parent=one)
    with pytest.raises(ParentMissing) as caught:
        await queue.add("child", job_id="c", parent=other)
    assert caught.value.code == -7


def test_the_synchronous_job_does_the_same(sync_queue: SyncQueue) -> None:
    job = sync_queue.add("n", {"x": 1}, delay=60_000)
    assert job.is_delayed()
    job.promote()
    job.change_priority(4)
    assert job.is_prioritized()
    job.log("row")
    job.clear_logs()
    job.update_data({"x": 2})
    job.update_progress(50)
    assert job.refresh()
    assert (job.data, job.progress, job.priority) == ({"x": 2}, 50, 4)
    assert job.get_children_values() == {}
    assert job.get_dependencies_count("failed") == {"failed": 0}
    with pytest.raises(WrongState):
        job.retry()
    with pytest.raises(InputError, match="not held"):
        job.move_to_wait()
    job.remove()
    assert not job.refresh()
