# SPDX-License-Identifier: MIT
"""What README.md shows is run as it stands there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Server

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
URL = "redis://127.0.0.1:6379/0"


def block(opening: str) -> str:
    """The code block of README.md whose first line starts with `opening`."""
    blocks: list[str] = re.findall(r"```[a-z]+\n(.*?)```", README, flags=re.DOTALL)
    return next(text for text in blocks if text.startswith(opening))


@pytest.fixture
def place(own_server: Server) -> Iterator[Path]:
    """A folder with the example's files; only the server's port is another."""
    with tempfile.TemporaryDirectory(prefix="emq-") as name:
        folder = Path(name)
        (folder / "myapp").mkdir()
        (folder / "myapp" / "__init__.py").touch()
        (folder / "myapp" / "jobs.py").write_text(block("# myapp/jobs.py"))
        (folder / "pool.toml").write_text(block("# pool.toml").replace(URL, own_server.url))
        (folder / "produce.py").write_text(block("# anywhere").replace(URL, own_server.url))
        yield folder


def test_the_example_of_the_readme_runs(place: Path) -> None:
    """a newcomer's first ten minutes"""
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(place)}
    environ.pop("PYTHONPATH", None)
    (place / "myapp" / "hooks.py").write_text("def note(event): print(event.name, flush=True)\n")
    with (place / "pool.toml").open("a") as config:
        config.write('[hooks]\non_completed = "myapp.hooks:note"\n')  # found where the processor is found
    pool = subprocess.Popen(
        [Path(sys.executable).with_name("echomq-pool"), "--config", "pool.toml"],
        cwd=place,
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        command = [sys.executable, "produce.py"]
        done = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True, timeout=60)
        assert done.stdout == "{'paid': 12}\n", done.stderr
    finally:
        pool.send_signal(signal.SIGTERM)
        log = pool.communicate(timeout=60)[1]
    assert pool.returncode == 0, log
    assert not [line for line in log.splitlines() if " warning " in line.lower() or " error " in line.lower()]


def test_the_readme_names_every_command_and_every_exit_code() -> None:
    """the table of commands is the command line's"""
    shown = subprocess.run(
        [sys.executable, "-m", "echomq_pool", "--help"], capture_output=True, text=True
    ).stdout
    commands = re.findall(r"^  ([a-z]+)  ", shown.partition("Commands:")[2], flags=re.MULTILINE)
    assert len(commands) == 11
    for word in (*commands, "0", "13", "64", "70", "75", "78"):
        assert re.search(rf"^\|.*\b{word}\b", README, flags=re.MULTILINE), word


def test_links_in_the_documents_lead_somewhere() -> None:
    """README, ARCHITECTURE, CHANGELOG, CONTRIBUTING"""
    for document in REPOSITORY.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert (REPOSITORY / target).exists(), f"{document.name}: {target}"
