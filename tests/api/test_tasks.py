# SPDX-License-Identifier: MIT
"""Functions as jobs: decoration, arguments, enqueuing."""

from __future__ import annotations

import sys
import types
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from echomq_pool import InputError, Task, connect, task
from echomq_pool.api.producers import producers
from echomq_pool.api.signature import ArgumentsError, fits
from echomq_pool.api.tasks import tasks_of
from tests.support.planes import Bench
from tests.support.servers import Server


@task("charge", queue="orders", attempts=5, timeout="30s", remove_on_complete=True)
async def charge(order: int, amount: float = 1.0, *, note: str | None = None) -> str:
    """Charges an order."""
    return f"{order} {amount} {note}"


@pytest.fixture
async def connected(server: Server, bench: Bench) -> AsyncIterator[Task[..., Any]]:
    """`charge` on a queue of this test's own."""
    connect(server.url)
    mine = task("charge", queue=bench.keys.queue, attempts=5)(charge.function)
    yield mine
    await producers.close()
    producers.target = None


async def test_a_task_can_still_be_called() -> None:
    assert await charge(5, note="x") == "5 1.0 x"
    assert (charge.name, charge.queue, charge.timeout_ms, charge.__doc__) == (
        "charge",
        "orders",
        30_000,
        "Charges an order.",
    )


async def test_it_is_enqueued_with_its_arguments_by_name(connected: Task[..., Any]) -> None:
    job = await connected.enqueue(17, note="hello")
    assert (job.name, job.data, job.opts["attempts"]) == ("charge", {"order": 17, "note": "hello"}, 5)
    other = await connected.using(delay=60_000, job_id="own").enqueue(order=18)
    assert (other.id, await other.state(), other.opts["attempts"]) == ("own", "delayed", 5)
    plain = connected.enqueue_sync(order=19)
    assert (plain.data, plain.state()) == ({"order": 19}, "waiting")


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing a required argument: 'order'"),
        ((1,), {"ordr": 2}, "unexpected keyword argument 'ordr'"),
        ((1,), {"order": 2}, "multiple values"),
        (("1",), {}, "order: expected int, got str '1'"),
        ((True,), {}, "order: expected int, got bool"),
        ((1,), {"amount": "2"}, "amount: expected float"),
        ((1,), {"note": 5}, r"note: expected str \| None, got int 5"),
    ],
)
async def test_arguments_are_checked_before_anything_is_written(
    connected: Task[..., Any], bench: Bench, args: Any, kwargs: Any, words: str
) -> None:
    """law 13"""
    with pytest.raises(ArgumentsError, match=words):
        await connected.enqueue(*args, **kwargs)
    with pytest.raises(ArgumentsError, match=words):
        connected.enqueue_sync(*args, **kwargs)
    assert bench.dump() == {}


async def test_without_a_connection_nothing_is_assumed() -> None:
    producers.target = None
    with pytest.raises(InputError, match="not connected"):
        await charge.enqueue(order=1)
    with pytest.raises(InputError, match="not connected"):
        charge.enqueue_sync(order=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"queue": "a:b"}, "queue name"), ({"queue": "q", "timeout": "30"}, "timeout"),
     ({"queue": "q", "attemps": 3}, "did you mean 'attempts'"), ({"queue": "q", "delay": -1}, "delay")],
)  # fmt: skip
def test_a_task_that_could_never_run_is_refused_where_it_stands(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        task("n", **options)


def test_parameters_without_a_name_are_refused() -> None:
    with pytest.raises(InputError, match="has no name"):

        @task(queue="q")
        def spread(*orders: int) -> None: ...

    with pytest.raises(InputError, match="the function itself"):
        task(len, queue="q")  # type: ignore[arg-type]


def module(name: str, **content: Any) -> Any:
    made = types.ModuleType(name)
    vars(made).update(content)
    return made


def test_a_modules_tasks_are_found_and_clashes_are_named() -> None:
    other = task("charge", queue="q")(lambda order: order)
    assert tasks_of([module("shop", charge=charge, alias=charge, x=5)]) == {"charge": charge}
    with pytest.raises(InputError, match='"other": two tasks are called "charge"'):
        tasks_of([module("shop", charge=charge), module("other", charge=other)])
    with pytest.raises(InputError, match="no function marked"):
        tasks_of([module("empty")])


FITS = [
    (5, int, True), (5, float, True), (5.5, int, False), (True, int, False), (None, str | None, True),
    ("a", Literal["a", "b"], True), ("c", Literal["a", "b"], False), ([1, 2], list[int], True),
    ([1, "2"], list[int], False), ({"a": 1}, dict[str, int], True), ({"a": "1"}, dict[str, int], False),
    ([1, "a"], tuple[int, str], True), ([1], tuple[int, str], False), ([1, 2], tuple[int, ...], True),
    ("x", Any, True), ({"a": 1}, Server, True), ({"a": 1}, list, False), (1, Literal[True], False),
]  # fmt: skip


@pytest.mark.parametrize(("value", "hint", "expected"), FITS)
def test_values_of_json_are_told_apart(value: Any, hint: Any, expected: bool) -> None:
    assert fits(value, hint) is expected


def test_a_module_of_tasks_stays_small() -> None:
    """A worker imports its tasks: that must not bring a second client with it."""
    import subprocess

    code = "import sys; from echomq_pool import task, connect; print('redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
