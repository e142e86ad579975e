# SPDX-License-Identifier: MIT
"""The number behind `processes = "auto"`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from echomq_pool.config.cpus import CpuCount, usable_cpus


def cgroup(root: Path, own: str, files: dict[str, str]) -> Path:
    """A /proc and /sys of our own making."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_quota_of_one_and_a_half_cpus_means_two_processes(tmp_path: Path) -> None:
    """case C146"""
    root = cgroup(tmp_path, "0::/\n", {"cpu.max": "150000 100000\n"})
    assert usable_cpus(root, affinity=64) == CpuCount(2, "cgroup v2 quota 150000/100000")


def test_a_quota_of_an_enclosing_group_counts(tmp_path: Path) -> None:
    """case C146"""
    files = {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "max 100000\n"}
    root = cgroup(tmp_path, "0::/a/b\n", files)
    assert usable_cpus(root, affinity=8).count == 1


def test_version_one_of_cgroups_is_understood(tmp_path: Path) -> None:
    """case C146"""
    files = {
        "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "250000\n",
        "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n",
    }
    root = cgroup(tmp_path, "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n", files)
    assert usable_cpus(root, affinity=64) == CpuCount(3, "cgroup v1 quota 250000/100000")


@pytest.mark.parametrize("quota", ["max 100000", "-1", "", "rubbish", "0 0"])
def test_no_quota_leaves_the_affinity(tmp_path: Path, quota: str) -> None:
    """case C146"""
    root = cgroup(tmp_path, "0::/\n", {"cpu.max": quota})
    assert usable_cpus(root, affinity=3) == CpuCount(3, "3 CPUs by affinity")


def test_a_path_from_outside_the_container_falls_back_to_the_mount(tmp_path: Path) -> None:
    """case C146"""
    root = cgroup(tmp_path, "0::/kubepods/pod1/c2\n", {"cpu.max": "400000 100000"})
    assert usable_cpus(root, affinity=64).count == 4


def test_a_big_host_is_capped(tmp_path: Path) -> None:
    """case C146"""
    assert usable_cpus(tmp_path, affinity=256) == CpuCount(32, "256 CPUs by affinity, capped at 32")


def test_a_process_tied_to_one_cpu_gets_one(tmp_path: Path) -> None:
    """case C146"""
    code = "from echomq_pool.config.cpus import usable_cpus; print(usable_cpus().count)"
    one = str(min(os.sched_getaffinity(0)))
    run = subprocess.run(["taskset", "-c", one, sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "1", run.stderr
