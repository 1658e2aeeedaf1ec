# SPDX-License-Identifier: Apache-2.0
"""Version 4 of the MuJoCo tasks against Gymnasium's own classes, where it still has them."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import numpy as np
import pytest
from mujoco_oracle import V4_TASKS, compare, make_gymnasium

import rollouts

if "Ant-v4" not in gymnasium.registry:
    pytest.skip("this Gymnasium has no version 4 of its tasks", allow_module_level=True)


@pytest.mark.parametrize("env_id", V4_TASKS)
def test_episodes_equal_gymnasium(env_id: str) -> None:
    # the long form has whole episodes
    compare(env_id, episodes=1, least_steps=100, max_episode_steps=200)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", V4_TASKS)
def test_many_episodes_equal_gymnasium(env_id: str) -> None:
    assert compare(env_id, episodes=50, least_steps=10_000, seed=1) >= 10_000


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    (
        "Ant-v4",
        {
            "use_contact_forces": True,
            "ctrl_cost_weight": 0.3,
            "contact_cost_weight": 0.1,
            "healthy_reward": 0.7,
            "healthy_z_range": (0.3, 0.9),
            "contact_force_range": (-0.5, 2.0),
            "reset_noise_scale": 0.2,
            "exclude_current_positions_from_observation": False,
        },
    ),
    ("Ant-v4", {"terminate_when_unhealthy": False, "healthy_z_range": (0.5, 0.8)}),
    (
        "Hopper-v4",
        {
            "healthy_reward": 2.0,
            "terminate_when_unhealthy": False,
            "healthy_angle_range": (-0.05, 0.05),
            "exclude_current_positions_from_observation": False,
        },
    ),
    (
        "Humanoid-v4",
        {
            "forward_reward_weight": 0.3,
            "terminate_when_unhealthy": False,
            "healthy_z_range": (1.3, 1.6),
            "exclude_current_positions_from_observation": False,
        },
    ),
]


@pytest.mark.parametrize(("env_id", "options"), OPTIONS, ids=str)
def test_options_mean_what_they_mean_in_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    compare(env_id, episodes=1, least_steps=60, max_episode_steps=200, **options)


@pytest.mark.parametrize("env_id", V4_TASKS)
def test_ids_options_and_limits_are_gymnasiums(env_id: str) -> None:
    theirs, ours = gymnasium.spec(env_id), rollouts.env_spec(env_id)
    assert ours.max_episode_steps == theirs.max_episode_steps
    assert ours.reward_threshold == theirs.reward_threshold
    env = make_gymnasium(env_id)
    names = set(inspect.signature(type(env.unwrapped).__init__).parameters) - {"self", "kwargs"}
    env.close()
    halves = {name.replace("_range", end) for name in names for end in ("_min", "_max")}
    # model, substeps, precision, engine and pictures may be chosen here in every task
    extra = {"xml_file", "frame_skip", "obs_dtype", "engine", "from_pixels", "grayscale"}
    assert set(ours.options) - extra <= halves | names
    assert halves | names <= set(ours.options) | {n for n in names if n.endswith("_range")}


def test_a_fall_is_paid_as_health_where_it_ends_the_episode() -> None:
    actions = np.zeros((1, 3), np.float32)
    with (
        rollouts.make_vec("Hopper-v4", 1, seed=1, healthy_z_range=(5.0, 6.0)) as old,
        rollouts.make_vec("Hopper-v5", 1, seed=1, healthy_z_range=(5.0, 6.0)) as new,
    ):
        old.reset()
        new.reset()
        _, reward, terminated, _, _ = old.step(actions)
        _, reward_v5, terminated_v5, _, _ = new.step(actions)
        assert terminated[0] and terminated_v5[0]
        np.testing.assert_allclose(reward - reward_v5, 1.0, rtol=1e-12)
