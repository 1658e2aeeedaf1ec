# SPDX-License-Identifier: Apache-2.0
"""CPUs of worker threads, of NUMA nodes and of a quota, on machines that the test makes up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.errors import SpecError
from rollouts.machine.numa import _numbers, node_cpus
from rollouts.machine.placement import worker_cpus


@pytest.fixture
def six_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {9, 2, 3, 5, 4, 8})


@pytest.mark.parametrize(
    ("num_threads", "synchronous", "expected"),
    [
        (1, True, ()),
        (2, True, (3,)),
        (6, True, (3, 4, 5, 8, 9)),
        (1, False, (2,)),
        (3, False, (2, 3, 4)),
        (6, False, (2, 3, 4, 5, 8, 9)),
    ],
)
def test_true_takes_the_mask_in_order(
    six_cpus: None, num_threads: int, synchronous: bool, expected: tuple[int, ...]
) -> None:
    assert worker_cpus(True, num_threads, synchronous) == expected


@pytest.mark.parametrize("synchronous", [True, False])
def test_more_threads_than_cpus_are_refused(six_cpus: None, synchronous: bool) -> None:
    workers = 6 if synchronous else 7
    with pytest.raises(SpecError) as caught:
        worker_cpus(True, 7, synchronous)
    assert str(caught.value) == (
        "pin_threads=True with num_threads=7 needs as many CPUs and this process may use 6 (CPUs "
        "2, 3, 4, 5, 8, 9); pass num_threads=6 or less, or name the CPUs of the "
        f"{workers} workers"
    )


def test_false_pins_nothing_on_any_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert worker_cpus(False, 4, True) == ()
    for pin_threads in (True, [0]):
        with pytest.raises(SpecError, match="pin_threads needs Linux"):
            worker_cpus(pin_threads, 2, True)


@pytest.mark.parametrize("given_cpus", [[9, 2], (9, 2), np.array([9, 2]), iter([9, 2])])
def test_named_cpus_keep_their_order(six_cpus: None, given_cpus: Any) -> None:
    cpus = worker_cpus(given_cpus, 3, True)
    assert cpus == (9, 2) and all(type(cpu) is int for cpu in cpus)


@pytest.mark.parametrize(
    ("given_cpus", "message"),
    [
        ([2, 7], r"pin_threads\[1\] is CPU 7, which this process may not use; its affinity mask"),
        ([-1, 2], r"pin_threads\[0\] is CPU -1"),
        ([2, 2], "pin_threads names CPU 2 twice; name another for each worker"),
        ([2], "names 1 CPUs, expected 2, one for each worker thread; the caller of step is"),
        ([2, 3, 4], "names 3 CPUs, expected 2"),
        ([], "names 0 CPUs, expected 2"),
        ([2, 3.0], "must name CPUs by int, got"),
        (["2", "3"], "must name CPUs by int, got"),
        ("23", "must be a bool or a sequence of CPUs, got '23'"),
        (b"23", "must be a bool or a sequence of CPUs"),
        (2, "must be a bool or a sequence of CPUs, got 2"),
        (None, "must be a bool or a sequence of CPUs, got None"),
    ],
)
def test_cpus_that_cannot_be_taken_are_named(six_cpus: None, given_cpus: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        worker_cpus(given_cpus, 3, True)


def test_an_asynchronous_pool_has_a_worker_for_each_thread(six_cpus: None) -> None:
    assert worker_cpus([5, 4, 3], 3, False) == (5, 4, 3)
    with pytest.raises(SpecError) as caught:
        worker_cpus([5, 4], 3, False)
    # nobody else is a thread of it
    assert "the caller of step" not in str(caught.value)


@given(st.sets(st.integers(0, 200)))
def test_the_kernel_s_lists_are_read_back(numbers: set[int]) -> None:
    parts: list[str] = []
    ordered = sorted(numbers)
    while ordered:
        first = last = ordered.pop(0)
        while ordered and ordered[0] == last + 1:
            last = ordered.pop(0)
        parts.append(str(first) if first == last else f"{first}-{last}")
    assert _numbers(",".join(parts) + "\n") == sorted(numbers)


def machine(sysfs: Path, nodes: dict[int, str], online: str) -> Path:
    (sysfs / "online").write_text(online)
    for node, cpus in nodes.items():
        (sysfs / f"node{node}").mkdir()
        (sysfs / f"node{node}" / "cpulist").write_text(cpus)
    return sysfs


def test_nodes_count_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    sysfs = machine(tmp_path, {10: "6-7\n", 2: "0,2\n", 3: "\n"}, "2-3,10\n")
    everything = frozenset(range(8))
    assert node_cpus(0, 2, everything, sysfs) == (0, 2)
    assert node_cpus(1, 2, everything, sysfs) == (6, 7)
    # fewer than there are may be used
    assert node_cpus(0, 1, everything, sysfs) == (0, 2)


def test_a_machine_with_too_few_nodes_lists_those_that_it_has(tmp_path: Path) -> None:
    sysfs = machine(tmp_path, {0: "0-1\n", 1: "\n", 4: "2\n"}, "0-1,4\n")
    with pytest.raises(SpecError) as caught:
        node_cpus(0, 3, frozenset({0}), sysfs)
    assert str(caught.value) == (
        "numa_nodes is 3, and this machine has 2 with CPUs (node 0, node 4): "
        "pass numa_nodes=2 or less"
    )


def test_a_node_that_this_process_may_not_use_shows_both_lists(tmp_path: Path) -> None:
    sysfs = machine(tmp_path, {0: "0-1\n", 1: "2-3\n"}, "0-1\n")
    with pytest.raises(SpecError) as caught:
        node_cpus(1, 2, frozenset({1, 0}), sysfs)
    assert str(caught.value).startswith(
        "NUMA node 1 has CPUs 2, 3, of which this process may use none (its affinity mask has 0, 1)"
    )
