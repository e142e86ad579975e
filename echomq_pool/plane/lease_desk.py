# SPDX-License-Identifier: MIT
"""How the parts of the lease plane make a call: one queue, one link, and error words become exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from echomq_pool.errors import LinkDown, LinkRefused, ReplyError, VersionFence, WrongPlane
from echomq_pool.plane import codec
from echomq_pool.plane.lease_codes import gone, translate
from echomq_pool.plane.lease_keys import VERSION_KEY, LeaseKeys
from echomq_pool.redisio.scripts import Script, ScriptLibrary

Arg = bytes | str | int | float

WIRE_VERSION = "echomq:3.0.0"
REFUSED_PAUSE_S = 1.0
UNREADY_PAUSE_S = 0.1


class Asking(Protocol):
    """The part of a link that the plane uses."""

    @property
    def connected(self) -> bool: ...

    def call(self, *args: Arg, timeout_ms: int | None = None) -> asyncio.Future[Any]: ...

    def script(
        self, script: Script, keys: Sequence[bytes | str], args: Sequence[Arg]
    ) -> asyncio.Future[Any]: ...

    async def ready(self) -> None: ...


class Desk:
    """Sends the scripts of one queue.

    Args:
        link: a connection of the caller.
        keys: the queue.
        library: the scripts, with the folder `lease`.
    """

    def __init__(self, link: Asking, keys: LeaseKeys, library: ScriptLibrary) -> None:
        self.link = link
        self.keys = keys
        self._library = library

    def send(self, name: str, keys: Sequence[bytes | str], args: Sequence[Arg]) -> asyncio.Future[Any]:
        """Runs `lease/<name>`; errors come as the link gives them."""
        return self.link.script(self._library[f"lease/{name}"], keys, args)

    async def ask(
        self,
        name: str,
        keys: Sequence[bytes | str],
        args: Sequence[Arg],
        *,
        job_id: str = "",
        action: str = "",
    ) -> Any:
        """The same, with the plane's error words as exceptions.

        Raises:
            JobError: the subclass that the word stands for.
        """
        try:
            return await self.send(name, keys, args)
        except ReplyError as error:
            raise translate(error, job_id, action or name) from None

    async def must(
        self, name: str, keys: Sequence[bytes | str], args: Sequence[Arg], job_id: str, action: str
    ) -> int:
        """The same for verbs that answer -1 when there is no such job.

        Raises:
            JobMissing: so it is.
        """
        reply = await self.ask(name, keys, args, job_id=job_id, action=action)
        if reply == -1:
            raise gone(job_id, action)
        return int(reply)

    async def reconnected(self, error: LinkDown | LinkRefused) -> None:
        """Waits out the loss of the link, a password that is being changed included.

        Raises:
            LinkRefused: the server refused the command itself, on a good connection.
            LinkDown: the link was closed.
        """
        if isinstance(error, LinkRefused) and self.link.connected:
            raise error
        while True:
            try:
                return await self.link.ready()
            except LinkRefused:
                await asyncio.sleep(REFUSED_PAUSE_S)


async def fence(link: Asking, version: str = WIRE_VERSION) -> None:
    """The version fence: before the first command of every connection (a link's `on_connect`).

    Raises:
        VersionFence: the server's keys belong to another version. Trying again does not help.
    """
    found = await link.call("GET", VERSION_KEY)
    if found is None:
        await link.call("SET", VERSION_KEY, version, "NX")
        found = await link.call("GET", VERSION_KEY)
    if codec.to_text(found) != version:
        raise VersionFence(codec.to_text(found), version)


async def claim_plane(link: Asking, base: str, meta: str, library: ScriptLibrary, plane: str) -> None:
    """Opens a queue on a plane (`lease` or `lock`). The lease plane notes it; both look at the keys.

    Raises:
        WrongPlane: the queue belongs to the other one.
    """
    evidence = codec.to_text(await link.script(library["lease/open"], (meta, base), (plane,)))
    if evidence:
        raise wrong_plane(base, plane, evidence)


def wrong_plane(base: str, plane: str, evidence: str) -> WrongPlane:
    """The refusal of a queue that belongs to the plane which is not `plane`."""
    other = "lock" if plane == "lease" else "lease"
    return WrongPlane(
        f"queue {base} belongs to the {other} plane (its key '{evidence}' shows it) "
        f"and cannot be opened on the {plane} plane"
    )
