# SPDX-License-Identifier: MIT
"""The quick way of reading a job's hash gives what the lenient one gives, whatever somebody wrote there."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.plane import job_record
from echomq_pool.plane.job_record import JobRecord

NAMES = st.sampled_from([*job_record.READERS, b"attemptsMade", b"of-another-version"])
NUMBERS = st.integers(-(2**70), 2**70).map(lambda n: str(n).encode())
ODD = [
    b"",
    b"0",
    b"12.5",
    b"1e3",
    b"nan",
    b"-inf",
    b" 7 ",
    b"1_0",
    b"null",
    b"[]",
    b'"x"',
    b"\xff",
    "ä".encode(),
]
OPTS = [b"{}", b'{"attempts":3,"kl":2}', b'{"de":{"id":"x"}}', b'{"n":12345678901234567890}']
VALUES = st.one_of(NUMBERS, st.sampled_from([*ODD, *OPTS]), st.binary(max_size=8))


@given(st.dictionaries(NAMES, VALUES))
def test_both_ways_read_the_same(fields: dict[Any, Any]) -> None:
    """case C031"""
    flat = [part for pair in fields.items() for part in pair]
    assert JobRecord.from_flat("1", flat) == JobRecord.from_flat("1", fields)


def test_what_scripts_write_goes_the_quick_way() -> None:
    fields = {
        b"name": b"job",
        b"data": b"{}",
        b"opts": b"{}",
        b"timestamp": b"1",
        b"delay": b"0",
        b"ats": b"1",
    }
    assert job_record._quick("1", [part for pair in fields.items() for part in pair]) is not None
    assert job_record._quick("1", [b"name"]) is None, "half a field"
