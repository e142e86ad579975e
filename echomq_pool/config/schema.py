# SPDX-License-Identifier: MIT
"""The configuration as every process sees it: frozen, complete, plain data, units in the names.

`load.py` makes it (once, in a short-lived process); `to_plain` and `from_plain` carry it over a pipe.
Nothing here imports a parser or a validator, so children stay small.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Files of the TLS client; empty = the system's defaults."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class RedisConfig:
    """Where the server is. `embedded` holds the data folder ("" = in memory) when the pool brings its own."""

    url: str = "redis://127.0.0.1:6379/0"
    host: str = "127.0.0.1"
    port: int = 6379
    unix_path: str = ""
    db: int = 0
    username: str = ""
    password: str = ""
    tls: TlsConfig | None = None
    sentinels: tuple[str, ...] = ()
    master: str = ""
    cluster: bool = False
    embedded: str | None = None
    connect_timeout_ms: int = 5_000
    command_timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class BackoffConfig:
    """Delay between restart attempts: 0, then initial · 2ⁿ up to max, ± jitter (a share of the delay)."""

    initial_ms: int = 100
    max_ms: int = 30_000
    jitter: float = 0.25


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """Root budget, stop and hang limits, control socket."""

    max_restarts: int = 3
    max_seconds: int = 300
    shutdown_timeout_ms: int = 25_000
    hang_timeout_ms: int = 30_000
    start_timeout_ms: int = 60_000
    backoff: BackoffConfig = field(default_factory=BackoffConfig)
    control: str = ""  # filled by load.py: a path in XDG_RUNTIME_DIR or the temporary folder


@dataclass(frozen=True, slots=True)
class InfraConfig:
    """Budget of the singletons together."""

    max_restarts: int = 5
    max_seconds: int = 60


@dataclass(frozen=True, slots=True)
class KeepConfig:
    """Retention of finished jobs. count -1 = no limit, 0 = remove at once; age_s 0 = no limit."""

    count: int = -1
    age_s: int = 0
    limit: int = 0


@dataclass(frozen=True, slots=True)
class LimiterConfig:
    """At most `max` starts per `duration_ms`, over all workers of the queue."""

    max: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class WorkersConfig:
    """One `[[workers]]` entry with the defaults filled in."""

    name: str
    queues: tuple[str, ...]
    processor: str = ""  # or tasks
    processes: int = 1
    processes_from: str = "configured"  # or where "auto" came from
    concurrency: int = 10
    lock_duration_ms: int = 30_000
    lock_renew_time_ms: int = 15_000
    renew_interval_ms: int = 0  # 0 = tick at half of lock_renew_time_ms
    stalled_interval_ms: int = 30_000
    max_stalled_count: int = 1
    timeout_ms: int = 0
    drain_delay_ms: int = 10_000
    max_jobs: int = 0
    max_jobs_jitter: float = 0.1
    max_memory: int = 0
    max_age_ms: int = 0
    remove_on_complete: KeepConfig = field(default_factory=KeepConfig)
    remove_on_fail: KeepConfig = field(default_factory=KeepConfig)
    limiter: LimiterConfig | None = None
    metrics_points: int = 0  # minutes of finished jobs per minute kept in the server; 0 = none
    preload: bool = False
    plane: str = "lock"  # lock | lease
    batch: int = 64  # lease plane: jobs per claim
    recovery: str = "sweep"  # lease plane: what becomes of lapsed leases; sweep counts them, reap does not
    strategy: str = "one_for_one"
    max_restarts: int = 0  # filled by load.py: 5 + processes
    max_seconds: int = 60
    tasks: tuple[str, ...] = ()  # modules with @task functions, by which jobs are routed
    middleware: tuple[str, ...] = ()  # modules or objects with on_start, on_success, on_failure

    @property
    def tick_ms(self) -> int:
        """Renewal tick: half of lock_renew_time, or the plain interval when one is set."""
        return self.renew_interval_ms or max(1, self.lock_renew_time_ms // 2)


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """One `[[schedulers]]` entry. Exactly one of `every_ms` and `pattern` is set."""

    id: str
    queue: str
    name: str
    every_ms: int = 0
    pattern: str = ""
    tz: str = ""
    offset_ms: int | None = None
    limit: int = 0
    start_ms: int = 0
    end_ms: int = 0
    data: str = "{}"  # JSON text
    opts: dict[str, Any] = field(default_factory=dict)
    plane: str = ""  # "" = that of the queue's workers, lock without any


@dataclass(frozen=True, slots=True)
class ObserverConfig:
    """Where HTTP is served; `bind` is "" when it is off."""

    bind: str = ""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Threshold and form of the log lines."""

    level: str = "info"
    format: str = "console"


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Everything that `pool.toml` says, checked and complete."""

    name: str = "pool"
    prefix: str = "emq"
    hash_tag: bool = True
    redis: RedisConfig = field(default_factory=RedisConfig)
    supervisor: SupervisorConfig = field(default_factory=SupervisorConfig)
    infra: InfraConfig = field(default_factory=InfraConfig)
    hooks: dict[str, str] = field(default_factory=dict)
    workers: tuple[WorkersConfig, ...] = ()
    schedulers: tuple[SchedulerConfig, ...] = ()
    observer: ObserverConfig = field(default_factory=ObserverConfig)
    log: LogConfig = field(default_factory=LogConfig)
    queue_order: tuple[str, ...] = ()  # queues whose places on the board are taken; a reload fills it

    def queues(self) -> tuple[str, ...]:
        """Every queue once, in the order of the file; its index is the queue's place on the board."""
        names = [q for w in self.workers for q in w.queues] + [s.queue for s in self.schedulers]
        return tuple(dict.fromkeys((*self.queue_order, *names)))

    def plane_of(self, queue: str) -> str:
        """`lock` or `lease`: the plane to which the configuration says that the queue belongs."""
        planes = [w.plane for w in self.workers if queue in w.queues]
        planes += [s.plane for s in self.schedulers if s.queue == queue and s.plane]
        return next(iter(planes), "lock")

    def group(self, name: str) -> WorkersConfig:
        """The `[[workers]]` entry called `name`.

        Raises:
            KeyError: there is none.
        """
        for workers in self.workers:
            if workers.name == name:
                return workers
        raise KeyError(name)


T = TypeVar("T")


def to_plain(config: PoolConfig) -> dict[str, Any]:
    """The configuration as JSON-able data."""
    return asdict(config)


def from_plain(cls: type[T], plain: dict[str, Any]) -> T:
    """Rebuilds a frozen configuration object from `to_plain` data."""
    hints = get_type_hints(cls)
    return cls(**{name: _revive(hint, plain[name]) for name, hint in hints.items() if name in plain})


def _revive(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(hint) is tuple:
        return tuple(_revive(get_args(hint)[0], item) for item in value)
    for candidate in (hint, *get_args(hint)):  # a dataclass, or one of "dataclass | None"
        kind: Any = candidate
        if is_dataclass(candidate) and isinstance(value, dict):
            return from_plain(kind, value)
    return value
