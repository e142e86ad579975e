# SPDX-License-Identifier: MIT
"""What every benchmark is given: a fresh server, a scale, and a report that ends up as tables and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.support.report import Report, flat, server_version
from tests.support.servers import Server, binary

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / ".benchmarks"
REPORT: pytest.StashKey[Report] = pytest.StashKey()
HERE = Path(__file__).resolve().parent


def scale_of(config: pytest.Config) -> str:
    """smoke, quick or full."""
    if not config.getoption("benchmark"):
        return "smoke"
    return "quick" if config.getoption("quick") else "full"


def pytest_configure(config: pytest.Config) -> None:
    kind = config.getoption("server")
    config.stash[REPORT] = Report(scale_of(config), server_version(binary(kind)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.sizes("jobs", smoke=[…], quick=[…], full=[…])`."""
    for mark in metafunc.definition.iter_markers("sizes"):
        values = mark.kwargs[scale_of(metafunc.config)]
        metafunc.parametrize(mark.args[0], values, ids=[str(v) for v in values])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limit = {"smoke": 60, "quick": 600, "full": 3600}[scale_of(config)]
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(limit))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    report = config.stash[REPORT]
    if not report.tables or report.scale == "smoke":
        return
    terminalreporter.section(f"figures ({report.scale})")
    for line in report.lines():
        terminalreporter.write_line(line)
    path = RESULTS / f"figures-{report.scale}.json"
    report.write(path)
    terminalreporter.write_line(f"\nwritten to {path.relative_to(ROOT)}")


@pytest.fixture
def scale(pytestconfig: pytest.Config) -> str:
    return scale_of(pytestconfig)


@pytest.fixture
def pick(scale: str) -> Callable[..., Any]:
    """`pick(smoke, quick, full)`: the one for this run."""
    return lambda smoke, quick, full: {"smoke": smoke, "quick": quick, "full": full}[scale]


@pytest.fixture
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A server that this benchmark has for itself."""
    server = Server(pytestconfig.getoption("server")).start()
    yield server
    server.destroy()


Row = Callable[..., None]


@pytest.fixture
def row(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Row:
    """`row(title, method, **values)`: one row of a table, kept in the benchmark's own JSON as well."""
    report = pytestconfig.stash[REPORT]

    def add(title: str, method: str, **values: Any) -> None:
        report.row(title, method, **values)
        if "benchmark" in request.fixturenames:
            request.getfixturevalue("benchmark").extra_info.setdefault(title, []).append(flat(**values))

    return add
