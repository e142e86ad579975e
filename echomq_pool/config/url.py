# SPDX-License-Identifier: MIT
"""Server addresses as one text: redis://, rediss:// (TLS), unix://, embedded, embedded:./data.

Used by the configuration and by the producer. Nothing falls back to another server in silence:
what cannot be read is refused.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qs, unquote, urlsplit

from echomq_pool.config.schema import RedisConfig, TlsConfig
from echomq_pool.errors import InputError

FORMS = "redis://host:port/db, rediss://host:port/db, unix:///path?db=0, embedded or embedded:./data"


def parse_url(url: str) -> RedisConfig:
    """The address, credentials and database that `url` names, everything else at its default.

    Raises:
        InputError: it is none of the known forms; the message never repeats a password.
    """
    if url == "embedded" or url.startswith("embedded:"):
        return RedisConfig(url=url, embedded=url.partition(":")[2])
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in ("redis", "rediss", "unix"):
        raise InputError(f"expected {FORMS}, got {hide_password(url)!r}")
    try:
        return _unix(url) if scheme == "unix" else _tcp(url)
    except ValueError as error:
        raise InputError(f"expected {FORMS}, got {hide_password(url)!r} ({error})") from error


def hide_password(url: str) -> str:
    """The address with its password, if any, replaced by stars."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, userinfo = head.partition("://")
    if not at or not slashes or ":" not in userinfo:
        return url
    return f"{scheme}://{userinfo.partition(':')[0]}:***@{tail}"


def _tcp(url: str) -> RedisConfig:
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise ValueError("no options are read behind '?' or '#'; use the keys of [redis]")
    if not parts.hostname:
        raise ValueError("the host is missing")
    if parts.port == 0:
        raise ValueError("the port is 0")
    return RedisConfig(
        url=url,
        host=parts.hostname,
        port=parts.port or 6379,
        db=_db(parts.path.strip("/")),
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=TlsConfig() if parts.scheme == "rediss" else None,
    )


def _unix(url: str) -> RedisConfig:
    parts = urlsplit(url)
    options = parse_qs(parts.query, strict_parsing=bool(parts.query))
    unknown = set(options) - {"db"}
    if unknown:
        raise ValueError(f"unknown option {sorted(unknown)[0]!r}")
    path = unquote(parts.path)
    if not path.startswith("/") or path == "/" or (parts.hostname and "@" not in parts.netloc):
        raise ValueError("the socket needs an absolute path: unix:///run/redis.sock")
    base = RedisConfig(url=url, unix_path=path, db=_db(options.get("db", [""])[0]))
    return replace(base, username=unquote(parts.username or ""), password=unquote(parts.password or ""))


def _db(text: str) -> int:
    if text == "":
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise ValueError(f"the database {text!r} is not a number")
    return int(text)
