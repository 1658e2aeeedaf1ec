# SPDX-License-Identifier: Apache-2.0
"""Crafted states and replay files, wrong numbers under a right checksum: no process crashes."""

from __future__ import annotations

from pathlib import Path

import crafted_worker
import pytest
from contract_envs import DOOM_IDS
from crafted_worker import OTHERS
from forked import run_forked

import rollouts

pytestmark = pytest.mark.system

SHORT = 150
LONG = 10_000

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


def crashes(name: str, seed: int, count: int, folder: Path) -> list[str]:
    """Those of `count` mutations that ended the process, and how; the others follow in another."""
    found = []
    first = 0
    said = folder / "said"
    while first < count:
        ended = run_forked(crafted_worker.main, name, seed, first, count - first, said)
        if ended.exitcode == 0:
            # some must be taken, or nothing was stepped
            assert ended.returned > 0, f"{name}: every mutation was refused"
            break
        numbers = said.read_text().split() if said.exists() else []
        assert numbers, ended.stderr
        found.append(f"mutation {numbers[-1]}: {ended.exitcode}, {ended.stderr[-2000:]}")
        first = int(numbers[-1]) + 1
    return found


@every_name
def test_crafted_states_crash_nothing(name: str, tmp_path: Path) -> None:
    assert crashes(name, 1, SHORT, tmp_path) == []


@pytest.mark.slow
@every_name
def test_many_crafted_states_crash_nothing(name: str, tmp_path: Path) -> None:
    assert crashes(name, 2, LONG, tmp_path) == []
