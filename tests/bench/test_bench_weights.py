# SPDX-License-Identifier: Apache-2.0
"""The benchmark of weights runs and stores what it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.system


def test_each_way_stores_its_share_of_the_bytes() -> None:
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "rollouts.bench.weights"]
    result = subprocess.run(
        [*command, "--mb", "2", "--repeats", "1"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    stored = {}
    for line in result.stdout.splitlines():
        *name, _publish_ms, _pull_ms, megabytes = line.split()[-8:] if line else [""] * 4
        if name and name[0] in ("ray.put(state_dict)", "WeightStore"):
            stored[" ".join(name)] = float(megabytes)
    assert stored == {
        "ray.put(state_dict)": 2.1,
        "WeightStore": 2.1,
        "WeightStore float16": 1.05,
        "WeightStore bfloat16": 1.05,
        "WeightStore delta": 1.05,
        "WeightStore bfloat16 delta": 0.52,
    }


def test_ways_from_a_learner_are_measured_side_by_side() -> None:
    pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")
    command = [sys.executable, "-m", "rollouts.bench.weights", "--from-learner"]
    result = subprocess.run(
        [*command, "--mb", "1", "--repeats", "1"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    rows = [line.rsplit(maxsplit=2) for line in result.stdout.splitlines()[3:]]
    assert [name.strip() for name, _, _ in rows] == [
        "ray.get + publish_weights",
        "publish_from, object store",
    ]
    # the version that acted was published first
    assert all(0 < float(publish) < float(acting) for _, publish, acting in rows)
