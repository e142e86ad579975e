# SPDX-License-Identifier: MIT
"""Return codes and their exceptions."""

from __future__ import annotations

import pytest

from echomq_pool.errors import (
    ChildrenFailed,
    DependenciesPending,
    JobError,
    JobMissing,
    LeaseLost,
    ParentMissing,
    SchedulerOwned,
    SlotTaken,
    WrongState,
)
from echomq_pool.plane.codes import Code, check, error_of

TABLE = {
    -1: JobMissing,
    -2: LeaseLost,
    -3: WrongState,
    -4: DependenciesPending,
    -5: ParentMissing,
    -6: LeaseLost,
    -7: ParentMissing,
    -8: SchedulerOwned,
    -9: ChildrenFailed,
    -10: SlotTaken,
    -11: SlotTaken,
}


@pytest.mark.parametrize(("code", "kind"), TABLE.items())
def test_each_code_has_its_exception_with_the_job_and_the_code(code: int, kind: type[JobError]) -> None:
    """law 13"""
    error = error_of(code, "17", "complete")
    assert type(error) is kind
    assert (error.job_id, error.code) == ("17", code)
    assert "cannot complete job 17" in str(error)


def test_every_code_of_the_protocol_is_in_the_table() -> None:
    assert {int(code) for code in Code} == set(TABLE)


def test_a_wrong_state_tells_what_was_expected_and_what_was_found() -> None:
    text = str(error_of(-3, "17", "retry", expected="active", found="delayed"))
    assert text.endswith("(expected active, found delayed)")


def test_an_unknown_code_is_told_and_not_swallowed() -> None:
    with pytest.raises(JobError, match="unknown code -99"):
        check(-99, "17", "complete")


@pytest.mark.parametrize("reply", [0, 1, None, b"17", [b"x"]])
def test_anything_else_passes(reply: object) -> None:
    check(reply, "17", "complete")
