# SPDX-License-Identifier: MIT
"""What is built and installed runs like the checkout: the scripts travel along, the command is there."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
LUA = {path.relative_to(REPOSITORY / "lua").as_posix() for path in (REPOSITORY / "lua").rglob("*.lua")}
CONFIG = '[[workers]]\nname = "w"\nqueues = ["q"]\nprocessor = "a:b"\n'


def run(*command: str | Path, cwd: Path) -> str:
    """The standard output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPOSITORY, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with the wheel in it.

    Dependencies come from the environment of the tests, behind it on the path: they are not what is tested,
    and its own editable install is not seen from there, since only its folder is named.
    """
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    wheel = next(built.glob("*.whl"))
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=folder,
    )
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(site) / "dependencies.pth").write_text("\n".join(sorted(ours)) + "\n")
    return folder / "bin"


def test_the_wheel_has_the_scripts_the_types_and_the_licence(built: Path) -> None:
    """The wheel contains lua/"""
    names = set(zipfile.ZipFile(next(built.glob("*.whl"))).namelist())
    assert {f"echomq_pool/_lua/{name}" for name in LUA} <= names
    assert {"echomq_pool/py.typed", "echomq_pool/__main__.py"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "lua/"))]


def test_the_sdist_has_all_that_is_needed_to_build_and_test(built: Path) -> None:
    """the sdist contains lua/, the tests and the files to start from"""
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"lua/{name}" for name in LUA} <= names
    wanted = {"pyproject.toml", "LICENSE", "README.md", "Makefile", "Dockerfile", "config/pool.toml"}
    assert wanted <= names
    assert "tests/test_packaging.py" in names
    assert not [name for name in names if "node_modules" in name or name.startswith(".venv")]


def test_an_installed_wheel_loads_every_script(installed: Path, tmp_path: Path) -> None:
    """an installed wheel and an editable checkout both run"""
    code = (
        "import echomq_pool\n"
        "from echomq_pool.redisio.scripts import load_library\n"
        "library = load_library()\n"
        "print(echomq_pool.__file__)\n"
        "print(*sorted(f'{name}-{library[name].keys}={library[name].sha}' for name in library))"
    )
    where, *fresh = run(installed / "python", "-I", "-c", code, cwd=tmp_path).splitlines()
    assert str(installed.parent) in where
    here, *editable = run(sys.executable, "-c", code, cwd=tmp_path).splitlines()
    assert str(REPOSITORY) in here
    assert fresh == editable
    assert len(fresh[0].split()) == len([name for name in LUA if not name.startswith("include/")])


def test_an_installed_wheel_has_the_command(installed: Path, tmp_path: Path) -> None:
    """`echomq-pool` and `python -m echomq_pool` are the same program"""
    (tmp_path / "pool.toml").write_text(CONFIG)
    shown = run(installed / "echomq-pool", "check", "--config", "pool.toml", cwd=tmp_path)
    assert 'processor = "a:b"' in shown
    assert run(installed / "python", "-m", "echomq_pool", "--version", cwd=tmp_path).startswith(
        "echomq-pool, version"
    )
