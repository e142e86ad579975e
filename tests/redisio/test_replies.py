# SPDX-License-Identifier: MIT
"""The table of error replies, and numbers that come as text."""

from __future__ import annotations

import pytest

from echomq_pool.redisio.pace import pause_ms
from echomq_pool.redisio.replies import Action, ErrorReply, as_int, as_text, classify, target_of
from echomq_pool.redisio.state import ServerInfo, parse_version


@pytest.mark.parametrize(
    ("reply", "action", "code"),
    [
        ("LOADING Valkey is loading the dataset in memory", Action.RETRY, "LOADING"),
        ("BUSY Redis is busy running a script.", Action.RETRY, "BUSY"),
        (
            "OOM command not allowed when used memory > 'maxmemory'. script: x, on @user_script:1.",
            Action.RETRY,
            "OOM",
        ),
        ("MISCONF Errors writing to the AOF file", Action.RETRY, "MISCONF"),
        ("NOREPLICAS Not enough good replicas to write.", Action.RETRY, "NOREPLICAS"),
        ("CLUSTERDOWN Hash slot not served", Action.RETRY, "CLUSTERDOWN"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Action.RETRY, "TRYAGAIN"),
        ("UNBLOCKED client unblocked via CLIENT UNBLOCK", Action.RETRY, "UNBLOCKED"),
        ("ERR max number of clients reached", Action.RETRY, "MAXCLIENTS"),
        ("READONLY You can't write against a read only replica.", Action.RECONNECT, "READONLY"),
        ("MASTERDOWN Link with MASTER is down", Action.RECONNECT, "MASTERDOWN"),
        ("NOAUTH Authentication required.", Action.RECONNECT, "NOAUTH"),
        ("NOSCRIPT No matching script.", Action.RELOAD, "NOSCRIPT"),
        ("MOVED 3999 127.0.0.1:6381", Action.MOVED, "MOVED"),
        ("ASK 3999 127.0.0.1:6381", Action.ASK, "ASK"),
        ("WRONGPASS invalid username-password pair", Action.REFUSE, "WRONGPASS"),
        ("NOPERM this user has no permissions to run the 'evalsha' command", Action.REFUSE, "NOPERM"),
        ("CROSSSLOT Keys in request don't hash to the same slot", Action.REFUSE, "CROSSSLOT"),
        ("ERR Script attempted to access a non local key in a cluster node", Action.REFUSE, "CROSSSLOT"),
        ("ERR DB index is out of range", Action.REFUSE, "ERR"),
        ("WRONGTYPE Operation against a key", Action.FAIL, "WRONGTYPE"),
        ("BUSYGROUP Consumer Group name already exists", Action.FAIL, "BUSYGROUP"),
        ("EXECABORT Transaction discarded", Action.FAIL, "EXECABORT"),
        ("ERR unknown command", Action.FAIL, "ERR"),
        ("", Action.FAIL, ""),
    ],
)
def test_every_error_reply_has_one_treatment(reply: str, action: Action, code: str) -> None:
    """case C010, C012, C013, C016, C017: the table of redisio/replies.py"""
    verdict = classify(ErrorReply(reply))
    assert (verdict.action, verdict.code) == (action, code)
    assert reply in verdict.sentence


def test_refusals_for_ever_say_what_to_change() -> None:
    """case C017"""
    assert "hash_tag" in classify(ErrorReply("CROSSSLOT Keys")).sentence
    assert "redis.cluster = true" in classify(ErrorReply("MOVED 1 a:1")).sentence
    assert "password" in classify(ErrorReply("NOAUTH Authentication required.")).sentence


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        (5, 5), (b"5", 5), ("5", 5), (b"-7", -7), (b"1696233644865.1", 1696233644865), (5.9, 5),
        (None, 0), (b"", 0), (b"soon", 0), (b"9007199254740993", 9007199254740993), (b"inf", 0), (b"n.an", 0),
    ],
)  # fmt: skip
def test_numbers_are_read_from_whatever_type_a_server_sends(reply: object, number: int) -> None:
    """case C087"""
    assert as_int(reply) == number


def test_text_survives_bytes_that_are_no_text() -> None:
    """case C103"""
    assert as_text(b"caf\xc3\xa9") == "café"
    assert as_text(b"\xff") == "\\xff"
    assert as_text(None) == ""
    assert as_text(4) == "4"


def test_redirections_name_host_and_port() -> None:
    """case C017"""
    assert target_of("MOVED 3999 10.0.0.1:6381") == ("10.0.0.1", 6381)
    assert target_of("ASK 3999 :6381") == ("", 6381)
    assert target_of("MOVED 3999 ?:6381") == ("", 6381)
    assert target_of("MOVED 3999 [::1]:6381") == ("::1", 6381)


@pytest.mark.parametrize(
    ("info", "min_ms", "sent"),
    [
        ("redis_version:6.2.7", 2, "0.002"),
        ("redis_version:7.0.7", 2, "0.002"),
        ("redis_version:7.0.8", 1, "0.001"),
        ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1", 1, "0.001"),
        ("redis_version:8.2.0", 1, "0.001"),
        ("redis_version:5.0.14", 1_000, "1"),
        ("", 1_000, "1"),
    ],
)
def test_no_server_is_sent_a_blocking_timeout_of_zero(info: str, min_ms: int, sent: str) -> None:
    """case C084, C086"""
    server = ServerInfo.from_info(info)
    assert server.min_block_ms == min_ms
    for tiny in (-5, 0, 0.0001, 0.4, min_ms):
        assert server.block_seconds(tiny) == sent


def test_versions_are_read_as_far_as_they_are_numbers() -> None:
    """case C086"""
    assert parse_version("9.1.2") == (9, 1, 2)
    assert parse_version("v1.2-rc3") == (1, 2)
    assert parse_version("unstable") == (0,)
    assert str(ServerInfo.from_info("redis_version:7.0.15\r\nrole:master")) == "redis 7.0.15"


def test_pauses_grow_to_two_seconds_and_no_further() -> None:
    """case C003, C008"""
    assert all(25 <= pause_ms(0) <= 50 for _ in range(50))
    assert all(100 <= pause_ms(2) <= 200 for _ in range(50))
    assert all(1_000 <= pause_ms(10**9) <= 2_000 for _ in range(50))
