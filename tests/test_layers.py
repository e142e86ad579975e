# SPDX-License-Identifier: MIT
"""Each module imports only what stands below it, and nothing imports in circles.

Late imports (inside functions) and type-only imports count like any other: both are the usual way to hide
a knot. The one kind that cannot be seen here is by dotted path; `children/entry.py` and `supervisor/spawn.py`
say why they do that.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "echomq_pool"
ROOT = PACKAGE.name

# From top to bottom; a module may import from layers below its own and from its own package.
LAYERS = [
    {"__main__", "demo"},
    {"cli", "commands", "status_view", "launch"},
    {"pool", "worker", "testing"},
    {"supervisor", "children"},
    {"__init__"},  # the public names: they come from api and the floor
    {"api"},
    {"plane"},
    {"redisio"},
    {"ipc"},
    {"config"},
    {"errors", "states", "clock", "backoff", "cron", "log", "metrics"},
]
HEIGHT = {name: -level for level, names in enumerate(LAYERS) for name in names}
NEVER_TOGETHER = {("supervisor", "children"), ("children", "supervisor")}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> set[str]:
    """The modules of this package that `name` imports, wherever in its text."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.split(".")[0] == ROOT)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
                for _ in range(node.level - 1):
                    package = package.rpartition(".")[0]
                base = f"{package}.{base}".rstrip(".")
            if base.split(".")[0] == ROOT:
                submodules = {f"{base}.{alias.name}" for alias in node.names} & MODULES.keys()
                found.update(submodules or {base})
                if len(submodules) < len(node.names):
                    found.add(base)
    return {target for target in found if target in MODULES and target != name}


def layer(name: str) -> str:
    """The first part below the package: where the module stands."""
    return name.split(".")[1] if "." in name else "__init__"


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_what_stands_below_it(name: str) -> None:
    """design, section 9"""
    here = layer(name)
    assert here in HEIGHT, f"{name} stands in no layer; give it one in LAYERS"
    for target in sorted(imports(name)):
        there = layer(target)
        if there == here and here != "__init__":
            continue
        if target == ROOT:  # for __version__; what the front imports is looked at on its own
            continue
        assert (here, there) not in NEVER_TOGETHER, f"{name} imports {target}"
        assert HEIGHT[there] < HEIGHT[here] or _same_group(here, there), (
            f"{name} imports {target}: that is above"
        )


def _same_group(here: str, there: str) -> bool:
    """Siblings that share a layer without being a package: the floor, and the files of the command line."""
    return HEIGHT[here] == HEIGHT[there] and {here, there}.isdisjoint({"supervisor", "children"})


def test_no_module_imports_itself_through_others() -> None:
    """style: no import cycles, late and type-only imports included"""
    graph = {name: imports(name) - {ROOT} for name in MODULES if name != ROOT}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' → '.join(error.args[1])}")


def test_what_becomes_the_supervisor_has_imported_nothing_heavy() -> None:
    """law 8; measured where it counts: in a process that has imported all it will"""
    heavy = ("asyncio", "redis", "hiredis", "pydantic", "click", "rich", "aiohttp")
    code = f"import sys, echomq_pool.pool; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", [name for name in MODULES if layer(name) == "supervisor"])
def test_the_supervisor_imports_nothing_heavy(name: str) -> None:
    """law 8"""
    heavy = {"asyncio", "redis", "hiredis", "pydantic", "click", "rich", "aiohttp", "concurrent"}
    assert not heavy & _foreign(name)


@pytest.mark.parametrize(
    "name", [name for name in MODULES if layer(name) in ("children", "plane", "redisio")]
)
def test_a_child_imports_no_second_client_and_no_validator(name: str) -> None:
    """design, sections 7 and 8"""
    assert not {"redis", "pydantic", "click", "rich"} & _foreign(name)


@pytest.mark.parametrize("name", MODULES)
def test_every_file_says_its_licence_and_stays_readable_in_length(name: str) -> None:
    """style: an SPDX line per file, 400 lines at most"""
    lines = MODULES[name].read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# SPDX-License-Identifier: MIT"
    assert len(lines) <= 400


def _foreign(name: str) -> set[str]:
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found
