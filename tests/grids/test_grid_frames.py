# SPDX-License-Identifier: Apache-2.0
"""Frames of MiniGrid and BabyAI are minigrid's, pixel by pixel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip(
    "minigrid.wrappers", reason="needs minigrid, which has no wheel of pygame for 3.14"
)
from babyai_oracle import BABY_STATE
from minigrid.core.grid import Grid
from minigrid_oracle import STATE, copy_grid, make_object, reference

import rollouts
from rollouts.rendering import grids

# rooms behind walls and doors, lava, keys and boxes, no walls in the way, a small view, sentences
IDS = (
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-LavaCrossingS9N2-v0",
    "MiniGrid-ObstructedMaze-Full-v1",
    "MiniGrid-MultiRoom-N6-v0",
    "MiniGrid-Empty-Random-6x6-v0",
    "MiniGrid-Dynamic-Obstacles-6x6-v0",
    "MiniGrid-KeyCorridorS4R3-v0",
    "BabyAI-BossLevel-v0",
    "BabyAI-KeyInBox-v0",
)
NUM_ENVS = 4


def state_of(env: rollouts.VectorEnv, env_id: str, index: int) -> np.void:
    dtype = BABY_STATE if env_id.startswith("BabyAI") else STATE
    state = np.frombuffer(env.engine.pool.get_state(index), dtype)[0]
    return state["grid"] if dtype is BABY_STATE else state


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        *((env_id, {}) for env_id in IDS),
        (IDS[0], {"agent_view_size": 5, "see_through_walls": True}),
        (IDS[0], {"highlight": False}),
    ],
)
def test_frames_are_minigrids(env_id: str, options: dict[str, int]) -> None:
    generator = np.random.default_rng(5)
    theirs = reference(env_id, render_mode="rgb_array", **options)
    theirs.reset(seed=1)
    with rollouts.make_vec(
        env_id, NUM_ENVS, seed=2, num_threads=1, render_mode="rgb_array", **options
    ) as env:
        assert env.metadata["render_fps"] == theirs.metadata["render_fps"]
        env.reset()
        for _ in range(5):
            for _ in range(8):
                env.step(generator.integers(env.single_action_space.n, size=NUM_ENVS))
            frames = env.render()
            assert frames is not None
            for index, frame in enumerate(frames):
                state = state_of(env, env_id, index)
                theirs.max_steps = int(state["max_steps"])
                copy_grid(state, theirs)
                np.testing.assert_array_equal(frame, theirs.render())


@pytest.mark.parametrize("kind", [1, 2, 4, 5, 6, 7, 8, 9])
def test_tiles_are_minigrids(kind: int) -> None:
    states = range(3) if kind == 4 else (0,)
    colors = range(6) if kind not in (1, 9) else (0,)
    # minigrid takes 50 ms for a tile: the agent over one kind stands for all
    facings = range(-1, 4) if kind == 8 else (-1,)
    for color, state, facing, is_seen in itertools.product(
        colors if kind != 8 else (1,), states, facings, (False, True)
    ):
        cell = kind | color << 8 | state << 16
        theirs = Grid.render_tile(make_object(cell), None if facing < 0 else facing, is_seen)
        np.testing.assert_array_equal(
            grids._tile(cell, facing, is_seen), theirs.astype(np.uint8), f"{color} {state} {facing}"
        )
