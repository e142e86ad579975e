# SPDX-License-Identifier: MIT
"""The options of the benchmarks: they must be known here, whatever folder is asked for.

`pytest --benchmark` runs `benchmarks/` in full, with `--quick` in some minutes. Without the option the same files
are smoke tests: each benchmark once, with tiny numbers, to see that it still runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("echomq-pool benchmarks")
    group.addoption(
        "--benchmark", action="store_true", help="run benchmarks/ and measure; else they are smokes"
    )
    group.addoption("--quick", action="store_true", help="with --benchmark: the set of some minutes")
    group.addoption(
        "--server", choices=("valkey", "redis"), default="valkey", help="server of the benchmarks"
    )
    group.addoption("--million", action="store_true", help="with --benchmark: depths up to 1 000 000 jobs")


@pytest.hookimpl(tryfirst=True)  # before pytest-benchmark reads its own options
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sizes(name, smoke, quick, full): values of a parameter at each scale")
    if not config.getoption("benchmark"):
        if not config.getoption("benchmark_enable", False):
            config.option.benchmark_disable = True
        return
    if not config.getoption("benchmark_save", None):
        config.option.benchmark_autosave = "quick" if config.getoption("quick") else "full"
    if config.args_source is not pytest.Config.ArgsSource.ARGS:  # no file was named
        config.args = [str(ROOT / "benchmarks")]
