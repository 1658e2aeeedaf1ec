# SPDX-License-Identifier: Apache-2.0
"""Environments that the contract is checked with, and their steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from grid_ids import without_equal_kinds
from gymnasium import spaces
from long_forms import slow_beside
from own_envs import has_compiler

import rollouts
from rollouts import _native
from rollouts.families import dm_control

# asking a game's env_spec would load its emulator
# the DeepMind Control Suite has tests of its own (tests/oracle/test_dm_control.py); here two of
# its tasks stand for all, one of them with an own model in each environment
SUITE_IDS = ["PendulumSwingup-v1", "StackerStack2-v1"]
# and version 4 of the MuJoCo tasks is version 5 with other rewards
V4_IDS = ["Taxi-v4", "Pusher-v4"]
OTHER_IDS = [
    i
    for i in without_equal_kinds(rollouts.env_ids())
    if not i.startswith(("ALE/", "Vizdoom"))
    and i not in dm_control.task_ids()
    and (not i.endswith("-v4") or i in V4_IDS)
]
_ON_CPU_ALONE = {entry["id"] for entry in _native.registry() if entry["cpu_only"]}
LIGHT_IDS = [i for i in OTHER_IDS if i not in _ON_CPU_ALONE]
MUJOCO_IDS = [i for i in OTHER_IDS if i not in LIGHT_IDS]
# games are slow to start: a few stand for all of them
ATARI_IDS = [i for i in ("ALE/Pong-v5", "ALE/Breakout-v5") if i in rollouts.env_ids()]
# so are processes; one that gets combinations of buttons, and one that gets amounts
DOOM_IDS = [i for i in ("VizdoomBasic-v1", "VizdoomDeathmatch-v1") if i in rollouts.env_ids()]
HEAVY_IDS = ATARI_IDS + DOOM_IDS + MUJOCO_IDS + [i for i in SUITE_IDS if i in rollouts.env_ids()]
# the first of those with alike spaces, which decide what code the batch's face runs; test_kinds.py
# tells if they are. A list, because each process that collects tests would ask each for its spec
KINDS = [
    "CartPole-v0",
    "Pendulum-v1",
    "FrozenLake-v1",
    "Blackjack-v1",
    "Catch-v0",
    "MiniGrid-DoorKey-5x5-v0",
    "ALE/Pong-v5",
    "VizdoomDeathmatch-v1",
    "Ant-v5",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
    "PendulumSwingup-v1",
]
# a user's own, which conftest.py registers, keeps the contract too
if has_compiler():
    LIGHT_IDS, KINDS = [*LIGHT_IDS, "Vault-v0"], [*KINDS, "Vault-v0"]

ALL_IDS = LIGHT_IDS + HEAVY_IDS
# a second scenario of Doom has the same state, and is a process for each environment
every_id = pytest.mark.parametrize("env_id", slow_beside({*ALL_IDS} - {*DOOM_IDS[:1]}, ALL_IDS))


def every_kind_of(env_ids: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrises by these ids; `slow` are those that share the code of one before them."""
    return pytest.mark.parametrize("env_id", slow_beside(KINDS, env_ids))


every_kind = every_kind_of(ALL_IDS)


def actions_of(env: rollouts.VectorEnv, seed: int = 0, batch: int | None = None) -> np.ndarray:
    """Random actions, one per row."""
    generator = np.random.default_rng(seed)
    rows = batch or env.batch_size
    space = env.single_action_space
    if isinstance(space, spaces.Discrete):
        return generator.integers(space.n, size=rows)
    if isinstance(space, spaces.MultiDiscrete):
        return generator.integers(space.nvec, size=(rows, *space.shape)).astype(space.dtype)
    return generator.uniform(space.low, space.high, (rows, *space.shape)).astype(np.float32)


def step_until_any_end(env: rollouts.VectorEnv, seed: int = 0) -> tuple:
    """Steps until an episode ends; returns that step's five values."""
    for step in range(10_000):
        result = env.step(actions_of(env, seed + step))
        if (result[2] | result[3]).any():
            return result
    raise AssertionError("no episode ended")
