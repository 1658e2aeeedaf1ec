# SPDX-License-Identifier: Apache-2.0
"""Crafted states and replay files, wrong numbers under a right checksum: no process crashes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from contract_envs import DOOM_IDS
from crafted_worker import OTHERS
from processes import environ_with_path

import rollouts

SHORT = 150
LONG = 10_000
HANG_S = 3600.0

# one of each family, the one whose states have most that could be wrong
NAMES = [
    "CartPole-v1",
    "Acrobot-v1",
    "FrozenLake-v1",
    "Taxi-v4",
    "Blackjack-v1",
    "Catch-v0",
    "NChain-v0",
    "MiniGrid-RedBlueDoors-8x8-v0",
    "MiniGrid-Dynamic-Obstacles-8x8-v0",
    "MiniGrid-GoToDoor-8x8-v0",
    "MiniGrid-MultiRoom-N4-S5-v1",
    "MiniGrid-Unlock-v0",
    "BabyAI-BossLevel-v0",
    "BabyAI-PutNextS5N2Carrying-v0",
    "simple_reference_v3",
    "simple_world_comm_v3",
    "TagGridWorld-v0",
    "LunarLander-v3",
    "BipedalWalker-v3",
    "CarRacing-v3",
    "ALE/Pong-v5",
    "ALE/Pitfall2-v5",
    "ALE/MontezumaRevenge-v5",
    *DOOM_IDS[:1],
    "Hopper-v5",
    "Ant-v5",
    "Humanoid-v5",
    "WalkerRun-v1",
    *OTHERS,
]
KNOWN = {*rollouts.env_ids(), *rollouts.multi_agent_ids(), *OTHERS}
every_name = pytest.mark.parametrize("name", [name for name in NAMES if name in KNOWN])


def crashes(name: str, seed: int, count: int) -> list[str]:
    """Those of `count` mutations that ended the process, and how; the others follow in another."""
    found = []
    first = 0
    while first < count:
        command = [sys.executable, str(Path(__file__).with_name("crafted_worker.py"))]
        command += [name, str(seed), str(first), str(count - first)]
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=HANG_S, env=environ_with_path()
        )
        lines = run.stdout.split("\n")
        if run.returncode == 0:
            # some must be taken, or nothing was stepped
            assert int(lines[-2].split()[1]) > 0, f"{name}: every mutation was refused"
            break
        numbers = [line for line in lines if line.isdigit()]
        assert numbers, run.stderr
        found.append(f"mutation {numbers[-1]}: {run.returncode}, {run.stderr[-2000:]}")
        first = int(numbers[-1]) + 1
    return found


@every_name
def test_crafted_states_crash_nothing(name: str) -> None:
    assert crashes(name, 1, SHORT) == []


@pytest.mark.slow
@every_name
def test_many_crafted_states_crash_nothing(name: str) -> None:
    assert crashes(name, 2, LONG) == []
