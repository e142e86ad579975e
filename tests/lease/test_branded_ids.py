# SPDX-License-Identifier: MIT
"""Ids that sort as they were made."""

from __future__ import annotations

import os
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.clock import FakeClock
from echomq_pool.errors import InputError
from echomq_pool.plane import branded
from echomq_pool.plane.branded import Mint, encode, node_number, parse
from echomq_pool.plane.lease_keys import LeaseKeys, check_dedup_id, slot


def test_the_vectors_of_the_protocol() -> None:
    """promise 3.29"""
    assert encode("USR", 274557032793636864) == "USR0KHTOWnGLuC"
    for text in ("USR0NgWEfAEJfs", "ORD0NgWEfAEJfs"):
        found = parse(text)
        assert (found.value, found.unix_ms, found.node, found.sequence) == (
            320636799581945856, 1780512970164, 0, 0,
        )  # fmt: skip
    entry = parse("EVT000xY9Wvvcd")
    assert (entry.unix_ms, entry.tail) == (1704117200000, 1620567)
    assert encode("JOB", 2**63 - 1) == "JOBAzL8n0Y58m7"
    assert len("ORD0NgWEfAEJfs") == 14
    assert slot("123456789") == 12739


@pytest.mark.parametrize(
    "text", ["JOBzzzzzzzzzzz", "JOBAzL8n0Y58m8", "job0NgWEfAEJfs", "JOB0NgWEfAEJf", "JOB0NgWEfAEJf-", "", None, 7]
)  # fmt: skip
def test_what_is_no_id_is_refused_before_the_wire(text: object) -> None:
    with pytest.raises(InputError):
        parse(text)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_texts_sort_as_numbers(one: int, other: int) -> None:
    a, b = encode("JOB", one), encode("JOB", other)
    assert parse(a).value == one
    assert (a < b) == (one < other)


def test_ids_of_one_maker_only_grow_though_the_clock_steps_back() -> None:
    clock = FakeClock()
    mint = Mint(node=7, clock=clock)
    ids = [mint.new() for _ in range(5000)]
    clock.wall -= 3_600_000
    ids += [mint.new() for _ in range(10)]
    assert all(a < b for a, b in pairwise(ids))
    assert {parse(i).node for i in ids} == {7}
    assert parse(ids[4999]).unix_ms == clock.wall + 3_600_000 + 1, "the counter runs into the next ms"


def test_makers_of_one_process_never_make_the_same_id() -> None:
    """They share the last number: two that count for themselves meet within a millisecond."""
    makers = [Mint() for _ in range(4)]
    ids = [maker.new() for _ in range(500) for maker in makers]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)


def test_the_node_comes_from_the_environment_or_from_the_process() -> None:
    assert node_number({branded.NODE_VARIABLE: "17"}) == 17
    assert node_number({}) in range(1024)
    for wrong in ("1024", "-1", "x"):
        with pytest.raises(InputError):
            node_number({branded.NODE_VARIABLE: wrong})
    with pytest.raises(InputError):
        Mint(node=1024)


def test_siblings_of_one_fork_make_different_ids() -> None:
    mint = Mint(clock=FakeClock(int(time.time() * 1000)))
    mint.new()
    nodes = [mint.node, _in_child(mint), _in_child(mint)]
    assert len(set(nodes)) == 3


def _in_child(mint: Mint) -> int:
    """The node that a forked child uses."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(parse(mint.new()).node).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    node = int(os.read(reader, 10))
    os.close(reader)
    return node


def test_keys_are_those_of_the_protocol_and_share_a_slot() -> None:
    """promise 3.28, 3.32"""
    keys = LeaseKeys("orders")
    assert keys.rows == "emq:{orders}:job:"
    assert len(keys.rows) == len("emq:{orders}:job:") == 17
    assert keys.lock("JOB0NgWEfAEJfs") == "emq:{orders}:job:JOB0NgWEfAEJfs:lock"
    assert keys.lane("PRT0NgWEfAEJfs") == "emq:{orders}:g:PRT0NgWEfAEJfs:pending"
    every = [keys.key("pending"), keys.job("x"), keys.lane("y"), keys.repeat("z"), keys.dedup("d"), keys.base]
    assert {slot(key) for key in every} == {slot("orders")}
    assert LeaseKeys("{orders}").base == keys.base


@pytest.mark.parametrize("name", ["emq", "", "a b", "a:b", "x" * 129, "ü"])
def test_names_outside_the_grammar_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        LeaseKeys(name)
    if name != "emq":
        with pytest.raises(InputError):
            check_dedup_id(name if len(name) < 129 else name * 2)
