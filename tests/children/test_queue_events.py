# SPDX-License-Identifier: MIT
"""The reader of event streams, against a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from echomq_pool.children.queue_events import QueueEvents
from echomq_pool.config.schema import PoolConfig, RedisConfig, WorkersConfig
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.messages import Cancel, Events, Failed, Linked, Ready
from tests.support.inprocess import InProcess
from tests.support.servers import Server
from tests.support.waiting import eventually_async

SEEN: list[Any] = []


def note(event: Any) -> None:
    """A hook that remembers."""
    SEEN.append(event)


async def note_async(event: Any) -> None:
    SEEN.append(event)


def explode(event: Any) -> None:
    SEEN.append(event)
    raise RuntimeError("the hook is broken")


@pytest.fixture(autouse=True)
def forget() -> None:
    SEEN.clear()


def config(server: Server, *queues: str, **hooks: str) -> PoolConfig:
    redis_config = RedisConfig(url=server.url, port=server.port)
    workers = WorkersConfig("w", tuple(queues), "x:y")
    return PoolConfig(redis=redis_config, workers=(workers,), hooks=hooks)


def emit(client: redis.Redis, queue: str, name: str, job_id: str, **fields: str) -> None:
    client.xadd(f"emq:{{{queue}}}:events", {"event": name, "jobId": job_id, **fields})


async def test_the_reader_is_ready_without_a_server_and_says_when_it_is_linked(valkey_server: Server) -> None:
    """promise 4.18, case C154"""
    async with InProcess(QueueEvents, config(valkey_server, "ready")) as child:
        assert isinstance(child.heard[0], Ready)
        linked = await eventually_async(lambda: [m for m in child.of(Linked) if m.connected])
        assert linked[0].client_ids
        assert "valkey" in linked[0].server
        assert await child.stop() == 0


async def test_a_cancel_event_is_forwarded_with_its_reason(valkey_server: Server, queue_name: str) -> None:
    """case C166"""
    with valkey_server.client() as client:
        async with InProcess(QueueEvents, config(valkey_server, queue_name)) as child:
            await eventually_async(lambda: child.board.position(0) != (0, 0))
            emit(client, queue_name, "cancel", "7", reason="no longer wanted")
            await eventually_async(lambda: child.of(Cancel))
            assert child.of(Cancel) == [Cancel(queue_name, "7", "no longer wanted")]


async def test_hooks_get_every_event_with_name_job_and_decoded_data(
    valkey_server: Server, queue_name: str
) -> None:
    """promise 4.18, 4.19"""
    hooks = {"on_completed": f"{__name__}:note", "on_failed": f"{__name__}:note_async"}
    with valkey_server.client() as client:
        async with InProcess(QueueEvents, config(valkey_server, queue_name, **hooks)) as child:
            await eventually_async(lambda: child.board.position(0) != (0, 0))
            emit(client, queue_name, "completed", "1", returnvalue='{"n": 1}', prev="active")
            emit(client, queue_name, "waiting", "2")
            emit(client, queue_name, "failed", "3", failedReason="no", prev="active")
            await eventually_async(lambda: len(SEEN) == 2)
            await eventually_async(lambda: child.of(Events))
    assert [(e.queue, e.name, e.job_id) for e in SEEN] == [
        (queue_name, "completed", "1"),
        (queue_name, "failed", "3"),
    ]
    assert SEEN[0].data == {"returnvalue": {"n": 1}, "prev": "active"}
    assert SEEN[1].data["failedReason"] == "no"
    assert child.of(Events)[0].counts[queue_name] == {"completed": 1, "waiting": 1, "failed": 1}


async def test_a_failing_hook_is_counted_and_harms_nobody(valkey_server: Server, queue_name: str) -> None:
    """promise 4.23"""
    with valkey_server.client() as client:
        hooks = {"on_failed": f"{__name__}:explode"}
        async with InProcess(QueueEvents, config(valkey_server, queue_name, **hooks)) as child:
            await eventually_async(lambda: child.board.position(0) != (0, 0))
            for n in range(3):
                emit(client, queue_name, "failed", str(n))
            await eventually_async(lambda: len(SEEN) == 3)
            await eventually_async(lambda: child.child.metrics.counters["hooks_failed|failed"] == 3)
            assert await child.stop() == 0


async def test_a_hook_that_cannot_be_loaded_stops_the_boot_and_names_itself(valkey_server: Server) -> None:
    """case C114, C051"""
    async with InProcess(QueueEvents, config(valkey_server, "q", on_failed="tests.nowhere:hook")) as child:
        assert await child.task == 13
        (failed,) = child.of(Failed)
        assert "on_failed" in failed.error
        assert "tests.nowhere" in failed.error


async def test_a_successor_goes_on_where_the_reader_stopped(valkey_server: Server, queue_name: str) -> None:
    """promise 4.18, case C121"""
    board = Board.create(8, 1)
    settings = config(valkey_server, queue_name, on_completed=f"{__name__}:note")
    with valkey_server.client() as client:
        emit(client, queue_name, "completed", "before it ever listened")
        async with InProcess(QueueEvents, settings, board=board):
            await eventually_async(lambda: board.position(0) != (0, 0))
            emit(client, queue_name, "completed", "first")
            await eventually_async(lambda: len(SEEN) == 1)
        emit(client, queue_name, "completed", "while nobody listened")
        async with InProcess(QueueEvents, settings, board=board):
            emit(client, queue_name, "completed", "last")
            await eventually_async(lambda: len(SEEN) == 3)
    assert [e.job_id for e in SEEN] == ["first", "while nobody listened", "last"]


async def test_nothing_is_lost_over_a_restart_of_the_server(
    own_server: Server, queue_name: str, tmp_path: Path
) -> None:
    """case C009, C121"""
    async with InProcess(
        QueueEvents, config(own_server, queue_name, on_completed=f"{__name__}:note")
    ) as child:
        await eventually_async(lambda: child.board.position(0) != (0, 0))
        with own_server.client() as client:
            emit(client, queue_name, "completed", "1")
            await eventually_async(lambda: len(SEEN) == 1)
        own_server.stop()
        own_server.start()
        with own_server.client() as client:
            emit(client, queue_name, "completed", "2")
        await eventually_async(lambda: len(SEEN) == 2)
        emitted = [e.job_id for e in SEEN]
        assert emitted == ["1", "2"]
