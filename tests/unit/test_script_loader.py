# SPDX-License-Identifier: MIT
"""The folder is the list of scripts, and whatever does not fit stops the load."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from echomq_pool.redisio.scripts import FOLDERS, ScriptError, find_root, load_library

HEADER = "--[[ Do it.   KEYS[1] one   KEYS[2] two\n     ARGV[1] id\n     Returns 0. ]]\n"

LOCK_SCRIPTS = {
    "addDelayedJob": 6,
    "addJobScheduler": 11,
    "addLog": 2,
    "addParentJob": 6,
    "addPrioritizedJob": 9,
    "addStandardJob": 9,
    "changeDelay": 4,
    "changePriority": 7,
    "cleanJobsInSet": 3,
    "drain": 5,
    "extendLock": 2,
    "extendLocks": 1,
    "getCounts": 1,
    "getCountsPerPriority": 2,
    "getDependencyCounts": 4,
    "getJobScheduler": 1,
    "getJobs": 1,
    "getMetrics": 2,
    "getRanges": 1,
    "getRateLimitTtl": 2,
    "getState": 8,
    "getStateV2": 8,
    "isFinished": 3,
    "isJobInList": 1,
    "isMaxed": 2,
    "moveJobFromActiveToWait": 9,
    "moveJobsToWait": 8,
    "moveStalledJobsToWait": 8,
    "moveToActive": 11,
    "moveToDelayed": 12,
    "moveToFinished": 14,
    "moveToWaitingChildren": 7,
    "obliterate": 2,
    "paginate": 1,
    "pause": 7,
    "promote": 9,
    "releaseLock": 1,
    "removeChildDependency": 1,
    "removeDeduplicationKey": 1,
    "removeJob": 2,
    "removeJobScheduler": 3,
    "removeOrphanedJobs": 1,
    "removeUnprocessedChildren": 2,
    "reprocessJob": 8,
    "retryJob": 11,
    "saveStacktrace": 1,
    "updateData": 1,
    "updateJobScheduler": 12,
    "updateProgress": 3,
}


def write(root: Path, files: dict[str, str]) -> Path:
    """A Lua folder with these files; `lock` and `include` always exist."""
    for folder in ("lock", "include"):
        (root / folder).mkdir(exist_ok=True)
    for name, text in files.items():
        (root / name).write_text(text)
    return root


def refusal(root: Path, files: dict[str, str]) -> str:
    with pytest.raises(ScriptError) as caught:
        load_library("lock", root=write(root, files))
    return str(caught.value)


def test_the_names_and_key_counts_of_the_lock_plane_are_fixed() -> None:
    """promise 0.25, 4.13, 4.22, 4.8"""
    library = load_library("lock")
    found = {script.name: script.keys for script in library.values()}
    assert found == LOCK_SCRIPTS
    assert len(found) == 49
    assert library["moveStalledJobsToWait"].keys == 8


def test_every_shipped_folder_loads_and_no_script_shadows_another() -> None:
    library = load_library()
    assert set(LOCK_SCRIPTS) <= set(library)
    assert len(library) == sum(len(list((find_root() / folder).glob("*.lua"))) for folder in FOLDERS)
    assert FOLDERS == ("lock", "pool", "lease")


def test_a_script_is_expanded_stripped_and_hashed(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "lock/doIt-2.lua": "-- SPDX-License-Identifier: MIT\n"
            + HEADER
            + "local call = redis.call\n-- a reason\n\n"
            + '--- @include "outer"\n--- @include "inner"\nreturn inner(KEYS[1]) -- stays\n',
            "include/outer.lua": '--- @include "inner"\n-- why\nlocal function outer() end\n',
            "include/inner.lua": "local function inner(key)\n  return call('GET', key)\nend\n",
        },
    )
    script = load_library("lock", root=root)["doIt"]
    assert script.text.decode() == (
        "local call = redis.call\nlocal function inner(key)\nreturn call('GET', key)\nend\n"
        "local function outer() end\nreturn inner(KEYS[1]) -- stays\n"
    )
    assert script.sha == hashlib.sha1(script.text).hexdigest()
    assert (script.name, script.keys) == ("doIt", 2)


def test_an_include_may_stand_inside_a_function(tmp_path: Path) -> None:
    files = {
        "lock/doIt-2.lua": HEADER + 'local function cold()\n  --- @include "part"\n  return part\nend\n',
        "include/part.lua": "local part = 1\n",
    }
    text = load_library("lock", root=write(tmp_path, files))["doIt"].text.decode()
    assert text == "local function cold()\nlocal part = 1\nreturn part\nend\n"


def test_a_piece_included_in_one_block_may_be_included_again_in_another(tmp_path: Path) -> None:
    body = (
        'if a then\n  --- @include "outer"\n  --- @include "part"\n\n  use(part)\nend\n'
        'if b then\n  --- @include "part"\nend\n--- @include "part"\n--- @include "outer"\n'
    )
    files = {
        "lock/doIt-2.lua": HEADER + body,
        "include/outer.lua": '--- @include "part"\nlocal outer\n',
        "include/part.lua": "local part\n",
    }
    text = load_library("lock", root=write(tmp_path, files))["doIt"].text.decode()
    assert text.split("\n") == [
        *("if a then", "local part", "local outer", "use(part)", "end"),
        *("if b then", "local part", "end", "local part", "local outer", ""),
    ]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("doIt.lua", HEADER, "misnamed"),
        ("do-it-2.lua", HEADER, "misnamed"),
        ("doIt-2.txt", HEADER, "misnamed"),
        ("doIt-2.lua", "return 0\n", "no header"),
        ("doIt-2.lua", "-- KEYS[1] KEYS[2] ARGV Returns\nreturn 0\n", "no header"),
        ("doIt-2.lua", "--[[ ]]\nreturn 0\n", "no header"),
        ("doIt-2.lua", "--[[ KEYS[1] KEYS[2] Returns 0\nreturn 0\n", "not closed"),
        ("doIt-2.lua", "--[[ KEYS[1] KEYS[2] Returns 0 ]]\n", "does not mention ARGV"),
        ("doIt-2.lua", "--[[ KEYS[1] KEYS[2] ARGV none ]]\n", "does not mention Returns"),
        ("doIt-3.lua", HEADER, "promises 3 keys, the header lists 1, 2"),
        ("doIt-0.lua", HEADER, "promises 0 keys, the header lists 1, 2"),
        ("doIt-2.lua", HEADER + "return KEYS[3]\n", "uses KEYS[3]"),
        ("doIt-2.lua", HEADER + '--- @include "nowhere"\n', "does not exist"),
        ("doIt-2.lua", HEADER + "--- @include nowhere\n", "cannot read the line"),
        ("doIt-2.lua", HEADER + "local s = [[\n-- not a comment\n]]\n", "long brackets"),
    ],
)
def test_an_odd_file_stops_the_load_and_is_named(tmp_path: Path, name: str, text: str, fault: str) -> None:
    message = refusal(tmp_path, {f"lock/{name}": text})
    assert fault in message
    assert name in message


def test_includes_that_go_round_are_refused_with_their_path(tmp_path: Path) -> None:
    files = {
        "lock/doIt-2.lua": HEADER + '--- @include "a"\n',
        "include/a.lua": '--- @include "b"\n',
        "include/b.lua": '--- @include "a"\n',
    }
    assert "doIt-2.lua > a.lua > b.lua > a.lua" in refusal(tmp_path, files)


def test_the_same_name_with_two_key_counts_is_refused(tmp_path: Path) -> None:
    files = {"lock/doIt-2.lua": HEADER, "lock/doIt-1.lua": "--[[ KEYS[1] one  ARGV none  Returns 0 ]]\n"}
    assert "was loaded already" in refusal(tmp_path, files)


def test_a_missing_folder_and_a_missing_script_are_named(tmp_path: Path) -> None:
    root = write(tmp_path, {"lock/doIt-2.lua": HEADER + "return 0\n"})
    with pytest.raises(ScriptError, match="nowhere: there is no such folder"):
        load_library("nowhere", root=root)
    with pytest.raises(ScriptError, match="no script named doItt: the loaded folders have doIt"):
        load_library("lock", root=root)["doItt"]


def test_an_installed_package_comes_before_a_checkout_and_neither_names_both(tmp_path: Path) -> None:
    package = tmp_path / "echomq_pool"
    with pytest.raises(ScriptError) as caught:
        find_root(package)
    assert str(package / "_lua") in str(caught.value)
    assert str(tmp_path / "lua") in str(caught.value)
    (tmp_path / "lua").mkdir()
    assert find_root(package) == tmp_path / "lua"
    (package / "_lua").mkdir(parents=True)
    assert find_root(package) == package / "_lua"
