# SPDX-License-Identifier: MIT
"""Runs operations over redis-py. With `sync.py`, the only modules of the package that import redis-py."""

from __future__ import annotations

import time
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry
from redis.sentinel import Sentinel

from echomq_pool.api.ask import TRIES, Ask, Made, Op, T
from echomq_pool.api.watch import BLOCK_MS
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, LinkDown, LinkRefused, ReplyError, ServerUnready
from echomq_pool.plane.calls import Call
from echomq_pool.redisio.scripts import Script, ScriptLibrary

_UNREADY = ("LOADING", "BUSY", "READONLY", "OOM", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF")
_REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM", "MOVED", "ASK", "NOPROTO")
PAUSE_S = 0.05


class SyncDriver:
    """One client of redis-py, safe to share between threads."""

    def __init__(self, client: Any, library: ScriptLibrary) -> None:
        self._client = client
        self._library = library
        self._maps = str(client.connection_pool.connection_kwargs.get("protocol")) == "3"
        self._loaded: set[str] = set()  # by name; several threads may load one, which does no harm

    def run(self, operation: Op[T]) -> T:
        try:
            batch = next(operation)
            while True:
                batch = operation.send(self._send(batch))
        except StopIteration as end:
            value: T = end.value
            return value

    def _send(self, batch: list[Ask]) -> list[Any]:
        if len(batch) == 1:
            return [self._ask(batch[0])]
        replies = self._pipelined(batch)
        for reply in replies:
            if isinstance(reply, Exception):
                raise _translated(reply, sent=True) from reply
        return replies

    def _pipelined(self, batch: list[Ask]) -> list[Any]:
        """One write for all; calls whose script was not loaded never ran and are sent again alone."""
        self._load(batch)
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for ask in batch:
                    pipe.execute_command(*self._command(ask))
                replies = [self._read(reply) for reply in pipe.execute(raise_on_error=False)]
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise _translated(error, sent=True) from error
        lost = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        for index in lost:
            replies[index] = self._ask(batch[index])
        return replies

    def _ask(self, ask: Ask) -> Any:
        tries = TRIES if ask.repeat else 1
        while True:
            tries -= 1
            try:
                return self._execute(ask)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                if tries <= 0:
                    raise _translated(error, sent=True) from error
                time.sleep(PAUSE_S)
            except redis.RedisError as error:
                raise _translated(error, sent=True) from error

    def _execute(self, ask: Ask) -> Any:
        try:
            return self._read(self._client.execute_command(*self._command(ask)))
        except NoScriptError:
            assert isinstance(ask.what, Call | Made)
            self._client.script_load(self._script(ask.what).text)
            return self._read(self._client.execute_command(*self._command(ask)))

    def _read(self, reply: Any) -> Any:
        """RESP3 has maps and sets where RESP2 has flat lists: operations know the latter."""
        return _flattened(reply) if self._maps else reply

    def _command(self, ask: Ask) -> tuple[Any, ...]:
        what = ask.what
        if isinstance(what, Call | Made):
            return ("EVALSHA", self._script(what).sha, len(what.keys), *what.keys, *what.args)
        return what

    def _script(self, what: Call | Made) -> Script:
        return what.script if isinstance(what, Made) else self._library[what.script]

    def _load(self, batch: list[Ask]) -> None:
        """Scripts are loaded before a pipeline needs them; a flush since then shows as NOSCRIPT."""
        scripts = [self._script(ask.what) for ask in batch if isinstance(ask.what, Call | Made)]
        new = {script.name: script for script in scripts if script.name not in self._loaded}
        try:
            for script in new.values():
                self._client.script_load(script.text)
        except redis.RedisError as error:
            raise _translated(error, sent=False) from error
        self._loaded.update(new)


def _flattened(reply: Any) -> Any:
    if isinstance(reply, dict):
        return [_flattened(part) for pair in reply.items() for part in pair]
    if isinstance(reply, list | set | tuple):
        return [_flattened(part) for part in reply]
    return reply


def client_of(config: RedisConfig) -> Any:
    """A client that answers in bytes, decodes nothing and never repeats a command by itself (law 6).

    Raises:
        InputError: a cluster, which it cannot serve.
    """
    options: dict[str, Any] = {
        "db": config.db,
        "username": config.username or None,
        "password": config.password or None,
        "socket_connect_timeout": config.connect_timeout_ms / 1000,
        # A blocked read lasts BLOCK_MS by itself.
        "socket_timeout": config.command_timeout_ms / 1000 + BLOCK_MS / 1000,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if config.cluster:
        raise InputError("redis.cluster: a synchronous producer does not speak to a cluster; use Queue")
    if config.sentinels:
        watchers = [(host, int(port)) for host, _, port in (s.rpartition(":") for s in config.sentinels)]
        patience = {"socket_timeout": config.connect_timeout_ms / 1000}
        make: Any = Sentinel  # redis-py leaves it without types
        found = make(watchers, sentinel_kwargs=patience, **_secured(config, options))
        return raw(found.master_for(config.master))
    if config.unix_path:
        return raw(redis.Redis(unix_socket_path=config.unix_path, **options))
    return raw(redis.Redis(host=config.host, port=config.port, **_secured(config, options)))


def _secured(config: RedisConfig, options: dict[str, Any]) -> dict[str, Any]:
    """The options with those of TLS, where that is wanted."""
    if config.tls is None:
        return options
    return options | {
        "ssl": True,
        "ssl_ca_certs": config.tls.ca_file or None,
        "ssl_certfile": config.tls.cert_file or None,
        "ssl_keyfile": config.tls.key_file or None,
        "ssl_cert_reqs": "required" if config.tls.verify else "none",
        "ssl_check_hostname": config.tls.verify,
    }


def shared(client: Any) -> Any:
    """A client of ours over the connections of the user's.

    Raises:
        InputError: it decodes replies; the wire holds bytes that are no text.
    """
    if client.connection_pool.connection_kwargs.get("decode_responses"):
        raise InputError("client: expected one that answers in bytes, got one with decode_responses=True")
    return raw(redis.Redis(connection_pool=client.connection_pool))


def raw(client: Any) -> Any:
    """The client without its own ideas of what replies should look like."""
    client.response_callbacks.clear()
    return client


def _translated(error: Exception, *, sent: bool) -> Exception:
    text = str(error)
    code = text.split(" ", 1)[0].rstrip(":")
    if isinstance(error, redis.AuthenticationError) or code in _REFUSED:
        return LinkRefused(text)
    if isinstance(error, redis.BusyLoadingError | redis.ReadOnlyError) or code in _UNREADY:
        return ServerUnready(code, text)
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return LinkDown(text, sent=sent and "connecting to" not in text)
    if isinstance(error, redis.ResponseError):
        return ReplyError(code, text)
    return error
