# SPDX-License-Identifier: MIT
"""The page that compares us with BullMQ: what it names is there, and what is there is named."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from echomq_pool import FlowProducer, Queue, Worker
from echomq_pool.api.job import Job

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "bullmq-parity.md").read_text(encoding="utf-8")
SHOWN = sorted(set(re.findall(r"\| ((?:api|wire)/test_\w+\.py)::(test_\w+) \|", PAGE)))


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("path", "name"), SHOWN)
def test_every_test_that_the_page_names_exists(path: str, name: str) -> None:
    assert name in functions(path)


def test_every_row_of_a_feature_names_its_test() -> None:
    features = PAGE.partition("## Different on purpose")[0]
    rows = [row for row in features.splitlines() if row.startswith("| ") and not row.startswith("| BullMQ |")]
    assert len(rows) > 60
    assert [row for row in rows if "::test_" not in row] == []


@pytest.mark.parametrize("cls", [Queue, Job, FlowProducer, Worker])
def test_every_verb_says_what_it_mirrors_and_the_page_has_it(cls: type) -> None:
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_") or not (member.__doc__ or "").strip():
            continue
        for mirrored in re.findall(r"BullMQ: `(?:\w+\.)?(\w+)", member.__doc__ or ""):
            assert re.search(rf"`[^`|]*\b{mirrored}\b[^`|]*`", PAGE), f"{cls.__name__}.{name}: {mirrored}"
