# SPDX-License-Identifier: Apache-2.0
"""Environments that the contract is checked with, and their steps."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
from grid_ids import without_equal_kinds
from gymnasium import spaces
from own_envs import has_compiler

import rollouts
from rollouts.families import dm_control


def _one_of_each_kind(env_ids: Iterable[str]) -> list[str]:
    """The first of those with alike spaces, which are what a release of Gymnasium may change."""
    first: dict[tuple[object, ...], str] = {}
    for env_id in env_ids:
        spec = rollouts.env_spec(env_id)
        both = (spec.single_observation_space, spec.single_action_space)
        kind = (spec.cpu_only, *((type(space), space.dtype, len(space.shape)) for space in both))
        first.setdefault(kind, env_id)
    return list(first.values())


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
LIGHT_IDS = [i for i in OTHER_IDS if not rollouts.env_spec(i).cpu_only]
MUJOCO_IDS = [i for i in OTHER_IDS if i not in LIGHT_IDS]
# games are slow to start: a few stand for all of them
ATARI_IDS = [i for i in ("ALE/Pong-v5", "ALE/Breakout-v5") if i in rollouts.env_ids()]
# so are processes; one that gets combinations of buttons, and one that gets amounts
DOOM_IDS = [i for i in ("VizdoomBasic-v1", "VizdoomDeathmatch-v1") if i in rollouts.env_ids()]
HEAVY_IDS = ATARI_IDS + DOOM_IDS + MUJOCO_IDS + [i for i in SUITE_IDS if i in rollouts.env_ids()]
# a run with another Gymnasium asks for these: its long form, `make test-newest-gymnasium`, has all
if os.environ.get("ROLLOUTS_ONE_OF_EACH_KIND"):
    LIGHT_IDS, HEAVY_IDS = _one_of_each_kind(LIGHT_IDS), _one_of_each_kind(HEAVY_IDS)
# a user's own, which conftest.py registers, keeps the contract too
LIGHT_IDS += ["Vault-v0"] if has_compiler() else []


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
