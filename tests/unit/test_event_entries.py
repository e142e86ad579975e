# SPDX-License-Identifier: MIT
"""Entries of the event stream are read as tolerantly as jobs are."""

from __future__ import annotations

from typing import Any

import pytest

from echomq_pool.plane.events import decode


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'"\\ud800 alone"', "\ud800 alone"),
        (b"1180591620717411303424", 2**70),
        (b'{"a":[1,null]}', {"a": [1, None]}),
        (b"plain words", "plain words"),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_in_an_event_is_the_value_in_the_job(raw: bytes, value: Any) -> None:
    """case C104, C109, C110"""
    event = decode("q", b"1-0", [b"event", b"completed", b"jobId", b"7", b"returnvalue", raw])
    assert (event.name, event.job_id, event.data["returnvalue"]) == ("completed", "7", value)
