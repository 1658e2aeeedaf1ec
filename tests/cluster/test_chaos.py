# SPDX-License-Identifier: Apache-2.0
"""A cluster on which workers and nodes are killed: see chaos.py.

ROLLOUTS_CHAOS_S is the seconds of killing, 10 by default, or until one of each kind was killed;
600 is the full form, which also takes off what Ray keeps of each actor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import environ_with_path

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[1] / "helpers" / "chaos.py"
# for starting nodes and workers and for what is waited for: a hang limit
SETUP_LIMIT_S = 1800


def live_through(*options: str) -> dict[str, Any]:
    """Runs chaos.py; returns its summary."""
    pytest.importorskip("ray")
    seconds = float(os.environ.get("ROLLOUTS_CHAOS_S", "10"))
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", str(seconds), *options],
        env=environ_with_path(),
        capture_output=True,
        text=True,
        timeout=seconds + SETUP_LIMIT_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    summary: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert summary["env_steps"]["delivered"] > 0
    return summary


# slow: the next one kills workers and nodes, too
@pytest.mark.slow
def test_killed_workers_and_nodes_cost_no_step_of_a_completed_fragment() -> None:
    summary = live_through()
    assert summary["kills"]["node"] >= 1
    assert summary["kills"]["worker"] >= 1
    # no worker is killed twice; what a node's loss costs depends on which workers it had
    assert summary["restarts"] >= summary["kills"]["worker"]


def test_coordinators_and_learners_are_killed_too_and_each_step_is_learned_from_once() -> None:
    summary = live_through("--num-nodes", "3", "--num-coordinators", "2", "--num-learners", "2")
    kills, learners = summary["kills"], summary["learners"]
    assert all(kills[kind] >= 1 for kind in ("node", "worker", "coordinator", "learner"))
    assert summary["failures"]["coordinator_died"] >= kills["coordinator"]
    assert learners["restarts"] >= kills["learner"]
    assert learners["updates"] > 0
