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

from echomq_pool.config.schema import BackoffConfig, PoolConfig, WorkersConfig
from echomq_pool.supervisor.spec import Backoff, ChildSpec, GroupSpec, Spec, Strategy

ENTRY = "echomq_pool.children.entry:"
ZYGOTE = "echomq_pool.supervisor.zygote:serve"
SPARE_SLOTS = 64  # for scaling up, heirs and reloads; a slot is 32 bytes and 8 more per queue
GRACE_AFTER_STOP_MS = 3_000  # the singletons' share of the stop, after the workers' deadline


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
        _child(config, "queue_events"),
        _lock_manager(config),
        _child(config, "stalled_checker", stop_first=True),
        _child(config, "job_scheduler", stop_first=True),
    ]
    if config.observer.bind:
        children.append(_child(config, "observer"))
    children += [_zygote(config, w, generation) for w in config.workers if w.preload]
    return GroupSpec(
        "infra",
        children=tuple(children),
        max_restarts=config.infra.max_restarts,
        period_ms=config.infra.max_seconds * 1_000,
        backoff=_backoff(config.supervisor.backoff),
    )


def _child(config: PoolConfig, name: str, entry: str = "", *, stop_first: bool = False) -> ChildSpec:
    return ChildSpec(
        name,
        ENTRY + (entry or name),
        shutdown=GRACE_AFTER_STOP_MS,
        start_timeout_ms=config.supervisor.start_timeout_ms,
        backoff=_backoff(config.supervisor.backoff),
        stop_first=stop_first,
    )


def _lock_manager(config: PoolConfig) -> ChildSpec:
    """Leases wait for this one: it must be back well within the shortest of them."""
    shortest = min((w.lock_duration_ms for w in config.workers), default=30_000)
    backoff = config.supervisor.backoff
    return ChildSpec(
        "lock_manager",
        ENTRY + "lock_manager",
        shutdown=GRACE_AFTER_STOP_MS,
        start_timeout_ms=config.supervisor.start_timeout_ms,
        backoff=Backoff(backoff.initial_ms, min(backoff.max_ms, shortest // 4), backoff.jitter),
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
    )


def _backoff(config: BackoffConfig) -> Backoff:
    return Backoff(config.initial_ms, config.max_ms, config.jitter)
