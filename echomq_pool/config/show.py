# SPDX-License-Identifier: MIT
"""The configuration in force, as TOML with every default filled in and every secret hidden.

It can be read back: what does not apply to an entry, and would be refused in a file, is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from echomq_pool.config.planes import applies
from echomq_pool.config.schema import KeepConfig, PoolConfig
from echomq_pool.config.units import show_duration, show_size
from echomq_pool.config.url import hide_password

HIDDEN = "***"
DERIVED = {"host", "port", "unix_path", "db", "embedded"}  # all said by url already
FORMAL_NAMES = {"start_ms": "start_date", "end_ms": "end_date"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def show(config: PoolConfig) -> str:
    """What `check` prints."""
    lines = list(_table(config, ""))
    for name in ("redis", "supervisor", "infra"):
        lines += ["", f"[{name}]", *_table(getattr(config, name), name)]
    lines += ["", "[hooks]", *(f"{key} = {_text(path)}" for key, path in sorted(config.hooks.items()))]
    for workers in config.workers:
        lines += ["", "[[workers]]", *_table(workers, "workers")]
    for scheduler in config.schedulers:
        lines += ["", "[[schedulers]]", *_table(scheduler, "schedulers")]
    lines += ["", "[observer]", f"bind = {_text(config.observer.bind or 'off')}"]
    lines += ["", "[log]", *_table(config.log, "log")]
    return "\n".join(lines) + "\n"


def _table(table: Any, where: str) -> Iterator[str]:
    for field in fields(table):
        value = getattr(table, field.name)
        if where == "" and (is_dataclass(value) or isinstance(value, (tuple, dict))):
            continue
        if (where == "redis" and field.name in DERIVED) or field.name == "processes_from" or value is None:
            continue
        if (where == "schedulers" and value in (0, "", {})) or value in ("", ()):
            continue
        key, text = _entry(field.name, value)
        if where == "workers" and not applies(key, table):
            continue
        looked_up = field.name == "processes" and table.processes_from != "configured"
        note = f"  # auto: {table.processes_from}" if looked_up else ""
        yield f"{key} = {text}{note}"


def _entry(name: str, value: Any) -> tuple[str, str]:
    if name == "password":
        return name, _text(HIDDEN)
    if name == "url":
        return name, _text(hide_password(value))
    if name in ("start_ms", "end_ms"):
        return FORMAL_NAMES[name], (EPOCH + timedelta(milliseconds=value)).isoformat()
    if name == "data":
        return name, _value(json.loads(value))
    if name == "opts":
        return name, _inline({_snake(option): _option(option, setting) for option, setting in value.items()})
    if name == "max_memory":
        return name, _text(show_size(value))
    if name.endswith("_ms") and isinstance(value, int):
        return name.removesuffix("_ms"), _text(show_duration(value))
    return name, _value(value)


def _value(value: Any) -> str:
    if isinstance(value, KeepConfig):
        return _keep(value)
    if is_dataclass(value):
        pairs = (_entry(f.name, getattr(value, f.name)) for f in fields(value))
        return "{ " + ", ".join(f"{key} = {text}" for key, text in pairs) + " }"
    if isinstance(value, dict):
        return _inline({key: _value(item) for key, item in value.items()})
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return _text(value)


def _inline(entries: dict[str, str]) -> str:
    bare = {key: key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key) for key in entries}
    return "{ " + ", ".join(f"{bare[key]} = {text}" for key, text in entries.items()) + " }"


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda capital: "_" + capital.group().lower(), name)


def _option(name: str, value: Any) -> str:
    """A job's option, which is kept as it goes on the wire, in the words of the file."""
    if name == "backoff":
        return _value({**value, "delay": show_duration(value["delay"])})
    if name == "sizeLimit":
        return _text(show_size(value))
    if isinstance(value, dict) and "age" in value:
        return _value({**value, "age": show_duration(value["age"] * 1000)})
    return _value(value)


def _keep(keep: KeepConfig) -> str:
    if keep.count < 0 and keep.age_s == 0:
        return "false  # kept for ever"
    parts = [f"count = {keep.count}"] if keep.count >= 0 else []
    parts += [f"age = {_text(show_duration(keep.age_s * 1000))}"] if keep.age_s else []
    parts += [f"limit = {keep.limit}"] if keep.limit else []
    return "{ " + ", ".join(parts) + " }"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
