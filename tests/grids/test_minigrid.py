# SPDX-License-Identifier: Apache-2.0
"""MiniGrid against minigrid 3.2: one copy of a grid of ours, then the same actions.

Chance comes from our random streams, so grids are ours; test_minigrid_grids.py looks at them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

wrappers = pytest.importorskip(
    "minigrid.wrappers", reason="needs minigrid, which has no wheel of pygame for 3.14"
)
from grid_ids import by_kind  # noqa: E402
from minigrid_oracle import (  # noqa: E402
    STATE,
    copy_grid,
    copy_targets,
    reference,
    stand_before_something,
    step,
)

import rollouts  # noqa: E402

IDS = [one for one in rollouts.env_ids() if one.startswith("MiniGrid-")]
# left, right, forward, pick up, drop, toggle, done: what gets somewhere is more frequent
ACTIONS = np.array([0.17, 0.17, 0.36, 0.1, 0.06, 0.12, 0.02])
MODES = {
    "full": wrappers.FullyObsWrapper,
    "one_hot": wrappers.OneHotPartialObsWrapper,
    "symbolic": wrappers.SymbolicObsWrapper,
    "flat": wrappers.FlatObsWrapper,
}


def state_of(env: rollouts.VectorEnv) -> np.void:
    return np.frombuffer(env.engine.pool.get_state(0), STATE)[0].copy()


def assert_shown(obs: dict[str, Any], theirs: dict[str, Any]) -> None:
    np.testing.assert_array_equal(obs["image"][0], theirs["image"])
    assert obs["direction"][0] == theirs["direction"]
    assert rollouts.decode_mission(obs["mission"][0]) == theirs["mission"]


def play(env_id: str, episodes: int, *, seed: int = 0, **options: Any) -> list[tuple[float, bool]]:
    """Compares every step of some episodes; returns last rewards and whether they terminated."""
    generator = np.random.default_rng(seed)
    theirs = reference(env_id, **options)
    ends = []
    with rollouts.make_vec(
        env_id, 1, seed=seed, autoreset_mode="disabled", flatten_observation=False, **options
    ) as env:
        weights = ACTIONS[: env.single_action_space.n]
        weights = weights / weights.sum()
        theirs.reset(seed=seed)
        for _ in range(episodes):
            env.reset(options={"reset_mask": np.array([True])})
            state = state_of(env)
            if generator.random() < 0.7:
                stand_before_something(state, generator)
                env.engine.pool.set_state(0, state.tobytes())
            copy_grid(state, theirs)
            copy_targets(state, theirs)
            while True:
                action = int(generator.choice(len(weights), p=weights))
                obs, reward, terminated, truncated, _ = env.step(np.array([action]))
                shown, their_reward, *their_end = step(theirs, action, state_of(env))
                assert_shown(obs, shown)
                assert reward[0] == their_reward
                assert [terminated[0], truncated[0]] == their_end
                if terminated[0] or truncated[0]:
                    break
            ends.append((float(reward[0]), bool(terminated[0])))
    return ends


@by_kind(IDS)
def test_episodes_equal_minigrids_step_by_step(env_id: str) -> None:
    play(env_id, 4, max_steps=60)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_200_episodes_equal_minigrids_step_by_step(env_id: str) -> None:
    limit = min(400, reference(env_id).max_steps)
    ends = play(env_id, 200, seed=1, max_steps=limit)
    if env_id != "MiniGrid-Playground-v0":
        assert any(terminated for _, terminated in ends)
        assert any(reward > 0 for reward, _ in ends)


@by_kind(IDS)
def test_limits_and_spaces_are_minigrids(env_id: str) -> None:
    theirs = reference(env_id)
    with rollouts.make_vec(env_id, 1, seed=1, flatten_observation=False) as env:
        obs, _ = env.reset()
        assert state_of(env)["max_steps"] == theirs.max_steps
        assert env.single_action_space.n == theirs.action_space.n
        assert obs["image"][0].shape == theirs.observation_space["image"].shape
        assert bool(env.env_options["see_through_walls"]) == theirs.see_through_walls
        theirs.reset(seed=1)
        if "Dynamic" not in env_id:
            # a sentence of the same form: colours and things differ
            mine = rollouts.decode_mission(obs["mission"][0]).split()
            assert bool(mine) == bool(theirs.mission)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ["MiniGrid-DoorKey-8x8-v0", "MiniGrid-Fetch-5x5-N2-v0"])
def test_modes_of_observations_equal_minigrids_wrappers(env_id: str, mode: str) -> None:
    theirs = reference(env_id)
    theirs.reset(seed=0)
    wrapper = MODES[mode](theirs)
    generator = np.random.default_rng(3)
    flat = mode == "flat"
    with rollouts.make_vec(
        env_id, 1, seed=5, observation=mode, autoreset_mode="disabled", flatten_observation=flat
    ) as env:
        env.reset()
        copy_grid(state_of(env), theirs)
        copy_targets(state_of(env), theirs)
        for _ in range(30):
            action = int(generator.integers(5))
            obs, _, terminated, *_ = env.step(np.array([action]))
            shown, _, _, _ = step(theirs, action, state_of(env))
            wrapped = wrapper.observation(dict(shown))
            if flat:
                np.testing.assert_array_equal(obs[0], wrapped)
            else:
                np.testing.assert_array_equal(obs["image"][0], wrapped["image"])
                assert obs["image"].dtype == wrapped["image"].dtype
            if terminated[0]:
                break


@pytest.mark.parametrize("side", [3, 5, 9, 15])
@pytest.mark.parametrize("see_through_walls", [False, True])
def test_views_of_any_size_equal_minigrids(side: int, see_through_walls: bool) -> None:
    options = {"agent_view_size": side, "see_through_walls": see_through_walls, "max_steps": 50}
    play("MiniGrid-FourRooms-v0", 2, **options)
    play("MiniGrid-MultiRoom-N4-S5-v1", 2, **options)


def test_a_mission_has_the_numbers_of_minigrids_wrapper() -> None:
    theirs = reference("MiniGrid-LockedRoom-v0")
    theirs.reset(seed=0)
    wrapper = wrappers.DictObservationSpaceWrapper(theirs)
    with rollouts.make_vec("MiniGrid-LockedRoom-v0", 1, seed=1, flatten_observation=False) as env:
        obs, _ = env.reset()
        words = wrapper.string_to_indices(rollouts.decode_mission(obs["mission"][0]))
        assert obs["mission"][0].tolist() == words + [0] * (20 - len(words))
