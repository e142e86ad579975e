# SPDX-License-Identifier: MIT
"""A cluster for synchronous producers: every command goes to the node that serves the slot of its first key.

Made of redis-py's plain clients, one per node. Its own cluster client sends no EVALSHA in a pipeline, and repeats
commands by itself after a lost reply, which is not its to decide (law 6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import redis
from redis import exceptions
from redis.crc import key_slot
from redis.exceptions import ClusterDownError, ResponseError, TryAgainError

from echomq_pool.redisio.cluster import Node
from echomq_pool.redisio.replies import target_of

HOPS = 5  # from node to node for one command; slots on their way settle in one or two
Command = tuple[Any, ...]
Range = tuple[int, int, Node]  # first and last slot, and the master that serves them
_KEYLESS = ("CLIENT", "SCAN")
# Of these later releases of redis-py take the code out of the text; earlier ones leave it there.
_CODES = {
    exceptions.MovedError: "MOVED",
    exceptions.AskError: "ASK",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.ClusterCrossSlotError: "CROSSSLOT",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.OutOfMemoryError: "OOM",
}


class ClusterClient:
    """The nodes of one cluster, safe to share between threads.

    Args:
        seeds: nodes to ask first.
        connect: makes the client of a node.
        maps: whether they may answer with maps.
        home: a key; commands that have none themselves go to its node.
    """

    def __init__(
        self, seeds: list[Node], connect: Callable[[Node], Any], *, maps: bool, home: str = ""
    ) -> None:
        self.maps = maps
        self._seeds = seeds
        self._connect = connect
        self._home = home
        self._lock = threading.Lock()
        self._clients: dict[Node, Any] = {}
        self._masters: list[Range] = []
        self._moved: dict[int, Node] = {}  # slots that went elsewhere since the nodes were asked
        self._detours: set[Node] = set()  # where ASK has sent us

    def at(self, home: str) -> ClusterClient:
        """The same nodes and connections, for the queue with this key."""
        twin = ClusterClient(self._seeds, self._connect, maps=self.maps, home=home)
        twin._lock, twin._clients = self._lock, self._clients
        return twin

    def one(self, command: Command) -> Any:
        """Sends one command and returns its reply.

        Raises:
            RedisError: as redis-py does.
        """
        (reply,) = self.many([command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def many(self, commands: list[Command]) -> list[Any]:
        """One write for all, to the node of the first; what belongs elsewhere follows. Errors are values here."""
        replies: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        for _ in range(HOPS):
            node = self._node_of(commands[left[0]])
            for index, reply in zip(left, self._sent(node, [commands[i] for i in left]), strict=True):
                replies[index] = self._asked(node, commands[index], reply)
            left = [i for i in left if wire_text(replies[i]).startswith("MOVED ")]
            if not left:
                return replies
            for index in left:
                self._point(node, wire_text(replies[index]))
        for index in left:
            replies[index] = TryAgainError(f"the slot goes from node to node: {replies[index]}")
        return replies

    def load(self, text: bytes, command: Command) -> None:
        """Loads a script where `command` would be sent, and where slots are on their way to."""
        for node in (self._node_of(command), *self._detours):
            self._sent(node, [("SCRIPT", "LOAD", text)])

    def close(self) -> None:
        """Closes the connections to all nodes."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close()
            client.connection_pool.disconnect()

    # --- which node ----------------------------------------------------------------------------------------

    def _node_of(self, command: Command) -> Node:
        key = _key_of(command) or self._home
        slot = key_slot(key if isinstance(key, bytes) else key.encode())
        if slot not in self._moved and not self._masters:
            self._ask_around()
        found = self._moved.get(slot) or next((n for a, z, n in self._masters if a <= slot <= z), None)
        if found is None:
            self._masters = []  # asked again by the next command
            raise ClusterDownError("no node serves the queue's slot")
        return found

    def _point(self, node: Node, text: str) -> None:
        """Remembers where a slot went."""
        self._moved[int(text.split(" ")[1])] = _node_in(text, node)

    def _ask_around(self) -> None:
        """Who serves which slots, by the first node that answers.

        Raises:
            RedisError: none does.
        """
        failure: Exception = redis.ConnectionError("Error connecting to a cluster: no node is known")
        for node in list(self._seeds):
            try:
                slots = self._client(node).execute_command("CLUSTER SLOTS")
            except (redis.ConnectionError, redis.TimeoutError) as error:
                failure = error
                continue
            self._masters, known = _ranges(slots, node)
            self._seeds = list(dict.fromkeys([*known, *self._seeds]))
            return
        raise failure

    # --- sending --------------------------------------------------------------------------------------------

    def _client(self, node: Node) -> Any:
        with self._lock:
            if node not in self._clients:
                self._clients[node] = self._connect(node)
            return self._clients[node]

    def _sent(self, node: Node, commands: list[Command]) -> list[Any]:
        try:
            return pipelined(self._client(node), commands)
        except (redis.ConnectionError, redis.TimeoutError):
            self._forget(node)
            raise

    def _asked(self, node: Node, command: Command, reply: Any) -> Any:
        """A slot on its way answers for some keys elsewhere: this once, and only there."""
        text = wire_text(reply)
        if not text.startswith("ASK "):
            return reply
        there = _node_in(text, node)
        self._detours = self._detours | {there}
        return self._sent(there, [("ASKING",), command])[-1]

    def _forget(self, node: Node) -> None:
        """It may be down for good: the next command asks the others first who took over."""
        self._masters, self._moved, self._detours = [], {}, set()
        self._seeds = [*(seed for seed in self._seeds if seed != node), node]
        with self._lock:
            lost = self._clients.pop(node, None)
        if lost is not None:
            lost.connection_pool.disconnect()


def wire_text(reply: Any) -> str:
    """An error reply as the server wrote it, its code first; nothing for what is none."""
    if not isinstance(reply, ResponseError):
        return ""
    code, text = _CODES.get(type(reply), ""), str(reply)
    return f"{code} {text}" if code and not text.startswith(code) else text


def _node_in(text: str, asked: Node) -> Node:
    host, port = target_of(text)
    return host or asked[0], port


def pipelined(client: Any, commands: list[Command]) -> list[Any]:
    """One write for all, errors as values."""
    with client.pipeline(transaction=False) as pipe:
        for command in commands:
            pipe.execute_command(*command)
        replies: list[Any] = pipe.execute(raise_on_error=False)
        return replies


def _key_of(command: Command) -> Any:
    """The first key of what operations send; None where there is none."""
    name = command[0]
    if name == "EVALSHA":
        return command[3] if command[2] else None
    if name == "XREAD":
        return command[command.index("STREAMS") + 1]
    return None if name in _KEYLESS else command[1]


def _ranges(slots: Any, asked: Node) -> tuple[list[Range], list[Node]]:
    """A CLUSTER SLOTS reply: who serves what, and every node, replicas included."""
    masters: list[Range] = []
    nodes: dict[Node, None] = {}
    for first, last, *servers in slots:
        found = [((host or b"").decode() or asked[0], int(port)) for host, port, *_ in servers]
        nodes |= dict.fromkeys(found)
        masters.append((int(first), int(last), found[0]))
    return masters, list(nodes)
