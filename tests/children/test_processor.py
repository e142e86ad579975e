# SPDX-License-Identifier: MIT
"""Finding the processor, and what became of a run as a value."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from echomq_pool.children.outcome import (
    MAX_REASON,
    MAX_TRACE,
    Fate,
    ResultError,
    cut,
    done,
    encode_result,
    raised,
    reason_of,
    trace_of,
)
from echomq_pool.children.processor import ProcessorError, load_processor
from echomq_pool.errors import (
    DelayedError,
    RateLimitError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)

MODULE = "tests.support.processors"


@pytest.mark.parametrize(
    ("path", "is_async"),
    [("work", True), ("work_sync", False), ("instance", True), ("partial", False), ("disguised", False)],
)
def test_functions_instances_and_partials_are_told_apart(path: str, is_async: bool) -> None:
    """Async def on the loop, everything else in a thread."""
    processor = load_processor(f"{MODULE}:{path}")
    assert processor.is_async is is_async
    assert set(processor.strategies) == {"twice"}


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("shop.orders", 'expected "module:function"'),
        (":handle", 'expected "module:function"'),
        ("no_such_module:handle", 'no module named "no_such_module"'),
        (f"{MODULE}.nowhere:handle", f'no module named "{MODULE}.nowhere"'),
        (f"{MODULE}:wrok", 'has no attribute "wrok"; did you mean "work"?'),
        (f"{MODULE}:not_callable", "a int is not callable"),
        (f"{MODULE}:Callable", "a class; name a function"),
        ("tests.api.test_worker:double", 'a @task; say tasks = ["tests.api.test_worker"] instead'),
        (f"{MODULE}:instance.nothing", 'Callable has no attribute "nothing"'),
    ],
)
def test_a_processor_that_cannot_be_used_is_named_with_its_problem(path: str, problem: str) -> None:
    """law 13: path and problem in one sentence."""
    with pytest.raises(ProcessorError) as error:
        load_processor(path)
    assert problem in str(error.value)
    assert f'"{path}"' in str(error.value)


def test_an_import_that_fails_inside_the_module_keeps_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """case C114: the traceback of the user's module is the message; the working directory is importable."""
    (tmp_path / "broken_shop.py").write_text("import surely_not_there\n")
    (tmp_path / "good_shop.py").write_text("def handle(job): return 1\nbackoff_strategies = 3\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_there"):
        load_processor("broken_shop:handle")
    with pytest.raises(ProcessorError, match="backoff_strategies"):
        load_processor("good_shop:handle")


def test_results_become_json_or_a_reason() -> None:
    """case C105, C113: NaN is found wherever it hides; null alone is no NaN."""
    assert encode_result({"a": [None, 1.5]}) == b'{"a":[null,1.5]}'
    for bad, word in [
        ({"a": [1, float("nan")]}, r"\$\.a\[1\]"),
        ({1: float("inf")}, "NaN or Infinity"),
        ({"x": {1, 2}}, "set"),
        (b"bytes", "bytes"),
    ]:
        with pytest.raises(ResultError, match=word):
            encode_result(bad)
    assert done(None).value == b"null"
    assert done(object()).fate is Fate.FAILED


def test_signals_of_the_processor_are_no_failures() -> None:
    """Moved jobs are left alone, a limited one goes back, an unrecoverable one is final."""
    assert {raised(e).fate for e in (DelayedError(), WaitingError(), WaitingChildrenError())} == {Fate.MOVED}
    assert raised(RateLimitError()).fate is Fate.LIMITED
    final = raised(UnrecoverableError("no"))
    assert (final.fate, final.final, final.reason) == (Fate.FAILED, True, "no")


def test_reasons_are_sentences_and_long_texts_are_cut() -> None:
    """case C112, C118: never empty, never endless."""
    assert reason_of(ValueError("plain")) == "plain"
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(KeyError("k")) == "KeyError: 'k'"
    assert reason_of(SystemExit(3)) == "job called sys.exit(3)"
    assert len(reason_of(ValueError("x" * 10**6))) <= MAX_REASON
    assert len(trace_of(ValueError("x" * 10**6))) <= MAX_TRACE
    assert cut("abc", 10) == "abc"
    shortened = cut("a" * 500 + "b" * 500, 200)
    assert shortened.startswith("a")
    assert shortened.endswith("b")
    assert len(shortened) <= 200
    json.dumps(shortened)


def _looks_up(key: str) -> str:
    found: dict[str, str] = {}
    return found[key]


def _fails_for_a_reason() -> None:
    try:
        _looks_up("a")
    except KeyError as error:
        raise ValueError("no a") from error


def _hides_the_reason() -> None:
    try:
        _looks_up("a")
    except KeyError:
        raise ValueError("no a") from None


def _adds_a_note() -> None:
    error = ValueError("no a")
    error.add_note("asked for by b")
    raise error


def _never_ends(n: int = 0) -> Any:
    return _never_ends(n + 1)


def _raises_several() -> None:
    raise ExceptionGroup("both", [ValueError(1), TypeError(2)])


def _does_not_parse() -> None:
    compile("a b", "<given>", "exec")


@pytest.mark.parametrize(
    "fails",
    [
        lambda: _looks_up("b"),
        _fails_for_a_reason,
        _hides_the_reason,
        _adds_a_note,
        _never_ends,
        _raises_several,
        _does_not_parse,
    ],
)
def test_a_remembered_stack_reads_as_the_standard_library_writes_it(fails: Callable[[], object]) -> None:
    """Twice: made the first time, remembered the second."""
    for _ in range(2):
        with pytest.raises(Exception) as caught:
            fails()
        error = caught.value
        assert error.__traceback__ is not None
        written = "".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next))
        assert trace_of(error) == cut(written.rstrip(), MAX_TRACE)
