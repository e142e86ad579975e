# SPDX-License-Identifier: MIT
"""What may stand in `pool.toml`, table by table: every key, its kind and its range. Unknown keys are errors.

Only what was written is set; `build.py` fills in the defaults of `schema.py`, which are the only ones.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from echomq_pool.config import kinds
from echomq_pool.config.schema import KeepConfig

DAY_MS = 86_400_000

Text = Annotated[str, BeforeValidator(kinds.text)]
Name = Annotated[str, BeforeValidator(kinds.name)]
QueueName = Annotated[str, BeforeValidator(kinds.queue)]
Dotted = Annotated[str, BeforeValidator(kinds.dotted)]
Flag = Annotated[bool, BeforeValidator(kinds.flag)]
Share = Annotated[float, BeforeValidator(kinds.share)]
Size = Annotated[int, BeforeValidator(kinds.size)]
Moment = Annotated[int, BeforeValidator(kinds.moment)]
Restarts = Annotated[int, BeforeValidator(kinds.whole(0, 100_000))]
Seconds = Annotated[int, BeforeValidator(kinds.whole(1, 86_400))]
Count = Annotated[int, BeforeValidator(kinds.whole(0, 1_000_000_000))]
AtLeastOne = Annotated[int, BeforeValidator(kinds.whole(1, 1_000_000_000))]
AnyDuration = Annotated[int, BeforeValidator(kinds.duration(0))]
Short = Annotated[int, BeforeValidator(kinds.duration(10, 600_000))]
Patience = Annotated[int, BeforeValidator(kinds.duration(100, DAY_MS))]
Lease = Annotated[int, BeforeValidator(kinds.duration(100, DAY_MS))]
Plane = Annotated[str, BeforeValidator(kinds.word("lock", "lease"))]
Period = Annotated[int, BeforeValidator(kinds.duration(10))]


class Table(BaseModel):
    """A table of the file: no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tls(Table):
    ca_file: Text = ""
    cert_file: Text = ""
    key_file: Text = ""
    verify: Flag = True


class Redis(Table):
    url: Text = ""
    username: Text = ""
    password: Text = ""
    password_file: Text = ""
    tls: Tls | None = None
    sentinels: list[Text] = Field(default_factory=list)
    master: Text = ""
    cluster: Flag = False
    connect_timeout: Short = 0
    command_timeout: Patience = 0


class Backoff(Table):
    initial: AnyDuration = 0
    max: AnyDuration = 0
    jitter: Share = 0


class Supervisor(Table):
    max_restarts: Restarts = 0
    max_seconds: Seconds = 0
    shutdown_timeout: AnyDuration = 0
    hang_timeout: Patience = 0
    start_timeout: Patience = 0
    backoff: Backoff | None = None
    control: Text = ""


class Infra(Table):
    max_restarts: Restarts = 0
    max_seconds: Seconds = 0


class Hooks(Table):
    on_added: Dotted = ""
    on_waiting: Dotted = ""
    on_delayed: Dotted = ""
    on_active: Dotted = ""
    on_progress: Dotted = ""
    on_completed: Dotted = ""
    on_failed: Dotted = ""
    on_retries_exhausted: Dotted = ""
    on_stalled: Dotted = ""
    on_removed: Dotted = ""
    on_waiting_children: Dotted = ""
    on_duplicated: Dotted = ""
    on_deduplicated: Dotted = ""
    on_drained: Dotted = ""
    on_paused: Dotted = ""
    on_resumed: Dotted = ""
    on_cleaned: Dotted = ""


class Keep(Table):
    """`true` = remove at once, `false` = keep for ever, a number = so many, a table = count and age."""

    count: Count = 0
    age: AnyDuration = 0
    limit: Count = 0

    @model_validator(mode="before")
    @classmethod
    def short_forms(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return value
        if isinstance(value, bool):
            return {"count": 0} if value else {}
        if isinstance(value, int) and value >= 0:
            return {"count": value}
        raise kinds.refusal("true, false, a whole number, or a table of count, age and limit")

    def config(self) -> KeepConfig:
        count = self.count if "count" in self.model_fields_set else -1
        return KeepConfig(count=count, age_s=-(-self.age // 1000), limit=self.limit)


class Limiter(Table):
    max: AtLeastOne
    duration: Period


class Defaults(Table):
    """What every `[[workers]]` entry may set, and `[defaults]` for all of them."""

    processes: Annotated[int, BeforeValidator(kinds.processes)] = 0
    concurrency: Annotated[int, BeforeValidator(kinds.whole(1, 10_000))] = 1
    lock_duration: Lease = 0
    lock_renew_time: Lease = 0
    renew_interval: Annotated[int, BeforeValidator(kinds.duration(0, DAY_MS))] = 0
    stalled_interval: Lease = 0
    max_stalled_count: Annotated[int, BeforeValidator(kinds.whole(0, 1_000_000))] = 0
    timeout: AnyDuration = 0
    drain_delay: Short = 0
    max_jobs: Count = 0
    max_jobs_jitter: Share = 0
    max_memory: Size = 0
    max_age: AnyDuration = 0
    remove_on_complete: Keep = Field(default_factory=Keep)
    remove_on_fail: Keep = Field(default_factory=Keep)
    limiter: Limiter | None = None
    metrics_points: Annotated[int, BeforeValidator(kinds.whole(0, 100_000))] = 0
    preload: Flag = False
    strategy: Annotated[str, BeforeValidator(kinds.word("one_for_one", "one_for_all", "rest_for_one"))] = ""
    max_restarts: Restarts = 0
    max_seconds: Seconds = 0


class Workers(Defaults):
    name: Name
    queues: list[QueueName]
    processor: Dotted = ""
    tasks: list[Annotated[str, BeforeValidator(kinds.module)]] = Field(default_factory=list)
    middleware: list[Annotated[str, BeforeValidator(kinds.layer)]] = Field(default_factory=list)
    plane: Plane = "lock"
    batch: Annotated[int, BeforeValidator(kinds.whole(1, 1_000))] = 0
    recovery: Annotated[str, BeforeValidator(kinds.word("sweep", "reap"))] = ""


class JobBackoff(Table):
    """A table, or a duration alone: the fixed delay."""

    type: Text = "fixed"
    delay: AnyDuration = 0
    jitter: Share = 0

    @model_validator(mode="before")
    @classmethod
    def short_form(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"delay": value}


class JobOptions(Table):
    """Options of the jobs that a scheduler makes: BullMQ's, in snake_case."""

    attempts: AtLeastOne = 1
    backoff: JobBackoff | None = None
    priority: Annotated[int, BeforeValidator(kinds.whole(0, 2**21 - 1))] = 0
    lifo: Flag = False
    remove_on_complete: Keep = Field(default_factory=Keep)
    remove_on_fail: Keep = Field(default_factory=Keep)
    keep_logs: Count = 0
    stack_trace_limit: Count = 0
    size_limit: Size = 0


class Scheduler(Table):
    id: Annotated[str, BeforeValidator(kinds.queue)]
    queue: QueueName
    name: Text
    every: Period = 0
    pattern: Text = ""
    tz: Text = ""
    offset: AnyDuration = 0
    limit: AtLeastOne = 1
    start_date: Moment = 0
    end_date: Moment = 0
    data: Any = None
    opts: JobOptions = Field(default_factory=JobOptions)
    plane: Plane = ""


class Observer(Table):
    bind: Annotated[str, BeforeValidator(kinds.bind)] = ""


class Log(Table):
    level: Annotated[str, BeforeValidator(kinds.word("debug", "info", "warning", "error"))] = "info"
    format: Annotated[str, BeforeValidator(kinds.word("console", "json"))] = "console"


class File(Table):
    """The whole file."""

    name: Name = ""
    prefix: Annotated[str, BeforeValidator(kinds.prefix)] = ""
    hash_tag: Flag = True
    redis: Redis = Field(default_factory=Redis)
    supervisor: Supervisor = Field(default_factory=Supervisor)
    infra: Infra = Field(default_factory=Infra)
    hooks: Hooks = Field(default_factory=Hooks)
    defaults: Defaults = Field(default_factory=Defaults)
    workers: list[Workers] = Field(default_factory=list)
    schedulers: list[Scheduler] = Field(default_factory=list)
    observer: Observer = Field(default_factory=Observer)
    log: Log = Field(default_factory=Log)
