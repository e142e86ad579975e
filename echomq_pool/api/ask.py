# SPDX-License-Identifier: MIT
"""What an operation is: a generator that yields batches of requests, is sent the replies, and returns its result.

Two thin drivers run it over their connection, `AsyncDriver` here and `SyncDriver` in `sync_driver.py`. Everything
that decides is in the operations, written once.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from echomq_pool.clock import Clock
from echomq_pool.errors import InputError, LinkDown
from echomq_pool.plane import codec
from echomq_pool.plane.base import Plane
from echomq_pool.plane.calls import Arg, Call, Calls
from echomq_pool.plane.codes import Code, error_of
from echomq_pool.plane.keys import QueueKeys
from echomq_pool.plane.repeat import RULES, Rule
from echomq_pool.redisio.scripts import Script, ScriptLibrary, load_library

T = TypeVar("T")

TRIES = 3  # of a request that may be repeated after a lost reply


@dataclass(frozen=True, slots=True)
class Made:
    """A call of a script that no file holds because it is made of others (a flow)."""

    script: Script
    keys: list[Arg]
    args: list[Arg]


What = Call | Made | tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `repeat`: it may be sent again after a lost reply."""

    what: What
    repeat: bool


Op = Generator[list[Ask], list[Any], T]


class Base:
    """What every group of operations of one queue stands on."""

    def __init__(self, keys: QueueKeys, calls: Calls, clock: Clock) -> None:
        self.keys = keys
        self._calls = calls
        self._clock = clock

    def state(self, job_id: str) -> Op[str]:
        """Where the job is, `unknown` when it is nowhere."""
        (reply,) = yield [ask_script(self._calls.state(text_id(job_id)))]
        return codec.to_text(reply)

    def checked(self, reply: object, job_id: str, action: str, expected: str = "") -> Op[None]:
        """Raises for a negative reply, with the state found where a state was the reason.

        Raises:
            JobError: the subclass that the code stands for.
        """
        if not isinstance(reply, int) or reply >= 0:
            return
        found = ""
        if reply == Code.NOT_IN_STATE:
            found = yield from self.state(job_id)
        raise error_of(reply, job_id, action, expected=expected if found else "", found=found)


def ask_script(call: Call) -> Ask:
    """A script call, repeated or not as the table of law 6 says."""
    return Ask(call, repeat=RULES[call.script] in (Rule.REPEAT, Rule.READ))


def ask_read(*command: Arg) -> Ask:
    """A plain command that may be sent twice."""
    return Ask(command, repeat=True)


def text_id(job_id: object) -> str:
    """`job_id` as it is.

    Raises:
        InputError: no text, or empty.
    """
    if not isinstance(job_id, str) or not job_id:
        raise InputError(f"job id: expected a non-empty text, got {job_id!r}")
    return job_id


class Asking(Protocol):
    """The part of a link that a driver uses."""

    def call(self, *args: Arg, timeout_ms: int | None = None) -> asyncio.Future[Any]: ...

    def script(self, script: Script, keys: Any, args: Any) -> asyncio.Future[Any]: ...


class Library(Protocol):
    """Scripts by name."""

    def __getitem__(self, name: str, /) -> Script: ...


@functools.cache
def library() -> ScriptLibrary:
    """The scripts, read once per process: a web application may make a queue per request."""
    return load_library()


class AsyncDriver:
    """Runs operations; `send` carries one request and gives its reply."""

    def __init__(self, send: Callable[[What], Awaitable[Any]]) -> None:
        self._send_one = send

    async def run(self, operation: Op[T]) -> T:
        """The operation's result; what it raises is raised here."""
        try:
            batch = next(operation)
            while True:
                replies = await self._send(batch)
                batch = operation.send(replies)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _send(self, batch: list[Ask]) -> list[Any]:
        if len(batch) == 1:
            return [await self._ask(batch[0])]
        # All in one write; every reply is awaited before the first error is raised.
        replies = await asyncio.gather(*(self._ask(ask) for ask in batch), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return replies

    async def _ask(self, ask: Ask) -> Any:
        tries = TRIES if ask.repeat else 1
        while True:
            tries -= 1
            try:
                return await self._send_one(ask.what)
            except LinkDown as error:
                if not error.sent or tries <= 0:
                    raise


def over_link(link: Asking, library: Library) -> AsyncDriver:
    """A driver over a connection of our own."""

    def send(what: What) -> asyncio.Future[Any]:
        if isinstance(what, Call):
            return link.script(library[what.script], what.keys, what.args)
        if isinstance(what, Made):
            return link.script(what.script, what.keys, what.args)
        return link.call(*what)

    return AsyncDriver(send)


def over_plane(plane: Plane) -> AsyncDriver:
    """A driver for a job's verbs, over the connection of the worker that holds it."""

    def send(what: What) -> Awaitable[Any]:
        if isinstance(what, Call):
            return plane.ask(what.script, what.keys, what.args)
        assert not isinstance(what, Made)
        return plane.command(*what)

    return AsyncDriver(send)
