# SPDX-License-Identifier: MIT
"""The lock manager as a process of its own: killed, stopped, orphaned."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

from echomq_pool.children.stalled_checker import StalledChecker
from echomq_pool.config.schema import PoolConfig, to_plain
from echomq_pool.ipc.channel import Channel, pair
from echomq_pool.ipc.messages import Down, Message, Ready, Recovered, Stop
from tests.children.holders import HOLDER, process, runs
from tests.children.stage import LEASE, Stage, Worker, config_for, group, now_ms
from tests.support.servers import Server
from tests.support.waiting import eventually, eventually_async

MAIN = """
import json, socket, sys
from echomq_pool.children.entry import lock_manager
from echomq_pool.clock import SYSTEM_CLOCK
from echomq_pool.config.schema import PoolConfig, from_plain
from echomq_pool.ipc.board import Board
from echomq_pool.ipc.channel import Channel
from echomq_pool.ipc.context import ChildContext
channel, board, parent, config = sys.argv[1:]
sys.exit(lock_manager(ChildContext(
    "lock_manager", 1, 1, int(parent), from_plain(PoolConfig, json.loads(config)), {},
    Channel(socket.socket(fileno=int(channel))), Board.attach(int(board)), SYSTEM_CLOCK,
)))
"""


class Manager:
    """A lock manager process and our end of its channel."""

    def __init__(self, stage: Stage, config: PoolConfig) -> None:
        near, far = pair()
        self.channel = Channel(far)
        self.got: list[Message] = []
        fds = near.fileno(), stage.board.fd
        args = [*map(str, fds), str(os.getpid()), json.dumps(to_plain(config))]
        self.process = subprocess.Popen([sys.executable, "-c", MAIN, *args], pass_fds=fds)
        near.close()
        eventually(lambda: self.heard(Ready))

    def heard(self, kind: type[Message]) -> list[Message]:
        while frames := self.channel.receive():
            self.got += [frame.message() for frame in frames]
        return [message for message in self.got if isinstance(message, kind)]

    def on_message(self, message: Message) -> None:
        """What the stage tells its child goes over the channel."""
        self.channel.send(message)
        self.channel.flush()

    def end(self) -> int:
        self.process.kill()
        self.channel.close()
        return self.process.wait()


class Scene(Stage):
    """A stage whose planes belong to a StalledChecker here and whose lock manager is a process there."""

    manager: Manager

    def tell(self, message: Message) -> None:
        self.manager.on_message(message)

    def new_manager(self) -> None:
        """As the supervisor does after a death: everyone alive is introduced, and asked to tell all."""
        self.manager = Manager(self, self.config)

    def introduce(self, *workers: Worker) -> None:
        for worker in workers:
            worker.up()
            worker.retell()


@pytest.fixture
async def scene(valkey_server: Server, queue_name: str) -> AsyncIterator[Scene]:
    scene = Scene(valkey_server, config_for(valkey_server, group(queue_name)))
    await scene.start(StalledChecker)
    scene.new_manager()
    try:
        yield scene
    finally:
        scene.manager.end()
        await scene.crash()
        scene.client.close()


async def test_a_killed_lock_manager_comes_back_and_relearns_held_jobs(scene: Scene) -> None:
    """law 9; case C018, C025: killed at any instant, ten times in a row, under a sweep every 100 ms."""
    scene.add(4)
    worker = scene.worker()
    jobs = await worker.take(4)
    await eventually_async(lambda: scene.child.metrics.counters.get("sweeps", 0) >= 1)
    for _ in range(10):
        scene.manager.end()
        scene.new_manager()
        scene.introduce(worker)
        started = now_ms()
        while scene.board.pass_ms() < started:
            await asyncio.sleep(0.01)
        assert min(scene.lock_ttl(job.id) for job in jobs) > 0
    assert sorted(scene.active()) == sorted(job.id for job in jobs)
    assert scene.child.metrics.counters.get("stalled_jobs", 0) == 0


async def test_while_the_lock_manager_is_stopped_our_checker_takes_nothing_back(scene: Scene) -> None:
    """law 2, 3: SIGSTOP for three leases; here the worker does not renew for itself, so the locks do lapse."""
    scene.add()
    worker = scene.worker()
    (job,) = await worker.take()
    await eventually_async(lambda: scene.child.metrics.counters.get("sweeps", 0) >= 2)
    os.kill(scene.manager.process.pid, signal.SIGSTOP)
    await eventually_async(lambda: scene.lock_ttl(job.id) == -2)
    until = now_ms() + LEASE
    await eventually_async(lambda: now_ms() > until)
    assert scene.active() == [job.id]
    os.kill(scene.manager.process.pid, signal.SIGCONT)
    await eventually_async(lambda: scene.lock_ttl(job.id) > 0)  # taken back: same ats, still in active
    swept = scene.child.metrics.counters["sweeps"]
    await eventually_async(lambda: scene.child.metrics.counters["sweeps"] >= swept + 3)
    assert scene.active() == [job.id]
    assert scene.field(job.id, "stc") is None


async def test_renewal_does_not_share_a_loop_or_an_interpreter_with_anybody(scene: Scene) -> None:
    """law 1; promise 0.16; case C018: this process burns its CPU for three leases; the lease lives on."""
    scene.add()
    worker = scene.worker()
    (job,) = await worker.take()
    until = now_ms() + 3 * LEASE
    seen = []
    while now_ms() < until:  # no await: this loop stands still
        seen.append(scene.lock_ttl(job.id))
    assert min(seen) > 0


async def test_a_death_is_dealt_with_by_the_process_within_tens_of_milliseconds(scene: Scene) -> None:
    """law 1; case C027, C029: the target of the design with room for a busy machine."""
    took: list[float] = []
    for n in range(5):
        scene.add(3)
        worker = scene.worker()
        await worker.take(3)
        began = time.monotonic()
        worker.down()
        while len(scene.manager.heard(Recovered)) <= n:
            await asyncio.sleep(0.001)
        took.append((time.monotonic() - began) * 1000)
        assert len(scene.waiting()) == 3
        scene.client.delete(scene.keys[scene.queues[0]].key("wait"))
    assert sorted(took)[2] < 100, took


async def test_orphaned_it_buries_the_last_worker_gives_everything_back_and_leaves(scene: Scene) -> None:
    """law 9; case C065, C066, C067"""
    scene.add(3)
    with process(HOLDER, str(scene.server.port)) as stubborn:
        assert stubborn.stdout is not None
        client_id, grandchild = map(int, stubborn.stdout.readline().split())
        worker = scene.worker(stubborn.pid)
        worker.up([client_id])
        jobs = await worker.take(3)
        gone = time.monotonic()
        scene.manager.channel.close()
        assert scene.manager.process.wait(timeout=10) == 12
        assert time.monotonic() - gone < 2.5
        assert not runs(stubborn.pid)
        assert not runs(grandchild)
    assert scene.waiting() == [job.id for job in jobs]
    assert [scene.field(job.id, "stc") for job in jobs] == [None] * 3


async def test_asked_to_stop_it_leaves_with_zero(scene: Scene) -> None:
    """case C059: it is stopped by frame."""
    scene.manager.on_message(Stop(now_ms() + 2_000))
    assert scene.manager.process.wait(timeout=10) == 0


async def test_a_down_that_came_while_it_was_dead_is_dealt_with_by_its_successor(scene: Scene) -> None:
    """law 9"""
    scene.add(2)
    worker = scene.worker()
    await worker.take(2)
    scene.manager.end()
    scene.new_manager()
    scene.tell(Down(worker.id, worker.slot, list(scene.queues), [], False, "signal SIGKILL", []))
    await eventually_async(lambda: len(scene.waiting()) == 2)
    (recovered,) = eventually(lambda: scene.manager.heard(Recovered))
    assert isinstance(recovered, Recovered)
    assert len(recovered.jobs) == 2
