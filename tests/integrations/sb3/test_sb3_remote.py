# SPDX-License-Identifier: Apache-2.0
"""PPO of Stable-Baselines3 whose rollouts come from Ray workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
pytest.importorskip("ray", reason="needs ray")

import torch
from rollouts.integrations.sb3 import (
    RolloutsA2C,
    RolloutsDQN,
    RolloutsPPO,
    RolloutsSAC,
    RolloutsVecEnv,
)
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import obs_as_tensor

import rollouts

pytestmark = pytest.mark.system

NUM_ENVS, NUM_STEPS = 6, 32


class Columns(BaseCallback):
    """Keeps copies of every rollout, with what the policy that made it says of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[dict[str, Any]] = []
        self.steps: list[int] = []
        self.episodes: list[tuple[float, int]] = []
        self.num_cut = 0

    def _on_step(self) -> bool:
        self.steps.append(self.num_timesteps)
        for info in self.locals["infos"]:
            self.num_cut += info["TimeLimit.truncated"]
            if "episode" in info:
                self.episodes.append((info["episode"]["r"], info["episode"]["l"]))
        return True

    def _on_rollout_end(self) -> None:
        buffer, policy = self.model.rollout_buffer, self.model.policy
        obs = obs_as_tensor(buffer.observations.reshape(-1, 4), "cpu")
        actions = torch.from_numpy(buffer.actions.reshape(-1))
        with torch.no_grad():
            values, log_probs, _ = policy.evaluate_actions(obs, actions)
        kept = {name: getattr(buffer, name).copy() for name in ("values", "log_probs", "rewards")}
        kept |= {"starts": buffer.episode_starts.copy(), "obs": buffer.observations.copy()}
        shape = buffer.values.shape
        self.rollouts.append(
            {
                **kept,
                "values_again": values.reshape(shape).numpy(),
                "log_probs_again": log_probs.reshape(shape).numpy(),
            }
        )


@pytest.fixture(scope="module", params=["auto", "torch"])
def columns(ray_session: None, request: pytest.FixtureRequest) -> Iterator[Columns]:
    env = RolloutsVecEnv("CartPole-v1", NUM_ENVS, seed=3, max_episode_steps=15)
    model = RolloutsPPO(
        "MlpPolicy",
        env,
        n_steps=NUM_STEPS,
        batch_size=64,
        seed=5,
        device="cpu",
        num_workers=2,
        rollout_engine=request.param,
    )
    seen = Columns()
    model.learn(3 * NUM_STEPS * NUM_ENVS, callback=seen)
    has_kernels = rollouts._native.policy_kernels_in_use() != "emulated"
    assert (model.engine == "native") == (request.param == "auto" and has_kernels)
    model.close()
    assert [(e["r"], e["l"]) for e in model.ep_info_buffer] == seen.episodes
    yield seen


def test_every_rollout_is_made_with_the_newest_weights(columns: Columns) -> None:
    assert len(columns.rollouts) == 3
    for rollout in columns.rollouts:
        # rows of another batch size: products are rounded otherwise
        for name in ("values", "log_probs"):
            np.testing.assert_allclose(rollout[name], rollout[f"{name}_again"], atol=1e-5)


def test_the_workers_environments_are_those_of_one_pool(columns: Columns) -> None:
    env = RolloutsVecEnv("CartPole-v1", NUM_ENVS)
    first = env.pool.reset(seed=5)[0]
    np.testing.assert_array_equal(columns.rollouts[0]["obs"][0], first)


def test_columns_go_on_from_rollout_to_rollout(columns: Columns) -> None:
    assert columns.rollouts[0]["starts"][0].all()
    for rollout in columns.rollouts:
        # where an episode goes on, positions move by velocity * 0.02 s
        obs, goes_on = rollout["obs"], rollout["starts"][1:] == 0
        moved = obs[:-1, :, 0] + 0.02 * obs[:-1, :, 1]
        np.testing.assert_allclose(obs[1:, :, 0][goes_on], moved[goes_on], atol=1e-6)
        assert 0 < goes_on.mean() < 1
    before, after = columns.rollouts[1]["obs"][-1], columns.rollouts[2]["obs"][0]
    goes_on = columns.rollouts[2]["starts"][0] == 0
    moved = (before[:, 0] + 0.02 * before[:, 1])[goes_on]
    np.testing.assert_allclose(after[:, 0][goes_on], moved, atol=1e-6)


def test_what_a_time_limit_cut_is_valued(columns: Columns) -> None:
    rewards = np.concatenate([rollout["rewards"] for rollout in columns.rollouts])
    # any other step gives 1.0
    assert (rewards != 1.0).sum() == columns.num_cut > 0


def test_callbacks_count_every_step(columns: Columns) -> None:
    expected = NUM_ENVS * np.arange(1, 3 * NUM_STEPS + 1)
    np.testing.assert_array_equal(columns.steps, expected)


def test_models_are_saved_without_their_workers_and_stop_them(
    ray_session: None, tmp_path: Any
) -> None:
    env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
    model = RolloutsA2C("MlpPolicy", env, n_steps=8, device="cpu", num_workers=2).learn(64)
    model.save(tmp_path / "model.zip")
    model.close()
    again = RolloutsA2C.load(tmp_path / "model.zip", env=env, device="cpu")
    assert again.num_workers == 2
    again.num_workers = 0
    again.learn(64)


@pytest.mark.parametrize(
    ("algorithm", "env_id", "action_is_kept"),
    [(RolloutsDQN, "CartPole-v1", True), (RolloutsSAC, "Pendulum-v1", False)],
    ids=["dqn", "sac"],
)
def test_replays_are_filled_with_whole_transitions(
    ray_session: None, algorithm: Any, env_id: str, action_is_kept: bool
) -> None:
    env = RolloutsVecEnv(env_id, 4, seed=3, max_episode_steps=10)
    model = algorithm(
        "MlpPolicy",
        env,
        learning_starts=100,
        train_freq=12,
        buffer_size=400,
        seed=5,
        device="cpu",
        num_workers=2,
    )
    model.learn(4 * 12 * 10)
    model.close()
    buffer = model.replay_buffer
    assert (model.num_timesteps, buffer.full, buffer.pos) == (480, True, 20)
    assert model._episode_num == len(model.ep_info_buffer) > 40
    # in the order of time: the oldest row is at pos
    order = np.roll(np.arange(100), -buffer.pos)
    obs, following = buffer.observations[order], buffer.next_observations[order]
    dones, timeouts = buffer.dones[order], buffer.timeouts[order]
    np.testing.assert_array_equal(obs[1:][dones[:-1] == 0], following[:-1][dones[:-1] == 0])
    assert (obs[1:][dones[:-1] == 1] != following[:-1][dones[:-1] == 1]).any(-1).all()
    assert 0 < timeouts.sum() <= dones.sum()
    # what followed is what the environment's own step leads to
    twin = rollouts.make_vec(env_id, 1, seed=0)
    if action_is_kept:
        velocity = (following[..., 0] - obs[..., 0]) / 0.02
        np.testing.assert_allclose(velocity, obs[..., 1], atol=1e-3)
    else:
        low, high = twin.single_action_space.low, twin.single_action_space.high
        torque = low + 0.5 * (buffer.actions[order] + 1) * (high - low)
        angle = np.arctan2(obs[..., 1], obs[..., 0])
        faster = obs[..., 2] + (15 * np.sin(angle) + 3 * torque[..., 0]) * 0.05
        np.testing.assert_allclose(following[..., 2], faster.clip(-8, 8), atol=1e-3)
    assert len(np.unique(buffer.actions)) >= 2
