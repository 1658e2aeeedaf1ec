# SPDX-License-Identifier: Apache-2.0
"""MuJoCo tasks against Gymnasium's own classes: same start, same actions, to the end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from mujoco_oracle import TASKS, compare, make_gymnasium, physics_state

import rollouts

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


@pytest.mark.parametrize("env_id", TASKS)
def test_episodes_equal_gymnasium(env_id: str) -> None:
    # the long form has whole episodes
    compare(env_id, episodes=1, least_steps=150, max_episode_steps=300)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", TASKS)
def test_many_episodes_equal_gymnasium(env_id: str) -> None:
    assert compare(env_id, episodes=50, least_steps=10_000, seed=1) >= 10_000


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    (
        "Ant-v5",
        {
            "forward_reward_weight": 2.0,
            "ctrl_cost_weight": 0.3,
            "contact_cost_weight": 0.1,
            "healthy_reward": 0.7,
            "main_body": "front_left_leg",
            "healthy_z_range": (0.3, 0.9),
            "contact_force_range": (-0.5, 2.0),
            "reset_noise_scale": 0.2,
            "exclude_current_positions_from_observation": False,
        },
    ),
    ("Ant-v5", {"main_body": 3, "include_cfrc_ext_in_observation": False}),
    ("Ant-v5", {"terminate_when_unhealthy": False, "frame_skip": 2}),
    (
        "HalfCheetah-v5",
        {
            "forward_reward_weight": 0.3,
            "ctrl_cost_weight": 0.7,
            "reset_noise_scale": 0.3,
            "exclude_current_positions_from_observation": False,
            "frame_skip": 3,
        },
    ),
    (
        "Hopper-v5",
        {
            "forward_reward_weight": 0.3,
            "ctrl_cost_weight": 0.7,
            "healthy_reward": 2.0,
            "healthy_state_range": (-2.0, 3.0),
            "healthy_z_range": (0.5, 1.6),
            "healthy_angle_range": (-0.5, 0.1),
            "reset_noise_scale": 0.01,
            "exclude_current_positions_from_observation": False,
        },
    ),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "frame_skip": 1}),
    (
        "Walker2d-v5",
        {
            "forward_reward_weight": 0.3,
            "ctrl_cost_weight": 0.7,
            "healthy_reward": 2.0,
            "healthy_z_range": (0.9, 1.6),
            "healthy_angle_range": (-0.5, 0.4),
            "reset_noise_scale": 0.01,
            "exclude_current_positions_from_observation": False,
        },
    ),
    (
        "Humanoid-v5",
        {
            "forward_reward_weight": 0.3,
            "ctrl_cost_weight": 0.7,
            "contact_cost_weight": 1e-4,
            "contact_cost_range": (0.5, 3.0),
            "healthy_reward": 2.0,
            "healthy_z_range": (1.1, 1.6),
            "reset_noise_scale": 0.05,
            "exclude_current_positions_from_observation": False,
            "include_cvel_in_observation": False,
            "include_cfrc_ext_in_observation": False,
        },
    ),
    (
        "Humanoid-v5",
        {
            "include_cinert_in_observation": False,
            "include_qfrc_actuator_in_observation": False,
            "terminate_when_unhealthy": False,
        },
    ),
    (
        "HumanoidStandup-v5",
        {
            "uph_cost_weight": 3.0,
            "ctrl_cost_weight": 0.7,
            "impact_cost_weight": 1e-3,
            "impact_cost_range": (0.1, 2.0),
            "reset_noise_scale": 0.05,
            "exclude_current_positions_from_observation": False,
            "include_cinert_in_observation": False,
        },
    ),
    ("InvertedPendulum-v5", {"reset_noise_scale": 0.1, "frame_skip": 4}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 3.0, "reset_noise_scale": 0.05}),
    ("Reacher-v5", {"reward_dist_weight": 0.3, "reward_control_weight": 0.7}),
    (
        "Pusher-v5",
        {"reward_near_weight": 0.2, "reward_dist_weight": 0.3, "reward_control_weight": 0.7},
    ),
    (
        "Swimmer-v5",
        {
            "forward_reward_weight": 0.3,
            "ctrl_cost_weight": 0.7,
            "reset_noise_scale": 0.2,
            "exclude_current_positions_from_observation": False,
        },
    ),
]


@pytest.mark.parametrize(
    ("env_id", "options"), OPTIONS, ids=[f"{i}-{env_id}" for i, (env_id, _) in enumerate(OPTIONS)]
)
def test_options_mean_what_they_mean_in_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    compare(env_id, episodes=1, least_steps=60, max_episode_steps=200, **options)


@pytest.mark.parametrize("env_id", TASKS)
def test_every_option_of_gymnasiums_class_is_taken(env_id: str) -> None:
    import inspect

    theirs = make_gymnasium(env_id)
    names = set(inspect.signature(type(theirs.unwrapped).__init__).parameters)
    theirs.close()
    names -= {"self", "kwargs", "default_camera_config"}  # the latter is of rendering alone
    halves = {re.sub("_range$", half, name) for name in names for half in ("_min", "_max")}
    ours = set(rollouts.env_spec(env_id).options)
    assert {name for name in names if not name.endswith("_range")} <= ours
    assert halves <= ours | names


@pytest.mark.parametrize("env_id", TASKS)
def test_limits_and_thresholds_are_gymnasiums(env_id: str) -> None:
    theirs, ours = gymnasium.spec(env_id), rollouts.env_spec(env_id)
    assert ours.max_episode_steps == theirs.max_episode_steps
    assert ours.reward_threshold == theirs.reward_threshold
    assert ours.cpu_only


def test_a_model_of_the_users_own_is_used(tmp_path: Path) -> None:
    text = (ASSETS / "ant.xml").read_text()
    changed = re.sub(r'timestep="0.01"', 'timestep="0.004" gravity="0 0 -3"', text)
    assert changed != text
    path = tmp_path / "my_ant.xml"
    path.write_text(changed)
    compare("Ant-v5", episodes=1, least_steps=60, max_episode_steps=100, xml_file=str(path))


def test_float32_observations_are_the_float64_ones_rounded() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 2, 8)).astype(np.float32)
    with (
        rollouts.make_vec("Ant-v5", 2, seed=3) as double,
        rollouts.make_vec("Ant-v5", 2, seed=3, obs_dtype="float32") as single,
    ):
        assert single.single_observation_space.dtype == np.float32
        assert single.single_observation_space.shape == double.single_observation_space.shape
        np.testing.assert_array_equal(single.reset()[0], double.reset()[0].astype(np.float32))
        for action in actions:
            obs, reward, *_ = single.step(action)
            want, want_reward, *_ = double.step(action)
            np.testing.assert_array_equal(obs, want.astype(np.float32))
            np.testing.assert_array_equal(reward, want_reward)


STARTS: dict[str, tuple[str, str, float]] = {
    # distributions of positions and velocities, and their scale
    "Ant-v5": ("uniform", "normal", 0.1),
    "HalfCheetah-v5": ("uniform", "normal", 0.1),
    "Hopper-v5": ("uniform", "uniform", 0.005),
    "Walker2d-v5": ("uniform", "uniform", 0.005),
    "Humanoid-v5": ("uniform", "uniform", 0.01),
    "HumanoidStandup-v5": ("uniform", "uniform", 0.01),
    "InvertedPendulum-v5": ("uniform", "uniform", 0.01),
    "InvertedDoublePendulum-v5": ("uniform", "normal", 0.1),
    "Swimmer-v5": ("uniform", "uniform", 0.1),
}


def drawn_starts(env_id: str, num_envs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions and velocities (N, *) after reset, and the model's own positions."""
    theirs = make_gymnasium(env_id).unwrapped
    nq, nv = theirs.model.nq, theirs.model.nv
    with rollouts.make_vec(env_id, num_envs, seed=5) as env:
        env.reset()
        states = np.stack([physics_state(env, i) for i in range(num_envs)])
    return states[:, 1 : 1 + nq], states[:, 1 + nq : 1 + nq + nv], theirs.init_qpos


@pytest.mark.parametrize("env_id", STARTS)
def test_starts_have_the_distribution_of_gymnasium(env_id: str) -> None:
    *kinds, scale = STARTS[env_id]
    positions, velocities, own = drawn_starts(env_id, 300)
    for kind, drawn in zip(kinds, (positions - own, velocities), strict=True):
        count = drawn.size
        if kind == "uniform":
            assert np.abs(drawn).max() <= scale * (1 + 1e-9)
            assert np.abs(drawn).max() > 0.98 * scale
            variance, kurtosis = scale**2 / 3, 9 / 5
        else:
            variance, kurtosis = scale**2, 3.0
        # five standard errors
        assert abs(drawn.mean()) < 5 * (variance / count) ** 0.5
        error = ((kurtosis - 1) / count) ** 0.5 * variance
        assert abs(drawn.var() - variance) < 5 * error
        # elements are independent of each other
        correlation = np.corrcoef(drawn.T) - np.eye(drawn.shape[1])
        assert np.abs(correlation).max() < 5.5 / 300**0.5


def test_reacher_and_pusher_start_where_gymnasium_may_start() -> None:
    positions, velocities, own = drawn_starts("Reacher-v5", 200)
    assert 0.15 < np.linalg.norm(positions[:, -2:], axis=1).max() < 0.2
    assert 0.095 < np.abs(positions[:, :2] - own[:2]).max() <= 0.1
    assert 0.0045 < np.abs(velocities[:, :2]).max() <= 0.005
    assert not velocities[:, -2:].any()

    positions, velocities, own = drawn_starts("Pusher-v5", 200)
    cylinder = positions[:, -4:-2]
    assert np.linalg.norm(cylinder, axis=1).min() > 0.17
    assert cylinder[:, 0].max() <= 0 and cylinder[:, 0].min() >= -0.3
    assert np.abs(cylinder[:, 1]).max() <= 0.2
    assert not positions[:, -2:].any()
    np.testing.assert_array_equal(positions[:, :-4], np.broadcast_to(own[:-4], (200, len(own) - 4)))
    assert 0.0045 < np.abs(velocities[:, :-4]).max() <= 0.005
    assert not velocities[:, -4:].any()
