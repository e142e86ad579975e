# SPDX-License-Identifier: MIT
"""Recovery where processes and connections matter: CLIENT KILL, and the death of the supervisor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator

import pytest

from echomq_pool.children.base import EXIT_ORPHANED
from echomq_pool.children.orphans import Pidfds
from echomq_pool.ipc.messages import Recovered
from tests.children.holders import HOLDER, SLEEPER, clients, process, runs
from tests.children.stage import Stage, group, stage_on
from tests.support.servers import Server
from tests.support.waiting import eventually, eventually_async


@pytest.fixture
async def stage(server: Server, queue_name: str) -> AsyncIterator[Stage]:
    async with stage_on(server, group(queue_name, lease=30_000)) as stage:
        yield stage


# --- its connections --------------------------------------------------------------------------------------------


async def test_the_connections_of_a_dead_worker_are_cut_first(stage: Stage) -> None:
    """design section 3: nothing it sent can still be executed."""
    stage.add()
    worker = stage.worker()
    await worker.take()
    with stage.server.client() as left, stage.server.client() as other:
        mine, stranger = left.client_id(), other.client_id()
        worker.down(client_ids=[mine, 999_999_999])
        recovered = await stage.hears(Recovered)
        assert len(recovered.jobs) == 1
        assert mine not in clients(stage)
        assert stranger in clients(stage)


async def test_recovery_goes_on_without_permission_to_kill_clients(
    own_server: Server, queue_name: str
) -> None:
    """design section 3: the sweep is the net."""
    with own_server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-client|kill")
        async with stage_on(own_server, group(queue_name, lease=30_000)) as stage:
            stage.add()
            worker = stage.worker()
            await worker.take()
            worker.down(client_ids=[admin.client_id()])
            recovered = await stage.hears(Recovered)
            assert len(recovered.jobs) == 1
            assert stage.child.metrics.counters["client_kills_refused"] == 1
            assert admin.ping()


# --- the supervisor dies --------------------------------------------------------------------------------------------


async def test_when_the_supervisor_dies_the_last_worker_is_waited_for_killed_and_its_jobs_go_back(
    valkey_server: Server, queue_name: str
) -> None:
    """law 2, 9; case C065, C066, C067: nothing outlives it, nothing is lost, nothing counts as a stall."""
    async with stage_on(valkey_server, group(queue_name, lease=30_000)) as stage:
        stage.add(4)
        with (
            process(HOLDER, str(stage.server.port)) as dying,
            process(HOLDER, str(stage.server.port)) as stubborn,
        ):
            assert dying.stdout is not None
            assert stubborn.stdout is not None
            first, _ = map(int, dying.stdout.readline().split())
            second, grandchild = map(int, stubborn.stdout.readline().split())
            workers = [stage.worker(dying.pid).up([first]), stage.worker(stubborn.pid).up([second])]
            for worker in workers:
                await worker.take(2)
            dying.kill()
            started = time.monotonic()
            code = await stage.child.on_orphaned()
            took = time.monotonic() - started
            assert code == EXIT_ORPHANED
            assert took < 1.5
            assert not runs(stubborn.pid)
            await eventually_async(
                lambda: not runs(grandchild), why="killed with it, it needs a moment to end"
            )
            assert second not in clients(stage)
        assert len(stage.waiting()) == 4
        assert stage.active() == []
        assert [stage.field(job_id, "stc") for job_id in stage.waiting()] == [None] * 4


async def test_an_orphaned_lock_manager_leaves_in_time_when_the_server_is_gone_too(
    own_server: Server, queue_name: str
) -> None:
    """law 9"""
    async with stage_on(own_server, group(queue_name)) as stage:
        stage.worker()
        own_server.stop(kill=True)
        await eventually_async(lambda: not stage.child.links.links[0].connected)
        stage.child.pidfds.close()
        started = time.monotonic()
        assert await stage.child.on_orphaned() == EXIT_ORPHANED
        assert time.monotonic() - started < 3
        own_server.start()


async def test_a_pidfd_follows_one_process_and_no_successor() -> None:
    """case C045: a number that belongs to a stranger is neither waited for nor killed."""
    pidfds = Pidfds(os.getppid())
    pidfds.add("stranger", 1)
    assert not pidfds.alive("stranger")
    assert await pidfds.ended("stranger", 1)
    pidfds.kill("stranger")
    with process(SLEEPER) as child:
        pidfds.add("w", child.pid)
        pidfds.add("w", child.pid)
        assert pidfds.alive("w")
        assert not await pidfds.ended("w", 0.05)
        os.kill(child.pid, signal.SIGSTOP)
        assert pidfds.alive("w")
        pidfds.kill("w")
        assert await pidfds.ended("w", 5)
        eventually(lambda: child.poll() is not None)
    pidfds.close()
