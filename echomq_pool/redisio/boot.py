# SPDX-License-Identifier: MIT
"""From an address to a connection that may carry callers' commands: open, greet, load the scripts.

No HELLO: RESP2 is what the scripts' replies need, it parses as fast, and servers without HELLO need no
second way.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from echomq_pool.errors import LinkDown, LinkError, LinkRefused, ReplyError, ServerUnready
from echomq_pool.redisio.address import Address, tls_context
from echomq_pool.redisio.protocol import Owner, Wire
from echomq_pool.redisio.replies import ErrorReply, as_int, as_text, classify, to_error
from echomq_pool.redisio.scripts import Script, ScriptLibrary
from echomq_pool.redisio.state import ServerInfo

TLS_TIMEOUT_S = (
    3.0  # a plain server may just wait for more of our handshake; case C149 asks for an answer in 5 s
)

Ask = Callable[[Sequence[Sequence[bytes | str | int | float]]], "list[asyncio.Future[Any]]"]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the server said of itself and of us."""

    client_id: int | None
    info: ServerInfo


async def open_wire(owner: Owner, address: Address, timeout_ms: int) -> Wire:
    """Connects, with TLS where wanted.

    Raises:
        LinkRefused: TLS meets no TLS, or a certificate is not good.
        LinkDown: anything else; `sent` is False.
    """
    loop = asyncio.get_running_loop()
    context = tls_context(address.tls) if address.tls else None
    options: dict[str, Any] = {"ssl": context}
    if context is not None:
        options["ssl_handshake_timeout"] = min(TLS_TIMEOUT_S, timeout_ms / 1_000)
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            if address.unix_path:
                if context is not None:
                    options["server_hostname"] = address.host
                _, wire = await loop.create_unix_connection(lambda: Wire(owner), address.unix_path, **options)
            else:
                _, wire = await loop.create_connection(
                    lambda: Wire(owner), address.host, address.port, **options
                )
    except (OSError, ssl.SSLError, TimeoutError) as error:
        raise _why_not(error, address, timeout_ms) from None
    return wire


def _why_not(error: Exception, address: Address, timeout_ms: int) -> LinkError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return LinkRefused(f"the certificate of {address} is not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        if error.reason in (
            "WRONG_VERSION_NUMBER",
            "UNKNOWN_PROTOCOL",
            "HTTP_REQUEST",
            "RECORD_LAYER_FAILURE",
        ):
            return LinkRefused(f"{address} does not speak TLS: use redis:// or the server's TLS port")
        return LinkDown(f"TLS with {address} failed: {error.reason or error}", sent=False)
    if isinstance(error, TimeoutError) and not str(error):
        return LinkDown(f"no connection to {address} within {timeout_ms} ms", sent=False)
    text = str(error) or type(error).__name__
    if address.tls and ("handshake" in text or isinstance(error, ConnectionResetError)):
        return LinkDown(
            f"{address} broke off or ignored the TLS handshake; does its port speak TLS?", sent=False
        )
    return LinkDown(f"cannot connect to {address}: {text}", sent=False)


async def greet(ask: Ask, address: Address, name: str, *, want_master: bool) -> Greeting:
    """Logs in, selects, names the connection, and asks who we are and who the server is. One round trip.

    Args:
        want_master: a replica is as good as no answer.

    Raises:
        LinkRefused, ServerUnready, ReplyError: what the table makes of the first reply that counts.
        LinkDown: the connection broke.
    """
    needed: list[tuple[bytes | str | int | float, ...]] = []
    if address.password or address.username:
        user = (address.username,) if address.username else ()
        needed.append(("AUTH", *user, address.password))
    if address.db:
        needed.append(("SELECT", address.db))
    # PING is refused by a server that is loading, busy or cut off from its master; the rest is not.
    needed.append(("PING",))
    asked: list[tuple[bytes | str | int | float, ...]] = [
        ("INFO", "server"),
        ("INFO", "replication"),
        ("CLIENT", "ID"),
    ]
    if name:
        asked.append(("CLIENT", "SETNAME", safe_name(name)))
    replies = await asyncio.gather(*ask([*needed, *asked]), return_exceptions=True)
    for reply in replies[: len(needed)]:
        _check(reply)
    for reply in replies:  # later: a server that is full says so, and then closes the connection
        if isinstance(reply, LinkError):
            raise reply
    # An ACL may forbid these, and old or other servers may not know them: we do without.
    server, replication, client_id = (
        "" if isinstance(r, ErrorReply) else as_text(r) for r in replies[len(needed) :][:3]
    )
    info = ServerInfo.from_info(f"{server}\n{replication}")
    if want_master and info.role not in ("master", ""):
        raise ServerUnready("READONLY", f"READONLY {address} is a {info.role}, not the master")
    return Greeting(as_int(client_id) or None, info)


async def load_scripts(ask: Ask, library: ScriptLibrary) -> None:
    """Loads what the server does not have, in one write, and compares the hashes it answers with ours.

    Raises:
        LinkRefused: the ACL forbids scripts.
        ReplyError: a script does not compile, or its hash is another one.
        ServerUnready, LinkDown: as everywhere.
    """
    scripts = [library[name] for name in library]
    if not scripts:
        return
    (known,) = await asyncio.gather(*ask([("SCRIPT", "EXISTS", *(s.sha for s in scripts))]))
    _check(known)
    missing = [s for s, there in zip(scripts, known, strict=True) if not as_int(there)]
    if not missing:
        return
    for script, sha in zip(missing, await asyncio.gather(*ask([_load(s) for s in missing])), strict=True):
        _check(sha)
        if as_text(sha) != script.sha:
            raise ReplyError(
                "SHA", f"script {script.name}: the server calls it {as_text(sha)}, not {script.sha}"
            )


def _load(script: Script) -> tuple[str, str, bytes]:
    return ("SCRIPT", "LOAD", script.text)


def _check(reply: object) -> None:
    if isinstance(reply, LinkError):
        raise reply
    if isinstance(reply, ErrorReply):
        verdict = classify(reply)
        # A PING that the ACL forbids still shows that we are let in.
        if not (verdict.code == "NOPERM" and "'ping'" in verdict.sentence.lower()):
            raise to_error(verdict)


def safe_name(name: str) -> str:
    """A client name that CLIENT SETNAME takes: visible ASCII without spaces."""
    return "".join(c if "!" <= c <= "~" else "_" for c in name)
