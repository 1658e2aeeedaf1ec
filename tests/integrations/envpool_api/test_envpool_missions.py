# SPDX-License-Identifier: Apache-2.0
"""`mission_id` in infos of the EnvPool module: EnvPool 1.2.5's number of each sentence."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
import rollouts.integrations.envpool as ours

NUMBERED = [
    *("MiniGrid-Fetch-5x5-N2-v0", "MiniGrid-Fetch-8x8-N3-v0", "MiniGrid-GoToDoor-5x5-v0"),
    *("MiniGrid-GoToObject-8x8-N2-v0", "MiniGrid-PutNear-8x8-N3-v0", "MiniGrid-UnlockPickup-v0"),
]
OTHERS = [
    *("MiniGrid-Empty-8x8-v0", "MiniGrid-KeyCorridorS3R2-v0", "MiniGrid-LockedRoom-v0"),
    *("MiniGrid-BlockedUnlockPickup-v0", "MiniGrid-MemoryS7-v0", "BabyAI-GoToLocal-v0"),
]
# as EnvPool 1.2.5 has them
KNOWN = {
    "MiniGrid-Fetch-5x5-N2-v0": {"get a red key": 0, "get a green ball": 3},
    "MiniGrid-GoToDoor-5x5-v0": {"go to the red door": 0, "go to the purple door": 3},
    "MiniGrid-GoToObject-8x8-N2-v0": {"go to the red box": 2, "go to the green key": 3},
    "MiniGrid-PutNear-8x8-N3-v0": {"put the red key near the blue box": 8},
    "MiniGrid-UnlockPickup-v0": {"pick up the blue box": 2},
}


def missions(module: Any, task: str, resets: int) -> dict[str, set[int]]:
    """Numbers that each sentence had in resets of 64 environments."""
    found: dict[str, set[int]] = {}
    env = module.make_gymnasium(task, num_envs=64, seed=1)
    for _ in range(resets):
        obs, info = env.reset()
        assert info["mission_id"].dtype == np.int32
        for sentence, number in zip(obs["mission"], info["mission_id"], strict=True):
            found.setdefault(bytes(sentence).rstrip(b"\0").decode(), set()).add(int(number))
    env.close()
    return found


@pytest.mark.parametrize("task", KNOWN)
def test_missions_have_the_numbers_that_are_known(task: str) -> None:
    found = missions(ours, task, 30)
    for sentence, number in KNOWN[task].items():
        assert found[sentence] == {number}
    numbers = [number for one in found.values() for number in one]
    assert len(set(numbers)) == len(found)


@pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="envpool is missing")
@pytest.mark.parametrize("task", [*NUMBERED, *OTHERS])
def test_missions_have_envpools_numbers(task: str) -> None:
    theirs = missions(importlib.import_module("envpool"), task, 30)
    found = missions(ours, task, 30)
    common = found.keys() & theirs.keys()
    assert common
    assert {one: found[one] for one in common} == {one: theirs[one] for one in common}


def test_the_number_stays_through_an_episode_and_is_described() -> None:
    task = "MiniGrid-GoToObject-6x6-N2-v0"
    spec = ours.make_spec(task).state_array_spec["info:mission_id"]
    assert spec.dtype == np.int32
    for flat in (False, True):
        env = ours.make_gymnasium(task, num_envs=8, seed=2, flatten_observation=flat)
        first = env.reset()[1]["mission_id"]
        assert len(set(first.tolist())) > 1
        info = env.step(np.zeros(8, np.int32))[-1]
        np.testing.assert_array_equal(info["mission_id"], first)
        env.close()
