# SPDX-License-Identifier: MIT
"""Options are refused before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from echomq_pool.api.options import check_job, check_options
from echomq_pool.api.repeats import check_repeat
from echomq_pool.errors import InputError
from echomq_pool.plane.base import PlaneOptions, block_ms
from echomq_pool.plane.pack import pack

NAN = float("nan")

REFUSED: list[dict[str, Any]] = [
    {"delay": "1200"}, {"delay": NAN}, {"delay": -5}, {"delay": True}, {"delay": float("inf")},
    {"priority": 1.5}, {"priority": 2**21}, {"priority": -1}, {"priority": True}, {"priority": "1"},
    {"attempts": "3"}, {"attempts": -1}, {"attempts": 2.5}, {"attempts": NAN}, {"attempts": False},
    {"backoff": {}}, {"backoff": "fixed"}, {"backoff": -1}, {"backoff": NAN}, {"backoff": {"type": ""}},
    {"backoff": {"type": "fixed", "delay": "1"}}, {"backoff": {"type": "fixed", "jitter": 2}},
    {"backoff": {"type": "fixed", "dealy": 1}},
    {"lifo": 1}, {"lifo": "yes"}, {"job_id": "12"}, {"job_id": 12}, {"job_id": "a:b"},
    {"remove_on_complete": "yes"}, {"remove_on_fail": {"cnt": 1}}, {"remove_on_fail": {"age": "1h"}},
    {"remove_on_fail": 1.5}, {"keep_logs": -1}, {"timestamp": "now"}, {"size_limit": "1k"},
    {"stack_trace_limit": -1}, {"deduplication": {}}, {"deduplication": "x"}, {"deduplication": {"id": ""}},
    {"deduplication": {"id": "x", "ttl": "1"}}, {"deduplication": {"id": "x", "foo": 1}},
]  # fmt: skip


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_an_option_of_the_wrong_kind_is_refused_by_name(options: dict[str, Any]) -> None:
    """case C144"""
    with pytest.raises(InputError) as caught:
        check_options(options)
    name = next(iter(options)).replace("job_id", "job id")
    assert str(caught.value).startswith(name)


ACCEPTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"delay": 12.5}, {"delay": 12.5}),
    ({"delay": 1200.0}, {"delay": 1200}),
    ({"priority": 2_097_151}, {"priority": 2_097_151}),
    ({"backoff": 250}, {"backoff": {"type": "fixed", "delay": 250}}),
    ({"backoff": {"type": "mine"}}, {"backoff": {"type": "mine"}}),
    ({"remove_on_complete": True, "removeOnFail": 5}, {"removeOnComplete": True, "removeOnFail": 5}),
    ({"remove_on_fail": {"age": 60, "count": None}}, {"removeOnFail": {"age": 60}}),
    ({"attempts": None}, {}),
    (
        {"deduplication": {"id": "x", "keep_last_if_active": True}},
        {"deduplication": {"id": "x", "keepLastIfActive": True}},
    ),
]


@pytest.mark.parametrize(("options", "checked"), ACCEPTED, ids=str)
def test_usable_options_get_the_names_of_the_wire(options: dict[str, Any], checked: dict[str, Any]) -> None:
    assert check_options(options) == checked


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'attempts'"):
        check_options({"atempts": 3})


def test_a_delay_of_years_is_kept_and_one_past_the_end_of_time_refused() -> None:
    """case C088"""
    years = 10 * 365 * 86_400_000
    assert check_job("n", None, {"delay": years}, 1_800_000_000_000).opts["delay"] == years
    with pytest.raises(InputError, match="delay"):
        check_job("n", None, {"delay": 8_640_000_000_000_000}, 1_800_000_000_000)


def test_data_beyond_the_size_limit_is_refused_in_bytes() -> None:
    with pytest.raises(InputError, match="size limit"):
        check_job("n", "é" * 10, {"size_limit": 20}, 0)
    assert check_job("n", "e" * 10, {"size_limit": 20}, 0).data == b'"eeeeeeeeee"'


def test_a_job_gets_the_defaults_of_node() -> None:
    job = check_job("n", None, {}, 1_800_000_000_000)
    assert (job.data, job.opts, job.timestamp, job.job_id) == (b"{}", {"attempts": 0}, 1_800_000_000_000, "")


@pytest.mark.parametrize("name", [None, 5, b"x"])
def test_a_name_must_be_a_text(name: object) -> None:
    with pytest.raises(InputError, match="name"):
        check_job(name, None, {}, 0)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"every": 1000, "pattern": "* * * * *"}, {"every": 0}, {"every": "1000"}, {"every": True},
        {"pattern": "61 * * * *"}, {"pattern": "* * * * *", "tz": "Mars/Olympus"}, {"every": 5, "limit": 0},
        {"every": 5, "immediately": True, "start": 99}, {"every": 5, "start": 99, "end": 98},
        {"every": 5, "start": datetime(2030, 1, 1)},
    ],
    ids=str,
)  # fmt: skip
def test_a_series_needs_exactly_one_usable_rule(options: dict[str, Any]) -> None:
    """promise 4.17"""
    with pytest.raises(InputError):
        check_repeat(**options)


def test_moments_of_a_series_may_be_datetimes_with_their_zone() -> None:
    repeat = check_repeat(every=5, start=datetime(2030, 1, 1, tzinfo=UTC))
    assert repeat.start_ms == 1_893_456_000_000


@pytest.mark.parametrize("value", [2**64, object()])
def test_what_cannot_be_packed_is_refused_and_spoils_nothing(value: Any) -> None:
    with pytest.raises(InputError, match="cannot be sent"):
        pack({"a": value})
    assert pack(["ok"]) == b"\x91\xa2ok"


def test_a_lone_surrogate_in_an_option_is_packed_as_node_writes_it() -> None:
    """case C110"""
    assert pack({"a": "\ud800"}) == b"\x81\xa1a\xa3\xef\xbf\xbd"
    assert pack(["ok"]) == b"\x91\xa2ok"


@pytest.mark.parametrize("value", [-1, 0.5, "x", None, True])
@pytest.mark.parametrize("name", ["lock_duration_ms", "max_stalled_count", "stalled_interval_ms"])
def test_a_plane_refuses_lease_numbers_that_cannot_work(name: str, value: Any) -> None:
    """case C145"""
    with pytest.raises(InputError, match=name):
        PlaneOptions(**{name: value})


@pytest.mark.parametrize(
    ("until", "minimum", "expected"),
    [(0, 1, 5_000), (900, 1, 0), (1_000, 1, 0), (1_001, 2, 2), (1_600, 1, 600), (10**12, 1, 10_000)],
)
def test_blocking_ends_when_the_next_job_is_due_and_after_ten_seconds_at_most(
    until: int, minimum: int, expected: int
) -> None:
    """case C088, law 11"""
    assert block_ms(1_000, until, 5_000, minimum) == expected
