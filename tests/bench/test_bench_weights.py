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
