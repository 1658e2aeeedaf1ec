# SPDX-License-Identifier: Apache-2.0
"""Threads default to what the process may use, not to what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rollouts
from rollouts.machine import cpu_count

V2 = "/sys/fs/cgroup/cpu.max"
V1_QUOTA = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"
V1_PERIOD = "/sys/fs/cgroup/cpu/cpu.cfs_period_us"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """Makes this process see that many allowed CPUs and those cgroup files alone."""

    def pretend(allowed: int, files: dict[str, str]) -> None:
        def read_text(path: Path) -> str:
            if str(path) not in files:
                raise FileNotFoundError(path)
            return files[str(path)]

        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(allowed)))
        monkeypatch.setattr(Path, "read_text", read_text)

    return pretend


@pytest.mark.parametrize(
    ("allowed", "files", "expected"),
    [
        (6, {}, 6),
        (6, {V2: "max 100000\n"}, 6),
        (6, {V2: "200000 100000\n"}, 2),
        (6, {V2: "250000 100000\n"}, 3),
        (6, {V2: "1000 100000\n"}, 1),
        (2, {V2: "900000 100000\n"}, 2),
        (6, {V2: "nonsense"}, 6),
        (6, {V1_QUOTA: "-1\n", V1_PERIOD: "100000\n"}, 6),
        (6, {V1_QUOTA: "150000\n", V1_PERIOD: "100000\n"}, 2),
        (6, {V1_QUOTA: "150000\n"}, 6),
    ],
)
def test_usable_cpus_are_cut_to_affinity_and_quota(
    machine, allowed: int, files: dict[str, str], expected: int
) -> None:
    machine(allowed, files)
    assert cpu_count.usable_cpus() == expected


def test_threads_default_to_the_usable_cpus_and_at_most_one_per_environment(machine) -> None:
    machine(3, {V2: "max 100000\n"})
    for num_envs, expected in [(8, 3), (2, 2)]:
        with rollouts.make_vec("CartPole-v1", num_envs) as env:
            assert env.num_threads == expected
            env.reset()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity: Linux")
def test_usable_cpus_follow_the_real_affinity_mask() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cpu_count.usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)
