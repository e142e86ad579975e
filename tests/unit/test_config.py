# SPDX-License-Identifier: MIT
"""`pool.toml` read, checked and frozen: what is accepted, what it means, and how a mistake is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from echomq_pool.config.control import default_control, peek_control
from echomq_pool.config.cpus import CpuCount
from echomq_pool.config.load import load
from echomq_pool.config.schema import KeepConfig, PoolConfig, from_plain, to_plain
from echomq_pool.config.show import show
from echomq_pool.errors import ConfigError
from tests.support.config_keys import documented_keys, known_keys

WORKERS = """
[[workers]]
name = "orders"
queues = ["orders"]
processor = "shop.orders:handle"
"""
CPUS = CpuCount(3, "test")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "pool.toml"


def read(path: Path, text: str, **environ: str) -> PoolConfig:
    path.write_text(text, encoding="utf-8")
    return load(path, environ, cpus=CPUS)


def problems(path: Path, text: str, **environ: str) -> list[str]:
    """The sentences that `text` is refused with, without the folder."""
    with pytest.raises(ConfigError) as caught:
        read(path, text, **environ)
    return [sentence.removeprefix(f"{path.parent}/") for sentence in caught.value.problems]


def problem(path: Path, text: str, **environ: str) -> str:
    """The only sentence that `text` is refused with."""
    found = problems(path, text, **environ)
    assert len(found) == 1, found
    return found[0]


def in_workers(line: str) -> str:
    return WORKERS + line + "\n"


def test_the_smallest_file_gets_every_default(toml: Path) -> None:
    """what is left out has one value, the one in schema.py"""
    config = read(toml, WORKERS)
    workers = config.workers[0]
    assert (workers.processes, workers.processes_from) == (3, "test")
    assert (workers.lock_duration_ms, workers.lock_renew_time_ms, workers.tick_ms) == (30_000, 15_000, 7_500)
    assert workers.max_restarts == 8
    assert config.redis.url == "redis://127.0.0.1:6379/0"
    assert config.supervisor.start_timeout_ms == 60_000
    assert config.queues() == ("orders",)


def test_the_configuration_survives_the_way_through_a_pipe(toml: Path) -> None:
    """law 8; the supervisor gets plain data and never imports the validator"""
    text = 'redis.url = "rediss://a:b@h:1/2"\n[hooks]\non_failed = "a:b"\n' + in_workers(
        'limiter = { max = 3, duration = "1s" }'
    )
    config = read(toml, text)
    assert from_plain(PoolConfig, json.loads(json.dumps(to_plain(config)))) == config


def test_defaults_hold_for_every_entry_that_does_not_say_otherwise(toml: Path) -> None:
    """[defaults] of pool.toml"""
    other = WORKERS.replace('"orders"', '"mail"')
    text = (
        '[defaults]\nprocesses = 2\ntimeout = "5m"\nremove_on_fail = 7\n'
        + in_workers("processes = 9")
        + other
    )
    orders, mail = read(toml, text).workers
    assert (orders.processes, mail.processes) == (9, 2)
    assert (orders.timeout_ms, mail.timeout_ms) == (300_000, 300_000)
    assert mail.remove_on_fail == KeepConfig(count=7)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", KeepConfig(count=0)),
        ("false", KeepConfig(count=-1)),
        ("1000", KeepConfig(count=1000)),
        ('{ count = 5, age = "1d" }', KeepConfig(count=5, age_s=86_400)),
        ('{ age = "1500ms", limit = 9 }', KeepConfig(count=-1, age_s=2, limit=9)),
    ],
)
def test_retention_is_read_in_all_of_bullmqs_forms(toml: Path, value: str, expected: KeepConfig) -> None:
    """case C145"""
    assert read(toml, in_workers(f"remove_on_complete = {value}")).workers[0].remove_on_complete == expected


def test_boot_and_hang_have_separate_limits(toml: Path) -> None:
    """case C050"""
    config = read(toml, '[supervisor]\nhang_timeout = "1s"\nstart_timeout = "10s"\n' + WORKERS)
    assert (config.supervisor.hang_timeout_ms, config.supervisor.start_timeout_ms) == (1_000, 10_000)


def test_all_mistakes_are_told_at_once_each_with_its_line(toml: Path) -> None:
    """law 13; case C148"""
    text = (
        'nmae = "x"\n'
        "[supervisor]\n"
        "hang_timeout = 30\n"
        "[[workers]]\n"
        'name = "a"\n'
        'queues = ["x:y"]\n'
        'processor = "a:b"\n'
        'lock_duration = "10s"\n'
        'lock_renew_time = "6s"\n'
    )
    assert problems(toml, text) == [
        'pool.toml:1: nmae: unknown key; did you mean "name"?',
        "pool.toml:3: supervisor.hang_timeout: expected a duration as text with a unit (ms, s, m, h, d, w)"
        ' such as "30s" (a bare number says no unit), got 30',
        "pool.toml:6: workers[0].queues[0]: expected a queue name: not empty, no ':', at most 255 characters,"
        ' got "x:y"',
        'pool.toml:9: workers[0].lock_renew_time: expected at most half of lock_duration "10s", got "6s"',
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[pool]\nproceses = 4\n" + WORKERS,
            ['pool.toml:1: pool: unknown table; "processes" belongs into [defaults]'],
        ),
        ("[workr]\nx = 1\n", ["pool.toml:1: workr: unknown table", '"workers"']),
        (
            in_workers('processes = "4"'),
            ["pool.toml:6: workers[0].processes: expected a whole number", 'got "4"'],
        ),
        (in_workers("processes = true"), ["pool.toml:6: workers[0].processes:", "got true"]),
        (in_workers("concurency = 5"), ['unknown key; did you mean "concurrency"?']),
        (in_workers('lockDuration = "3s"'), ['did you mean "lock_duration"?']),
        (in_workers("processes = 1\nprocesses = 2"), ["pool.toml:7: not valid TOML"]),
        ("workers = 3\n", ["pool.toml:1: workers: expected a list, got 3"]),
        ("[workers]\nname = 'x'\n", ["pool.toml:1: workers: expected a list, got a table"]),
        ("redis = 'redis://x'\n" + WORKERS, ["pool.toml:1: redis: expected a table"]),
        ("", ["pool.toml:1: nothing to do: expected at least one [[workers]] entry"]),
        ("[[workers]]\n", []),
        (in_workers("x = "), ["pool.toml:6: not valid TOML"]),
        (in_workers("x = " + "[" * 20_000), ["not valid TOML: maximum recursion depth"]),
    ],
)
def test_a_mistyped_file_names_file_line_and_what_was_meant(toml: Path, text: str, words: list[str]) -> None:
    """case C147, C148"""
    found = " | ".join(problems(toml, text))
    for word in words:
        assert word in found


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(toml: Path) -> None:
    """case C148"""
    toml.write_bytes(b"\xef\xbb\xbf" + WORKERS.replace("\n", "\r\n").encode())
    assert load(toml, {}, cpus=CPUS).workers[0].name == "orders"


def test_a_file_that_cannot_be_read_is_one_sentence(toml: Path, tmp_path: Path) -> None:
    """case C148"""
    with pytest.raises(ConfigError, match=r"pool\.toml: cannot be read: No such file"):
        load(toml, {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})
    toml.write_bytes(b'name = "x"\nprefix = "\xff"\n')
    with pytest.raises(ConfigError, match=r"pool\.toml:2: the file is not UTF-8"):
        load(toml, {})


@pytest.mark.parametrize("name", ["", " ", "a:b", "x" * 300])
def test_a_queue_name_that_makes_unusable_keys_is_refused(toml: Path, name: str) -> None:
    """case C143"""
    assert "expected a queue name" in problem(toml, WORKERS.replace('["orders"]', json.dumps([name])))


@pytest.mark.parametrize("name", ["orders", "{orders}", "überweisungen", "🛒", "a b"])
def test_other_queue_names_are_taken_as_they_are(toml: Path, name: str) -> None:
    """case C143"""
    config = read(toml, WORKERS.replace('["orders"]', json.dumps([name], ensure_ascii=False)))
    assert config.queues() == (name,)


NUMBERS = ["concurrency", "processes", "max_stalled_count", "max_jobs", "max_restarts", "max_seconds"]
DURATIONS = ["lock_duration", "lock_renew_time", "stalled_interval", "drain_delay", "timeout", "max_age"]
ZERO_MEANS_NONE = {"max_stalled_count", "max_jobs", "max_restarts", "timeout", "max_age"}


@pytest.mark.parametrize("option", NUMBERS)
@pytest.mark.parametrize("value", ["0", "-1", "0.5", "1000000000000", '"x"', "true", "[]"])
def test_a_number_out_of_range_is_refused_with_the_range(toml: Path, option: str, value: str) -> None:
    """case C145"""
    text = in_workers(f"{option} = {value}")
    if value == "0" and option in ZERO_MEANS_NONE:
        assert getattr(read(toml, text).workers[0], option) == 0
    else:
        assert f"workers[0].{option}: expected a whole number from" in problem(toml, text)


@pytest.mark.parametrize("option", DURATIONS)
@pytest.mark.parametrize(
    "value", ['"0s"', "0", "-1", "0.5", '"-1s"', "1000000000000", '"1000000d"', '"x"', "true"]
)
def test_a_duration_out_of_range_is_refused_with_what_is_accepted(
    toml: Path, option: str, value: str
) -> None:
    """case C145"""
    text = in_workers(f"{option} = {value}")
    if value == '"0s"' and option in ZERO_MEANS_NONE:
        assert getattr(read(toml, text).workers[0], f"{option}_ms") == 0
    else:
        assert f"workers[0].{option}: expected a duration" in problem(toml, text)


def test_a_lease_that_one_missed_renewal_would_lose_is_refused(toml: Path) -> None:
    """case C145"""
    assert 'expected at most half of lock_duration "10s", got "15s"' in problem(
        toml, '[defaults]\nlock_renew_time = "15s"\n' + in_workers('lock_duration = "10s"')
    )
    assert "workers[0].renew_interval: expected at most half" in problem(
        toml, in_workers('lock_duration = "20s"\nrenew_interval = "11s"')
    )
    assert read(toml, in_workers('lock_duration = "10s"')).workers[0].tick_ms == 2_500
    assert read(toml, in_workers('renew_interval = "10s"')).workers[0].tick_ms == 10_000


@pytest.mark.parametrize("processor", ["lambda job: 1", "shop.jobs:<lambda>", "shop/jobs.py", "handle"])
def test_a_processor_is_told_by_its_import_path(toml: Path, processor: str) -> None:
    """case C076: plain data goes to a child, which imports for itself; a function cannot be handed over"""
    text = WORKERS.replace("shop.orders:handle", processor)
    assert 'workers[0].processor: expected a function as "package.module:function"' in problem(toml, text)


def test_a_worker_runs_a_processor_or_tasks_and_not_both(toml: Path) -> None:
    """law 13"""
    assert "workers[0]: expected exactly one of processor and tasks, got both" in problem(
        toml, in_workers('tasks = ["a"]')
    )
    plain = '[[workers]]\nname = "w"\nqueues = ["q"]\n'
    assert "workers[0]: expected exactly one of processor and tasks, got neither" in problem(toml, plain)
    found = read(
        toml, plain + 'tasks = ["shop.tasks", "b"]\nmiddleware = ["shop.timing", "shop.log:layer"]'
    ).workers[0]
    assert (found.processor, found.tasks) == ("", ("shop.tasks", "b"))
    assert found.middleware == ("shop.timing", "shop.log:layer")
    for line in ('tasks = ["a:b"]', 'tasks = "a"', 'middleware = ["a b"]'):
        assert "expected" in problem(toml, in_workers(line))


LEASE = 'plane = "lease"\n'


def test_an_entry_may_be_on_the_lease_plane(toml: Path) -> None:
    """law 13; the plane is a word of the entry"""
    workers = read(toml, in_workers(LEASE + 'batch = 32\nrecovery = "reap"')).workers[0]
    assert (workers.plane, workers.batch, workers.recovery) == ("lease", 32, "reap")
    assert read(toml, in_workers(LEASE)).plane_of("orders") == "lease"
    assert read(toml, WORKERS).plane_of("orders") == "lock"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (in_workers("batch = 64"), 'workers[0].batch: goes with plane = "lease" only'),
        (in_workers('recovery = "sweep"'), 'workers[0].recovery: goes with plane = "lease" only'),
        (in_workers(LEASE + "batch = 0"), "workers[0].batch: expected"),
        (in_workers(LEASE + 'recovery = "count"'), 'recovery: expected one of "sweep", "reap"'),
        (in_workers('plane = "fast"'), 'plane: expected one of "lock", "lease", got "fast"'),
        (in_workers(LEASE + "remove_on_complete = true"), "the lease plane keeps no completed jobs"),
        (in_workers(LEASE + 'stalled_interval = "5s"'), 'goes with plane = "lock" only'),
        (
            in_workers(LEASE + 'recovery = "reap"\nmax_stalled_count = 3'),
            'means nothing with recovery = "reap"',
        ),
        ('prefix = "bull"' + in_workers(LEASE), 'prefix: the lease plane\'s keys start with "emq"'),
        ("hash_tag = false" + in_workers(LEASE), "hash_tag: the lease plane's keys"),
        (
            in_workers(LEASE) + '\n[[workers]]\nname = "b"\nqueues = ["orders"]\nprocessor = "a:b"\n',
            'workers[1].plane: queue "orders" is on the lease plane in workers[0]',
        ),
        (
            in_workers(LEASE).replace('["orders"]', '["a b"]'),
            "workers[0].queues[0]: expected a queue name: on the lease plane",
        ),
    ],
)
def test_what_a_plane_does_not_have_is_refused_with_the_reason(toml: Path, text: str, words: str) -> None:
    """law 13"""
    assert words in problem(toml, text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("prefix = 'a:b'", "prefix: expected a key prefix"),
        ("prefix = ''", "prefix: expected a key prefix"),
        ("name = 'a/b'", "name: expected a name of letters"),
        ("hash_tag = 1", "hash_tag: expected true or false, got 1"),
        ("log.level = 'loud'", 'log.level: expected one of "debug", "info", "warning", "error", got "loud"'),
        ("observer.bind = 'nowhere'", 'observer.bind: expected "host:port"'),
        ("observer.bind = '127.0.0.1:70000'", "observer.bind: expected"),
        ("hooks.on_fail = 'a:b'", 'hooks.on_fail: unknown key; did you mean "on_failed"?'),
        ("hooks.on_failed = 'a.b'", 'hooks.on_failed: expected a function as "package.module:function"'),
        ("supervisor.backoff = {initial = '5s', max = '1s'}", "max must not be shorter than initial"),
        ("supervisor.backoff.jitter = 2", "supervisor.backoff.jitter: expected a number from 0 to 1, got 2"),
        (f"supervisor.control = '/{'x' * 120}'", "supervisor.control: expected a path of at most 100 bytes"),
    ],
)
def test_each_wrong_value_is_refused_with_what_is_accepted(toml: Path, line: str, words: str) -> None:
    """case C144, C145"""
    assert words in problem(toml, line + WORKERS)


def test_a_name_or_queue_used_twice_is_refused(toml: Path) -> None:
    """group names are what `scale` and the metrics refer to"""
    assert 'workers[1].name: "orders" is already used by workers[0].name' in problem(toml, WORKERS + WORKERS)
    text = WORKERS.replace('["orders"]', '["orders", "{orders}"]')
    assert "workers[0].queues[1]" in problem(toml, text)


def test_groups_that_share_a_queue_must_agree_on_its_stalled_check(toml: Path) -> None:
    """one stalled checker serves the queue"""
    other = WORKERS.replace('name = "orders"', 'name = "more"') + "max_stalled_count = 5\n"
    assert 'workers[1].max_stalled_count: queue "orders" is also served by workers[0]' in problem(
        toml, WORKERS + other
    )


# --- the environment ------------------------------------------------------------------------------


def test_texts_are_filled_from_the_environment(toml: Path) -> None:
    """${NAME}, ${NAME:-default}, and $${ for a plain ${"""
    text = 'redis.url = "${URL:-redis://h:1/0}"\nname = "${NAME}"\n' + in_workers('processes = "${N:-5}"')
    config = read(toml, text, NAME="web")
    assert (config.redis.host, config.name, config.workers[0].processes) == ("h", "web", 5)
    config = read(toml, text, NAME="web", URL="redis://other/3", N="2")
    assert (config.redis.host, config.redis.db, config.workers[0].processes) == ("other", 3, 2)
    kept = read(
        toml, WORKERS + '[[schedulers]]\nid="a"\nqueue="q"\nname="n"\nevery="1s"\ndata={x="$${HOME}"}\n'
    )
    assert kept.schedulers[0].data == '{"x":"${HOME}"}'


def test_a_variable_that_is_not_set_is_named(toml: Path) -> None:
    """nothing falls back in silence"""
    assert problem(toml, 'redis.url = "${REDIS_URL}"\n' + WORKERS) == (
        "pool.toml:1: redis.url: environment variable REDIS_URL is not set and ${REDIS_URL} gives no default"
    )
    assert "expected ${NAME} or ${NAME:-default}" in problem(toml, 'name = "${1x}"\n' + WORKERS)


def test_the_environment_cannot_smuggle_in_keys(toml: Path) -> None:
    """texts are filled in after the file was parsed"""
    config = read(toml, WORKERS.replace("orders.orders", "orders") + 'timeout = "${T}"\n', T="5s")
    assert config.workers[0].timeout_ms == 5_000
    assert "expected a duration" in problem(toml, in_workers('timeout = "${T}"'), T='5s"\npreload = true')


# --- the server -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", ("h", 6379, "", 0, "", "", False)),
        ("redis://u:p%40ss@h:1/4", ("h", 1, "", 4, "u", "p@ss", False)),
        ("redis://:pw@[::1]:7", ("::1", 7, "", 0, "", "pw", False)),
        ("rediss://h:6380/1", ("h", 6380, "", 1, "", "", True)),
        ("unix:///run/redis.sock?db=2", ("127.0.0.1", 6379, "/run/redis.sock", 2, "", "", False)),
    ],
)
def test_a_url_is_read_whole(toml: Path, url: str, expected: tuple[object, ...]) -> None:
    """case C149"""
    redis = read(toml, f'redis.url = "{url}"\n{WORKERS}').redis
    found = (
        redis.host,
        redis.port,
        redis.unix_path,
        redis.db,
        redis.username,
        redis.password,
        redis.tls is not None,
    )
    assert found == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "h:6379",
        "redis://",
        "redis://h:x",
        "redis://h:0",
        "redis://h/x",
        "redis://h?a=1",
        "unix://x",
        "unix:///",
    ],
)
def test_a_url_that_cannot_be_read_is_refused(toml: Path, url: str) -> None:
    """case C149; nothing falls back to localhost"""
    assert "redis.url: expected redis://host:port/db" in problem(toml, f'redis.url = "{url}"\n{WORKERS}')


def test_the_embedded_server_keeps_its_data_beside_the_file(toml: Path) -> None:
    """embedded, embedded:./data"""
    redis = read(toml, f'redis.url = "embedded"\nsupervisor.control = "/run/a.sock"\n{WORKERS}').redis
    assert (redis.embedded, redis.unix_path) == ("", "/run/a.sock.valkey")
    config = read(toml, f'redis.url = "embedded:./data"\n{WORKERS}')
    assert config.redis.embedded == str(toml.parent / "data")
    assert read(toml, WORKERS).redis.embedded is None


def test_tls_files_without_a_tls_url_are_refused(toml: Path) -> None:
    """case C149"""
    text = f'[redis]\nurl = "redis://h"\ntls = {{ ca_file = "ca.pem" }}\n{WORKERS}'
    assert 'redis.tls: goes with a "rediss://" url only' in problem(toml, text)
    tls = read(toml, text.replace("redis://", "rediss://")).redis.tls
    assert tls is not None
    assert tls.ca_file == str(toml.parent / "ca.pem")


def test_a_password_comes_from_one_place_and_is_never_shown(toml: Path) -> None:
    """secrets are hidden in errors and in `check`"""
    (toml.parent / "secret").write_text("hunter2\n")
    config = read(toml, f'[redis]\nusername = "pool"\npassword_file = "secret"\n{WORKERS}')
    assert (config.redis.username, config.redis.password) == ("pool", "hunter2")
    assert "hunter2" not in show(config)
    twice = f'[redis]\nurl = "redis://:hunter2@h"\npassword_file = "secret"\n{WORKERS}'
    assert "given more than once" in problem(toml, twice)
    assert "hunter2" not in problem(toml, f'[redis]\nurl = "rdis://:hunter2@h"\n{WORKERS}')
    assert "hunter2" not in show(read(toml, f'[redis]\nurl = "redis://:hunter2@h"\n{WORKERS}'))
    missing = f'[redis]\npassword_file = "nowhere"\n{WORKERS}'
    assert "redis.password_file:" in problem(toml, missing)
    assert "No such file" in problem(toml, missing)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('sentinels = ["a:1"]', "expected both sentinels and master, or neither"),
        ('master = "m"', "expected both sentinels and master, or neither"),
        ('sentinels = ["a"]\nmaster = "m"', 'expected "host:port", got "a"'),
        ('sentinels = ["a:1"]\nmaster = "m"\ncluster = true', "by cluster or by sentinels, not by both"),
        ('url = "redis://h/3"\ncluster = true', "a cluster has database 0 only"),
        ('url = "embedded"\ncluster = true', "cluster and sentinels need a redis://"),
    ],
)
def test_settings_of_the_server_that_contradict_each_other_are_refused(
    toml: Path, lines: str, words: str
) -> None:
    """K19: impossible combinations"""
    assert words in problem(toml, f"[redis]\n{lines}\n{WORKERS}")


def test_a_cluster_needs_the_keys_of_a_queue_in_one_slot(toml: Path) -> None:
    """K19: impossible combinations"""
    text = f"hash_tag = false\nredis.cluster = true\n{WORKERS}"
    assert "a cluster needs all keys of a queue in one slot" in problem(toml, text)
    assert read(toml, text.replace('["orders"]', '["{orders}"]')).redis.cluster


# --- schedules ------------------------------------------------------------------------------------

SCHEDULER = '[[schedulers]]\nid = "nightly"\nqueue = "orders"\nname = "report"\n'


def test_a_schedule_is_read_with_its_options_in_the_words_of_the_wire(toml: Path) -> None:
    """promise 4.17"""
    text = (
        WORKERS
        + SCHEDULER
        + 'pattern = "0 30 2 * * *"\ntz = "Europe/London"\nlimit = 9\nend_date = 2030-01-01T00:00:00Z\n'
        + 'data = { kind = "daily", n = [1, 2.5] }\n'
        + "[schedulers.opts]\nattempts = 3\nremove_on_complete = 10\nremove_on_fail = true\nkeep_logs = 5\n"
        + 'backoff = { type = "exponential", delay = "10s" }\n'
    )
    schedule = read(toml, text).schedulers[0]
    assert json.loads(schedule.data) == {"kind": "daily", "n": [1, 2.5]}
    assert (schedule.tz, schedule.limit, schedule.end_ms) == ("Europe/London", 9, 1_893_456_000_000)
    assert schedule.opts == {
        "attempts": 3,
        "backoff": {"type": "exponential", "delay": 10_000},
        "keepLogs": 5,
        "removeOnComplete": 10,
        "removeOnFail": True,
    }


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "schedulers[0]: expected exactly one of every and pattern, got neither"),
        (
            'every = "1s"\npattern = "* * * * *"',
            "expected exactly one of every and pattern, got every and pattern",
        ),
        ('pattern = "61 * * * *"', "schedulers[0].pattern: cron field minute: '61'"),
        (
            'pattern = "* * * * *"\ntz = "Mars/Olympus"',
            "schedulers[0].tz: time zone 'Mars/Olympus' does not exist",
        ),
        ('every = "1s"\ntz = "UTC"', "schedulers[0].tz: goes with pattern only"),
        ("every = 5", "schedulers[0].every: expected a duration"),
        ('every = "0s"', "schedulers[0].every: expected a duration"),
        (
            'every = "1s"\nend_date = 2030-01-01T00:00:00',
            "schedulers[0].end_date: expected a date and time with",
        ),
        ('every = "1s"\ndata = { at = 2030-01-01 }', "schedulers[0].data: expected data that JSON can hold"),
        ('every = "1s"\ndata = { x = nan }', "schedulers[0].data: expected data that JSON can hold"),
        ('every = "1s"\nopts = { attempts = "3" }', "schedulers[0].opts.attempts: expected a whole number"),
        (
            'every = "1s"\nopts = { priority = 2097152 }',
            "opts.priority: expected a whole number from 0 to 2097151",
        ),
        (
            'every = "1s"\nopts = { priority = 1.5 }',
            "opts.priority: expected a whole number from 0 to 2097151",
        ),
        ('every = "1s"\nopts = { job_id = "x" }', "schedulers[0].opts.job_id: unknown key"),
        ('every = "1s"\nopts = { backoff = 5 }', "opts.backoff.delay: expected a duration"),
    ],
)
def test_a_schedule_that_cannot_run_is_refused(toml: Path, lines: str, words: str) -> None:
    """promise 4.17; case C144"""
    assert words in problem(toml, WORKERS + SCHEDULER + lines + "\n")


# --- files that ship --------------------------------------------------------------------------------

SHIPPED = sorted((Path(__file__).parents[2] / "config").glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_file_that_ships_loads(path: Path) -> None:
    """law 13"""
    config = load(path, {"REDIS_URL": "redis://server:6379/0"}, cpus=CPUS)
    assert config.workers
    assert len(SHIPPED) == 4


def test_the_annotated_file_shows_every_option_with_its_default() -> None:
    """config/pool.toml is the reference: an option that it leaves out is not documented"""
    text = (Path(__file__).parents[2] / "config" / "pool.toml").read_text()
    assert known_keys() - documented_keys(text) == set()


def test_the_effective_configuration_names_where_a_number_came_from(toml: Path) -> None:
    """case C146; the effective configuration can be printed"""
    text = show(read(toml, WORKERS + SCHEDULER + 'every = "15m"\n'))
    assert "processes = 3  # auto: test" in text
    assert 'every = "15m"' in text
    assert 'start_timeout = "1m"' in text


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_effective_configuration_can_be_read_back(path: Path, toml: Path) -> None:
    """what `check` prints is a file that says the same"""
    config = load(path, {"REDIS_URL": "redis://server:6379/0"}, cpus=CPUS)
    toml.write_text(show(config))
    assert show(load(toml, {}, cpus=CPUS)) == re.sub("  # auto: .*", "", toml.read_text())


def test_what_a_plane_lacks_is_left_out_of_what_check_prints(toml: Path) -> None:
    """what `check` prints is a file that says the same"""
    config = read(toml, WORKERS + 'plane = "lease"\nrecovery = "reap"\n')
    toml.write_text(show(config))
    assert load(toml, {}, cpus=CPUS).workers[0].recovery == "reap"
    assert "max_stalled_count" not in show(config)


def test_every_option_of_a_schedule_can_be_read_back(toml: Path) -> None:
    """what `check` prints is a file that says the same"""
    schedule = """
every = "15m"
offset = "1s"
limit = 3
start_date = 2030-01-01T00:00:00.250Z
end_date = 2031-01-01T00:00:00+02:00
data = { kind = "daily", "odd key" = [1, { deep = true }] }

[schedulers.opts]
attempts = 3
backoff = { type = "exponential", delay = "10s", jitter = 0.5 }
remove_on_complete = { count = 7, age = "1d" }
remove_on_fail = true
keep_logs = 5
size_limit = "2KB"
"""
    config = read(toml, WORKERS + SCHEDULER + schedule)
    toml.write_text(show(config))
    assert load(toml, {}, cpus=CPUS).schedulers == config.schedulers


def test_the_control_socket_is_found_without_checking_the_whole_file(toml: Path, tmp_path: Path) -> None:
    """case C154; a probe is cheap"""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "N": "web"}
    toml.write_text('name = "${N}"\n[supervisor]\nnonsense = 1\n' + WORKERS)
    assert (
        peek_control(toml, environ) == default_control("web", environ) == f"{tmp_path}/echomq-pool-web.sock"
    )
    toml.write_text('[supervisor]\ncontrol = "/run/x.sock"\n')
    assert peek_control(toml, environ) == "/run/x.sock"
    toml.write_text("x = ")
    with pytest.raises(ConfigError):
        peek_control(toml, environ)
