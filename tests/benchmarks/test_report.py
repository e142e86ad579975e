# SPDX-License-Identifier: MIT
"""The benchmarks' own tools: tables, percentiles, verdicts, and the catalogue of peers."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import pytest

from benchmarks.peers.catalog import NODE, OURS, PEERS, Peer
from benchmarks.support.contest import median_of
from benchmarks.support.meter import percentile
from benchmarks.support.report import Report, text
from benchmarks.support.targets import TITLE, against_peers, judge

ADAPTERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"


def test_tables_are_aligned_and_words_come_last() -> None:
    report = Report("full", "a server")
    report.row("T", "how", note="a | b\nc", a_b=12_345, c=0.01234)
    report.row("T", "how", a_b=1, c=2.0)
    heads, _, *rows = [line for line in report.lines() if line.startswith("|")]
    assert heads.split() == ["|", "a", "b", "|", "c", "|", "note", "|"]
    assert "12 345" in rows[0]
    assert "a / b c" in rows[0]
    assert len({len(line) for line in (heads, *rows)}) == 1


def test_results_are_written_as_json(tmp_path: Path) -> None:
    report = Report("full", "a server")
    report.row("T", "how", n=1)
    report.write(tmp_path / "deep" / "figures.json")
    tables = json.loads((tmp_path / "deep" / "figures.json").read_text())["tables"]
    assert tables == {"T": {"method": "how", "rows": [{"n": 1}]}}


@pytest.mark.parametrize(
    ("value", "shown"), [(3, "3"), (12_345.6, "12 346"), (0.01234, "0.0123"), ("x", "x")]
)
def test_numbers_are_shown_with_three_digits(value: float | str, shown: str) -> None:
    assert text(value) == shown


def test_percentiles() -> None:
    assert percentile(range(1, 101), 0.5) == 51
    assert percentile([5], 0.99) == 5
    assert math.isnan(percentile([], 0.5))


def test_medians_keep_words() -> None:
    assert median_of([{"a": 1, "s": "x"}, {"a": 3, "s": "y"}]) == {"a": 2, "s": "y"}
    assert median_of([]) == {}


def test_a_target_says_whether_it_is_met() -> None:
    report = Report("full", "a server")
    assert judge(report.row, "fast enough", 2.0, at_least=1.5)
    assert not judge(report.row, "small enough", 2.0, at_most=1.5)
    assert [row["met"] for row in report.tables[TITLE].rows] == ["yes", "NO"]


def test_targets_against_peers_use_what_is_there() -> None:
    report = Report("full", "a server")
    noop = {OURS: {"jobs_per_s": 30.0}, NODE: {"jobs_per_s": 10.0}, "RQ": {}}
    against_peers(report.row, {"noop": noop})
    rows = report.tables[TITLE].rows
    assert [(row["what"], row["figure"]) for row in rows] == [("no-op drain, lock plane ÷ BullMQ Node", 3.0)]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_has_an_adapter_with_every_verb(peer: Peer) -> None:
    """A renamed verb would turn into a row of faults after an hour."""
    path = ADAPTERS / (peer.adapter if peer.node else f"{peer.adapter}.py")
    source = path.read_text()
    verbs = ("describe", "bulk", "one", "hold", "timed" if peer.node else "mark")
    if peer.node:
        assert all(verb in source for verb in verbs)
        return
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    names = {
        name
        for node in classes
        for item in node.body
        for name in ([item.name] if isinstance(item, ast.FunctionDef) else _aliases(item))
    }
    assert names >= set(verbs)


def _aliases(item: ast.stmt) -> list[str]:
    """`one = bulk`"""
    targets = item.targets if isinstance(item, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]
