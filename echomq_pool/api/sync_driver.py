# SPDX-License-Identifier: MIT
"""Runs operations over redis-py. With `sync.py` and `sync_cluster.py`, the only modules that import redis-py."""

from __future__ import annotations

import time
from typing import Any

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import NoScriptError
from redis.retry import Retry
from redis.sentinel import Sentinel

from echomq_pool.api.ask import TRIES, Ask, Made, Op, T
from echomq_pool.api.sync_cluster import ClusterClient, Command, pipelined, wire_text
from echomq_pool.api.watch import BLOCK_MS
from echomq_pool.config.schema import RedisConfig
from echomq_pool.errors import InputError, LinkDown, LinkRefused, ReplyError, ServerUnready
from echomq_pool.plane.calls import Call
from echomq_pool.redisio.cluster import Node
from echomq_pool.redisio.replies import Action, ErrorReply, classify
from echomq_pool.redisio.scripts import Script, ScriptLibrary

_UNREADY = ("LOADING", "BUSY", "READONLY", "OOM", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF")
_REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM", "NOPROTO")
PAUSE_S = 0.05
# What a read may wait out: nobody answers, or nobody serves the slot.
PASSING = (redis.ConnectionError, redis.TimeoutError, exceptions.ClusterDownError, exceptions.TryAgainError)


class Server:
    """One server by one client of redis-py, safe to share between threads; `ClusterClient` has the same methods."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.maps = has_maps(client.connection_pool.connection_kwargs)

    def at(self, home: str) -> Server:
        """The same connections for the queue with this key: one server has all of them."""
        return self

    def one(self, command: Command) -> Any:
        """Sends one command and returns its reply; raises what redis-py raises."""
        return self._client.execute_command(*command)

    def many(self, commands: list[Command]) -> list[Any]:
        """One write for all. Errors are values here."""
        return pipelined(self._client, commands)

    def load(self, text: bytes, command: Command) -> None:
        """Loads a script where `command` would be sent."""
        self._client.script_load(text)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
        self._client.connection_pool.disconnect()


Client = Server | ClusterClient


class SyncDriver:
    """Runs operations, from any thread."""

    def __init__(self, client: Client, library: ScriptLibrary) -> None:
        self._client = client
        self._library = library
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
                raise translated(reply, sent=True) from reply
        return replies

    def _pipelined(self, batch: list[Ask]) -> list[Any]:
        """One write for all; calls whose script was not loaded never ran and are sent again alone."""
        self._load(batch)
        try:
            replies = list(map(self._read, self._client.many(list(map(self._command, batch)))))
        except redis.RedisError as error:
            raise translated(error, sent=True) from error
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
                    raise translated(error, sent=True) from error
                time.sleep(PAUSE_S)
            except redis.RedisError as error:
                raise translated(error, sent=True) from error

    def _execute(self, ask: Ask) -> Any:
        command = self._command(ask)
        try:
            return self._read(self._client.one(command))
        except NoScriptError:
            assert isinstance(ask.what, Call | Made)
            self._client.load(self._script(ask.what).text, command)
            return self._read(self._client.one(command))

    def _read(self, reply: Any) -> Any:
        """RESP3 has maps and sets where RESP2 has flat lists: operations know the latter."""
        return flattened(reply) if self._client.maps else reply

    def _command(self, ask: Ask) -> tuple[Any, ...]:
        what = ask.what
        if isinstance(what, Call | Made):
            return ("EVALSHA", self._script(what).sha, len(what.keys), *what.keys, *what.args)
        return what

    def _script(self, what: Call | Made) -> Script:
        return what.script if isinstance(what, Made) else self._library[what.script]

    def _load(self, batch: list[Ask]) -> None:
        """Scripts are loaded before a pipeline needs them; a flush since then shows as NOSCRIPT."""
        new: dict[str, tuple[Script, Command]] = {}
        for ask in batch:
            if isinstance(ask.what, Call | Made):
                script = self._script(ask.what)
                if script.name not in self._loaded:
                    new.setdefault(script.name, (script, self._command(ask)))
        try:
            for script, command in new.values():
                self._client.load(script.text, command)
        except redis.RedisError as error:
            raise translated(error, sent=False) from error
        self._loaded.update(new)


def has_maps(options: Any) -> bool:
    """Whether a connection with these options of redis-py may answer with maps and sets."""
    return str(options.get("protocol")) != "2"


def flattened(reply: Any) -> Any:
    """Maps as flat lists, sets as lists."""
    if isinstance(reply, dict):
        return [flattened(part) for pair in reply.items() for part in pair]
    if isinstance(reply, list | set | tuple):
        return [flattened(part) for part in reply]
    return reply


def client_of(config: RedisConfig) -> Client:
    """Clients that answer in bytes, decode nothing and never repeat a command by themselves (law 6)."""
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
    if config.unix_path:
        return Server(raw(redis.Redis(unix_socket_path=config.unix_path, **options)))
    options = _secured(config, options)
    if config.cluster:
        return ClusterClient([(config.host, config.port)], lambda node: _to(node, options), maps=False)
    if config.sentinels:
        watchers = [(host, int(port)) for host, _, port in (s.rpartition(":") for s in config.sentinels)]
        patience = {"socket_timeout": config.connect_timeout_ms / 1000}
        make: Any = Sentinel  # redis-py leaves it without types
        return Server(raw(make(watchers, sentinel_kwargs=patience, **options).master_for(config.master)))
    return Server(_to((config.host, config.port), options))


def _to(node: Node, options: dict[str, Any]) -> Any:
    return raw(redis.Redis(host=node[0], port=node[1], **options))


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


def shared(client: Any) -> Client:
    """A client of ours over the connections of the user's, or the one that queues of one producer share.

    Raises:
        InputError: it decodes replies; the wire holds bytes that are no text.
    """
    if isinstance(client, Server | ClusterClient):
        return client
    cluster = isinstance(client, RedisCluster)
    options = client.get_connection_kwargs() if cluster else client.connection_pool.connection_kwargs
    if options.get("decode_responses"):
        raise InputError("client: expected one that answers in bytes, got one with decode_responses=True")
    if cluster:
        seeds = [(node.host, int(node.port)) for node in client.get_nodes()]
        return ClusterClient(seeds, lambda node: _of_cluster(client, node), maps=has_maps(options))
    return Server(raw(redis.Redis(connection_pool=client.connection_pool)))


def _of_cluster(cluster: Any, node: Node) -> Any:
    """A client over the connections that the user's has to this node."""
    found = cluster.get_node(host=node[0], port=node[1])
    if found is None:  # it came after the user's client had looked around
        cluster.nodes_manager.initialize()
        found = cluster.get_node(host=node[0], port=node[1])
    if found is None:
        raise redis.ConnectionError(f"Error connecting to {node[0]}:{node[1]}: the client does not know it")
    return raw(redis.Redis(connection_pool=cluster.get_redis_connection(found).connection_pool))


def raw(client: Any) -> Any:
    """The client without its own ideas of what replies should look like."""
    client.response_callbacks.clear()
    return client


def translated(error: Exception, *, sent: bool) -> Exception:
    """The package's own error for one of redis-py's. `sent`: the command may have been."""
    text = wire_text(error) or str(error)
    verdict = classify(ErrorReply(text))
    if verdict.action in (Action.MOVED, Action.ASK) or verdict.code == "CROSSSLOT":
        return LinkRefused(verdict.sentence)
    code = text.split(" ", 1)[0].rstrip(":")
    if isinstance(error, redis.AuthenticationError | exceptions.NoPermissionError) or code in _REFUSED:
        return LinkRefused(text)
    if isinstance(error, redis.BusyLoadingError | redis.ReadOnlyError) or code in _UNREADY:
        return ServerUnready(code, text)
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return LinkDown(text, sent=sent and "connecting to" not in text)
    if isinstance(error, redis.ResponseError):
        return ReplyError(code, text)
    return error
