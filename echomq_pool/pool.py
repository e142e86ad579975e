# SPDX-License-Identifier: MIT
"""From a configuration to a running tree: the only file that knows every part.

    root                one_for_one, budget [supervisor]
    ├── valkey          with redis.url = "embedded" only
    ├── infra           one_for_one, budget [infra]: the singletons, and one zygote per preloaded group
    └── <group> …       one pool per [[workers]] entry, its own strategy and budget

Stop order is start order reversed: workers, then infra, then the server. The two that nobody waits for
(stalled_checker, job_scheduler) are asked at once.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from echomq_pool import __version__, log
from echomq_pool.config.schema import BackoffConfig, PoolConfig, RedisConfig, WorkersConfig
from echomq_pool.errors import PoolError
from echomq_pool.ipc.board import Board
from echomq_pool.supervisor.core import Supervisor
from echomq_pool.supervisor.loader import Loader
from echomq_pool.supervisor.spec import Backoff, ChildSpec, GroupSpec, Spec, Strategy
from echomq_pool.supervisor.titles import set_title

logger = logging.getLogger("echomq.pool")

ENTRY = "echomq_pool.children.entry:"
ZYGOTE = "echomq_pool.supervisor.zygote:serve"
LOAD = "echomq_pool.config.load:load"
SPARE_QUEUES = 16  # a reload may add queues; their places on the board are made at the start
EXIT_BOOT_FAILED = 13
SPARE_SLOTS = 64  # for scaling up, heirs and reloads; a slot is 40 bytes and 8 more per queue
GRACE_AFTER_STOP_MS = 3_000  # the singletons' share of the stop, after the workers' deadline


def run(path: Path) -> int:
    """Reads the configuration, becomes the supervisor, and returns the program's exit code when the pool has ended.

    Raises:
        ConfigError: the configuration cannot be used; nothing was started.
    """
    config = _reading(path).wait()
    log.setup(config.log.level, config.log.format, process="supervisor", own_fd=True)
    set_title(f"echomq: {config.name} supervisor")
    _announce(config)
    board = Board.create(slots(config), 2 * len(config.queues()) + SPARE_QUEUES)
    try:
        supervisor = Supervisor(
            config, tree, board, reload=lambda: _reading(path), control=config.supervisor.control
        )
    except PoolError as error:
        logger.error("%s", error)
        return EXIT_BOOT_FAILED
    return supervisor.run()


def _reading(path: Path) -> Loader:
    return Loader(LOAD, [path, dict(os.environ)])


def _announce(config: PoolConfig) -> None:
    """What was understood, in a few lines; the server says its name once a child is linked to it."""
    logger.info("echomq-pool %s, pool %s, pid %d", __version__, config.name, os.getpid())
    logger.info(
        "server %s, prefix %s, control socket %s",
        where(config.redis),
        config.prefix,
        config.supervisor.control,
    )
    for workers in config.workers:
        logger.info(
            "group %s: %d processes (%s) x concurrency %d on %s",
            workers.name, workers.processes, workers.processes_from, workers.concurrency, ", ".join(workers.queues),
        )  # fmt: skip
    for scheduler in config.schedulers:
        every = scheduler.pattern or f"every {scheduler.every_ms} ms"
        logger.info("schedule %s: %s into %s", scheduler.id, every, scheduler.queue)


def where(redis: RedisConfig) -> str:
    """The server's address without its secrets."""
    if redis.embedded is not None:
        return f"embedded ({redis.embedded or 'in memory'}) on unix://{redis.unix_path}"
    if redis.sentinels:
        return f"{redis.master} by sentinels {', '.join(redis.sentinels)}"
    scheme = "rediss" if redis.tls is not None else "redis"
    return redis.unix_path or f"{scheme}://{redis.host}:{redis.port}/{redis.db}"


def tree(config: PoolConfig, generation: int = 0) -> GroupSpec:
    """The specification of the whole tree."""
    children: list[Spec] = [_infra(config, generation)]
    if config.redis.embedded is not None:
        children.insert(0, _child(config, "valkey", "embedded_server"))
    children += [_workers(config, workers, generation) for workers in config.workers]
    supervisor = config.supervisor
    return GroupSpec(
        "root",
        children=tuple(children),
        max_restarts=supervisor.max_restarts,
        period_ms=supervisor.max_seconds * 1_000,
        generation=generation,
    )


def slots(config: PoolConfig) -> int:
    """How many places the board needs: every process twice (heirs), and room to scale."""
    return 2 * sum(w.processes for w in config.workers) + SPARE_SLOTS


def _infra(config: PoolConfig, generation: int) -> GroupSpec:
    children = [
        _child(config, "queue_events", generation=generation),
        _lock_manager(config, generation),
        _child(config, "stalled_checker", generation=generation, stop_first=True),
        _child(config, "job_scheduler", generation=generation, stop_first=True),
    ]
    if config.observer.bind:
        children.append(_child(config, "observer", generation=generation))
    children += [_zygote(config, w, generation) for w in config.workers if w.preload]
    return GroupSpec(
        "infra",
        children=tuple(children),
        max_restarts=config.infra.max_restarts,
        period_ms=config.infra.max_seconds * 1_000,
        backoff=_backoff(config.supervisor.backoff),
    )


def _child(
    config: PoolConfig, name: str, entry: str = "", *, generation: int = 0, stop_first: bool = False
) -> ChildSpec:
    return ChildSpec(
        name,
        ENTRY + (entry or name),
        shutdown=GRACE_AFTER_STOP_MS,
        start_timeout_ms=config.supervisor.start_timeout_ms,
        backoff=_backoff(config.supervisor.backoff),
        generation=generation,
        stop_first=stop_first,
    )


def _lock_manager(config: PoolConfig, generation: int) -> ChildSpec:
    """Leases wait for this one: it must be back well within the shortest of them."""
    shortest = min((w.lock_duration_ms for w in config.workers), default=30_000)
    backoff = config.supervisor.backoff
    return ChildSpec(
        "lock_manager",
        ENTRY + "lock_manager",
        shutdown=GRACE_AFTER_STOP_MS,
        start_timeout_ms=config.supervisor.start_timeout_ms,
        backoff=Backoff(backoff.initial_ms, min(backoff.max_ms, shortest // 4), backoff.jitter),
        generation=generation,
    )


def _zygote(config: PoolConfig, workers: WorkersConfig, generation: int) -> ChildSpec:
    return ChildSpec(
        f"zygote-{workers.name}",
        ZYGOTE,
        args={"group": workers.name},
        shutdown=GRACE_AFTER_STOP_MS,
        start_timeout_ms=config.supervisor.start_timeout_ms,
        backoff=_backoff(config.supervisor.backoff),
        generation=generation,
        surge=True,  # at a reload the new code is imported before the old workers go
    )


def _workers(config: PoolConfig, workers: WorkersConfig, generation: int) -> GroupSpec:
    template = ChildSpec(
        workers.name,
        ENTRY + "worker",
        args={"group": workers.name},
        shutdown="infinity",  # until the deadline of the whole stop
        start_timeout_ms=config.supervisor.start_timeout_ms,
        backoff=_backoff(config.supervisor.backoff),
        generation=generation,
        spawner=f"zygote:{workers.name}" if workers.preload else "fork",
    )
    # A pool without mutual restarts has no order either: its children stop together under one timer.
    alone = workers.strategy == "one_for_one"
    return GroupSpec(
        workers.name,
        strategy=Strategy.DYNAMIC if alone else Strategy(workers.strategy),
        template=template,
        count=workers.processes,
        max_restarts=workers.max_restarts,
        period_ms=workers.max_seconds * 1_000,
        backoff=_backoff(config.supervisor.backoff),
        generation=generation,
        stop_first=True,  # every group drains from the first moment of a stop, not one after the other
    )


def _backoff(config: BackoffConfig) -> Backoff:
    return Backoff(config.initial_ms, config.max_ms, config.jitter)
