# SPDX-License-Identifier: Apache-2.0
"""TagContinuous-v0 and TagGridWorld-v0 against references written from their rules: bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tag_reference import TagContinuousReference, TagGridWorldReference

import rollouts

CHASE = {"grid_length": 6.0, "tagging_distance": 0.05, "max_acceleration": 0.4}
REWARDS = {
    "edge_hit_penalty": -0.3,
    "step_penalty_for_tagger": -0.01,
    "step_reward_for_runner": 0.02,
    "tag_reward_for_tagger": 3.3,
    "tag_penalty_for_runner": -2.7,
}
PARTIAL = {"use_full_observation": False}
STAY = {"runner_exits_game_after_tagged": False}
CONTINUOUS = {
    "default": {},
    "partial": {**PARTIAL, "num_runners": 20, "num_taggers": 3, **CHASE},
    "stay": {**STAY, **CHASE, **REWARDS, "num_taggers": 2, "max_turn": 2.356, "min_turn": -2.356},
    "partial_stay": {**PARTIAL, **STAY, **CHASE, "num_other_agents_observed": 5, "num_taggers": 4},
    "one_each": {"num_runners": 1, "num_taggers": 1, "grid_length": 1.5, "tagging_distance": 0.2},
    # more neighbours than there are, and than one round of the search finds
    "all_seen": {**PARTIAL, **CHASE, "num_other_agents_observed": 11},
    "many_seen": {
        **PARTIAL,
        **CHASE,
        "num_taggers": 5,
        "num_runners": 95,
        "num_other_agents_observed": 70,
    },
    "levels": {
        **CHASE,
        "num_acceleration_levels": 1,
        "num_turn_levels": 3,
        "skill_level_tagger": 1.3,
    },
    "still": {**CHASE, "skill_level_runner": 0.0},
}
CROWDED = ("partial", "all_seen", "many_seen")
CROWD = {**PARTIAL, **CHASE, "num_taggers": 64, "num_runners": 1024, "grid_length": 40.0}
# in cells: everywhere, most on walls and in corners, and fewer left than are seen
MANY = {**PARTIAL, **CHASE, "num_taggers": 5, "num_runners": 245, "grid_length": 20.0}
CELLS = {
    "everywhere": {**MANY, "num_other_agents_observed": 10},
    "many_seen": {**MANY, "num_other_agents_observed": 31, "max_acceleration": 0.1},
    "many_taggers": {**MANY, **REWARDS, "num_taggers": 125, "num_runners": 125},
    "many_taggers_stay": {**MANY, **STAY, **REWARDS, "num_taggers": 40},
    "walls": {**MANY, "grid_length": 1.5, "tagging_distance": 0.001},
    "corner": {**MANY, **STAY, "max_turn": 0.0, "min_turn": 0.0, "grid_length": 0.5},
    "few_left": {**MANY, "num_taggers": 17, "tagging_distance": 0.12,
                 "num_other_agents_observed": 30},
}  # fmt: skip
GRID = {
    "default": {},
    "partial": {"use_full_observation": False, "num_taggers": 3},
    "costs": {
        "grid_length": 4,
        "num_taggers": 2,
        "wall_hit_penalty": 0.37,
        "tag_reward_for_tagger": 7.1,
        "tag_penalty_for_runner": 4.9,
        "step_cost_for_tagger": 0.03,
    },
}


def all_rows(arrays: dict[str, Any]) -> Any:
    """The agents of the only environment, group after group."""
    return np.concatenate([array[0] for array in arrays.values()])


def compare(env_id: str, kind: Any, options: dict[str, Any], episodes: int, length: int) -> int:
    """Plays episodes in both; returns how many agents left before their episode ended."""
    random = np.random.default_rng(7)
    left = 0
    with rollouts.make_vec(
        env_id, 1, autoreset_mode="same_step", max_episode_steps=length, **options
    ) as env:
        assert isinstance(env, rollouts.MultiAgentVectorEnv)
        reference = kind(dict(env.env_options), length)
        ids = reference.id_of_row
        taggers = env.groups["tagger"].num_agents
        obs, _ = env.reset()
        space = env.single_action_spaces["tagger"]
        shape = space.shape
        highest = space.nvec if isinstance(space, spaces.MultiDiscrete) else 5
        for _ in range(episodes):
            np.testing.assert_array_equal(all_rows(obs), reference.reset()[ids])
            done = False
            while not done:
                rows = random.integers(0, highest, (reference.num_agents, *shape))
                by_id = np.empty_like(rows)
                by_id[ids] = rows
                alive = getattr(reference, "alive", np.ones(reference.num_agents, bool)).copy()
                want_obs, want_reward, done = reference.step(by_id)
                actions = {"tagger": rows[None, :taggers], "runner": rows[None, taggers:]}
                obs, reward, terminated, truncated, info = env.step(actions)
                seen = info["final_obs"] if done else obs
                np.testing.assert_array_equal(all_rows(seen), want_obs[ids])
                np.testing.assert_array_equal(all_rows(reward), want_reward[ids].astype(np.float64))
                assert info["ended"][0] == done
                np.testing.assert_array_equal(all_rows(info["active"]), alive[ids])
                over = all_rows(terminated) | all_rows(truncated)
                stay = getattr(reference, "alive", alive)[ids]
                np.testing.assert_array_equal(over, alive[ids] if done else alive[ids] & ~stay)
                left += int((all_rows(terminated) & ~np.full(len(over), done)).sum())
    return left


@pytest.mark.parametrize("name", CONTINUOUS)
def test_tag_continuous_is_the_reference(name: str) -> None:
    options = CONTINUOUS[name]
    episodes = 1 if name == "many_seen" else 3
    left = compare("TagContinuous-v0", TagContinuousReference, options, episodes, 60)
    # else nothing above has shown what happens to those who leave
    assert left > 0 or name not in CROWDED
    assert left == 0 or options.get("runner_exits_game_after_tagged", True)


@pytest.mark.parametrize("name", CELLS)
def test_agents_in_cells_are_the_reference(name: str) -> None:
    left = compare("TagContinuous-v0", TagContinuousReference, CELLS[name], 1, 12)
    assert left > 100 or name != "few_left"


def test_a_crowd_is_the_reference() -> None:
    compare("TagContinuous-v0", TagContinuousReference, CROWD, 1, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CONTINUOUS if name != "many_seen"])
def test_tag_continuous_is_the_reference_for_200_episodes(name: str) -> None:
    compare("TagContinuous-v0", TagContinuousReference, CONTINUOUS[name], 200, 100)


@pytest.mark.slow
@pytest.mark.parametrize("options", [CROWD, {**CROWD, **STAY}], ids=["leave", "stay"])
def test_a_crowd_is_the_reference_for_200_episodes(options: dict[str, Any]) -> None:
    # shorter ones: a step of the reference takes a tenth of a second
    compare("TagContinuous-v0", TagContinuousReference, options, 200, 10)


@pytest.mark.parametrize("name", GRID)
def test_tag_grid_world_is_the_reference(name: str) -> None:
    compare("TagGridWorld-v0", TagGridWorldReference, GRID[name], 8, 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRID)
def test_tag_grid_world_is_the_reference_for_200_episodes(name: str) -> None:
    compare("TagGridWorld-v0", TagGridWorldReference, GRID[name], 200, 100)
