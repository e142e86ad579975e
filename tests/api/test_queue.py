# SPDX-License-Identifier: MIT
"""The asynchronous producer on real servers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from echomq_pool import InputError, JobFailed, Queue, WaitTimeout
from echomq_pool.errors import JobMissing, LinkDown, SlotTaken
from echomq_pool.plane.base import Taken
from tests.support.planes import Bench
from tests.support.servers import Server
from tests.support.waiting import eventually_async

# --- adding ------------------------------------------------------------------------------------------


async def test_a_job_is_stored_as_node_stores_it(queue: Queue, bench: Bench) -> None:
    """law 12"""
    job = await queue.add("pay", {"x": 1}, attempts=3, backoff=250, timestamp=1_795_981_509_107)
    assert (job.id, job.name, job.data) == ("1", "pay", {"x": 1})
    stored = bench.get("1")
    assert json.loads(stored.pop("opts")) == {
        "attempts": 3,
        "backoff": {"type": "fixed", "delay": 250},
        "timestamp": 1_795_981_509_107,
    }
    assert stored == {
        "name": "pay",
        "data": '{"x":1}',
        "timestamp": "1795981509107",
        "delay": "0",
        "priority": "0",
    }
    assert bench.get("wait") == ["1"]
    assert bench.get("events") == ["added jobId=1 name=pay", "waiting jobId=1"]


@pytest.mark.parametrize(
    ("options", "state"),
    [({}, "waiting"), ({"priority": 3}, "prioritized"), ({"delay": 60_000}, "delayed"),
     ({"delay": 60_000, "priority": 3}, "delayed")],
)  # fmt: skip
async def test_options_choose_where_a_job_goes(queue: Queue, options: dict[str, Any], state: str) -> None:
    assert await (await queue.add("n", **options)).state() == state


async def test_lifo_goes_to_the_front(queue: Queue, bench: Bench) -> None:
    for job_id in ("a", "b"):
        await queue.add("n", job_id=job_id)
    await queue.add("n", job_id="c", lifo=True)
    assert bench.get("wait") == ["b", "a", "c"]


async def test_a_very_long_delay_is_kept(queue: Queue, bench: Bench) -> None:
    """case C088"""
    day = 86_400_000
    for job_id, delay in (("forty-days", 40 * day), ("ten-years", 3_650 * day)):
        job = await queue.add("n", job_id=job_id, delay=delay)
        score = bench.client.zscore(bench.keys.key("delayed"), job_id)
        assert score is not None
        assert score // 4096 == job.timestamp + delay
    nothing = await bench.nothing()
    assert nothing.next_due_ms > 0
    assert await queue.get_state("forty-days") == "delayed"


async def test_an_id_is_added_once(queue: Queue, bench: Bench) -> None:
    first, second = await queue.add("n", 1, job_id="once"), await queue.add("n", 2, job_id="once")
    assert first.id == second.id == "once"
    assert bench.get("once")["data"] == "1"
    assert bench.get("wait") == ["once"]


async def test_deduplication_answers_with_the_owner(queue: Queue) -> None:
    first = await queue.add("n", deduplication={"id": "d"})
    assert (await queue.add("n", deduplication={"id": "d"})).id == first.id


async def test_nothing_is_stored_when_an_option_is_refused(queue: Queue, bench: Bench) -> None:
    """case C141, C142, C144, law 13"""
    for options in (
        {"job_id": "a:b"},
        {"job_id": "123"},
        {"delay": "1200"},
        {"attempts": "3"},
        {"size_limit": 1},
    ):
        with pytest.raises(InputError):
            await queue.add("n", {}, **options)
    with pytest.raises(InputError, match="NaN"):
        await queue.add("n", {"a": float("nan")})
    with pytest.raises(InputError, match="job 1: attempts"):
        await queue.add_bulk([("a", 1), ("b", 2, {"attempts": "3"})])
    assert bench.dump() == {}


async def test_many_are_added_in_their_order(queue: Queue, bench: Bench) -> None:
    jobs: list[Any] = [{"name": "n", "data": n, "opts": {"attempts": 2}} for n in range(2_500)]
    added = await queue.add_bulk(jobs)
    assert [job.id for job in added] == [str(n) for n in range(1, 2_501)]
    assert bench.get("wait") == [str(n) for n in reversed(range(1, 2_501))]
    assert bench.get("2500")["data"] == "2499"


VALUES = [
    "foo",
    ["a"],
    None,
    True,
    0,
    "",
    {"k": 1},
    {"id": 9007199254740993, "f": 0.1, "s": "\x00x"},
    "💥 中文",
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_data_passes_through_every_transition_byte_by_byte(
    queue: Queue, bench: Bench, value: Any
) -> None:
    """case C104, C109, C110"""
    job = await queue.add("💥 中文", value, attempts=9)
    stored = bench.get(job.id)["data"]
    assert json.loads(stored) == value or value is None
    taken = await bench.taken()
    await bench.plane.retry(taken.job, taken.token, "é", ["trace"])
    taken = await bench.taken()
    await bench.plane.delay(taken.job, taken.token, 0)
    taken = await bench.taken()
    await bench.plane.recover(bench.owner, planned=False)
    taken = await bench.taken()
    assert bench.get(job.id)["data"] == stored
    assert taken.job.data.decode() == stored


async def test_a_lone_surrogate_travels_as_its_escape(queue: Queue, bench: Bench) -> None:
    """case C110"""
    job = await queue.add("a\ud800", {"s": "\ud83d"})
    taken = await bench.taken()
    assert taken.job.name == "a\ufffd"
    assert bench.get(job.id)["data"] == '{"s":"\\ud83d"}'
    found = await queue.get_job(job.id)
    assert found is not None
    assert found.data == {"s": "\ud83d"}


async def test_any_argument_of_any_kind_is_packed_or_refused_by_us(queue: Queue) -> None:
    """case C108"""
    for value in (True, False, 0, 1, "x", 1.5):
        for name in ("lifo", "attempts", "delay", "remove_on_complete", "keep_logs", "job_id", "priority"):
            try:
                await queue.add("n", value, **{name: value})
            except InputError:
                continue


# --- waiting (cases C119 to C122) ---------------------------------------------------------------------


async def test_a_wait_returns_the_value(queue: Queue, bench: Bench) -> None:
    job = await queue.add("n")
    wait = asyncio.create_task(job.wait_until_finished(10))
    taken = await bench.taken()
    await bench.plane.complete(taken.job, taken.token, b'{"ok":[1]}')
    assert await wait == {"ok": [1]}
    assert await queue.wait_until_finished(job.id) == {"ok": [1]}, "and again, when it is long over"


async def test_a_wait_raises_the_failed_reason(queue: Queue, bench: Bench) -> None:
    job = await queue.add("n")
    wait = asyncio.create_task(queue.wait_until_finished(job.id, 10))
    taken = await bench.taken()
    await bench.plane.fail(taken.job, taken.token, "boom", [])
    with pytest.raises(JobFailed, match="boom"):
        await wait


async def test_a_wait_for_an_unknown_job_ends_at_once(queue: Queue) -> None:
    """case C122"""
    with pytest.raises(JobMissing):
        await queue.wait_until_finished("unknown", 10)


async def test_a_wait_ends_when_its_job_is_removed(queue: Queue, bench: Bench) -> None:
    """case C122"""
    job = await queue.add("n", delay=60_000)
    wait = asyncio.create_task(queue.wait_until_finished(job.id, 20))
    await eventually_async(lambda: _readers(bench), why="the wait reads events")
    pipe = bench.client.pipeline()
    pipe.zrem(bench.keys.key("delayed"), job.id)
    pipe.delete(bench.keys.job(job.id))
    pipe.xadd(bench.keys.key("events"), {"event": "removed", "jobId": job.id, "prev": "delayed"})
    pipe.execute()
    async with asyncio.timeout(1):
        with pytest.raises(JobMissing, match="removed"):
            await wait


async def test_a_wait_ends_by_its_timeout(queue: Queue) -> None:
    """case C122"""
    job = await queue.add("n")
    with pytest.raises(WaitTimeout, match=job.id):
        await job.wait_until_finished(0.05)


async def test_fifty_waits_at_a_time_for_very_quick_jobs_all_end(queue: Queue, bench: Bench) -> None:
    """case C119, C120"""
    stop = asyncio.Event()

    async def worker() -> None:
        while not stop.is_set():
            token = bench.token()
            found: Any = await bench.plane.take(token)
            while isinstance(found, Taken):
                found = await bench.plane.complete(found.job, token, found.job.data, fetch=True)

    task = asyncio.create_task(worker())
    try:
        for turn in range(10):

            async def one(n: int) -> None:
                job = await queue.add("n", n)
                assert await job.wait_until_finished(20) == n

            await asyncio.gather(*(one(turn * 50 + n) for n in range(50)))
    finally:
        stop.set()
        await task


async def test_waits_survive_a_restart_of_the_server(own_server: Server, queue_name: str) -> None:
    """case C121"""
    async with Queue(queue_name, url=own_server.url) as queue:
        jobs = [await queue.add("n", n, job_id=f"j{n}") for n in range(10)]
        waits = [asyncio.create_task(job.wait_until_finished(60)) for job in jobs]
        await eventually_async(lambda: queue._watch._reader is not None)
        await asyncio.to_thread(own_server.stop)
        await asyncio.to_thread(own_server.start)
        with own_server.client() as client:
            base = queue.keys.base
            for job in jobs:  # finished by somebody else while our connection is still away
                client.lrem(base + "wait", 1, job.id)
                client.hset(base + job.id, mapping={"returnvalue": f'"{job.id}"', "finishedOn": 1})
                client.zadd(base + "completed", {job.id: 1})
                client.xadd(
                    base + "events", {"event": "completed", "jobId": job.id, "returnvalue": f'"{job.id}"'}
                )
        async with asyncio.timeout(15):
            assert await asyncio.gather(*waits) == [job.id for job in jobs]


async def test_a_reader_that_loses_its_connection_misses_no_event(queue: Queue, bench: Bench) -> None:
    """promise 4.18, case C121"""
    jobs = await queue.add_bulk([{"name": "n", "opts": {"remove_on_complete": True}} for _ in range(200)])
    waits = [asyncio.create_task(job.wait_until_finished(30)) for job in jobs]
    await eventually_async(lambda: _readers(bench), why="the waits read events")
    token = bench.token()
    found: Any = await bench.plane.take(token)
    for number in range(200):
        if number % 20 == 10:
            for client in bench.client.client_list():
                if client["name"].endswith(":qe"):
                    bench.client.client_kill_filter(_id=client["id"])
        # The job is gone as soon as it is done: only its event tells the value.
        found = await bench.plane.complete(found.job, token, str(number).encode(), fetch=True)
    results = await asyncio.gather(*waits, return_exceptions=True)
    assert results == list(range(200))


async def test_a_closed_queue_leaves_no_wait_hanging(server: Server, queue_name: str) -> None:
    async with Queue(queue_name, url=server.url) as queue:
        job = await queue.add("n")
        wait = asyncio.create_task(job.wait_until_finished())
        await eventually_async(lambda: queue._watch._reader is not None)
    with pytest.raises((asyncio.CancelledError, LinkDown)):
        await wait


def _readers(bench: Bench) -> bool:
    return any(c["cmd"] == "xread" and c["name"].endswith(":qe") for c in bench.client.client_list())


# --- the queue as a whole --------------------------------------------------------------------------------


async def test_pause_and_resume(queue: Queue, bench: Bench) -> None:
    await queue.add("n")
    await queue.pause()
    assert await queue.is_paused()
    await bench.nothing()
    bench.client.rpush(bench.keys.key("paused"), "parked")
    assert (await queue.counts("waiting"))["waiting"] == 2, "what an older client parked is waiting, too"
    await queue.resume()
    assert not await queue.is_paused()
    assert sorted(bench.get("wait")) == ["1", "parked"]


async def test_counts_of_every_state(queue: Queue, bench: Bench) -> None:
    await queue.add_bulk([("a", None, {"delay": 60_000}), ("b", None, {"priority": 1}), ("c", 1)])
    await bench.taken()
    assert await queue.counts() == {
        "active": 1, "completed": 0, "delayed": 1, "failed": 0, "prioritized": 1, "waiting": 0,
        "waiting-children": 0,
    }  # fmt: skip
    with pytest.raises(InputError, match="no state"):
        await queue.counts("activ")


async def test_a_cancellation_is_an_event_of_its_own(queue: Queue, bench: Bench) -> None:
    job = await queue.add("n")
    await job.cancel("not needed any more")
    assert bench.get("events")[-1] == f"cancel jobId={job.id} reason=not needed any more"


async def test_limits_are_written_whole_or_not_at_all(queue: Queue, bench: Bench) -> None:
    await queue.set_global_concurrency(3)
    await queue.set_global_rate_limit(10, 1_000)
    assert {k: v for k, v in bench.get("meta").items() if k != "opts.maxLenEvents"} == {
        "concurrency": "3",
        "max": "10",
        "duration": "1000",
    }
    with pytest.raises(InputError, match="belong together"):
        await queue.set_global_rate_limit(10)
    await queue.set_global_concurrency(None)
    await queue.set_global_rate_limit(None)
    assert set(bench.get("meta") or {}) <= {"opts.maxLenEvents"}


# --- schedulers --------------------------------------------------------------------------------------


async def test_a_series_is_made_seen_repaired_and_removed(queue: Queue, bench: Bench) -> None:
    """promise 4.16"""
    job = await queue.upsert_job_scheduler(
        "s", every=60_000, data={"x": 1}, name="tick", opts={"attempts": 2}
    )
    assert job is not None
    assert (job.name, job.data, job.opts["attempts"]) == ("tick", {"x": 1}, 2)
    record = await queue.get_job_scheduler("s")
    assert record is not None
    assert (record.name, record.every_ms, job.id) == ("tick", 60_000, f"repeat:s:{record.next_ms}")
    assert await queue.get_job_scheduler_ids() == ["s"]
    assert await queue.repair_job_scheduler("s") == ("alive", job.id)
    assert await queue.remove_job_scheduler("s")
    assert not await queue.remove_job_scheduler("s")
    assert await queue.get_job_scheduler("s") is None


async def test_a_pattern_runs_at_its_next_instant(queue: Queue) -> None:
    """promise 4.17"""
    job = await queue.upsert_job_scheduler("s", pattern="0 0 29 2 *", tz="UTC")
    assert job is not None
    assert await job.state() == "delayed"
    assert job.opts["prevMillis"] == int(job.id.rpartition(":")[2])
    assert (
        await queue.upsert_job_scheduler("t", pattern="0 0 29 2 *", tz="UTC", end=job.timestamp + 60_000)
        is None
    )


async def test_a_pattern_whose_slot_is_taken_says_so(queue: Queue, bench: Bench) -> None:
    job = await queue.upsert_job_scheduler("s", pattern="0 0 29 2 *", tz="UTC")
    assert job is not None
    bench.client.zrem(bench.keys.key("delayed"), job.id)
    bench.client.zadd(bench.keys.key("completed"), {job.id: 1})
    with pytest.raises(SlotTaken):
        await queue.upsert_job_scheduler("s", pattern="0 0 29 2 *", tz="UTC")


# --- errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "embedded", "http://x", "localhost"])
def test_a_producer_never_falls_back_to_a_server_in_silence(url: str) -> None:
    with pytest.raises(InputError):
        Queue("q", url=url)


async def test_an_add_whose_reply_is_lost_is_told_as_doubtful(queue: Queue) -> None:
    """law 6"""
    await queue.add("n")

    class Lossy:
        def __init__(self, link: Any) -> None:
            self.link, self.calls = link, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.link, name)

        def script(self, script: Any, keys: Any, args: Any) -> Any:
            self.calls += 1
            return self._lose(script, keys, args)

        async def _lose(self, script: Any, keys: Any, args: Any) -> Any:
            reply = await self.link.script(script, keys, args)
            if self.calls == 1:
                raise LinkDown("the reply was lost", sent=True)
            return reply

    lossy = Lossy(queue._link)
    queue._link = lossy  # type: ignore[assignment]
    with pytest.raises(LinkDown) as caught:
        await queue.add("n")
    assert caught.value.sent
    assert lossy.calls == 1
    lossy.calls = 0
    assert (await queue.add("n", job_id="own")).id == "own", "with an id of its own it is simply sent again"
    assert lossy.calls == 2
