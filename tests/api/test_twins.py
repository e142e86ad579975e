# SPDX-License-Identifier: MIT
"""The asynchronous and the synchronous API are one: the same names with the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import echomq_pool
from echomq_pool import FlowProducer, Job, Lease, Queue, SyncFlowProducer, SyncJob, SyncLease, SyncQueue
from echomq_pool.api.job_view import JobView
from echomq_pool.plane.job_record import JobRecord

TWINS = [(Queue, SyncQueue), (Job, SyncJob), (FlowProducer, SyncFlowProducer), (Lease, SyncLease)]

# Where only one of the two has a name or an argument, and why. `QueueEvents` and `Worker` have no twin: one
# iterates for as long as it is open, the other holds leases that only a loop of its own can keep.
ONLY = {
    "start": "the synchronous one connects at its first call",
    "threaded": "makes the synchronous one",
    "show": "of the record behind both",
    "mark_lease_lost": "told by the worker to the record behind both",
    "mark_cancelled": "told by the worker to the record behind both",
    "client": "a connection of redis-py is synchronous",
    "link": "a connection of our own is asynchronous",
    "plane": "where a job's verbs go; a synchronous one is made by its queue",
}
MADE_BY_QUEUES = {Job}
TYPES = {"JobLease": "ThreadedLease"}  # what a verb gives that has a twin of its own


def verbs(cls: type) -> dict[str, object]:
    """Methods and fields by name; a field that each object has of its own is None."""
    own = dict.fromkeys(vars(JobView(JobRecord("1")))) if issubclass(cls, JobView) else {}
    found = own | {name: inspect.getattr_static(cls, name) for name in dir(cls)}
    return {name: member for name, member in found.items() if not name.startswith("_")}


def made_by(cls: type) -> Callable[..., None]:
    call: Callable[..., None] = vars(cls)["__init__"]
    return call


def arguments(call: object) -> list[str]:
    """Each as written, with kind, name and default."""
    assert callable(call)
    return [
        str(p.replace(annotation=str(p.annotation)))
        for p in inspect.signature(call).parameters.values()
        if p.name not in ONLY
    ]


PUBLIC = [getattr(echomq_pool, name) for name in dir(echomq_pool) if name[0].isupper()]


@pytest.mark.parametrize("cls", PUBLIC)
def test_every_public_name_says_what_it_is(cls: type) -> None:
    """Of the class itself, and of whatever `help` lists below it."""
    assert (cls.__doc__ or "").strip()
    if issubclass(cls, BaseException):
        return
    bare = [name for name in verbs(cls) if hasattr(cls, name) and not inspect.getdoc(getattr(cls, name))]
    assert bare == []


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_both_have_the_same_names(one: type, other: type) -> None:
    assert set(verbs(one)) ^ set(verbs(other)) <= ONLY.keys()


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_both_take_the_same_arguments(one: type, other: type) -> None:
    mine, theirs = verbs(one), verbs(other)
    for name in sorted(mine.keys() & theirs.keys()):
        if inspect.isfunction(mine[name]):
            assert arguments(mine[name]) == arguments(theirs[name]), name
    if one not in MADE_BY_QUEUES:
        assert arguments(made_by(one)) == arguments(made_by(other))


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_both_give_the_same(one: type, other: type) -> None:
    """But for the twins themselves: a `Job` here, a `SyncJob` there."""
    for name in sorted(verbs(one).keys() & verbs(other).keys()):
        mine, theirs = (given(verbs(cls)[name]) for cls in (one, other))
        assert "" in (mine, theirs) or TYPES.get(mine, mine) == theirs.replace("Sync", ""), name


def given(member: object) -> str:
    """The type of what a verb returns, or a field is, as written; nothing for a field of each object's own."""
    call = member.fget if isinstance(member, property) else member
    return str(call.__annotations__["return"]) if inspect.isfunction(call) else ""


def test_every_exception_is_one() -> None:
    """What is no longer true of the list above is to be taken from it."""
    seen: set[str] = set()
    for one, other in TWINS:
        seen |= set(verbs(one)) ^ set(verbs(other))
        seen |= {*inspect.signature(made_by(one)).parameters, *inspect.signature(made_by(other)).parameters}
    assert ONLY.keys() <= seen
