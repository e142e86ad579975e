# SPDX-License-Identifier: MIT
"""The scripts as files: loaded into a bare server and driven with nothing but redis-py and msgpack."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import redis

from echomq_pool.redisio.export import ExportError, export_scripts
from echomq_pool.redisio.scripts import load_library
from tests.support.servers import Server

KB = "bull:orders:"
TAKE = "wait active prioritized events stalled limiter delayed paused meta pc marker"


class Bare:
    """A client of some other project, which knows the files and the protocol."""

    def __init__(self, folder: Path, client: redis.Redis) -> None:
        self.client = client
        self.scripts = {}
        for path in folder.glob("*.lua"):
            name, _, keys = path.stem.rpartition("-")
            self.scripts[name] = (client.script_load(path.read_bytes()), int(keys))

    def __call__(self, name: str, keys: str, *args: Any) -> Any:
        sha, count = self.scripts[name]
        named = keys.split()
        assert len(named) == count
        return self.client.evalsha(sha, count, *(KB + key for key in named), *args)


@pytest.fixture(params=["valkey", "redis"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bare]:
    """On a server where nothing has been loaded yet."""
    export_scripts(tmp_path)
    server = Server(request.param).start()
    with server.client() as client:
        yield Bare(tmp_path, client)
    server.destroy()


def test_a_queue_runs_on_the_exported_files_alone(bare: Bare) -> None:
    """promise 0.25, 4.22"""
    row = msgpack.packb([KB, "", "pay", 1_795_981_509_000, None, None, None, None, None])
    keys = "wait paused meta id completed delayed active events marker"
    assert bare("addStandardJob", keys, row, '{"n":1}', msgpack.packb({"attempts": 2})) == b"1"
    opts = {"token": "w:0", "lockDuration": 30_000, "limiter": None, "name": None}
    flat, job_id, limit, due = bare("moveToActive", TAKE, KB, 1_795_981_509_001, msgpack.packb(opts))
    assert (job_id, limit, due) == (b"1", 0, 0)
    assert dict(zip(flat[::2], flat[1::2], strict=True))[b"data"] == b'{"n":1}'
    assert bare("extendLock", "1:lock stalled", "w:0", 30_000, "1") == 1
    more = {"keepJobs": {"count": -1}, "attempts": 2, "maxMetricsSize": "", **opts}
    finish = TAKE.replace(" marker", " completed 1 metrics:completed marker")
    args = ["1", 1_795_981_509_002, "returnvalue", "3", "completed", 1, KB, msgpack.packb(more), ""]
    assert bare("moveToFinished", finish, *args) == 0
    places = "completed failed delayed active wait paused waiting-children prioritized"
    assert bare("getState", places, "1") == b"completed"
    again = ["1", "LPUSH", "returnvalue", "completed", "1", "0"]
    assert bare("reprocessJob", "1 events completed wait meta paused active marker", *again) == 1
    assert bare("removeJob", "1 repeat", "1", "0", KB) == 1
    assert sorted(bare.client.keys("*")) == [
        KB.encode() + key for key in (b"events", b"id", b"marker", b"meta")
    ]


def test_the_files_are_byte_for_byte_what_is_loaded_here(tmp_path: Path) -> None:
    paths = export_scripts(tmp_path / "a" / "b")
    library = load_library("lock")
    assert len(paths) == len(library) == 49
    for path in paths:
        script = library[path.stem.rpartition("-")[0]]
        assert path.name == f"{script.name}-{script.keys}.lua"
        assert hashlib.sha1(path.read_bytes()).hexdigest() == script.sha
    assert export_scripts(tmp_path / "a" / "b") == paths, "and may be written again"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="file/sub: the scripts cannot be written"):
        export_scripts(tmp_path / "file" / "sub")


def test_the_command_writes_them_and_says_how_many(tmp_path: Path) -> None:
    out = tmp_path / "lua"
    done = subprocess.run(
        [sys.executable, "-m", "echomq_pool", "scripts", "--out", str(out)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"49 scripts in {out}\n")
    assert len(list(out.iterdir())) == 49
