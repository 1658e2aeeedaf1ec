# SPDX-License-Identifier: Apache-2.0
"""CPUs of NUMA nodes, read from folders laid out as the kernel's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollouts.errors import SpecError
from rollouts.machine.numa import node_cpus

ALL = frozenset(range(4096))


def sysfs(folder: Path, online: str, **cpulists: str) -> Path:
    (folder / "online").write_text(online + "\n")
    for node, cpus in cpulists.items():
        (folder / node).mkdir()
        (folder / node / "cpulist").write_text(cpus + "\n")
    return folder


def test_nodes_have_the_cpus_that_the_kernel_lists(tmp_path: Path) -> None:
    path = sysfs(tmp_path, "0-1", node0="0-3,8-11", node1="4-7,12-15")
    assert node_cpus(0, 2, ALL, path) == (0, 1, 2, 3, 8, 9, 10, 11)
    assert node_cpus(1, 2, ALL, path) == (4, 5, 6, 7, 12, 13, 14, 15)


def test_cpus_outside_the_process_s_mask_are_left_out(tmp_path: Path) -> None:
    path = sysfs(tmp_path, "0-1", node0="0-3", node1="4-7")
    assert node_cpus(1, 2, frozenset({1, 5, 7}), path) == (5, 7)


def test_nodes_of_memory_alone_and_missing_numbers_do_not_count(tmp_path: Path) -> None:
    path = sysfs(tmp_path, "0,2-4", node0="0", node2="", node3="1,3", node4="5")
    assert [node_cpus(i, 3, ALL, path) for i in range(3)] == [(0,), (1, 3), (5,)]
    with pytest.raises(SpecError, match=r"has 3 with CPUs \(node 0, node 3, node 4\)"):
        node_cpus(0, 4, ALL, path)


def test_fewer_nodes_than_asked_for_is_an_error(tmp_path: Path) -> None:
    path = sysfs(tmp_path, "0", node0="0-7")
    with pytest.raises(SpecError, match=r"numa_nodes is 2, and this machine has 1 .*numa_nodes=1"):
        node_cpus(0, 2, ALL, path)


def test_node_without_a_usable_cpu_is_an_error(tmp_path: Path) -> None:
    path = sysfs(tmp_path, "0-1", node0="0-3", node1="4-5")
    with pytest.raises(SpecError, match=r"NUMA node 1 has CPUs 4, 5, of which .* none .*has 0, 2"):
        node_cpus(1, 2, frozenset({0, 2}), path)


@pytest.mark.parametrize("online", [None, "nonsense"])
def test_machine_that_says_nothing_of_its_nodes_is_an_error(
    tmp_path: Path, online: str | None
) -> None:
    if online is not None:
        sysfs(tmp_path, online)
    with pytest.raises(SpecError, match="does not tell which NUMA nodes"):
        node_cpus(0, 1, ALL, tmp_path)


def test_all_threads_of_the_process_and_later_ones_are_kept_there(tmp_path: Path) -> None:
    last = max(os.sched_getaffinity(0))
    path = sysfs(tmp_path, "0", node0=f"{last},{last + 4096}")
    code = """
import json, os, sys, threading
from pathlib import Path
from rollouts.machine.numa import keep_on_node
leave = threading.Event()
early = threading.Thread(target=leave.wait)
early.start()
cpus = keep_on_node(0, 1, Path(sys.argv[1]))
late = threading.Thread(target=leave.wait)
late.start()
masks = [sorted(os.sched_getaffinity(thread.native_id)) for thread in (early, late)]
leave.set()
print(json.dumps([list(cpus), sorted(os.sched_getaffinity(0)), *masks]))
"""
    # in a process of its own, for a mask is not taken back
    result = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(result.stdout) == [[last]] * 4


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_threads_that_start_meanwhile_are_kept_there_too(tmp_path: Path) -> None:
    last = max(os.sched_getaffinity(0))
    path = sysfs(tmp_path, "0", node0=str(last))
    code = """
import json, os, sys, threading
from pathlib import Path
from rollouts.machine.numa import keep_on_node
go, started, leave = threading.Event(), threading.Event(), threading.Event()
children = []

def start_another():
    go.wait()
    children.append(threading.Thread(target=leave.wait))
    children[0].start()
    started.set()
    leave.wait()

parent = threading.Thread(target=start_another)
parent.start()
keep = os.sched_setaffinity

def keep_late(thread, cpus):
    # the last thread that has all CPUs still starts another one
    if thread == parent.native_id:
        go.set()
        started.wait()
    keep(thread, cpus)

os.sched_setaffinity = keep_late
keep_on_node(0, 1, Path(sys.argv[1]))
masks = [sorted(os.sched_getaffinity(t.native_id)) for t in (parent, *children)]
leave.set()
print(json.dumps(masks))
"""
    result = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(result.stdout) == [[last]] * 2
