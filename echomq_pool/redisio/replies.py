# SPDX-License-Identifier: MIT
"""What the server's error replies mean, in one table; and readers for numbers that come as text.

Every code with an action other than FAIL or REFUSE says that the command did not run: it may be sent again.
That holds for scripts too: the server checks OOM, READONLY, MISCONF and NOREPLICAS before a script's *first*
write and not after it, so a script that fails with one of them has changed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from echomq_pool.errors import LinkError, LinkRefused, ReplyError, ServerUnready


class Action(Enum):
    """What the link does with a call that was answered by an error."""

    RETRY = auto()  # the server is busy with itself: same connection, after a pause
    RECONNECT = auto()  # wrong or broken node: look the address up again, connect, repeat
    RELOAD = auto()  # the script cache was emptied: load the script, repeat this call alone
    MOVED = auto()  # the slot lives elsewhere
    ASK = auto()  # this one call is served elsewhere while the slot moves
    REFUSE = auto()  # repeating cannot help, and the sentence says what to change
    FAIL = auto()  # belongs to the command; the caller knows what it means


class ErrorReply(Exception):
    """An error reply as the parser hands it over: a value, never raised."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`code` is the first word of the reply, `sentence` what a person should read."""

    action: Action
    code: str
    sentence: str


_CLUSTER_ADVICE = "the server is a cluster: set redis.cluster = true"
_TAG_ADVICE = (
    "the queue's keys fall into different cluster slots: use hash_tag = true or a prefix in {braces}"
)

# code: (action, sentence; "" = the server's own words)
TABLE: dict[str, tuple[Action, str]] = {
    "LOADING": (Action.RETRY, ""),
    "BUSY": (Action.RETRY, ""),
    "OOM": (Action.RETRY, ""),
    "MISCONF": (Action.RETRY, ""),
    "NOREPLICAS": (Action.RETRY, ""),
    "TRYAGAIN": (Action.RETRY, ""),
    "CLUSTERDOWN": (Action.RETRY, ""),
    "UNBLOCKED": (Action.RETRY, ""),
    "MAXCLIENTS": (Action.RETRY, ""),
    "READONLY": (Action.RECONNECT, ""),
    "MASTERDOWN": (Action.RECONNECT, ""),
    "NOAUTH": (Action.RECONNECT, "the server wants a password: set redis.url or redis.password"),
    "NOSCRIPT": (Action.RELOAD, ""),
    "MOVED": (Action.MOVED, _CLUSTER_ADVICE),
    "ASK": (Action.ASK, _CLUSTER_ADVICE),
    "WRONGPASS": (Action.REFUSE, "the server does not accept this user name and password"),
    "NOPERM": (Action.REFUSE, "the server's ACL does not allow this user to do that"),
    "CROSSSLOT": (Action.REFUSE, _TAG_ADVICE),
    "DENIED": (Action.REFUSE, "the server is in protected mode and lets in only its own host"),
    "NOPROTO": (Action.REFUSE, ""),
    "EXECABORT": (Action.FAIL, ""),
}

# Replies with the general code ERR that still mean something to the link: (part of the text, code, …).
_BY_TEXT: tuple[tuple[str, str, Action, str], ...] = (
    ("max number of clients", "MAXCLIENTS", Action.RETRY, ""),
    ("non local key in a cluster", "CROSSSLOT", Action.REFUSE, _TAG_ADVICE),
    ("DB index is out of range", "ERR", Action.REFUSE, "the server has no database of that number"),
    ("SELECT is not allowed in cluster", "ERR", Action.REFUSE, "a cluster has database 0 only"),
    (
        "without any password configured",
        "ERR",
        Action.REFUSE,
        "a password is set here, but the server has none",
    ),
    (
        "invalid username-password pair",
        "WRONGPASS",
        Action.REFUSE,
        "the server does not accept this password",
    ),
    ("invalid password", "WRONGPASS", Action.REFUSE, "the server does not accept this password"),
)


def classify(reply: ErrorReply) -> Verdict:
    """Looks one error reply up. Unknown codes belong to the command."""
    text = str(reply)
    code = text.split(" ", 1)[0]
    known = TABLE.get(code)
    if known is not None:
        action, sentence = known
        return Verdict(action, code, f"{sentence} ({text})" if sentence else text)
    for part, name, action, sentence in _BY_TEXT:
        if part in text:
            return Verdict(action, name, f"{sentence} ({text})" if sentence else text)
    return Verdict(Action.FAIL, code, text)


def to_error(verdict: Verdict) -> LinkError:
    """The exception for a verdict where nothing can be repeated right now."""
    if verdict.action is Action.REFUSE or verdict.code == "NOAUTH":
        return LinkRefused(verdict.sentence)
    if verdict.action in (Action.RETRY, Action.RECONNECT):
        return ServerUnready(verdict.code, verdict.sentence)
    return ReplyError(verdict.code, verdict.sentence)


def target_of(text: str) -> tuple[str, int]:
    """Host ("" = the answering node) and port out of `MOVED 3999 host:port` or `ASK …`."""
    host, _, port = text.split(" ")[2].rpartition(":")
    return ("" if host == "?" else host.strip("[]")), int(port)


def as_int(reply: Any, default: int = 0) -> int:
    """A number from a reply: compatible servers send some numbers as text, old scripts as fractions.

    Nil and text that is no number give `default`.
    """
    if isinstance(reply, int):
        return int(reply)
    try:
        return int(float(reply)) if b"." in bytes_of(reply) else int(bytes_of(reply))
    except (TypeError, ValueError, OverflowError):
        return default


def as_text(reply: Any) -> str:
    """Text from a reply; bytes that are no UTF-8 are kept visible instead of raising. Nil gives ""."""
    if reply is None:
        return ""
    return reply.decode("utf-8", "backslashreplace") if isinstance(reply, bytes) else str(reply)


def bytes_of(reply: Any) -> bytes:
    """The reply as bytes, whatever type it came as."""
    return reply if isinstance(reply, bytes) else str(reply).encode()
