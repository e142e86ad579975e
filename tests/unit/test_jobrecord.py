# SPDX-License-Identifier: MIT
"""Reading a job's hash, whoever wrote it, and JSON on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq_pool.errors import InputError
from echomq_pool.plane import codec
from echomq_pool.plane.job_record import JobRecord, encode_opts


def record(**fields: Any) -> JobRecord:
    flat = [item.encode() if isinstance(item, str) else item for pair in fields.items() for item in pair]
    return JobRecord.from_flat("1", flat)


def test_a_hash_of_node_is_read_whole() -> None:
    job = record(
        name="a", data='{"x":1}', opts='{"attempts":3,"kl":5}', timestamp="1795981509107", delay="0", priority="2",
        processedOn="1795981509120", pb="wk", ats="2", atm="1", stc="1", returnvalue="null",
        finishedOn="1795981509125", rjk="nightly", deid="d", parentKey="emq:{q}:p",
        parent='{"id":"p","queueKey":"emq:{q}","fpof":true}', progress='{"done":5}', stacktrace='["one","two"]',
        failedReason="boom",
    )  # fmt: skip
    assert (job.name, job.data, job.priority, job.ats, job.atm, job.stc) == ("a", b'{"x":1}', 2, 2, 1, 1)
    assert (job.processed_on, job.finished_on) == (1795981509120, 1795981509125)
    assert job.opts == {"attempts": 3, "keepLogs": 5}
    assert job.parent == {"id": "p", "queueKey": "emq:{q}", "fpof": True}
    assert (job.rjk, job.deid, job.parent_key, job.processed_by) == ("nightly", "d", "emq:{q}:p", "wk")
    assert (job.progress, job.stacktrace, job.failed_reason) == ({"done": 5}, ["one", "two"], "boom")


def test_an_empty_hash_decodes_to_zeros_and_nothing() -> None:
    job = record()
    assert (job.name, job.data, job.ats, job.timestamp, job.attempts) == ("", b"{}", 0, 0, 0)
    assert (job.processed_on, job.finished_on, job.failed_reason, job.returnvalue) == (None, None, None, None)


@pytest.mark.parametrize(
    ("fields", "field", "expected"),
    [
        ({"attemptsMade": "2", "atm": "7"}, "atm", 2),
        ({"atm": "7"}, "atm", 7),
        ({"delay": "12.5"}, "delay", 12.5),
        ({"priority": "3.0"}, "priority", 3),
        ({"timestamp": "nonsense"}, "timestamp", 0),
        ({"timestamp": "nan"}, "timestamp", 0),
        ({"failedReason": '"quoted by Python"'}, "failed_reason", "quoted by Python"),
        ({"failedReason": '"half quoted'}, "failed_reason", '"half quoted'),
        ({"failedReason": b"\xff\xfe"}, "failed_reason", "��"),
        ({"opts": "[1]"}, "opts", {}),
        ({"opts": "not json"}, "opts", {}),
        ({"stacktrace": "{}"}, "stacktrace", []),
        ({"stacktrace": "[1]"}, "stacktrace", ["1"]),
        ({"progress": "garbage"}, "progress", 0),
        ({"unheard": "of", "nrjid": "x"}, "id", "1"),
    ],
)
def test_odd_values_are_read_as_well_as_possible(fields: dict[str, Any], field: str, expected: Any) -> None:
    """law 12"""
    assert getattr(record(**fields), field) == expected


def test_a_bare_number_as_backoff_is_a_fixed_delay() -> None:
    assert record(opts='{"backoff":250}').backoff == {"type": "fixed", "delay": 250}
    assert record(opts='{"backoff":{"type":"exponential","delay":9}}').backoff == {
        "type": "exponential",
        "delay": 9,
    }
    assert record(opts='{"backoff":true}').backoff is None


def test_option_names_go_back_and_forth() -> None:
    opts = {
        "attempts": 3,
        "keepLogs": 2,
        "failParentOnFailure": True,
        "telemetry": {"metadata": "m"},
        "x": None,
    }
    wire = encode_opts(opts)
    assert wire == {"attempts": 3, "kl": 2, "fpof": True, "tm": "m"}
    read = record(opts=json.dumps(wire)).opts
    assert read == {"attempts": 3, "keepLogs": 2, "failParentOnFailure": True, "telemetry": {"metadata": "m"}}


def test_a_stacktrace_keeps_its_newest_entries() -> None:
    job = record(stacktrace='["a","b"]', opts='{"stackTraceLimit":2}')
    assert job.stacktrace_with("c") == ["b", "c"]
    job.opts["stackTraceLimit"] = 0
    assert job.stacktrace_with("c") == []
    del job.opts["stackTraceLimit"]
    assert job.stacktrace_with("c") == ["a", "b", "c"]


TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT | st.sampled_from(["\ud800", "a\udfffb"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_what_is_json_goes_on_the_wire_and_comes_back(value: Any) -> None:
    """case C104, C109, C110"""
    assert json.loads(codec.encode(value)) == value
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    "value", [float("nan"), {"a": float("inf")}, [1, [float("-inf")]], ("x", float("nan"))]
)
def test_nan_and_infinity_are_refused_by_name_and_place(value: Any) -> None:
    """case C105"""
    with pytest.raises(InputError, match=r"NaN or Infinity at \$"):
        codec.encode(value)


def test_null_is_not_taken_for_a_nan() -> None:
    assert codec.encode([None, "null", 1.5]) == b'[null,"null",1.5]'


def test_what_is_no_json_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (object(), {1, 2}, loop, b"bytes", {("a",): 1}):
        with pytest.raises(InputError, match="not JSON"):
            codec.encode(value)


def test_integers_beyond_64_bits_keep_every_digit() -> None:
    """case C109"""
    for number in (9007199254740993, 2**64 + 1, -(10**30)):
        assert codec.decode(codec.encode(number)) == number


@pytest.mark.parametrize(
    ("text", "wire"), [("é", b"\xc3\xa9"), ("a\ud800b", b"a\xef\xbf\xbdb"), ("💥", b"\xf0\x9f\x92\xa5")]
)
def test_text_goes_out_as_node_writes_it(text: str, wire: bytes) -> None:
    """case C110"""
    assert codec.to_wire(text) == wire


def test_what_is_nested_deeper_than_python_reads_is_no_json_and_the_rest_of_its_job_is_read() -> None:
    """law 13: Node writes any depth; an error of another kind ended the slot that took such a job."""
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(ValueError, match="nested too deep"):
        codec.decode(deep)
    job = record(name="deep", opts=deep, parent=deep, progress=deep, stacktrace=deep, atm="2")
    assert (job.name, job.opts, job.parent, job.progress, job.stacktrace, job.atm) == (
        "deep",
        {},
        None,
        0,
        [],
        2,
    )
