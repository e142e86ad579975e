# SPDX-License-Identifier: MIT
"""The `[redis]` table: address, credentials, TLS, Sentinel, Cluster, and what of these goes together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from echomq_pool.config import models
from echomq_pool.config.problems import shown
from echomq_pool.config.schema import RedisConfig, TlsConfig
from echomq_pool.config.url import parse_url
from echomq_pool.errors import InputError

Problems = list[tuple[tuple[str | int, ...], str]]

_SENTINEL = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):[0-9]{1,5}\Z")


def redis_config(table: models.Redis, folder: Path, problems: Problems) -> RedisConfig:
    """The server that the table names; contradictions go into `problems`."""
    base = RedisConfig()
    if table.url:
        try:
            base = parse_url(table.url)
        except InputError as error:
            problems.append((("redis", "url"), str(error)))
    problems.extend((("redis", *where), sentence) for where, sentence in _contradictions(table, base))
    given = table.model_fields_set
    return replace(
        base,
        embedded=_folder(base.embedded, folder),
        username=table.username or base.username,
        password=_password(table, folder, problems) or base.password,
        tls=_tls(table, base, folder),
        sentinels=tuple(table.sentinels),
        master=table.master,
        cluster=table.cluster,
        connect_timeout_ms=table.connect_timeout if "connect_timeout" in given else base.connect_timeout_ms,
        command_timeout_ms=table.command_timeout if "command_timeout" in given else base.command_timeout_ms,
    )


def _folder(embedded: str | None, folder: Path) -> str | None:
    return str((folder / embedded).absolute()) if embedded else embedded


def _tls(table: models.Redis, base: RedisConfig, folder: Path) -> TlsConfig | None:
    if base.tls is None or table.tls is None:
        return base.tls
    files = {
        key: str((folder / getattr(table.tls, key)).absolute())
        for key in ("ca_file", "cert_file", "key_file")
        if getattr(table.tls, key)
    }
    return TlsConfig(**files, verify=table.tls.verify)


def _password(table: models.Redis, folder: Path, problems: Problems) -> str:
    if not table.password_file:
        return table.password
    path = folder / table.password_file
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        problems.append((("redis", "password_file"), f"{shown(str(path))} cannot be read: {reason}"))
        return ""


def _contradictions(table: models.Redis, base: RedisConfig) -> Iterator[tuple[tuple[str, ...], str]]:
    given = ["url"] if base.password else []
    given += [key for key in ("password", "password_file") if key in table.model_fields_set]
    if len(given) > 1:
        yield (given[-1],), f"the password is given more than once: by {' and '.join(given)}"
    if table.tls is not None and base.tls is None:
        yield ("tls",), 'goes with a "rediss://" url only; with this url nothing would be encrypted'
    if bool(table.sentinels) != bool(table.master):
        yield (
            ("sentinels" if table.sentinels else "master",),
            "expected both sentinels and master, or neither",
        )
    if table.cluster and table.sentinels:
        yield ("cluster",), "a server is found by cluster or by sentinels, not by both"
    if table.cluster and base.db:
        yield ("cluster",), f"a cluster has database 0 only, and url names {base.db}"
    if (table.cluster or table.sentinels) and (base.unix_path or base.embedded is not None):
        yield ("url",), "cluster and sentinels need a redis:// or rediss:// url"
    for place, sentinel in enumerate(table.sentinels):
        if not _SENTINEL.match(sentinel):
            yield ("sentinels",), f'expected "host:port", got {shown(sentinel)} at place {place}'
