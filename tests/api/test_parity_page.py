# SPDX-License-Identifier: MIT
"""The page that compares us with BullMQ: what it names is there, and what is there is named."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from echomq_pool import FlowProducer, Queue, Worker
from echomq_pool.api.job import Job
from tests.support.node import Node
from tests.support.servers import Server
from tests.wire.fleet import Layout
from tests.wire.ground import COVER, Ground
from tests.wire.test_answers import QUESTIONS
from tests.wire.test_verbs import VERBS

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "bullmq-parity.md").read_text(encoding="utf-8")
NAMED = re.compile(r"((?:api|board|wire)/test_\w+\.py)::(test_\w+)")
SHOWN = sorted(set(NAMED.findall(PAGE)))
FEATURES = PAGE.partition("## Different on purpose")[0]
# Whose tests are about releases, boards or scripts as such; they say by themselves what they run on.
OWN_WAYS = ("## Boards", "## Scripts and releases")
# Fixtures that go through every release and every layout, and fail where only one side has acted.
COVERING = {"ground", "side", "sides", "twins"}
WIRE = "".join(
    path.read_text(encoding="utf-8") for path in (TESTS / "wire").iterdir() if path.suffix in (".py", ".js")
)

WIRE += " ".join([*QUESTIONS, *VERBS])  # some are put together from parts


@cache
def functions(path: str) -> dict[str, set[str]]:
    """The functions of a module and the names of their arguments."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: {arg.arg for arg in node.args.args} for node in found}


def rows_of_both() -> list[tuple[str, str]]:
    """(BullMQ's names, tests) of every row that is not of ours alone."""
    found = []
    for section in re.split(r"(?m)^(?=## )", FEATURES)[1:]:
        if section.startswith(OWN_WAYS):
            continue
        for row in section.splitlines():
            if row.startswith("| ") and not row.startswith(("| BullMQ |", "| –")):
                cells = row.strip("| ").split(" | ")
                found.append((cells[0], cells[-1]))
    return found


@pytest.mark.parametrize(("path", "name"), SHOWN)
def test_every_test_that_the_page_names_exists(path: str, name: str) -> None:
    assert name in functions(path)


def test_every_row_of_a_feature_names_its_test() -> None:
    rows = [row for row in FEATURES.splitlines() if row.startswith("| ") and not row.startswith("| BullMQ |")]
    assert len(rows) > 60
    assert [row for row in rows if "::test_" not in row] == []


@pytest.mark.parametrize(("names", "shown"), rows_of_both())
def test_every_row_is_shown_in_both_directions_on_every_release_and_layout(names: str, shown: str) -> None:
    tests = NAMED.findall(shown)
    assert tests, "a row of both names its tests"
    for path, test in tests:
        assert path.startswith("wire/")
        assert functions(path)[test] & COVERING, f"{test} does not go through the releases and layouts"
    for name in re.findall(r"`(?:\w+\.)?([a-z]+[A-Z]\w+)", names):
        assert re.search(rf"\b{name}\b", WIRE), f"{name} is called by no wire test"


@pytest.mark.parametrize("used", [set(), {"ours"}, {"node"}])
def test_a_row_in_which_one_side_does_nothing_fails(valkey_server: Server, used: set[str]) -> None:
    ground = Ground(valkey_server, cast(Node, None), Layout("emq", True), used)
    with pytest.raises(AssertionError):
        ground.check_both_acted()
    ground.used |= {"ours", "node"}
    ground.check_both_acted()


def test_every_release_and_layout_is_covered() -> None:
    assert {package for package, _ in COVER.values()} == {"bullmq-620", "bullmq-6", "bullmq-5"}
    layouts = {(layout.prefix, layout.hash_tag) for _, layout in COVER.values()}
    assert layouts == {("emq", True), ("emq", False), ("bull", True), ("bull", False)}


@pytest.mark.parametrize("cls", [Queue, Job, FlowProducer, Worker])
def test_every_verb_says_what_it_mirrors_and_the_page_has_it(cls: type) -> None:
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_") or not (member.__doc__ or "").strip():
            continue
        for mirrored in re.findall(r"BullMQ: `(?:\w+\.)?(\w+)", member.__doc__ or ""):
            assert re.search(rf"`[^`|]*\b{mirrored}\b[^`|]*`", PAGE), f"{cls.__name__}.{name}: {mirrored}"
